"""Tables of `s2e reproduce searchers`: the validation error of each sampler, and the trainings that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from s2e.experiments.sampler_page import error_text, needed_text, with_default
from s2e.plots import noise_title


def sampler_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a comparison of samplers."""
    seen = (
        f"validation error in percent of the best schedule trained so far, mean over {result['repeats']} repeats and "
        "its 95% confidence band"
    )
    returned = "validation error in percent of the schedule that the search would return, likewise"
    how = _how(result)
    if not result["needed"]:
        return [sampler_table(result, [seen]), sampler_table(result, [returned, *how], prefix="returned_")]
    return [
        sampler_table(result, [seen]),
        sampler_table(result, [returned], prefix="returned_"),
        needed_table(result, [_NEEDED, *how]),
    ]


_NEEDED = (
    "needs: trainings after which the mean error is at most that of the reference, with a 95% interval (bootstrap over "
    "the searches of both); never: searches whose own error never is, with a 95% interval (Wilson)"
)


def sampler_table(result: Mapping[str, Any], about: Sequence[str], *, prefix: str = "") -> Table:
    """Return a table with one row for each sampler and number of trainings, and one column for each noise setting.

    Args:
        result: result of the comparison.
        about: lines of text below the table.
        prefix: of the errors in the rows of the summary: none for those of the schedules seen, "returned_" for others.
    """
    table = Table(caption=Text("\n".join(about)), caption_justify="left")
    table.add_column("sampler")
    table.add_column("trainings", justify="right")
    noises = list(dict.fromkeys(row["noise"] for row in result["summary"]))
    for noise in noises:
        table.add_column(Text(noise_title(noise)), justify="right")
    row_of = {(row["sampler"], row["trainings"], row["noise"]): row for row in result["summary"]}
    for sampler, trainings in dict.fromkeys((row["sampler"], row["trainings"]) for row in result["summary"]):
        rows = [row_of[sampler, trainings, noise] for noise in noises]
        cells = [error_text(*(row[prefix + name] for name in ("error", "low", "high"))) for row in rows]
        table.add_row(sampler, str(trainings), *cells)
    return table


def needed_table(result: Mapping[str, Any], about: Sequence[str]) -> Table:
    """Return a table with one row for each noise setting and reference, of the default sampler and its variants."""
    table = Table(caption=Text("\n".join(about)), caption_justify="left")
    for name in ("noise", "for the error of", "sampler"):
        table.add_column(name)
    table.add_column("needs", justify="right")
    table.add_column("never", justify="right")
    for row in with_default(result["needed"]):
        never, low, high = (f"{100 * row[name]:.0f}" for name in ("never", "never_low", "never_high"))
        reference = f"{row['than']} with {row['trainings']}"
        table.add_row(row["noise"], reference, row["sampler"], needed_text(row), f"{never}% ({low} to {high})")
    return table


def _how(result: Mapping[str, Any]) -> list[str]:
    """Return how well the table's surrogate predicts, and the time."""
    lines = [
        f"{noise}: held-out correlation of the table's surrogate {checked['correlation']:.3f}, of a perfect one "
        f"{checked['ceiling']:.3f}; its error among good schedules {100 * checked['rmse_among_good']:.3f} points"
        for noise, checked in result.get("surrogate", {}).items()
    ]
    return [*lines, f"{result['seconds']:.0f} s on {result['device']}"]
