"""`benchmarks/stopping.py`: a search that ends early has fewer trials, and its loss is stated with an interval."""

from __future__ import annotations

import json

import pytest

from benchmark_programs import loaded_program


@pytest.fixture(scope="module")
def benchmark():
    with loaded_program("stopping") as program:
        yield program


def test_fewer_validation_samples_end_a_search_earlier(benchmark, tmp_path, capsys):
    out = tmp_path / "stopping.json"
    benchmark.main(["--samples", "30", "5999", "--repeats", "2", "--trials", "30", "--out", str(out)])
    found = json.loads(out.read_text())
    few, many = ([row["trials"] for row in found["rows"] if row["validation_samples"] == count] for count in (30, 5999))
    assert len(few) == 3
    assert sum(few) < sum(many)
    assert all(18 <= row["fewest"] <= row["trials"] <= row["most"] <= 30 for row in found["rows"])
    capsys.readouterr()
    benchmark.main(["--markdown", str(out)])
    assert capsys.readouterr().out.splitlines()[2].startswith("| symmetric:0.2 | 30 | ")
