"""Cells of comma-separated text that a spreadsheet shows and does not execute.

A spreadsheet executes a cell that begins with = + - or @, or with a tab or a line break before one of them. Such a text
is written with an apostrophe before it, which spreadsheets take as "this is text". Numbers, also negative ones in IDs,
stay as they are. A text that begins with apostrophes before such a character gets one more, so that `plain_text` can
undo this for every text. The page of a report does the same in its script (`report/templates/review.js`).
"""

from __future__ import annotations

import re

EXECUTED = re.compile(r"'*[=+\-@\t\r\n]")
"""Beginning of a text that a spreadsheet may execute, or of such a text after an apostrophe."""

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def safe_text(text: str) -> str:
    """Return the text of a cell that no spreadsheet executes."""
    return f"'{text}" if EXECUTED.match(text) and not NUMBER.fullmatch(text) else text


def plain_text(cell: str) -> str:
    """Return the text that `safe_text` was given."""
    return cell[1:] if cell.startswith("'") and EXECUTED.match(cell) else cell
