"""Table of `s2e reproduce steps`: the errors of each step by the number of points in a generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from s2e.experiments.steps import TITLES
from s2e.plots import noise_title


def step_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return one table for each noise setting."""
    return [step_table(result, noise) for noise in dict.fromkeys(row["noise"] for row in result["rows"])]


def step_table(result: Mapping[str, Any], noise: str) -> Table:
    """Return a table with one row for each step and generation size, and one column for each measure."""
    about = (
        f"{noise_title(noise)}: validation error in percent after {result['trainings']} trainings, mean over "
        f"{result['repeats']} repeats and its 95% confidence band; * better than random search, the whole band of the "
        "difference"
    )
    table = Table(caption=Text(about), caption_justify="left")
    table.add_column("step")
    table.add_column("K", justify="right")
    for title in TITLES.values():
        table.add_column(title, justify="right")
    rows = [row for row in result["rows"] if (row["noise"], row["trainings"]) == (noise, result["trainings"])]
    row_of = {(row["step"], row["size"], row["measure"]): row for row in rows}
    for step, size in dict.fromkeys((row["step"], row["size"]) for row in rows):
        table.add_row(step, str(size), *(_cell(row_of[step, size, measure]) for measure in TITLES))
    first = {row["measure"]: row for row in reversed(rows)}
    table.add_row("random", "", *(_percent(first[measure], "random", "random_") for measure in TITLES))
    return table


def _cell(row: Mapping[str, Any]) -> str:
    return _percent(row, "error", "") + (" *" if row["better_low"] > 0 else "  ")


def _percent(row: Mapping[str, Any], name: str, prefix: str) -> str:
    """Format an error in percent with half the width of its confidence band."""
    return f"{100 * row[name]:.3f} ± {50 * (row[f'{prefix}high'] - row[f'{prefix}low']):.3f}"
