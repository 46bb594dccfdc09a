"""The page of a comparison of spaces: the paper's Table 2 beside ours, its Figure 7, and its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from s2e.errors import counted
from s2e.experiments.claims import Claim, Verdict
from s2e.experiments.figures import draw_schedules
from s2e.experiments.pages import (
    Section,
    cell,
    claims_section,
    files,
    how_made,
    page,
    percent,
    table,
)
from s2e.experiments.published import SPACES_TABLE
from s2e.experiments.space_results import BEST, LAST, SINGLE, TITLES
from s2e.plots import KeepRateCurve, Line, data_title, draw_lines, noise_title
from s2e.runs import Run
from s2e.specs import SpacesOptions
from s2e.workflows import PART

if TYPE_CHECKING:
    from matplotlib.figure import Figure


COMMAND = "reproduce spaces"

START = 0.9
"""Keep rate at the first epoch from which a curve counts as starting near 1."""

ABOUT = """Random search in five spaces of schedules (the paper's Table 2): Co-teaching's family, a single basis
function (the best of four), RBF networks, perceptrons, and the space of S2E. All spaces share noisy labels, initial
weights, batches and the uniform numbers that are decoded. The winner of a space is the training with the best clean
validation accuracy; its best test epoch is what the paper reports. Fresh seeds: the schedule of each space trained
again, mean over the last ten epochs."""


# ------------------------------------------------------------------------------------------------------------- figures


def figures_of(data: str, sets: Sequence[Sequence[KeepRateCurve]]) -> dict[str, Figure]:
    """Return the schedules found in each space, and those of perceptrons, by file name."""
    return {
        "schedules": draw_schedules(sets),
        "perceptrons": draw_lines(
            perceptron_lines(data, sets),
            "keep rate R(t)",
            limits=(0.0, 1.02),
            notes=["of the first set of draws"] if len(sets) > 1 else [],
        ),
    }


def perceptron_lines(data: str, sets: Sequence[Sequence[KeepRateCurve]]) -> list[Line]:
    """Return R(t) of the best perceptron under each noise setting, in the first set."""
    panel = f"R(t) found by MLP, {data_title(data)}"
    return [Line(panel, noise_title(curve.noise), curve.keep_rates) for curve in sets[0] if curve.methods == ("mlp",)]


# -------------------------------------------------------------------------------------------------------------- claims


def claims_of(data: str, rows: Sequence[Mapping[str, Any]], sets: Sequence[Sequence[KeepRateCurve]]) -> list[Claim]:
    """Return the paper's claims about its Table 2 and Figure 7, on one data set."""
    noises = list(dict.fromkeys(row["noise"] for row in rows))
    best = {(row["noise"], row["space"]): row["winner"][_column(row["winner"], BEST)]["mean"] for row in rows}
    title = data_title(data)
    first = [noise for noise in noises if max(TITLES, key=lambda space: best[noise, space]) == "s2e"]
    published = SPACES_TABLE.get(data, {})
    better = all(noise in published and 100 * best[noise, "s2e"] >= published[noise]["s2e"] for noise in noises)
    found = "; ".join(
        f"{noise_title(noise)}: {percent(best[noise, 's2e'])}, best other {_best_other(best, noise)}"
        for noise in noises
    )
    prior = [
        noise
        for noise in noises
        if min(best[noise, "coteaching"], best[noise, SINGLE]) > max(best[noise, "rbf"], best[noise, "mlp"])
    ]
    claims = [
        Claim(
            "Table 2",
            f"{title}: the space of S2E is the best of five (winner, best test epoch)",
            Verdict.of(holds=len(first), of=len(noises), better=better),
            found,
        ),
        Claim(
            "Table 2",
            f"{title}: Co-teaching and Single are better than the general function approximators RBF and MLP",
            Verdict.of(holds=len(prior), of=len(noises)),
            f"in {len(prior)} of {len(noises)} noise settings",
        ),
    ]
    perceptrons = [curve for curve in sets[0] if curve.methods == ("mlp",)]
    falls = [curve for curve in perceptrons if follows_assumption(curve.keep_rates)]
    ranges = "; ".join(
        f"{noise_title(curve.noise)}: {curve.keep_rates[0]:.2f} to {curve.keep_rates[-1]:.2f}" for curve in perceptrons
    )
    return [
        *claims,
        Claim(
            "Figure 7",
            f"{title}: R(t) found by MLP starts near 1 and falls, as Assumption 1 says of R(t)",
            Verdict.of(holds=len(falls), of=len(perceptrons)),
            f"first and last epoch: {ranges}",
        ),
    ]


def follows_assumption(rates: Any) -> bool:
    """Return whether R(t) starts near 1 and is smaller in the mean of its second half than at the start."""
    return bool(rates[0] >= START and rates[len(rates) // 2 :].mean() < rates[0])


def _column(accuracies: Mapping[str, Any], name: str) -> str:
    """Return the name of an accuracy as the paper measures it: on a part of the test samples where there is one."""
    return f"{PART}{name}" if f"{PART}{name}" in accuracies else name


def _best_other(best: Mapping[tuple[str, str], float], noise: str) -> str:
    space = max((space for space in TITLES if space != "s2e"), key=lambda space: best[noise, space])
    return f"{TITLES[space]} {percent(best[noise, space])}"


# ---------------------------------------------------------------------------------------------------------------- page


def page_of(
    run: Run,
    results: Mapping[str, Mapping[str, Any]],
    claims: Sequence[Claim],
    made: Mapping[str, Mapping[str, Any]],
    options: SpacesOptions,
    *,
    folders: Mapping[str, str] | None = None,
) -> str:
    """Return the page of a comparison of spaces.

    Args:
        run: the experiment.
        results: result on each data set.
        claims: on all data sets.
        made: how each part was made.
        options: its options.
        folders: the folder of each data set; None if the page is in that of its only one.
    """
    sections = [_section(data, result, f"{folders[data]}/" if folders else "") for data, result in results.items()]
    about = Section("", [ABOUT, f"Files: {files(['summary.csv', 'result.json', 'config.json'])}."])
    made_by = how_made(run, SpacesOptions, COMMAND, made)
    return page("Spaces of schedules", [about, claims_section(claims, options.scale), *sections, made_by])


def _section(data: str, result: Mapping[str, Any], folder: str) -> Section:
    rows = {(row["noise"], row["space"]): row for row in result["summary"]}
    title = data_title(data)
    about = (
        f"{counted(result['draws'], 'draw')} in each space, {counted(result['sets'], 'set')} of draws, "
        f"{counted(result['seeds'], 'fresh seed')}, "
        f"{result['epochs']} epochs; {result['samples']['train']} training, {result['samples']['valid']} validation "
        f"and {result['samples']['test']} test samples."
    )
    if part := result.get("test_part"):
        winners = [
            f"Winner, best epoch on test images {part} alone, as in the paper's code (in parentheses: the paper):",
            _table(data, rows, f"{PART}{BEST}", winner=True, published=True),
            "Winner, best epoch on all test images:",
            _table(data, rows, BEST, winner=True),
        ]
    else:
        paper = " (in parentheses: the paper)" if data in SPACES_TABLE else ""
        about_epoch = f"Winner, best test epoch{paper}:"
        winners = [about_epoch, _table(data, rows, BEST, winner=True, published=True)]
    figures = [
        f"![{title}: schedules found in each space]({folder}schedules.png)",
        f"![{title}: schedules found by MLP]({folder}perceptrons.png)",
    ]
    fresh = ["Fresh seeds, last ten epochs:", _table(data, rows, LAST)]
    return Section(title, [about, *winners, *fresh, *figures])


def _table(
    data: str,
    rows: Mapping[tuple[str, str], Mapping[str, Any]],
    name: str,
    *,
    winner: bool = False,
    published: bool = False,
) -> str:
    """Return a table of the spaces by noise setting; the best of each column is bold."""
    noises = list(dict.fromkeys(noise for noise, _ in rows))
    shown = {key: row["winner"] if winner else row for key, row in rows.items()}
    best = {noise: max(shown[noise, space][name]["mean"] for space in TITLES) for noise in noises}

    def cell_of(noise: str, space: str) -> str:
        text = cell(shown[noise, space], name, bold=shown[noise, space][name]["mean"] == best[noise])
        number = SPACES_TABLE.get(data, {}).get(noise, {}).get(space) if published else None
        return text if number is None else f"{text} ({number:.2f})"

    lines = [[title, *(cell_of(noise, space) for noise in noises)] for space, title in TITLES.items()]
    return table(["", *map(noise_title, noises)], lines)
