"""Table of `s2e reproduce searchers`: the validation error each sampler has found after some numbers of trainings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from s2e.plots.names import noise_title


def searchers_table(result: Mapping[str, Any]) -> Table:
    """One row for each algorithm: the error found, for each noise setting after some numbers of trainings."""

    table = Table(caption=Text("\n".join(_caption(result))), caption_justify="left")
    table.add_column("sampler")
    table.add_column("trainings", justify="right")
    noises = list(dict.fromkeys(row["noise"] for row in result["summary"]))
    for noise in noises:
        table.add_column(Text(noise_title(noise)), justify="right")
    of = {(row["sampler"], row["trainings"], row["noise"]): row for row in result["summary"]}
    for sampler, spent in dict.fromkeys((row["sampler"], row["trainings"]) for row in result["summary"]):
        cells = [_error(of[sampler, spent, noise]) for noise in noises]
        table.add_row(sampler, str(spent), *cells)
    return table


def _error(row: Mapping[str, float]) -> str:
    """Write an error in percent with half its band of confidence."""
    return f"{100 * row['error']:.3f} ± {50 * (row['high'] - row['low']):.3f}"


def _caption(result: Mapping[str, Any]) -> list[str]:
    lines = [f"validation error in percent, mean over {result['repeats']} repeats and its 95% confidence band"]
    for row in result["needed"]:
        needed = row["default_trainings"] or "more than it had"
        lines.append(
            f"{row['noise']}: {row['default']} needs {needed} trainings for what {row['than']} finds with "
            f"{row['trainings']}"
        )
    for noise, checked in result.get("surrogate", {}).items():
        lines.append(
            f"{noise}: held-out correlation of the table's model {checked['correlation']:.3f}, "
            f"of a perfect one {checked['ceiling']:.3f}"
        )
    lines.append(f"{result['seconds']:.0f} s on {result['device']}")
    return lines
