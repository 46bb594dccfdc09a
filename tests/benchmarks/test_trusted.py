"""`benchmarks/trusted.py` measures what trusted samples are worth."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from benchmark_programs import loaded_program


def test_every_method_is_measured_with_every_number_of_trusted_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loaded_program("trusted") as program:
        monkeypatch.setattr(program, "S2EClassifier", partial(program.S2EClassifier, epochs=2, n_trials=2))
        program.main(["--settings", "wine", "--seeds", "1", "--trusted", "0", "12", "--out", str(tmp_path)])
    without, with_trusted = json.loads((tmp_path / "trusted.json").read_text())["rows"]
    assert {"logistic, all", "boosting, all"} <= without.keys()
    assert {"logistic, trusted", "boosting, trusted"} <= with_trusted.keys() - without.keys()
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["0", "12"]
