"""Is the label audit right about itself? Calibration, intervals and labels found, for predictions of many classifiers.

    python benchmarks/audit_intervals.py --out DIR                           the sets that the figures are reported on
    python benchmarks/audit_intervals.py --out DIR --sets tuning                 those that its constants were chosen on
    python benchmarks/audit_intervals.py --out DIR --seeds 1 --kinds symmetric:0.2

Every data set has correct labels, of which a known share is made wrong: symmetric (to any other class), pair (to the
next class), classes (a different rate for each class), instance (a rate that depends on the input), missing (labels of
the class 1 become 0), or none. Each classifier predicts every sample after training on other folds, with wrong labels.
`s2e.find_label_issues` and cleanlab receive the same predictions. Seed 0 of the reported sets has been looked at while
the model was written; use others with `--first-seed`.

- co-teaching: networks of s2e, whose members each hold out one of five folds. Their schedule is that for 20% wrong
  labels: no classifier receives the noise rate.
- logistic, boosting, forest, bayes: scikit-learn's `LogisticRegression`, `HistGradientBoostingClassifier`,
  `RandomForestClassifier` and `GaussianNB` in five folds.

Columns of DIR/audit_intervals.csv: accuracy of the predictions and its estimate; share of wrong labels and its
estimate; whether the intervals hold these; whether labels are flagged (not if the classifier is too weak); F1 of the
labels found by s2e and by cleanlab; the number of labels flagged with a probability of being wrong of 85% to 95%, and
of at least 90%, and how many of each are wrong. DIR/audit_intervals.json holds means over all rows, and by classifier.
"""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cleanlab
import numpy as np
import sklearn
import torch
from cleanlab.filter import find_label_issues as find_by_cleanlab
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

import s2e
from docstrings import docstrings
from s2e import schedules
from s2e.audit import records_of, stratified_folds
from s2e.data import LabelledData
from s2e.engine import FinalTraining, Task, train_population
from s2e.methods import Coteaching
from s2e.networks import factory_of
from s2e.runs import csv_text

FOLDS, EPOCHS, BATCH_SIZE, ASSUMED_RATE = 5, 60, 32, 0.2
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Data = tuple[Floats, Labels]


def _text(_: int) -> Data:
    texts, labels = docstrings()
    columns = TfidfVectorizer(max_features=5000, sublinear_tf=True).fit_transform(texts)
    return TruncatedSVD(100, random_state=0).fit_transform(columns), labels


def _made(seed: int, samples: int, classes: int, separation: float, informative: int, majority: float) -> Data:
    weights = [majority] + [(1 - majority) / (classes - 1)] * (classes - 1)
    return datasets.make_classification(  # type: ignore[no-any-return]
        samples,
        20,
        n_informative=informative,
        n_classes=classes,
        weights=weights,
        class_sep=separation,
        flip_y=0,
        random_state=seed,
    )


TUNING: dict[str, Callable[[int], Data]] = {
    "digits": lambda _: datasets.load_digits(return_X_y=True),
    "breast cancer": lambda _: datasets.load_breast_cancer(return_X_y=True),
    "four classes": lambda seed: _made(seed, 2000, 4, 1.0, 8, 0.25),
    "five hard classes": lambda seed: _made(seed, 2000, 5, 0.5, 6, 0.2),
    "imbalanced": lambda seed: _made(seed, 3000, 2, 1.2, 8, 0.88),
}
REPORTED: dict[str, Callable[[int], Data]] = {
    "wine": lambda _: datasets.load_wine(return_X_y=True),
    "iris": lambda _: datasets.load_iris(return_X_y=True),
    "docstrings": _text,
    "rings": lambda seed: datasets.make_gaussian_quantiles(
        n_samples=1500, n_features=4, n_classes=3, random_state=seed
    ),
    "moons": lambda seed: datasets.make_moons(1000, noise=0.25, random_state=seed),
    "eight classes": lambda seed: _made(seed + 50, 2500, 8, 1.5, 10, 0.125),
    "rare classes": lambda seed: _made(seed + 50, 2500, 3, 1.3, 8, 0.85),
}
KINDS = ("none:0", "symmetric:0.1", "symmetric:0.3", "pair:0.2", "pair:0.35", "classes:0.25", "instance:0.25")
RARE_KINDS = ("none:0", "symmetric:0.1", "missing:0.2", "missing:0.4")
RARE = ("imbalanced", "rare classes")
SKLEARN: dict[str, Callable[[], Any]] = {
    "logistic": lambda: LogisticRegression(max_iter=1000),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=60, random_state=0),
    "forest": lambda: RandomForestClassifier(100, random_state=0),
    "bayes": GaussianNB,
}
CO_TEACHING = "co-teaching"


