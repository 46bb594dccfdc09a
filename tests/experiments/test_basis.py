"""Plots of the basis functions: their curves, and the claim about their shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from listeners import Log
from s2e.experiments.basis import EXAMPLES, NAMES, basis_lines, claims_of, follows_prior, reproduce_basis
from s2e.plots import Line
from s2e.runs import RunLocation
from s2e.specs import BasisOptions

pytestmark = pytest.mark.usefixtures("work")


def unclipped(name: str, parameters: tuple[float, ...], epochs: int) -> NDArray[np.float64]:
    """A basis function of Table 1."""
    t, (a1, a2, a3, a4) = np.arange(epochs), parameters
    falls = np.exp(-a2 * t**a1) if name in ("f1", "f2") else (1 + a2 * t) ** -a1
    rises = (t / epochs) ** a4 if name in ("f1", "f3") else np.log(1 + t**a4) / np.log(1 + epochs**a4)
    return np.asarray(falls + a3 * rises)


def test_curves_are_the_formulas_of_table_1() -> None:
    *lines, mixture = basis_lines(50)
    expected = [unclipped(name, parameters, 50) for name in NAMES for parameters in EXAMPLES]
    for line, curve in zip(lines, expected, strict=True):
        np.testing.assert_allclose(line.mean[1:], np.minimum(curve, 1)[1:], rtol=1e-6)
    mean = np.mean([unclipped(name, EXAMPLES[index % 3], 50) for index, name in enumerate(NAMES)], axis=0)
    np.testing.assert_allclose(mixture.mean[1:], np.minimum(mean, 1)[1:], rtol=1e-6)


@pytest.mark.parametrize(
    ("rates", "holds"),
    [([1, 0.4, 0.6], True), ([1, 1, 0.2], True), ([0.9, 0.4, 0.6], False), ([1, 0.4, 0.6, 0.5], False)],
)
def test_a_curve_falls_from_1_to_one_minimum_and_may_rise_again(rates: list[float], holds: bool) -> None:
    assert follows_prior(Line("f1", "a", np.array(rates, dtype=np.float64))) is holds


def test_the_page_has_the_figure_and_the_claim() -> None:
    run = reproduce_basis(BasisOptions(), RunLocation(Path("run"), device="cpu"), Log())
    page = (run.path / "README.md").read_text()
    assert "| Figure 2 |" in page
    assert "**reproduced**" in page
    assert "(basis.png)" in page
    assert (run.path / "basis.png").is_file()
    assert claims_of(basis_lines(200))[0].found == "13 of 13 curves; every value is in [0, 1]"
    assert len((run.path / "basis.csv").read_text().splitlines()) == 1 + 13 * 200
