"""`benchmarks/classifiers.py`: all methods receive the same samples and noise, rows are made once, means are right."""

from __future__ import annotations

import csv
import json
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_wine

from benchmark_programs import loaded_program
from s2e import S2EClassifier
from s2e.data import LabelledData, default_share, hold_out
from s2e.errors import InvalidInput
from s2e.workflows.defaults import batch_size_for, epochs_for

TINY = ["--sets", "wine", "--noise", "symmetric:0.3", "--seeds", "1", "--trials", "2"]


@pytest.fixture(scope="module")
def benchmark():
    with loaded_program("classifiers") as program:
        yield program


@pytest.fixture
def few_docstrings(benchmark, monkeypatch):
    """The module that reads docstrings, limited to 20 paragraphs of each of three small modules."""
    module = sys.modules["docstrings"]
    monkeypatch.setattr(module, "LIBRARIES", {"torch": "linalg", "scipy": "linalg", "pandas": "api.types"})
    monkeypatch.setattr(module, "PARAGRAPHS", 20)
    return module


@pytest.fixture
def few_epochs(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark, "epochs_for", lambda *_: 20)


def row_of(name, method, accuracy, seed=0, f1=None):
    return {"set": name, "noise": "symmetric:0.3", "seed": seed, "method": method, "accuracy": accuracy, "f1": f1}


@pytest.mark.slow  # the order test has three balanced classes
def test_docstrings_are_five_balanced_classes(benchmark):
    texts = benchmark.SETS["docstrings"](None)
    assert np.bincount(texts.labels).tolist() == [500] * 5
    assert len(set(texts.samples)) == 2500
    assert min(map(len, texts.samples)) >= 80


def test_docstrings_do_not_depend_on_traversal_order(few_docstrings, monkeypatch):
    texts, labels = few_docstrings.docstrings()
    found = {library: list(few_docstrings._paragraphs(library)) for library in few_docstrings.LIBRARIES}
    monkeypatch.setattr(few_docstrings, "_paragraphs", lambda library: found[library][::-1] + found[library][:9])
    again, same = few_docstrings.docstrings()
    assert again == texts
    assert labels.tolist() == same.tolist() == [0] * 20 + [1] * 20 + [2] * 20


def test_docstrings_do_not_name_the_library(few_docstrings):
    texts, _ = few_docstrings.docstrings()
    words = {word for text in texts for word in text.lower().replace(".", " ").replace("_", " ").split()}
    names = ("torch", "pytorch", "sklearn", "scikit-learn", "scipy", "pandas", "matplotlib", "np", "pd", "plt")
    assert not words & set(names)
    assert not any(">>>" in text for text in texts)