def with_noise(labels: Labels, inputs: Floats, kind: str, generator: np.random.Generator) -> Labels:
    """Return the labels, (N,), with some made wrong."""
    name, _, text = kind.partition(":")
    rate, classes, samples = float(text), int(labels.max()) + 1, len(labels)
    rates = np.full(samples, rate)
    if name == "classes":
        rates = (2 * rate * generator.random(classes))[labels]
    elif name == "instance":
        along = inputs @ generator.standard_normal(inputs.shape[1])
        rates = 2 * rate * along.argsort().argsort() / samples
    elif name == "missing":
        rates = np.where(labels == 1, rate, 0.0)
    wrong = generator.random(samples) < rates
    others = (labels + (1 if name == "pair" else generator.integers(1, classes, samples))) % classes
    return np.where(wrong, 0 if name == "missing" else others, labels)


def by_networks(inputs: Floats, labels: Labels, seed: int) -> Floats:
    """Return probabilities (N, C) of Co-teaching's networks, each for samples that it holds out."""
    names = tuple(map(str, range(int(labels.max()) + 1)))
    data = LabelledData(inputs.astype(np.float32), labels, names)
    network = factory_of("auto", data.sample_shape, data.classes)
    task = Task(data, network, Coteaching(), {}, EPOCHS, BATCH_SIZE, seed)
    folds = stratified_folds(labels, FOLDS, seed)
    training = FinalTraining("", task.method, schedules.coteaching(ASSUMED_RATE, EPOCHS), 0, folds=folds)
    trained = train_population(task, training.members(1e-3, seed))
    records = records_of(task, trained, [0], held_out=dict(enumerate(training.held_out)))
    return records["out_of_fold"].astype(np.float64)


