"""`benchmarks/classifiers.py`: all methods receive the same samples and noise, rows are made once, means are right."""

from __future__ import annotations

import csv
import json
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_wine

from benchmark_programs import loaded_program
from s2e import S2EClassifier
from s2e.data import LabelledData, default_share, hold_out
from s2e.errors import InvalidInput, UnreadableData
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


@pytest.fixture(scope="module")
def tables(benchmark):
    return sys.modules["classifier_tables"]


def row_of(name, method, accuracy, seed=0, f1=None, **more):
    return {
        "set": name,
        "noise": "symmetric:0.3",
        "seed": seed,
        "method": method,
        "accuracy": accuracy,
        "f1": f1,
        "balanced_accuracy": accuracy,
        "average_precision": None,
        "true_noise_rate": 0.3,
        "seconds": 1.0,
        "cpu_seconds": 1.0,
        **more,
    }


def own_row(seed, **more):
    estimated = {
        "noise_rate": 0.28,
        "noise_rate_low": 0.2,
        "noise_rate_high": 0.3,
        "estimated_accuracy": 0.9,
        "estimated_accuracy_low": 0.85,
        "estimated_accuracy_high": 0.95,
        "flagged": 10,
        "flagged_wrong": 9,
        "votes": "networks",
    }
    return row_of("wine", "s2e", 0.8, seed, **{**estimated, **more})


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
    assert (tmp_path / "tables.md").read_text().count(
        " | cleanlab-logistic |"
    ) == 4  # F1 and three without a comparison
    assert "wine 0.3" in capsys.readouterr().out


def test_rows_of_other_settings_are_refused(benchmark, tmp_path):
    benchmark.main([*TINY, "--methods", "logistic", "--out", str(tmp_path)])
    with pytest.raises(InvalidInput, match=r"same trials, 3, but got .* made with 2"):
        benchmark.main([*TINY, "--trials", "3", "--methods", "logistic", "--out", str(tmp_path)])


def test_seeds_start_where_they_are_asked_to(benchmark, tmp_path):
    benchmark.main([*TINY, "--first-seed", "3", "--methods", "logistic", "--out", str(tmp_path)])
    assert [row["seed"] for row in json.loads((tmp_path / "classifiers.json").read_text())["rows"]] == [3]


def test_folders_are_joined_in_the_order_of_sets(benchmark, tmp_path):
    for name, chosen in (("a", ["digits"]), ("b", ["wine", "digits"])):
        options = ["--sets", *chosen, "--noise", "symmetric:0.3", "--seeds", "1", "--methods", "logistic"]
        benchmark.main([*options, "--out", str(tmp_path / name)])
    benchmark.main(["--join", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "both")])
    both = json.loads((tmp_path / "both" / "classifiers.json").read_text())
    assert [row["set"] for row in both["rows"]] == ["wine", "digits"]  # digits was in both
    assert [each["sets"] for each in both["joined"]] == [["digits"], ["wine", "digits"]]
    with pytest.raises(UnreadableData, match=r"`--join` must name folders with a file classifiers.json"):
        benchmark.main(["--join", str(tmp_path / "missing"), "--out", str(tmp_path / "both")])


def test_every_set_has_its_noise(benchmark):
    assert benchmark.NOISE["wine"] == ("symmetric:0.3", "symmetric:0.45")
    assert benchmark.NOISE["rare"] == ("missing:0.4",)
    parts = benchmark.split(benchmark.SETS["rare"](None), "missing:0.4", 0)
    assert (parts.given[parts.right == 0] == 0).all()
    assert (parts.given[parts.right == 1] == 0).mean() == pytest.approx(0.4, abs=0.1)
    assert parts.annotations is None


def test_annotators_are_split_with_their_samples(benchmark):
    parts = benchmark.split(benchmark.SETS["crowd"](None), "annotators:5", 0)
    assert parts.annotations.shape == (len(parts.given), 5)
    agreeing = parts.annotations[:, 0] == parts.right
    assert agreeing[parts.annotations[:, 0] >= 0].mean() == pytest.approx(0.9, abs=0.03)  # the best annotator


