"""A search for tests that stop and resume it, and the comparison of two runs."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from typer.testing import Result

from command_line import s2e
from s2e.runs.directory import Run

TRIALS = 8
EPOCHS = 40  # enough that a run does not end before it is stopped
SEARCH = ["digits", "--noise", "pair:0.45", "--sampler", "newton", "--trials", str(TRIALS), "--generation-size", "4"]
SEARCH += ["--epochs", str(EPOCHS), "--restarts", "1", "--no-baselines"]
SHORT_SEARCH = [*SEARCH, "--trials", "4", "--generation-size", "2", "--epochs", "1", "--no-models", "--folds", "2"]
TIMEOUT_S = 60


def finish(path: Path) -> Result:
    """Resume a run to its end."""
    done = s2e("search", "--resume", "--out", str(path))
    assert done.exit_code == 0, done.stderr
    return done


def trials(path: Path) -> list[tuple[Any, ...]]:
    study = optuna.load_study(study_name="search", storage=Run(path).storage)
    return [(t.number, t.params, t.values, t.user_attrs, t.state) for t in study.trials]


def result(path: Path) -> dict[str, Any]:
    content = json.loads((path / "result.json").read_text())
    del content["seconds"], content["classifier"]["microseconds_per_sample"]  # measured times
    return content


def arrays(path: Path) -> dict[str, bytes]:
    return {
        f"{name}/{key}": array.tobytes()
        for name in ("curves.npz", "dynamics.npz")
        for key, array in np.load(path / name).items()
    }


def assert_same_run(one: Path, other: Path) -> None:
    assert trials(one) == trials(other)
    assert result(one) == result(other)
    assert arrays(one) == arrays(other)
    assert {entry.name for entry in one.iterdir()} == {entry.name for entry in other.iterdir()}
    for name in ("schedule.json", "model.safetensors", "models.safetensors", "config.json"):
        if (one / name).exists():
            assert (one / name).read_bytes() == (other / name).read_bytes(), name


def resume_message(path: Path, by: signal.Signals = signal.SIGINT) -> str:
    what = "s2e: interrupted" if by == signal.SIGINT else f"s2e: interrupted by {by.name}"
    return f"{what}; continue with: s2e search --resume --out {path}"
