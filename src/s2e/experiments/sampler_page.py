"""The page of a comparison of samplers: the paper's Figure 6 and its claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from s2e.errors import counted
from s2e.experiments.claims import Claim, Verdict
from s2e.experiments.incumbent_curves import CONFIDENCE, MeanCurve
from s2e.experiments.pages import RESULT, Section, claims_section, figure, files, how_made, page, table
from s2e.plots import noise_title
from s2e.runs import Run
from s2e.specs import SamplersOptions

COMMAND = "reproduce searchers"

NEWTON = "newton"
"""The sampler with the paper's step."""

OF_PAPER = {
    "newton": "Newton (S2E)",
    "gradient": "gradient descent",
    "natural": "natural gradient",
    "random": "random search",
    "tpe": "Bayesian optimization (TPE)",
    "hyperband": "Hyperband",
}
"""Samplers of the paper's Figure 6."""

DEFAULT = "curve"
"""The default sampler of this package, whose number of trainings is compared with those of the others."""

ABOUT = """The validation error that each sampler has found after a number of full trainings (the paper's Figure 6,
which has the test accuracy). Seen: the best schedule trained so far. Returned: the schedule that the search would
return, which is chosen by single noisy trainings and need not be the best one. Means over the repeats, ± half the width
of their 95% confidence band. The default of this package is `curve`."""

ON_TABLE = """Nothing is trained here: a model of the trainings of a table predicts every schedule, with noise of the
size of the variation between seeds. Held-out predictions of the uniform draws of the table by that model; the
correlation of a perfect model is below 1, because trainings vary between seeds:"""

NEEDED = """Trainings after which the mean error seen is at most that of a reference at its end, with a 95% interval
from bootstrap samples of the searches of both; and the share of searches whose own error never is, with a 95% Wilson
interval."""


def claims_of(means: Sequence[MeanCurve], trainings: int) -> list[Claim]:
    """Return the paper's claim that Newton's step is the most efficient; none if it was not compared with another.

    Newton's step is better than another sampler if the whole 95% interval of the difference of their means is positive.

    Args:
        means: mean errors of each sampler under each noise setting.
        trainings: number of full trainings after which they are compared.
    """
    found: dict[str, dict[str, MeanCurve]] = {}
    for mean in means:
        if mean.budget >= trainings:
            found.setdefault(mean.noise, {})[mean.sampler] = mean
    compared = {noise: own for noise, own in found.items() if NEWTON in own and len(own.keys() & OF_PAPER.keys()) > 1}
    if not compared:
        return []
    first = [noise for noise, own in compared.items() if _is_ahead(own, trainings)]
    text = (
        "Newton's step finds better schedules than every other sampler of the paper (error seen after "
        f"{trainings} trainings; the 95% interval of each difference is positive)"
    )
    numbers = "; ".join(f"{noise_title(noise)}: {_described(own, trainings)}" for noise, own in compared.items())
    return [Claim("Figure 6", text, Verdict.of(holds=len(first), of=len(compared)), numbers)]


def _is_ahead(own: Mapping[str, MeanCurve], trainings: int) -> bool:
    """Return whether Newton's mean error is below that of every other sampler of the paper, beyond the intervals."""
    index, newton = trainings - 1, own[NEWTON]
    others = [mean for name, mean in own.items() if name in OF_PAPER and name != NEWTON]
    return all(
        other.mean[index] - newton.mean[index]
        > CONFIDENCE * np.hypot(other.standard_error[index], newton.standard_error[index])
        for other in others
    )


def _described(own: Mapping[str, MeanCurve], trainings: int) -> str:
    """Return the errors of Newton's step, of the best other sampler of the paper, and of the default."""

    def text(name: str) -> str:
        row = own[name].row(trainings)
        return f"`{name}` {error_text(row['error'], row['low'], row['high'])}"

    others = [name for name in own if name in OF_PAPER and name != NEWTON]
    best = min(others, key=lambda name: own[name].mean[trainings - 1])
    default = [f"default {text(DEFAULT)}"] if DEFAULT in own else []
    return ", ".join([text(NEWTON), f"best other {text(best)}", *default])


def error_text(error: float | None, low: float | None, high: float | None) -> str:
    """Write an error in percent with half the width of its confidence band; a dash if it is unknown."""
    if error is None:
        return "—"
    return f"{100 * error:.3f}" + ("" if low is None or high is None else f" ± {50 * (high - low):.3f}")


