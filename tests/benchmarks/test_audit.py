"""`benchmarks/audit.py`: both sides judge the same rows, and what they are counted by is right."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from command_line import s2e
from s2e import schedules
from s2e.data.samples import LabelledData
from s2e.workflows.bench import TrainingOptions
from small_tasks import blobs

TINY = ["--epochs", "8", "--batch-size", "16", "--restarts", "2"]
SEARCHED = [*TINY, "--noise", "pair:0.3", "--trials", "2", "--seed", "3"]


@pytest.fixture(scope="module")
def benchmark():
    """The program as a module: it belongs to no package."""
    path = Path(__file__).parents[2] / "benchmarks" / "audit.py"
    spec = importlib.util.spec_from_file_location("audit_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def made(benchmark, tmp_path_factory):
    """A search of two trials on clusters in a file, beside two folds for cleanlab."""
    folder = tmp_path_factory.mktemp("benchmark")
    data = blobs(240, wrong=0.0)
    np.savez(folder / "own.npz", x_train=data.inputs, y_train=data.labels)
    folds = ["--folds", "2", "--fold-epochs", "20", "--device", "cpu"]
    benchmark.main([str(folder / "own.npz"), *SEARCHED, *folds, "--out", str(folder / "out")])
    return folder


def rows_of(out):
    return json.loads((out / "audit.json").read_text())["rows"]


def test_figures_are_those_counted_by_hand(benchmark):
    given, right = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 0, 2, 0])  # wrong at 1, 3 and 5
    issues = np.array([True, True, False, True, False, False])
    quality = np.array([0.3, 0.1, 0.9, 0.2, 0.8, 0.4])  # of nine pairs, only (5, 0) is in the wrong order
    suggested = np.array([1, 1, 1, 2, 2, 2])
    found = benchmark.figures(quality, issues, suggested, given, right)
    assert found == pytest.approx((8 / 9, 2 / 3, 2 / 3, 2 / 3, 1 / 2, 3))


def test_nothing_to_count_is_nan_and_finding_nothing_has_an_f1_of_zero(benchmark):
    nothing, labels = np.zeros(4, dtype=bool), np.arange(4)
    clean = benchmark.figures(np.ones(4), nothing, labels, labels, labels)
    assert np.isnan(clean[:5]).all()
    blind = benchmark.figures(np.ones(4), nothing, labels, labels, labels[::-1])
    assert (blind.recall, blind.f1) == (0, 0)
    assert np.isnan(blind.precision)


def test_no_row_is_judged_by_a_network_that_was_trained_on_it(benchmark):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(80, 60)).astype(np.float32)
    data = LabelledData(inputs, generator.integers(0, 4, size=80), tuple("abcd"))
    options = TrainingOptions("", epochs=40, batch_size=16, learning_rate=1e-2)
    believed = benchmark.cross_validated(options, 4, data, torch.device("cpu"))
    np.testing.assert_allclose(believed.sum(axis=1), 1)
    # Labels say nothing about inputs: whoever has seen a row knows its label by heart, anyone else guesses.
    assert (believed.argmax(axis=1) == data.labels).mean() < 0.5


def test_ours_is_what_the_commands_of_a_user_find(made):
    run = str(made / "run")
    result = s2e(
        "search", str(made / "own.npz"), *SEARCHED, "--validation", "noisy", "--no-baselines", "--device", "cpu",
        "--out", run,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    by_hand = json.loads(s2e("audit", run, "--json").stdout)
    ours = rows_of(made / "out")[0]
    assert (ours["side"], ours["issues"], ours["noise_rate"]) == ("s2e", by_hand["issues"], by_hand["noise_rate"])


def test_both_sides_are_counted_on_every_row_and_find_wrong_labels(made):
    rows = rows_of(made / "out")
    assert [row["side"] for row in rows] == ["s2e", "s2e, told", "cleanlab"]
    assert len({row["true_noise_rate"] for row in rows}) == 1
    assert rows[0]["true_noise_rate"] == pytest.approx(0.3, abs=0.03)
    assert all(row["auroc"] > 0.8 and row["training_seconds"] > 0 for row in rows)
    assert rows[2]["more"]["other_filters"].keys() > {"both", "confident_learning"}
    with (made / "out" / "audit.csv").open(newline="") as file:
        assert [float(row["f1"]) for row in csv.DictReader(file)] == pytest.approx(
            [row["f1"] for row in rows], abs=1e-6
        )


def test_only_the_side_that_is_told_depends_on_the_noise_rate(benchmark, made, tmp_path, capsys):
    unsearched = [*TINY, "--noise", "pair:0.3", "--trials", "0", "--folds", "2", "--fold-epochs", "1"]
    benchmark.main([str(made / "own.npz"), *unsearched, "--device", "cpu", "--out", str(tmp_path)])
    ours, told, _ = rows_of(tmp_path)
    assert ours["more"]["schedule"] == schedules.coteaching(0.5, 8).tolist()
    assert told["more"]["schedule"] == schedules.coteaching(told["true_noise_rate"], 8).tolist()
    head, *lines = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in (head, *lines)}) == 1
    assert len(lines) == 3