@pytest.mark.parametrize("method", ["boosting", "logistic", "network"])
@pytest.mark.parametrize(("name", "kind"), [("orders", "table"), ("grey_images", "images")])
@pytest.mark.usefixtures("few_epochs")
def test_methods_learn_from_tables_and_images(benchmark, name, kind, method):
    whole = benchmark.SETS[name](None)
    few = whole.samples.iloc[:400] if kind == "table" else whole.samples[:400]
    parts = benchmark.split(benchmark.LabelledSet(few, whole.labels[:400]), "symmetric:0.0", 0)
    assert parts.kind == kind
    row = benchmark.trained_row(method, parts, 0, None)
    assert row["accuracy"] > (0.6 if kind == "table" else 0.7)
    assert row["f1"] is row["noise_rate"] is row["flagged"] is None


def test_unseen_categories_can_be_predicted(benchmark):
    table = pd.DataFrame({"colour": ["red", "blue"] * 30, "size": np.arange(60.0)})
    table.loc[3, "size"] = np.nan
    labels = np.arange(60) % 2
    for estimator in (benchmark.boosting("table", 0), benchmark.logistic("table")):
        assert (estimator.fit(table, labels).predict(table) == labels).all()
        assert len(estimator.predict(table.assign(colour="green"))) == 60