def page_of(
    run: Run,
    result: Mapping[str, Any],
    claims: Sequence[Claim],
    made: Mapping[str, Mapping[str, Any]],
    scale: str,
) -> str:
    """Return the page of a comparison of samplers, from its result."""
    title = "validation error found against full trainings"
    sections = [
        Section(
            "", [ABOUT, _of_paper(result), f"Files: {files(['searchers.csv', 'needed.csv', RESULT, 'config.json'])}."]
        ),
        claims_section(claims, scale),
        Section("Errors found", [figure("searchers", title), _errors_table(result["summary"])]),
        *([Section("Trainings needed", [NEEDED, _needed_table(result["needed"])])] if result["needed"] else []),
        *([Section("The table", [ON_TABLE, _model_table(result)])] if "surrogate" in result else []),
        how_made(run, SamplersOptions, COMMAND, made),
    ]
    return page("Search algorithms", sections)


def _of_paper(result: Mapping[str, Any]) -> str:
    """Return which samplers are those of the paper, and how often each searched."""
    compared = dict.fromkeys(row["sampler"] for row in result["summary"])
    names = [f"`{name}`, {title}" for name, title in OF_PAPER.items() if name in compared]
    searches = f"{counted(result['repeats'], 'search', 'searches')} of each sampler under each noise setting."
    return f"{searches} Samplers of the paper: {'; '.join(names)}." if names else searches


def _errors_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with a row for each sampler and number of trainings, and two columns for each noise setting."""
    noises = list(dict.fromkeys(row["noise"] for row in rows))
    row_of = {(row["sampler"], row["trainings"], row["noise"]): row for row in rows}
    header = ["sampler", "trainings", *(f"{noise_title(noise)}: {kind}" for noise in noises for kind in KINDS)]
    lines = [
        [
            f"`{sampler}`",
            str(trainings),
            *(
                error_text(*(row_of[sampler, trainings, noise][prefix + name] for name in ("error", "low", "high")))
                for noise in noises
                for prefix in KINDS.values()
            ),
        ]
        for sampler, trainings in dict.fromkeys((row["sampler"], row["trainings"]) for row in rows)
    ]
    return table(header, lines)


KINDS = {"seen": "", "returned": "returned_"}
"""Prefixes of the two errors in the rows of the summary."""


def _needed_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the trainings that samplers need for the error of others."""
    shown = with_default(rows)
    noises = list(dict.fromkeys(row["noise"] for row in shown))
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in shown:
        never, low, high = (f"{100 * row[name]:.0f}" for name in ("never", "never_low", "never_high"))
        lines.setdefault((row["sampler"], f"`{row['than']}` with {row['trainings']}"), {})[row["noise"]] = (
            f"{needed_text(row)}; never {never}% ({low} to {high})"
        )
    header = ["sampler", "for the error of", *map(noise_title, noises)]
    return table(
        header, [[f"`{name}`", than, *map(cells.__getitem__, noises)] for (name, than), cells in lines.items()]
    )


def with_default(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of the default sampler and its variants, whose names begin with its own; all if it has none."""
    own = [row for row in rows if row["sampler"].startswith(DEFAULT)]
    return own if any(row["sampler"] == DEFAULT for row in own) else list(rows)


def needed_text(row: Mapping[str, Any]) -> str:
    """Write a number of trainings with its interval; ">60" is beyond the budget."""
    count, low, high = (
        f">{row['budget']}" if row[name] is None else str(row[name]) for name in ("needed", "low", "high")
    )
    return f"{count} ({low} to {high})"


def _model_table(result: Mapping[str, Any]) -> str:
    checked = result["surrogate"]
    lines = {
        "correlation": [f"{each['correlation']:.3f}" for each in checked.values()],
        "of a perfect model": [f"{each['ceiling']:.3f}" for each in checked.values()],
        "correlation among the best fifth": [f"{each['correlation_among_good']:.3f}" for each in checked.values()],
        "root mean square error among the best fifth, points": [
            f"{100 * each['rmse_among_good']:.2f}" for each in checked.values()
        ],
    }
    return table(["", *map(noise_title, checked)], [[name, *cells] for name, cells in lines.items()])
