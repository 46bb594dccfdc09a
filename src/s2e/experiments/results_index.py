"""An index of results: for each figure and table of the paper, what was found again, with a link to the page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from s2e.errors import InvalidInput
from s2e.experiments.claims import Claim
from s2e.experiments.pages import PAGE, RESULT
from s2e.runs import CONFIG, Run

INDEX = "INDEX.md"

ITEMS = {
    "Figure 1": "reproduce memorization",
    "Figure 2": "reproduce basis",
    "Figure 3": "reproduce comparison",
    "Figure 4": "reproduce comparison",
    "Figure 5": "reproduce comparison",
    "Table 2": "reproduce spaces",
    "Figure 6": "reproduce searchers",
    "Figure 7": "reproduce spaces",
    "Proposition 1": "reproduce convergence",
    "Theorem 1": "reproduce convergence",
}
"""Figures, tables and theorems of the paper, in the order of the index, with the commands that make them."""


def index_of(root: Path) -> str:
    """Return the index of the experiments in the folders of a folder, as Markdown."""
    if not root.is_dir():
        raise InvalidInput(f"`folder` must be a folder with the runs of s2e reproduce, but got {str(root)!r}.")
    found = list(_claims_below(root))
    if not found:
        raise InvalidInput(f"`folder` must hold runs of s2e reproduce, but {str(root)!r} holds none with claims.")
    rows = [
        (
            claim.source,
            f"| {claim.source} | {claim.text} | **{claim.verdict.value}** | {claim.found} | "
            f"[{folder}]({folder}/{PAGE}){scale} |",
        )
        for folder, scale, claim in found
    ]
    covered = {_item(claim.source) for _, _, claim in found}
    rows += [
        (item, f"| {item} | — | not made | `s2e {command}` | — |")
        for item, command in ITEMS.items()
        if item not in covered
    ]
    ordered = [row for _, row in sorted(rows, key=lambda each: (_position(each[0]), each[0]))]
    table = "\n".join(["| paper | claim | verdict | found here | page |", "| --- | --- | --- | --- | --- |", *ordered])
    return f"# The paper's figures and tables\n\n{ABOUT}\n\n{table}\n"


ABOUT = """Made by `s2e reproduce index`. "Better": with better numbers than the paper's; "reproduced": the claim
holds in all cases; "in part": in some."""


def _claims_below(root: Path) -> Iterable[tuple[str, str, Claim]]:
    """Return folder, scale and claim of every experiment in the folders of a folder."""
    for path in sorted(root.iterdir()):
        run = Run(path)
        if not (path / CONFIG).is_file() or not run.has_results:
            continue
        config = run.read_fields(CONFIG)
        if not config.text("command").startswith("reproduce "):
            continue
        small = " (laptop)" if config.fields("options").text("scale", "paper") == "laptop" else ""
        for row in run.read_fields(RESULT).rows("claims", []):
            texts = {name: row.text(name) for name in ("source", "text", "verdict", "found")}
            yield path.name, small, Claim.from_row(texts)


def _item(source: str) -> str:
    """Return the figure or table that a source names: "Figure 1 a" is of Figure 1."""
    match = re.match(r"(Figure|Table|Proposition|Theorem) \d+", source)
    return match[0] if match else source


def _position(source: str) -> int:
    order = list(ITEMS)
    return order.index(_item(source)) if _item(source) in order else len(order)