def test_only_two_classes_have_an_average_precision(benchmark):
    class Ranked:
        def predict(self, samples):
            return (samples[:, 0] > 0.5).astype(int)

        def predict_proba(self, samples):
            return np.stack([1 - samples[:, 0], samples[:, 0]], axis=1)

    samples = np.array([[0.9], [0.8], [0.7], [0.1]])
    found = benchmark.scores_on(Ranked(), samples, np.array([1, 0, 1, 0]))
    assert found["accuracy"] == 0.75
    assert found["balanced_accuracy"] == 0.75
    assert found["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert benchmark.scores_on(Ranked(), samples, np.array([1, 0, 2, 0]))["average_precision"] is None


def test_estimates_count_sure_labels(benchmark):
    fitted = SimpleNamespace(
        label_quality_=np.array([0.05, 0.1, 0.11, 0.01]),
        noise_rate_=0.25,
        noise_rate_interval_=np.array([0.1, 0.3]),
        estimated_accuracy_=np.nan,
        estimated_accuracy_interval_=np.array([np.nan, np.nan]),
        final_name_="networks",
    )
    found = benchmark.estimates(fitted, np.array([True, False, True, True]))
    assert (found["flagged"], found["flagged_wrong"]) == (3, 2)
    assert (found["noise_rate_low"], found["estimated_accuracy"], found["votes"]) == (0.1, None, "networks")


def test_calibration_counts_labels_by_the_stated_probability(benchmark, tables):
    stated = np.array([0.0, 0.04, 0.3, 0.35, 0.9, 0.999, 1.0])
    found = benchmark.calibration(stated, np.array([0, 1, 0, 1, 1, 0, 1], dtype=bool))
    assert len(found) == len(benchmark.BINS) - 1
    assert [each for each in found if each[0]] == [
        [2, 0.04, 1],
        [2, pytest.approx(0.65), 1],
        [1, 0.9, 1],
        [2, 1.999, 1],
    ]
    rows = [own_row(seed, more={"calibration": found}) for seed in range(2)]
    lines = tables.calibrated(rows, benchmark.BINS)
    assert lines[3] == ["20 to 40", "4", "32.5", "50.0", "0", "", "", "4", "32.5", "50.0"]
    assert lines[2][1:4] == ["0", "", ""]
    assert len(tables.calibrated([own_row(0)], benchmark.BINS)) == 1
    assert "| 20 to 40 |" in tables.page(rows, ["s2e"], tables.markdown, bins=benchmark.BINS)


def test_tables_hold_means_and_mark_the_best(tables):
    rows = [row_of("wine", "s2e", each, seed) for seed, each in enumerate((0.8, 0.9))]
    rows += [row_of("wine", "logistic", each, seed, f1=0.5) for seed, each in enumerate((0.9, 0.96))]
    rows += [row_of("digits", "s2e", 0.5)]
    accuracy, f1 = (next(each for each in tables.FIGURES if each.name == name) for name in ("accuracy", "f1"))
    methods = ["s2e", "logistic"]
    lines = tables.grid(rows, accuracy, methods, "**")
    assert lines == [
        ["", "s2e", "logistic", "s2e − best other"],
        ["wine 0.3", "85.0 ± 7.1", "**93.0 ± 4.2**", "-8.0 ± 2.0, behind (logistic)"],  # differences -10 and -6
        ["digits 0.3", "**50.0**", "", ""],
    ]
    assert tables.grid(rows, f1, methods) == [["", "logistic"], ["wine 0.3", "50.0 ± 0.0"]]
    shares = [{**each, "true_noise_rate": share} for each, share in zip(rows, (0.2, 0.31, 0.2, 0.31, 0.3), strict=True)]
    assert tables.drawn(shares).endswith(": wine 0.3: 20.0 to 31.0; digits 0.3: 30.0 to 30.0.")
    assert tables.markdown(lines).splitlines()[1] == "|---|---:|---:|---:|"
    assert len({len(line) for line in tables.aligned(lines[:2]).splitlines()}) == 1


@pytest.mark.parametrize(
    ("own", "other", "verdict"),
    [
        ((90.0, 92.0), (80.0, 81.0), "+10.5 ± 0.5, ahead (a)"),  # differences 10 and 11
        ((90.0, 92.0), (90.0, 90.0), "+1.0 ± 1.0, level (a)"),
        ((90.0, 92.0), (90.0, 92.0), "+0.0 ± 0.0, level (a)"),
        ((90.0, 92.0), (91.0, 93.0), "-1.0 ± 0.0, behind (a)"),
    ],
)
def test_differences_are_paired_over_seeds(tables, own, other, verdict):
    values = {"s2e": dict(enumerate(own)), "a": dict(enumerate(other)), "worse": {0: 1.0}, "none": {}}
    assert str(tables.against_best_other(values)) == verdict
    assert str(tables.against_best_other({"s2e": {0: 3.0}, "a": {0: 1.0, 1: 5.0}})) == "+2.0 (a)"
    assert tables.against_best_other({"s2e": {}, "a": {0: 1.0}}) is None


def test_settings_are_counted_by_group(tables):
    accuracies = {("wine", "s2e"): (0.9, 0.92), ("wine", "a"): (0.8, 0.81), ("rare", "s2e"): (0.9, 0.9)}
    accuracies |= {("rare", "a"): (0.8, 1.0), ("crowd", "s2e"): (0.5, 0.6), ("crowd", "a"): (0.7, 0.81)}
    rows = [row_of(*key, each, seed) for key, pair in accuracies.items() for seed, each in enumerate(pair)]
    accuracy = next(each for each in tables.FIGURES if each.name == "accuracy")
    assert tables.standing(rows, accuracy, ["s2e", "a"]) == [
        ["", "ahead", "level", "behind"],
        ["sets developed with", "1", "0", "0"],
        ["sets not used before", "0", "1", "1"],
        ["all", "1", "1", "1"],
    ]


def test_intervals_and_sure_labels_are_counted(tables):
    unknown = dict.fromkeys(("estimated_accuracy", "estimated_accuracy_low", "estimated_accuracy_high"))
    rows = [own_row(0), own_row(1, noise_rate_high=0.25, flagged=30, flagged_wrong=21, **unknown)]
    assert tables.truthfulness(rows)[1:] == [
        ["wine 0.3", "30.0", "28.0", "1 of 2 (1 above)", "80.0", "90.0", "0 of 1 (1 below)", "40", "75.0"],
        ["sets developed with", "", "", "1 of 2 (1 above)", "", "", "0 of 1 (1 below)", "40", "75.0"],
        ["all", "", "", "1 of 2 (1 above)", "", "", "0 of 1 (1 below)", "40", "75.0"],
    ]
    assert tables.votes([*rows, own_row(2, votes="svm")])[1] == ["wine 0.3", "networks (2); svm (1)"]
    assert len(tables.truthfulness([row_of("wine", "logistic", 0.9)])) == 1
