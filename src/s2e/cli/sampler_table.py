"""Table of `s2e reproduce searchers`: the validation error of each sampler after a number of trainings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from s2e.plots import noise_title


def sampler_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the table of a comparison of samplers."""
    return [sampler_table(result)]


def sampler_table(result: Mapping[str, Any]) -> Table:
    """Return a table with one row for each sampler and number of trainings, and one column for each noise setting."""
    table = Table(caption=Text("\n".join(_caption(result))), caption_justify="left")
    table.add_column("sampler")
    table.add_column("trainings", justify="right")
    noises = list(dict.fromkeys(row["noise"] for row in result["summary"]))
    for noise in noises:
        table.add_column(Text(noise_title(noise)), justify="right")
    row_of = {(row["sampler"], row["trainings"], row["noise"]): row for row in result["summary"]}
    for sampler, trainings in dict.fromkeys((row["sampler"], row["trainings"]) for row in result["summary"]):
        cells = [_error(row_of[sampler, trainings, noise]) for noise in noises]
        table.add_row(sampler, str(trainings), *cells)
    return table


def _error(row: Mapping[str, float]) -> str:
    """Format an error in percent with half the width of its confidence band."""
    return f"{100 * row['error']:.3f} ± {50 * (row['high'] - row['low']):.3f}"


def _caption(result: Mapping[str, Any]) -> list[str]:
    lines = [f"validation error in percent, mean over {result['repeats']} repeats and its 95% confidence band"]
    for row in result["needed"]:
        needed = row["default_trainings"]
        count = "more trainings than it had" if needed is None else f"{needed} trainings"
        lines.append(
            f"{row['noise']}: {row['default']} needs {count} for the error of {row['than']} with {row['trainings']}"
        )
    for noise, checked in result.get("surrogate", {}).items():
        lines.append(
            f"{noise}: held-out correlation of the table's surrogate {checked['correlation']:.3f}, "
            f"of a perfect one {checked['ceiling']:.3f}"
        )
    lines.append(f"{result['seconds']:.0f} s on {result['device']}")
    return lines