def by_sklearn(name: str, inputs: Floats, labels: Labels, seed: int) -> Floats:
    """Return probabilities (N, C) of a model of scikit-learn from cross-validation."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # models that do not converge are a part of the comparison
        found = cross_val_predict(SKLEARN[name](), inputs, labels, cv=folds, method="predict_proba")
    return np.asarray(found, dtype=np.float64)


def row_of(truth: Labels, labels: Labels, probabilities: Floats) -> dict[str, Any]:
    """Return what the audit says about these predictions, beside what is true."""
    found = s2e.find_label_issues(labels, probabilities)
    about, wrong, flagged = found.attrs, labels != truth, found["is_label_issue"].to_numpy()
    accuracy, doubt = float((probabilities.argmax(axis=1) == truth).mean()), 1 - found["label_quality"].to_numpy()
    shares = probabilities / probabilities.sum(axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = find_by_cleanlab(labels, shares, n_jobs=1)
    near, sure = flagged & (doubt >= 0.85) & (doubt < 0.95), flagged & (doubt >= 0.9)
    return {
        "accuracy": accuracy,
        "estimated_accuracy": about["accuracy"],
        "accuracy_held": _within(accuracy, about["accuracy_interval"]),
        "noise_rate": float(wrong.mean()),
        "estimated_noise_rate": about["noise_rate"],
        "interval_low": about["noise_rate_interval"][0],
        "interval_high": about["noise_rate_interval"][1],
        "noise_rate_held": _within(float(wrong.mean()), about["noise_rate_interval"]),
        "flags": not about["message"],
        "f1": _f1(flagged, wrong),
        "f1_cleanlab": _f1(other, wrong),
        "near_90": int(near.sum()),
        "near_90_wrong": int((near & wrong).sum()),
        "from_90": int(sure.sum()),
        "from_90_wrong": int((sure & wrong).sum()),
    }


def _within(value: float, interval: Sequence[float]) -> bool:
    return interval[0] <= value <= interval[1]


def _f1(found: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> float | None:
    return float(2 * (found & wrong).sum() / (found.sum() + wrong.sum())) if wrong.any() else None


def measured(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield one row for each data set, seed, kind of noise and classifier."""
    for name, load in (TUNING if given.sets == "tuning" else REPORTED).items():
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            inputs, truth = load(seed)
            inputs, truth = StandardScaler().fit_transform(inputs), np.asarray(truth, dtype=np.int64)
            for kind in given.kinds or (RARE_KINDS if name in RARE else KINDS):
                generator = np.random.default_rng([seed, sum(kind.encode())])
                labels = with_noise(truth, inputs, kind, generator)
                for classifier in given.classifiers:
                    predict = by_networks if classifier == CO_TEACHING else None
                    of_classifier = predict or (lambda *rest, which=classifier: by_sklearn(which, *rest))
                    found = row_of(truth, labels, of_classifier(inputs, labels, seed))
                    yield {"set": name, "seed": seed, "noise": kind, "classifier": classifier, **found}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means over rows; F1 over those where labels are flagged and some are wrong."""

    def mean(name: str, of: Sequence[Mapping[str, Any]]) -> float | None:
        return float(np.mean([row[name] for row in of])) if of else None

    flagging = [row for row in rows if row["flags"] and row["f1"] is not None]
    totals = {name: sum(row[name] for row in rows) for name in ("near_90", "near_90_wrong", "from_90", "from_90_wrong")}
    errors = [abs(row["estimated_noise_rate"] - row["noise_rate"]) for row in rows]
    widths = [row["interval_high"] - row["interval_low"] for row in rows]
    return {
        "rows": len(rows),
        "noise_rate_held": mean("noise_rate_held", rows),
        "mean_error_of_noise_rate": float(np.mean(errors)),
        "mean_width_of_interval": float(np.mean(widths)),
        "accuracy_held": mean("accuracy_held", rows),
        "flagging": mean("flags", rows),
        "f1": mean("f1", flagging),
        "f1_cleanlab": mean("f1_cleanlab", flagging),
        "wrong_of_85_to_95": totals["near_90_wrong"] / max(1, totals["near_90"]),
        "wrong_of_90_and_more": totals["from_90_wrong"] / max(1, totals["from_90"]),
    }


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", choices=("reported", "tuning"), default="reported")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", help="kinds of noise; by data set when not given")
    parser.add_argument("--classifiers", nargs="+", choices=(CO_TEACHING, *SKLEARN), default=[CO_TEACHING, *SKLEARN])
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the summary, write JSON and CSV after every row."""
    given = arguments(words)
    given.out.mkdir(parents=True, exist_ok=True)
    versions = {each.__name__: each.__version__ for each in (s2e, cleanlab, sklearn, torch, np)}
    about = {"versions": {"python": platform.python_version(), **versions}, "sets": given.sets, "seeds": given.seeds}
    rows: list[dict[str, Any]] = []
    content: dict[str, Any] = {}
    for row in measured(given):
        rows.append(row)
        by_classifier = {
            name: summary([each for each in rows if each["classifier"] == name])
            for name in given.classifiers
            if any(each["classifier"] == name for each in rows)
        }
        content = {**about, "all": summary(rows), "classifiers": by_classifier}
        (given.out / "audit_intervals.json").write_text(json.dumps(content, indent=2) + "\n")
        (given.out / "audit_intervals.csv").write_text(csv_text(rows))
    print(json.dumps({"all": content["all"], **content["classifiers"]}, indent=2))


if __name__ == "__main__":
    main()
