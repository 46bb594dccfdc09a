"""Pages of experiments: commands, tables and claims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from listeners import Log
from s2e.experiments.claims import Claim, Verdict
from s2e.experiments.incumbent_curves import MeanCurve
from s2e.experiments.pages import claims_section, command_line, table
from s2e.experiments.parts import folder_of
from s2e.experiments.sampler_page import claims_of, error_text, needed_text
from s2e.experiments.scales import data_sets
from s2e.specs import CompareOptions, DataSpec, MemorizationOptions, SpacesOptions, flatten


def stored(options: object) -> dict[str, object]:
    """The values of options as `config.json` has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in flatten(options).items()}


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        ("reproduce memorization", MemorizationOptions(), "s2e reproduce memorization"),
        (
            "reproduce spaces",
            SpacesOptions(("mnist",), ("pair:0.4", "none"), draws=3),
            "s2e reproduce spaces --data mnist --noise pair:0.4 --noise none --draws 3",
        ),
        ("compare", CompareOptions(DataSpec("my data.npz"), searches=2), "s2e compare 'my data.npz' --searches 2"),
    ],
)
def test_command_has_the_options_that_are_not_the_default(command: str, options: object, expected: str) -> None:
    assert command_line(command, type(options), stored(options)) == expected


def test_command_at_the_small_scale_leaves_out_its_defaults() -> None:
    small = MemorizationOptions(**{**MemorizationOptions.AT_LAPTOP, "scale": "laptop", "epochs": 7})
    assert command_line("reproduce memorization", MemorizationOptions, stored(small)) == (
        "s2e reproduce memorization --epochs 7 --scale laptop"
    )


@pytest.mark.parametrize(
    ("holds", "better", "verdict"), [(0, False, "not reproduced"), (1, True, "in part"), (2, False, "reproduced")]
)
def test_verdict_counts_the_cases(holds: int, better: bool, verdict: str) -> None:
    assert Verdict.of(holds=holds, of=2, better=better).value == verdict
    assert Verdict.of(holds=2, of=2, better=True) is Verdict.BETTER


def test_claims_are_stored_and_read_again() -> None:
    claim = Claim("Figure 1", "text", Verdict.IN_PART, "1 of 2")
    assert Claim.from_row(claim.row()) == claim


def test_small_scale_is_named_beside_the_claims() -> None:
    assert "scale of a laptop" in claims_section([], "laptop").markdown()
    assert "scale of a laptop" not in claims_section([], "paper").markdown()


def test_cells_of_tables_may_hold_bars() -> None:
    assert table(["a", "b"], [["x|y", "1"]]).splitlines()[-1] == "| x\\|y | 1 |"


@pytest.mark.parametrize(
    ("data", "folder"), [("mnist", "mnist"), ("/some/own data.npz", "own-data.npz"), ("..", "data")]
)
def test_folder_of_a_part_is_below_the_experiment(data: str, folder: str) -> None:
    assert folder_of(data) == folder


def test_small_scale_downloads_nothing(tmp_path: Path) -> None:
    log = Log()
    assert data_sets(("mnist", "digits", "cifar10"), "laptop", tmp_path, log) == ("digits",)
    assert [note.partition(" ")[0] for note in log.notes] == ["mnist", "cifar10"]
    assert data_sets(("mnist", "cifar10"), "paper", tmp_path, log) == ("mnist", "cifar10")


def test_newton_is_compared_with_the_samplers_of_the_paper() -> None:
    def mean(sampler: str, error: float, standard_error: float = 0.0) -> MeanCurve:
        return MeanCurve(sampler, "pair:0.4", 2, np.full(5, error), np.full(5, standard_error))

    (claim,) = claims_of([mean("newton", 0.2), mean("random", 0.3), mean("curve", 0.1)], 5)
    assert claim.verdict is Verdict.REPRODUCED
    (claim,) = claims_of([mean("newton", 0.2), mean("tpe", 0.1)], 5)
    assert claim.verdict is Verdict.NOT
    assert claims_of([mean("newton", 0.2), mean("curve", 0.1)], 5) == []


def test_newton_is_ahead_only_beyond_the_interval_of_the_difference() -> None:
    def verdict(standard_error: float) -> Verdict:
        errors = np.full(5, standard_error)
        means = [MeanCurve(name, "pair:0.4", 2, np.full(5, mean), errors) for name, mean in NEAR.items()]
        return claims_of(means, 5)[0].verdict

    assert (verdict(0.001), verdict(0.01)) == (Verdict.REPRODUCED, Verdict.NOT)


NEAR = {"newton": 0.20, "tpe": 0.21}


def test_errors_and_counts_of_trainings_are_written_with_their_intervals() -> None:
    assert error_text(0.02378, 0.02298, 0.02458) == "2.378 ± 0.080"
    assert error_text(None, None, None) == "—"
    assert needed_text({"needed": 34, "low": 26, "high": None, "budget": 60}) == "34 (26 to >60)"
