"""The page of a comparison of samplers: the paper's Figure 6 and its claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from s2e.experiments.claims import Claim, Verdict
from s2e.experiments.incumbent_curves import MeanCurve
from s2e.experiments.pages import RESULT, Section, claims_section, figure, files, how_made, page, percent, table
from s2e.plots import noise_title
from s2e.runs import Run
from s2e.specs import SamplersOptions

COMMAND = "reproduce searchers"

OF_PAPER = {
    "newton": "Newton (S2E)",
    "gradient": "gradient descent",
    "natural": "natural gradient",
    "random": "random search",
    "tpe": "Bayesian optimization (TPE)",
    "hyperband": "Hyperband",
}
"""Samplers of the paper's Figure 6."""

ABOUT = """The validation error that each sampler has found after a number of full trainings (the paper's Figure 6).
Searches on a table of schedules use a model of about 2,000 trainings; searches on data train every schedule. The
default of this package is `curve`."""


def claims_of(means: Sequence[MeanCurve], trainings: int) -> list[Claim]:
    """Return the paper's claim that Newton's step is the most efficient; none if it was not compared with another.

    Args:
        means: mean errors of each sampler under each noise setting.
        trainings: number of full trainings after which they are compared.
    """
    errors: dict[str, dict[str, float]] = {}
    for mean in means:
        if mean.budget >= trainings:
            errors.setdefault(mean.noise, {})[mean.sampler] = float(mean.mean[trainings - 1])
    compared = {
        noise: found for noise, found in errors.items() if "newton" in found and len(found.keys() & OF_PAPER.keys()) > 1
    }
    if not compared:
        return []
    first = [
        noise
        for noise, found in compared.items()
        if min(found.keys() & OF_PAPER.keys(), key=found.__getitem__) == "newton"
    ]
    found = "; ".join(
        f"{noise_title(noise)}: Newton {percent(own['newton'])}, "
        + ", ".join(f"{name} {percent(own[name])}" for name in sorted(own, key=own.__getitem__)[:2] if name != "newton")
        for noise, own in compared.items()
    )
    text = (
        f"Newton's step finds better schedules than the other samplers of the paper (error after {trainings} trainings)"
    )
    return [Claim("Figure 6", text, Verdict.of(holds=len(first), of=len(compared)), found)]


def page_of(
    run: Run,
    rows: Sequence[Mapping[str, Any]],
    claims: Sequence[Claim],
    made: Mapping[str, Mapping[str, Any]],
    scale: str,
) -> str:
    """Return the page of a comparison of samplers, from the rows of its summary."""
    header = ["sampler", "noise", "trainings", "error found, %", "error of the schedule returned, %"]
    shown = [
        [
            str(row["sampler"]),
            noise_title(str(row["noise"])),
            str(row["trainings"]),
            percent(row["error"]),
            percent(row["returned_error"]),
        ]
        for row in rows
    ]
    sections = [
        Section("", [ABOUT, f"Files: {files(['searchers.csv', 'needed.csv', RESULT, 'config.json'])}."]),
        claims_section(claims, scale),
        Section(
            "Errors found", [figure("searchers", "validation error found against full trainings"), table(header, shown)]
        ),
        how_made(run, SamplersOptions, COMMAND, made),
    ]
    return page("Search algorithms", sections)
