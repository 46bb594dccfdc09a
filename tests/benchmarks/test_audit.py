"""`benchmarks/audit.py`: all sides audit the same rows, and the scores are right."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch

from benchmark_programs import loaded_program
from command_line import s2e
from s2e import schedules
from s2e.data import LabelledData
from s2e.specs import TrainingSpec, TrainOptions
from small_tasks import blobs

TINY = ["--epochs", "8", "--batch-size", "32", "--restarts", "2"]
SEARCHED = [*TINY, "--noise", "pair:0.3", "--trials", "2", "--seed", "3"]


@pytest.fixture(scope="module")
def benchmark():
    with loaded_program("audit") as program:
        yield program


@pytest.fixture(scope="module")
def made(benchmark, tmp_path_factory):
    """A search of two trials on clusters in a file, and two folds for cleanlab."""
    folder = tmp_path_factory.mktemp("benchmark")
    data = blobs(240, wrong=0.0)
    np.savez(folder / "own.npz", x_train=data.inputs, y_train=data.labels)
    folds = ["--folds", "2", "--fold-epochs", "20", "--device", "cpu"]
    benchmark.main([str(folder / "own.npz"), *SEARCHED, *folds, "--out", str(folder / "out")])
    return folder


def rows_of(out):
    return json.loads((out / "audit.json").read_text())["rows"]


def test_scores_match_a_hand_worked_case(benchmark):
    given, right = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 0, 2, 0])  # wrong at 1, 3 and 5
    issues = np.array([True, True, False, True, False, False])
    quality = np.array([0.3, 0.1, 0.9, 0.2, 0.8, 0.4])  # of nine pairs, only (5, 0) is in the wrong order
    suggested = np.array([1, 1, 1, 2, 2, 2])
    found = benchmark.scores(quality, issues, suggested, given, right)
    assert found == pytest.approx((8 / 9, 2 / 3, 2 / 3, 2 / 3, 1 / 2, 3))


def test_undefined_scores_are_nan(benchmark):
    nothing, labels = np.zeros(4, dtype=bool), np.arange(4)
    clean = benchmark.scores(np.ones(4), nothing, labels, labels, labels)
    assert np.isnan(clean[:5]).all()
    none_found = benchmark.scores(np.ones(4), nothing, labels, labels, labels[::-1])
    assert (none_found.recall, none_found.f1) == (0, 0)
    assert np.isnan(none_found.precision)


def test_cross_validated_rows_are_out_of_sample(benchmark):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(80, 60)).astype(np.float32)
    data = LabelledData(inputs, generator.integers(0, 4, size=80), tuple("abcd"))
    options = TrainOptions(training=TrainingSpec(epochs=40, batch_size=16, learning_rate=1e-2))
    probabilities = benchmark.cross_validated(options, 4, data, torch.device("cpu"))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    # Labels are independent of inputs: a network trained on a row memorises its label, any other network guesses.
    assert (probabilities.argmax(axis=1) == data.labels).mean() < 0.5


def test_s2e_side_equals_the_commands(made):
    run = str(made / "run")
    result = s2e(
        "search", str(made / "own.npz"), *SEARCHED, "--validation", "noisy", "--no-baselines", "--device", "cpu",
        "--out", run,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    by_commands = json.loads(s2e("audit", run, "--json").stdout)
    row = rows_of(made / "out")[0]
    assert (row["side"], row["issues"], row["noise_rate"]) == ("s2e", by_commands["issues"], by_commands["noise_rate"])


def test_all_sides_audit_the_same_rows(made):
    rows = rows_of(made / "out")
    assert [row["side"] for row in rows] == ["s2e", "s2e, true rate", "cleanlab"]
    assert len({row["true_noise_rate"] for row in rows}) == 1
    assert rows[0]["true_noise_rate"] == pytest.approx(0.3, abs=0.03)
    assert all(row["auroc"] > 0.8 and row["training_seconds"] > 0 for row in rows)
    assert rows[2]["more"]["other_filters"].keys() > {"both", "confident_learning"}
    with (made / "out" / "audit.csv").open(newline="") as file:
        assert [float(row["f1"]) for row in csv.DictReader(file)] == pytest.approx(
            [row["f1"] for row in rows], abs=1e-6
        )


def test_only_one_side_receives_the_noise_rate(benchmark, made, tmp_path, capsys):
    unsearched = [*TINY, "--noise", "pair:0.3", "--trials", "0", "--folds", "2", "--fold-epochs", "1"]
    benchmark.main([str(made / "own.npz"), *unsearched, "--device", "cpu", "--out", str(tmp_path)])
    without, with_rate, _ = rows_of(tmp_path)
    assert without["more"]["schedule"] == schedules.coteaching(0.5, 8).tolist()
    assert with_rate["more"]["schedule"] == schedules.coteaching(with_rate["true_noise_rate"], 8).tolist()
    header, *lines = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in (header, *lines)}) == 1
    assert len(lines) == 3
