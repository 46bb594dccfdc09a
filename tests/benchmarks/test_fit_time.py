"""`benchmarks/fit_time.py` measures a fit with all defaults."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from benchmark_programs import loaded_program


def test_times_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loaded_program("fit_time") as program:
        monkeypatch.setattr(
            program, "S2EClassifier", partial(program.S2EClassifier, n_trials=2, epochs=2, final_estimator=None)
        )
        program.main(["--rows", "80", "--columns", "4", "--out", str(tmp_path / "fit.json")])
    found = json.loads((tmp_path / "fit.json").read_text())
    assert 0 < found["cpu_seconds"] < 60
    assert found["seconds"] > 0
    assert (found["trials"], found["epochs"], found["votes"]) == (2, 2, "networks")
