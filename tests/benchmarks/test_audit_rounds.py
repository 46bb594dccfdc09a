"""`benchmarks/audit_rounds.py` measures what trainings on audited labels are worth."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from benchmark_programs import loaded_program
from s2e.workflows import pipeline


def test_every_number_of_rounds_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "AUDIT_ROUNDS", pipeline.AUDIT_ROUNDS)  # restored afterwards
    words = ["--settings", "breast_cancer", "--seeds", "1", "--rounds", "0", "1", "--out", str(tmp_path)]
    with loaded_program("audit_rounds") as program:
        monkeypatch.setattr(program, "S2EClassifier", partial(program.S2EClassifier, epochs=3, n_trials=2))
        program.main(words)
    rows = json.loads((tmp_path / "rounds.json").read_text())["rows"]
    assert [row["rounds"] for row in rows] == [0, 1]
    assert all(0 <= row["f1"] <= 1 and 0 <= row["accuracy"] <= 1 for row in rows)
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["0", "1"]
