"""`s2e reproduce basis`: plots of the basis functions of the space (the paper's Table 1 and Figure 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from s2e.experiments.claims import Claim, Verdict
from s2e.experiments.figures import write_figure
from s2e.experiments.pages import PAGE, RESULT, Section, claims_section, figure, files, how_made, page
from s2e.plots import Line, draw_lines
from s2e.runs import Run, RunLocation, Session, csv_text
from s2e.schedules import SPACES
from s2e.specs import BasisOptions
from s2e.workflows import SILENT, ProgressListener

COMMAND = "reproduce basis"

EXAMPLES = ((0.3, 0.5, 0.2, 1.0), (0.6, 0.1, 0.5, 1.0), (1.0, 0.05, 0.8, 0.5))
"""Parameters a1..a4 of the curves."""

NAMES = tuple(f"f{basis}" for basis in (1, 2, 3, 4))

ABOUT = """The four basis functions of the space of S2E (the paper's Table 1) with three choices of their parameters,
and an R(t) of the space, the mean of one curve of each (Figure 2):

    f1(t) = exp(−a2 t^a1) + a3 (t/T)^a4
    f2(t) = exp(−a2 t^a1) + a3 log(1 + t^a4) / log(1 + T^a4)
    f3(t) = (1 + a2 t)^(−a1) + a3 (t/T)^a4
    f4(t) = (1 + a2 t)^(−a1) + a3 log(1 + t^a4) / log(1 + T^a4)

Decoded by the code that searches use: R(0) = 1, and R(t), not its parts, is clipped to at most 1."""


def reproduce_basis(
    options: BasisOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Decode the curves, and write numbers, the figure and the page."""
    session = Session(COMMAND, options, location, resume=resume)
    with session.start({"data_fingerprint": "no data"}) as run:
        listener.note(f"curves of {len(NAMES)} basis functions")
        lines = basis_lines(options.epochs)
        claims = claims_of(lines)
        device = torch.device("cpu")

        def write() -> None:
            run.write_text("basis.csv", csv_text(curve_rows(lines), decimals=4))
            write_figure(run, "basis", draw_lines(lines, "R(t)", limits=(0.0, 1.02), per_row=3))
            made = {"all curves": {**session.made_on(device), "data_fingerprint": "no data"}}
            sections = [
                Section("", [ABOUT, f"Files: {files(['basis.csv', RESULT, 'config.json'])}."]),
                claims_section(claims, "paper"),
                Section("Curves", [figure("basis", "basis functions of the space, and an R(t)")]),
                how_made(run, BasisOptions, COMMAND, made),
            ]
            run.write_text(PAGE, page("Basis functions", sections))

        result = {"epochs": options.epochs, "claims": [claim.row() for claim in claims]}
        return session.finish(result, device, write)


def basis_lines(epochs: int) -> list[Line]:
    """Return the curves of each basis function over T epochs, and one of the space."""
    lines = []
    for name in NAMES:
        for parameters in EXAMPLES:
            (rates,) = SPACES[name.replace("f", "single-")].decode(np.array([parameters]), epochs)
            lines.append(Line(name, f"a = ({', '.join(f'{value:g}' for value in parameters)})", rates))
    weights = np.full(4, 1 - np.exp(-1.0))  # equal weights
    mixture = np.concatenate([weights, *(EXAMPLES[index % len(EXAMPLES)] for index in range(4))])
    (rates,) = SPACES["s2e"].decode(mixture[None], epochs)
    return [*lines, Line("an R(t) of the space of S2E", "mean of one curve of each", rates)]


def curve_rows(lines: list[Line]) -> list[dict[str, Any]]:
    """Return one row for each epoch of each curve."""
    return [
        {"panel": line.panel, "curve": line.name, "epoch": epoch, "keep_rate": float(rate)}
        for line in lines
        for epoch, rate in enumerate(line.mean)
    ]


def claims_of(lines: list[Line]) -> list[Claim]:
    """Return the paper's claim that the shape of the curves is that of its Assumption 1."""
    holds = [line for line in lines if follows_prior(line)]
    text = "the basis functions start at 1, fall, and may rise again (Assumption 1), and so does a mixture of them"
    found = f"{len(holds)} of {len(lines)} curves; every value is in [0, 1]"
    return [Claim("Figure 2", text, Verdict.of(holds=len(holds), of=len(lines)), found)]


def follows_prior(line: Line) -> bool:
    """Return whether a curve starts at 1, stays in [0, 1], and falls to one minimum, after which it does not fall."""
    rates, low = line.mean, int(line.mean.argmin())
    steps = np.diff(rates)
    in_range = 0 <= rates.min() < rates.max() <= 1
    return bool(rates[0] == 1 and in_range and (steps[:low] <= 0).all() and (steps[low:] >= 0).all())
