"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from s2e.records import LAST_EPOCHS


def result_table(result: Mapping[str, Any]) -> Table:
    """One row for each method of a run: accuracies over the last epochs and at the best epoch, and label precision."""
    part = "test" if "test" in result["samples"] else "valid"
    named = {"test": "test accuracy", "valid": f"accuracy on {result['validation']} validation data"}[part]
    last = f"last_{LAST_EPOCHS}_epochs"
    table = Table(caption=_caption(result), caption_justify="left")
    table.add_column("method")
    table.add_column(f"{named}, last {min(LAST_EPOCHS, result['epochs'])} epochs", justify="right")
    table.add_column("best epoch", justify="right")
    table.add_column("label precision", justify="right")
    for row in result["methods"]:
        name = f"{row['name']} (diverged)" if row["diverged"] else row["name"]
        precision = row["label_precision"]
        table.add_row(
            name,
            _percent(row[part][last]),
            _percent(row[part]["best_epoch"]),
            "unknown" if precision is None else _percent(precision),
        )
    return table


def _caption(result: Mapping[str, Any]) -> str:
    rate = result["noise_rate"]
    wrong = "share of wrong labels unknown" if rate is None else f"{_percent(rate)} of the training labels are wrong"
    searched = f", {result['search']['trials']} schedules searched" if "search" in result else ""
    return f"{wrong}{searched}, {result['seconds']:.0f} s on {result['device']}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
