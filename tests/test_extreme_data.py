"""Extreme data and settings, through the command line and the estimator: a sensible result, or one clear line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

import s2e
from command_line import s2e as command
from s2e.errors import S2EError
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("few_trees")

N = 40
SHORT = ["--epochs", "1", "--batch-size", "2", "--trials", "2", "--generation-size", "2", "--restarts", "1"]
SHORT += ["--sampler", "random", "--space", "coteaching", "--no-baselines", "--no-relabel"]
SETTINGS: dict[str, Any] = {"epochs": 1, "batch_size": 2, "n_trials": 2, "generation_size": 2, "restarts": 1}
SETTINGS |= {"sampler": "random", "space": "coteaching", "random_state": 0}
WORKS = ""
Data = tuple[NDArray[np.float64], NDArray[np.int64]]


def samples(rows: int = N, columns: int = 4, classes: int = 2) -> Data:
    labels = np.arange(rows) % classes
    return np.random.default_rng(0).normal(size=(rows, columns)) + labels[:, None], labels


def changed(change: Callable[[NDArray[np.float64], NDArray[np.int64]], Data], **shape: int) -> Data:
    return change(*samples(**shape))


def with_column(inputs: NDArray[np.float64], index: int, value: Any) -> NDArray[np.float64]:
    inputs[:, index] = value
    return inputs


CASES: dict[str, tuple[Data, str, str, str]] = {
    # name: data, then what the refusal of an .npz file, of a table and of the estimator says; empty if it works
    "scale of 1e30": (changed(lambda x, y: (x * 1e30, y)), WORKS, WORKS, WORKS),
    "scale of 1e-30": (changed(lambda x, y: (x * 1e-30, y)), WORKS, WORKS, WORKS),
    "scale of 1e38": (changed(lambda x, y: (3e38 * np.sign(x), y)), WORKS, WORKS, WORKS),
    "beyond float32": (changed(lambda x, y: (x * 1e300, y)), WORKS, WORKS, WORKS),
    "offset": (changed(lambda x, y: (with_column(x, 2, x[:, 2] + 1e9), y)), WORKS, WORKS, WORKS),
    "constant feature": (changed(lambda x, y: (with_column(x, 1, 7.0), y)), WORKS, WORKS, WORKS),
    "constant inputs": (changed(lambda x, y: (np.full_like(x, 3.0), y)), "column", "column", "column"),
    "missing column": (changed(lambda x, y: (with_column(x, 2, np.nan), y)), WORKS, WORKS, WORKS),
    "all missing": (changed(lambda x, y: (np.full_like(x, np.nan), y)), "column", "column", "column"),
    "infinite value": (
        changed(lambda x, y: (with_column(x, 2, np.r_[np.inf, x[1:, 2]]), y)),
        WORKS,
        WORKS,
        WORKS,
    ),
    "one sample of a class": (changed(lambda x, y: (x, np.r_[2, y[1:]])), WORKS, WORKS, WORKS),
    "one sample of each class": (
        changed(lambda x, _: (x, np.arange(N))),
        "two samples of one class",
        "classes in 40 rows",
        "two samples of one class",
    ),
    "one class": (changed(lambda x, y: (x, 0 * y)), "at least two classes", "only 'c0'", "only one class, 0."),
    "one feature": (samples(columns=1), WORKS, WORKS, WORKS),
    "three rows": (samples(3), WORKS, WORKS, WORKS),
    "duplicated rows": (
        changed(lambda x, y: (np.repeat(x[:2], 20, axis=0), np.repeat(y[:2], 20))),
        WORKS,
        WORKS,
        WORKS,
    ),
    "one row with two labels": (changed(lambda x, y: (np.repeat(x[:1], N, axis=0), y)), "column", "column", "column"),
}


def assert_works_or_refused(problem: str, *arguments: str) -> None:
    result = command("search", *SHORT, *arguments, "--out", "run")
    assert "Traceback" not in result.stderr
    if not problem:
        assert result.exit_code == 0, result.stderr
        return
    assert result.exit_code == 2
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("s2e: ")]
    assert problem in line


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("work")
def test_search_of_an_npz_file(name: str) -> None:
    (inputs, labels), problem, _, _ = CASES[name]
    np.savez("data.npz", x_train=inputs, y_train=labels)
    assert_works_or_refused(problem, "data.npz")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("work")
def test_search_of_a_table(name: str) -> None:
    (inputs, labels), _, problem, _ = CASES[name]
    columns = {f"x{index}": column for index, column in enumerate(inputs.T)}
    pd.DataFrame({**columns, "y": [f"c{label}" for label in labels]}).to_csv("data.csv", index=False)
    assert_works_or_refused(problem, "data.csv", "--label", "y")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:The number of unique classes is greater:UserWarning")
@pytest.mark.filterwarnings("ignore::s2e.errors.S2EWarning")
def test_estimator(name: str) -> None:
    (inputs, labels), _, _, problem = CASES[name]
    classifier = s2e.S2EClassifier(**SETTINGS)
    if problem:
        with pytest.raises(ValueError, match=problem) as refused:
            classifier.fit(inputs, labels)
        assert "\n" not in str(refused.value)
        return
    probabilities = classifier.fit(inputs, labels).predict_proba(inputs)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


# The functions of Python


class Pairs(torch.utils.data.Dataset[Any]):
    """A dataset of samples and labels."""

    def __init__(self, inputs: Any, labels: Any) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.inputs[index], self.labels[index]


X, Y = samples()
HUGE = with_column(X.copy(), 0, 1e300)
NUMBERS = np.arange(float(N))
REFUSED: dict[str, tuple[Any, str]] = {
    "one number for each sample": ((NUMBERS, Y), r"got shape \(40,\); .*reshape them to \(40, 1\)"),
    "pixels without an axis": ((NUMBERS.astype(np.uint8), Y), r"reshape them to \(40, 1\)"),
    "tensor of numbers": ((torch.arange(N), torch.tensor(Y)), r"reshape them to \(40, 1\)"),
    "list of numbers": ((NUMBERS.tolist(), Y.tolist()), r"reshape them to \(40, 1\)"),
    "dataset of numbers": (Pairs(NUMBERS, Y), r"reshape them to \(40, 1\)"),
    "tensor dataset of numbers": (
        torch.utils.data.TensorDataset(torch.arange(N), torch.tensor(Y)),
        r"reshape them to \(40, 1\)",
    ),
    "labelled numbers": (s2e.LabelledData(NUMBERS.astype(np.float32), Y, ("a", "b")), r"reshape them to \(40, 1\)"),
    "beyond float32": ((HUGE, Y), "`inputs` must be finite, but 40 of 40"),
    "tensor beyond float32": ((torch.tensor(HUGE), torch.tensor(Y)), "`inputs` must be finite, but 40 of 40"),
    "dataset beyond float32": (Pairs(HUGE, Y), "`inputs` must be finite, but 40 of 40"),
    "missing value": ((with_column(X.copy(), 1, np.nan), Y), "`inputs` must be finite"),
    "labels of -1": ((X, 0 * Y - 1), r"`labels` must be integers in 0\.\.999999, but got -1; number the classes"),
    "one label of -1": ((X, np.r_[-1, Y[1:]]), "but got -1; number the classes"),
    "label of a dataset of -1": (Pairs(X, 0 * Y - 1), "the label of sample 0 of `data` must .*, but got -1; number"),
    "label beyond int64": ((X, np.full(N, 2**63, np.uint64)), "but got 9223372036854775808; number"),
    "labels that are IDs": ((X, np.r_[2**40, Y[1:]]), "but got 1099511627776; number the classes"),
    "label of a dataset beyond int64": (Pairs(X, [2**70] * N), "of sample 0 of `data` must .*, but got one of more"),
    "one class": ((X, 0 * Y), "at least two classes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_of_python_refuse_in_one_line(name: str) -> None:
    data, problem = REFUSED[name]
    doors = [lambda: s2e.train(data, [1.0]), lambda: s2e.search(data, (X, Y))]
    if name != "one class":  # of which validation data may be
        doors.append(lambda: s2e.search((X, Y), data))
    for door in doors:
        with pytest.raises(ValueError, match=problem) as refused:
            door()
        assert "\n" not in str(refused.value)


# A learning rate that lets every training diverge

DIVERGING = ["--epochs", "2", "--batch-size", "32", "--learning-rate", "1e9", "--optimizer", "sgd"]
ADVICE = "lower the learning rate"


@pytest.fixture
def data(work: Path) -> str:
    noisy = blobs()
    np.savez(work / "own.npz", x_train=noisy.inputs, y_train=noisy.labels)
    return "own.npz"


@pytest.mark.parametrize("more", [[], ["--no-relabel"], ["--noise", "symmetric:0.2"]], ids=" ".join)
def test_search_that_diverges_ends_with_advice(data: str, more: list[str]) -> None:
    result = command("search", data, *DIVERGING, "--trials", "8", "--generation-size", "2", *more, "--out", "run")
    assert result.exit_code == 2
    assert [ADVICE in line for line in result.stderr.splitlines() if line.startswith("s2e: ")] == [True]


def test_comparison_that_diverges_ends_with_advice(data: str) -> None:
    methods = ["--methods", "standard,s2e", "--trials", "2", "--generation-size", "2"]
    result = command("compare", data, *DIVERGING, *methods, "--out", "run")
    assert result.exit_code == 2
    assert [ADVICE in line for line in result.stderr.splitlines() if line.startswith("s2e: ")] == [True]


def test_training_that_diverges_is_marked_and_logs_advice(data: str, caplog: pytest.LogCaptureFixture) -> None:
    result = command("train", data, *DIVERGING, "--method", "standard", "--out", "run")
    assert result.exit_code == 0
    assert "(diverged)" in result.stdout
    assert ADVICE in caplog.text or ADVICE in result.stderr
    audited = command("audit", "run")
    assert audited.exit_code == 2
    assert ADVICE in audited.stderr


@pytest.mark.parametrize("given_validation", [False, True])
def test_estimator_that_diverges_gives_advice(given_validation: bool) -> None:
    noisy, more = blobs(), {}
    if given_validation:
        valid = blobs(96, wrong=0.0, seed=1)
        more = {"X_val": valid.inputs, "y_val": valid.labels}
    classifier = s2e.S2EClassifier(**SETTINGS | {"learning_rate": 1e9, "optimizer": "sgd", "batch_size": 32})
    with pytest.raises(S2EError, match=ADVICE):
        classifier.fit(noisy.inputs, noisy.labels, **more)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("work")
def test_search_with_100_000_features() -> None:
    inputs, labels = samples(N, 100_000)
    np.savez("data.npz", x_train=inputs.astype(np.float32), y_train=labels)
    assert_works_or_refused(WORKS, "data.npz", "--network", "linear", "--batch-size", "13", "--folds", "2")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_estimator_with_100_000_features(tmp_path: Path) -> None:
    inputs, labels = samples(N, 100_000)
    classifier = s2e.S2EClassifier(**SETTINGS | {"network": "linear", "batch_size": 13}).fit(inputs, labels)
    probabilities = classifier.predict_proba(inputs)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    classifier.save(tmp_path / "saved")
    np.testing.assert_array_equal(s2e.S2EClassifier.load(tmp_path / "saved").predict_proba(inputs), probabilities)


MANY = 10_000
"""Classes, of which nearly all have one sample or two."""

LARGE_BATCHES = {"network": "linear", "batch_size": 512}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("work")
def test_search_with_10_000_classes() -> None:
    inputs, labels = samples(MANY + 400, classes=MANY)
    np.savez("data.npz", x_train=inputs.astype(np.float32), y_train=labels)
    assert_works_or_refused(WORKS, "data.npz", "--network", "linear", "--batch-size", "512", "--folds", "2")
    np.savez("new.npz", x=inputs.astype(np.float32))
    for command_of_run in (["audit", "run"], ["report", "run"], ["predict", "run", "new.npz"]):
        result = command(*command_of_run)
        assert result.exit_code == 0, result.stderr


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore:The number of unique classes is greater:UserWarning")
@pytest.mark.filterwarnings("ignore::s2e.errors.S2EWarning")
def test_estimator_with_10_000_classes(tmp_path: Path) -> None:
    inputs, labels = samples(MANY + 400, classes=MANY)
    classifier = s2e.S2EClassifier(**SETTINGS | LARGE_BATCHES).fit(inputs, labels)
    probabilities = classifier.predict_proba(inputs[:9])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    classifier.save(tmp_path / "saved")
    np.testing.assert_array_equal(s2e.S2EClassifier.load(tmp_path / "saved").predict_proba(inputs[:9]), probabilities)


@pytest.mark.usefixtures("work")
def test_table_with_10_000_classes_is_refused() -> None:
    inputs, labels = samples(MANY + 400, classes=MANY)
    pd.DataFrame(inputs, columns=list("abcd")).assign(y=[f"c{label}" for label in labels]).to_csv("data.csv")
    assert_works_or_refused("at most 1000 classes", "data.csv", "--label", "y")
