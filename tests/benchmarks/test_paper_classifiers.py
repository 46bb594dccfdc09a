"""`benchmarks/paper_classifiers.py` searches from the command line, keeps finished runs and tables them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmark_programs import loaded_program

SHORT = ["--epochs", "2", "--trials", "2", "--generation-size", "2", "--restarts", "1", "--folds", "2"]


@pytest.mark.slow
def test_searches_are_tabled_and_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["digits", "--noise", "pair:0.3", "--seeds", "2", "--jobs", "2", "--device", "cpu", "--out", str(tmp_path)]
    with loaded_program("paper_classifiers") as program:
        program.main([*words, "--", *SHORT])
        assert "digits-pair-0.3-1: exit status 0" in capsys.readouterr().out
        program.main([*words, "--", *SHORT])
        assert "exit status" not in capsys.readouterr().out
        with pytest.raises(SystemExit, match=r"^1 of 1 searches did not finish"):
            program.main([*words[:3], "--seeds", "1", "--out", str(tmp_path / "other"), "--", "--trials", "-1"])
    rows = list(csv.DictReader((tmp_path / "classifiers.csv").read_text().splitlines()))
    assert [row["seed"] for row in rows] == ["0", "1"]
    assert all(0 < float(row["classifier"]) <= 1 and int(row["trials"]) == 2 for row in rows)
    assert "| pair:0.3 | 2 |" in (tmp_path / "table.md").read_text()
