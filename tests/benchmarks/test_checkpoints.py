"""`benchmarks/checkpoints.py`: every file is timed, the table shows the file."""

from __future__ import annotations

import json

import pytest

from benchmark_programs import loaded_program


@pytest.fixture(scope="module")
def benchmark():
    with loaded_program("checkpoints") as program:
        yield program


def test_every_file_of_a_training_is_timed(benchmark, tmp_path, capsys):
    out = tmp_path / "checkpoints.json"
    benchmark.main(["--device", "cpu", "--settings", "13-64-10", "--epochs", "4", "--out", str(out)])
    (row,) = json.loads(out.read_text())["rows"]
    assert row["files"] == 3  # the last epoch is the end of the training
    assert 0 < row["median_seconds"] <= row["longest_seconds"] < row["training_seconds"]
    assert row["share_in_a_run_percent"] == pytest.approx(100 * row["longest_seconds"] / 180, rel=0.2)
    assert row["megabytes"] > 12 * 2 * 3 * 4 * 1_546 / 1e6  # weights and two moments
    capsys.readouterr()
    benchmark.main(["--markdown", str(out)])
    assert capsys.readouterr().out.splitlines()[2].startswith("| 13-64-10 | 2,000 | 12 | ")
