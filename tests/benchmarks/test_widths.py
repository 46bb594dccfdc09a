"""`benchmarks/widths.py` measures the width of the MLP on small tables."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from benchmark_programs import loaded_program


def test_accuracy_and_time_are_written_for_every_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loaded_program("widths") as program:
        monkeypatch.setattr(program, "S2EClassifier", partial(program.S2EClassifier, epochs=2))
        words = ["--sets", "wine", "--widths", "8", "16", "--seeds", "1", "--trials", "2"]
        program.main([*words, "--out", str(tmp_path / "widths.json")])
    found = json.loads((tmp_path / "widths.json").read_text())
    assert [(row["width"], row["trainings"]) for row in found["summary"]] == [(8, 1), (16, 1)]
    assert all(0 <= row["accuracy"] <= 1 and row["cpu_seconds"] > 0 for row in found["rows"])