def test_noise_depends_on_the_seed_and_spares_test_labels(benchmark):
    whole = benchmark.SETS["wine"](None)
    first, again, other = (benchmark.split(whole, "symmetric:0.45", seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.given, again.given)
    assert not np.array_equal(first.given, other.given)
    assert (first.given != first.right).mean() == pytest.approx(0.45, abs=0.1)
    samples = np.concatenate([first.samples, first.test_samples])
    labels = np.concatenate([first.right, first.test_labels])
    order, before = np.lexsort(samples.T), np.lexsort(whole.samples.T)
    np.testing.assert_array_equal(samples[order], whole.samples[before])
    np.testing.assert_array_equal(labels[order], whole.labels[before])


def test_vocabulary_comes_from_training_texts(benchmark):
    texts = [f"common {word} {word}" for word in ("left", "right")] * 20
    texts[0] = "common unseen unseen"
    whole = benchmark.LabelledSet(texts, np.arange(40) % 2)
    columns = {benchmark.split(whole, "symmetric:0.3", seed).samples.shape[1] for seed in range(8)}
    assert columns == {3}  # "unseen" occurs in one text, fewer than min_df


@pytest.mark.usefixtures("few_epochs")
def test_plain_network_can_be_cloned(benchmark):
    samples, labels = load_wine(return_X_y=True)
    names = np.array(["a", "b", "c"])[labels]
    network = clone(benchmark.PlainNetwork(random_state=4))
    assert network.get_params() == {"random_state": 4}
    network.fit(samples, names)
    np.testing.assert_allclose(network.predict_proba(samples).sum(axis=1), 1)
    assert (network.predict(samples) == names).mean() > 0.95
    assert not hasattr(clone(network), "classes_")


@pytest.mark.parametrize("samples", [134, 1875])
def test_plain_network_has_the_sizes_of_s2e(benchmark, monkeypatch, samples):
    sized = []
    monkeypatch.setattr(
        benchmark, "train", lambda _data, schedule, *, batch_size, **_: sized.append((len(schedule), batch_size))
    )
    with pytest.raises(AttributeError, match="networks"):  # the replaced `train` returns None
        benchmark.PlainNetwork().fit(np.eye(samples, 2), np.arange(samples) % 2)
    data = LabelledData(np.zeros((samples, 1), dtype=np.float32), np.arange(samples) % 2, ("a", "b"))
    left, _ = hold_out(data, default_share(samples), np.random.default_rng(0))
    batch_size = batch_size_for(len(left))
    assert sized == [(epochs_for(len(left), batch_size), batch_size)]


@pytest.mark.usefixtures("few_epochs")
def test_plain_network_accepts_sparse_samples(benchmark):
    generator = np.random.default_rng(0)
    samples = sparse.random(60, 12, density=0.4, random_state=0, format="csr")
    labels = generator.integers(0, 2, size=60)
    network = benchmark.PlainNetwork().fit(samples, labels)
    assert network.predict_proba(samples).shape == (60, 2)


def test_rows_are_made_once(benchmark, tmp_path, capsys, monkeypatch):
    short = {"epochs": 8, "restarts": 1, "batch_size": 32}
    monkeypatch.setitem(
        benchmark.METHODS, "s2e", lambda _, seed, trials: S2EClassifier(n_trials=trials, random_state=seed, **short)
    )
    benchmark.main([*TINY, "--methods", "s2e", "cleanlab-logistic", "--out", str(tmp_path)])
    made = json.loads((tmp_path / "classifiers.json").read_text())["rows"]
    assert [each["method"] for each in made] == ["s2e", "cleanlab-logistic"]
    assert all(each["accuracy"] > 0.5 and 0 < each["f1"] <= 1 for each in made)
    assert made[0]["true_noise_rate"] == made[1]["true_noise_rate"]
    trained = []
    real = benchmark.trained_row
    monkeypatch.setattr(benchmark, "trained_row", lambda method, *more: trained.append(method) or real(method, *more))
    capsys.readouterr()
    benchmark.main([*TINY, "--methods", "s2e", "logistic", "--out", str(tmp_path)])
    assert trained == ["logistic"]
    assert json.loads((tmp_path / "classifiers.json").read_text())["rows"][:2] == made
    with (tmp_path / "classifiers.csv").open(newline="") as file:
        flat = list(csv.DictReader(file))
    assert [each["method"] for each in flat] == ["s2e", "cleanlab-logistic", "logistic"]
    assert [float(each["accuracy"]) for each in flat[:2]] == pytest.approx(
        [each["accuracy"] for each in made], abs=1e-6
    )
    assert (tmp_path / "table.md").read_text().count("| cleanlab-logistic |") == 3
    assert "wine 0.3" in capsys.readouterr().out


def test_rows_of_other_settings_are_refused(benchmark, tmp_path):
    benchmark.main([*TINY, "--methods", "logistic", "--out", str(tmp_path)])
    with pytest.raises(InvalidInput, match=r"same trials, 3, but got .* made with 2"):
        benchmark.main([*TINY, "--trials", "3", "--methods", "logistic", "--out", str(tmp_path)])


def test_tables_hold_means_and_mark_the_best(benchmark):
    rows = [row_of("wine", "s2e", each, seed) for seed, each in enumerate((0.8, 0.9))]
    rows += [row_of("wine", "logistic", each, seed, f1=0.5) for seed, each in enumerate((0.9, 0.96))]
    rows += [row_of("digits", "s2e", 0.5)]
    lines = benchmark.grid(rows, "accuracy", 100.0, "**")
    assert lines == [
        ["", "wine 0.3", "digits 0.3"],
        ["s2e", "85.0 ± 7.1", "**50.0**"],  # the root of (5² + 5²) / 1
        ["logistic", "**93.0 ± 4.2**", ""],
    ]
    assert benchmark.grid(rows, "f1", 100.0) == [["", "wine 0.3"], ["logistic", "50.0 ± 0.0"]]
    shares = [{**each, "true_noise_rate": share} for each, share in zip(rows, (0.2, 0.31, 0.2, 0.31, 0.3), strict=True)]
    assert benchmark.drawn(shares).endswith(": wine 0.3: 20.0 to 31.0; digits 0.3: 30.0 to 30.0.")
    assert benchmark.markdown(lines).splitlines()[1] == "|---|---:|---:|"
    assert len({len(line) for line in benchmark.aligned(lines[:2]).splitlines()}) == 1
