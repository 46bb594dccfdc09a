"""What tests of the command line share: running it, small files, and what a refusal looks like."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner, Result

from s2e.cli import app
from small_tasks import blobs

TINY = ["--epochs", "3", "--batch-size", "64"]
TINY_SEARCH = [*TINY, "--trials", "4", "--generation-size", "2", "--restarts", "1", "--sampler", "random"]
TINY_SEARCH += ["--no-models"]  # which take three times as long as everything else


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def process(
    *arguments: str, where: Path, timeout: float = 60, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the program as a user does, in a process of its own, with further variables of the environment."""
    command, environment = [sys.executable, "-m", "s2e", *arguments], {**ENVIRONMENT, **(variables or {})}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=where, timeout=timeout, check=False
    )


def s2e(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def save(name: str = "own.npz", **changes: Any) -> str:
    """Write noisy clusters without a test part, with some arrays replaced or added, into the working directory."""
    data = blobs()
    arrays = {"x_train": data.inputs, "y_train": data.labels, **changes}
    np.savez(name, **{key: array for key, array in arrays.items() if array is not None})
    return name


def assert_refused(result: Result, *mentions: str) -> None:
    """One line on stderr that begins with s2e:, nothing on stdout, no traceback, no run left behind."""
    assert result.exit_code == 2, result.exception
    assert result.stderr.startswith("s2e: ")
    assert result.stderr.endswith("\n")
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stdout == ""
    for mention in mentions:
        assert mention in result.stderr
    assert not Path("run").exists()
    assert not Path("runs").exists()
