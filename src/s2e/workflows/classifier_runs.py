"""Opening a run that holds a classifier; others are refused with what to do."""

from __future__ import annotations

import shlex
from os import PathLike
from pathlib import Path

from s2e.errors import InvalidInput
from s2e.runs import Run, all_options, read_configuration

MAKE_A_CLASSIFIER = ("search", "train")
"""Commands whose runs hold a classifier."""


def open_classifier_run(path: str | PathLike[str]) -> Run:
    """Open a run of `s2e search` or `s2e train`."""
    run = Run.open(Path(path))
    config = read_configuration(run) if "command" in run.read_fields("config.json") else {}
    command = config.get("command")
    if command is None or command in MAKE_A_CLASSIFIER:
        return run
    options = all_options(run, config)
    data = options.get("data") or "DATA"
    given = [str(data), *(["--label", str(options["label"])] if options.get("label") else [])]
    raise InvalidInput(
        f"{str(run.path)!r} is a run of s2e {command}, which keeps no classifier; make one with s2e train, or with: "
        f"s2e search {shlex.join(given)}"
    )
