"""The commands that usually follow one that made a run, with the path of the run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2e.cli.terminal import printable

if TYPE_CHECKING:
    from s2e.runs import Run


def commands_after_training(run: Run, result: Mapping[str, Any]) -> list[str]:
    """Return lines with the commands that use a classifier, and before them how to continue a search that was ended."""
    path = printable(shlex.quote(str(run.path)))
    commands = {
        f"s2e audit {path}": "which labels are probably wrong",
        f"s2e report {path}": "results and doubtful labels as a page",
        f"s2e predict {path} {_new_data(run)}": "classes of new samples",
    }
    width = max(map(len, commands))
    lines = ["next:", *(f"  {command:{width}}  # {about}" for command, about in commands.items())]
    search = result.get("search", {})
    if search.get("trials", 0) < search.get("planned_trials", 0) and result["status"] == "stopped early":
        ended = f"the time budget ended the search after {search['trials']} of {search['planned_trials']} trials"
        return [f"{ended}; continue with: s2e search --resume --out {path} --time-budget TIME", *lines]
    return lines


def commands_after_comparison(run: Run, result: Mapping[str, Any]) -> list[str]:  # noqa: ARG001
    """Return lines with the command that shows a comparison."""
    return ["next:", f"  s2e report {printable(shlex.quote(str(run.path)))}  # results as a page"]


def page_of_experiment(run: Run, result: Mapping[str, Any]) -> list[str]:  # noqa: ARG001
    """Return a line with the page of an experiment."""
    return [f"page: {printable(shlex.quote(str(run.path / 'README.md')))}"]


def no_commands(run: Run, result: Mapping[str, Any]) -> list[str]:  # noqa: ARG001
    """Return no lines."""
    return []


def _new_data(run: Run) -> str:
    """Return a name for new samples, of the kind of the data of a run."""
    from s2e.data.files import TABLE_SUFFIXES

    data = Path(str(run.read_json("config.json")["options"].get("data", "")))
    suffix = next((each for each in TABLE_SUFFIXES if data.name.lower().endswith(each)), ".npz")
    return "FOLDER" if data.is_dir() else f"NEW{suffix}"
