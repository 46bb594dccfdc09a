"""The program that measures what decisions are worth."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmark_programs import loaded_program


@pytest.mark.slow
def test_every_choice_is_trained_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--noise", "symmetric:0.3", "--seeds", "2", "--epochs", "2", "--decisions", "20", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["review.py", "digits", *options])
    with loaded_program("review") as program:
        program.main()
    found = json.loads((tmp_path / "review.json").read_text())["summary"]
    assert [each["choice"] for each in found] == ["none", "valuable", "doubtful", "random"]
    assert found[0]["test"]["difference"] == 0
    assert all(0 < each["wrong"]["mean"] < 1 for each in found)
    assert len((tmp_path / "review.csv").read_text().splitlines()) == 9
