"""Natural sorting: 2 comes before 10."""

from __future__ import annotations

import re


def natural_key(text: str) -> tuple[list[str | int], str]:
    """Return a sort key that compares digits by value and letters without case; ties are broken by the text itself."""
    pieces = re.split(r"(\d+)", text.casefold())  # text at even positions, digits at odd ones
    return [int(piece) if position % 2 else piece for position, piece in enumerate(pieces)], text
