"""The table of an experiment: the claims of the paper, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text


def claim_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return one table with a row for each claim."""
    table = Table(caption=Text(f"{result['seconds']:.0f} s on {result['device']}"), caption_justify="left")
    for column in ("paper", "claim", "verdict", "found here"):
        table.add_column(column)
    for claim in result["claims"]:
        table.add_row(*(Text(claim[name]) for name in ("source", "text", "verdict", "found")))
    return [table]
