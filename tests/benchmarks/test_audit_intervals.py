"""`benchmarks/audit_intervals.py`: noise of every kind has its rate, and rows say what is true."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from benchmark_programs import loaded_program


@pytest.fixture(scope="module")
def benchmark():
    with loaded_program("audit_intervals") as program:
        yield program


def test_noise_of_every_kind_has_its_rate(benchmark):
    generator = np.random.default_rng(0)
    inputs, labels = generator.normal(size=(6000, 3)), np.arange(6000) % 3
    for kind, expected in (("none:0", 0), ("symmetric:0.3", 0.3), ("pair:0.2", 0.2), ("instance:0.25", 0.25)):
        noisy = benchmark.with_noise(labels, inputs, kind, generator)
        assert (noisy != labels).mean() == pytest.approx(expected, abs=0.02), kind
    pairs = benchmark.with_noise(labels, inputs, "pair:0.2", generator)
    assert set((pairs - labels) % 3) == {0, 1}
    missing = benchmark.with_noise(labels, inputs, "missing:0.4", generator)
    assert set(labels[missing != labels]) == {1}
    assert set(missing[missing != labels]) == {0}


def test_row_of_certain_predictions(benchmark):
    truth = np.arange(300) % 3
    labels = np.where(np.arange(300) % 10 == 0, (truth + 1) % 3, truth)
    row = benchmark.row_of(truth, labels, np.eye(3)[truth] + 0.01)
    assert (row["accuracy"], row["noise_rate"], row["f1"], row["flags"]) == (1.0, 0.1, 1.0, True)
    assert row["noise_rate_held"]
    assert row["accuracy_held"]


def test_results_are_written(benchmark, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "REPORTED", {"iris": benchmark.REPORTED["iris"]})
    monkeypatch.setattr(benchmark, "EPOCHS", 3)
    words = ["--out", str(tmp_path), "--seeds", "1", "--kinds", "pair:0.2"]
    benchmark.main([*words, "--classifiers", "co-teaching", "bayes"])
    with (tmp_path / "audit_intervals.csv").open(newline="") as file:
        assert [row["classifier"] for row in csv.DictReader(file)] == ["co-teaching", "bayes"]
    written = json.loads((tmp_path / "audit_intervals.json").read_text())
    assert written["all"]["rows"] == 2
    assert json.loads(capsys.readouterr().out)["all"] == written["all"]
