"""Classification with wrong labels: `S2EClassifier` and other estimators that scikit-learn's users would choose.

    python benchmarks/classifiers.py --out DIR                                               all sets, five seeds
    python benchmarks/classifiers.py --out DIR --sets wine --seeds 1 --trials 6              half a minute
    python benchmarks/classifiers.py --out DIR --join A B                       rows of runs side by side, in one folder

For each seed a quarter of the samples, with right labels and stratified by class, is the test part. Wrong labels are
drawn for the rest, the same for all methods. No method receives the noise rate or a label known to be right, and
nothing is selected on the test part. All methods have their default settings, except:

- s2e: `S2EClassifier`. With `--trials`, this number of schedules is searched.
- network: the network of s2e, alone, trained plainly on all noisy samples. Inputs, batch size, epochs, optimizer and
  learning-rate schedule are those that s2e chooses for this number of samples.
- boosting: `HistGradientBoostingClassifier`; categories of a table are given as such; for text, on 256 directions
  (truncated SVD), because it does not accept sparse input.
- logistic: `StandardScaler` and `LogisticRegression(max_iter=2000)`; categories of a table are one-hot, missing numbers
  their median; for text, on the sparse columns unchanged.
- cleanlab, cleanlab-boosting, cleanlab-logistic: `CleanLearning` around the network, the boosting and the logistic
  regression, with its five folds: it removes labels that are probably wrong and trains again.

Images are flattened for boosting and logistic regression.

Sets that the method was developed with, seeds 0 and 1: breast_cancer, wine and digits (a table of 64 columns), which
are part of scikit-learn, and docstrings; their noise is symmetric, 30% and 45%. Seeds from 2 are other draws of the
same data. Texts become TF-IDF columns with the vocabulary of the training texts.

- docstrings: paragraphs of documentation, classified by library (five of them). docstrings.py describes how the set is
  made; results from different versions of these libraries are not comparable.
- newsgroups: 20 newsgroups without headers, footers and quotes, read from `--data-home` (scikit-learn's default folder
  when not given); nothing is downloaded, and it is not one of the default sets.

Sets that were not used before their results were reported: orders, rare, many_classes, grey_images, instance, confused
and crowd. noisy_sets.py describes them and the noise of each. instance, confused, crowd, rare and many_classes are made
with `make_classification`, and so were tables that the method was developed with, of other sizes, seeds and noise;
grey_images holds the samples of digits.

For crowd, s2e receives the labels of all annotators, and other methods the most frequent label of every sample. The
labels that can be wrong then differ, so there is no F1; noise rate and calibration of s2e are those of its consensus.

| column | meaning |
|---|---|
| accuracy, balanced_accuracy | on the test part |
| average_precision | the same, of the second of two classes |
| f1 | of the labels that a method finds to be wrong |
| noise_rate, estimated_accuracy, …_low, …_high | estimates of s2e with the ends of their 90% intervals |
| true_noise_rate | share of wrong labels among those that the method receives |
| flagged, flagged_wrong | labels that s2e gives a probability of 0.9 or more to be wrong, and those that are |
| votes | what predicts in the classifier of s2e, that with most votes first |
| seconds, cpu_seconds | of `fit`; the first depends on what else the machine does |

DIR/classifiers.json holds everything, DIR/classifiers.csv one row for each training, DIR/tables.md means and standard
deviations over the seeds, and by bins the stated and the observed share of wrong labels. In the tables, the best other
method is the one with the best mean on the test part, so the comparison favours the others. All files are written after
every training; rows that exist in DIR are not trained again.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cleanlab
import matplotlib
import numpy as np
import pandas as pd
import scipy
import sklearn
import torch
from cleanlab.classification import CleanLearning
from numpy.typing import NDArray
from scipy import sparse
from sklearn import datasets
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from classifier_tables import aligned, markdown, page
from docstrings import docstrings
from noisy_sets import NOISY_SETS, LabelledSet, given_labels
from s2e import S2EClassifier, train
from s2e._version import __version__
from s2e.atomic_write import replace_output
from s2e.data import default_share
from s2e.data.encoders import encode_array, fit_array
from s2e.data.image_encoding import ImageEncoder
from s2e.data.sparse_projection import SparseEncoder
from s2e.data.table_encoding import TableEncoder
from s2e.engine import Classifier
from s2e.errors import InvalidInput, S2EError, UnreadableData
from s2e.runs import csv_text
from s2e.schedules import constant
from s2e.seeds import derive
from s2e.workflows.defaults import batch_size_for, epochs_for

Labels = NDArray[np.int64]

Kind = Literal["numbers", "table", "images", "text"]
"""Kinds of samples: numbers (N, F), a DataFrame, images (N, H, W), or sparse columns made of text."""

DIRECTIONS = 256
"""Dimensions that texts are reduced to for methods that do not accept sparse input."""

BINS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Edges of the bins of the probability that a label is wrong, in which s2e is compared with the truth."""

SURE = 0.9
"""Probability that a label is wrong from which labels count as flagged."""


class Parts(NamedTuple):
    """Training samples, which every method receives, and test samples.

    Attributes:
        samples: (n, …) to train on, of one of the kinds in `Kind`.
        given: (n,) their labels, some wrong.
        right: (n,) the right labels, which no method receives.
        test_samples: (m, …).
        test_labels: (m,) their right labels.
        annotations: (n, A) labels of each annotator, -1 where there is none; None without annotators.
    """

    samples: Any
    given: Labels
    right: Labels
    test_samples: Any
    test_labels: Labels
    annotations: Labels | None = None

    @property
    def kind(self) -> Kind:
        """The kind of the samples."""
        if sparse.issparse(self.samples):
            return "text"
        if isinstance(self.samples, pd.DataFrame):
            return "table"
        return "numbers" if self.samples.ndim == 2 else "images"


# --------------------------------------------------------------------------------------------------------------- sets


def newsgroups(home: Path | None) -> LabelledSet:
    """Read 20 newsgroups from disk."""
    try:
        bunch = datasets.fetch_20newsgroups(
            data_home=home, subset="all", remove=("headers", "footers", "quotes"), download_if_missing=False
        )
    except OSError as problem:
        raise UnreadableData(
            "20 newsgroups must be on disk; download it with `sklearn.datasets.fetch_20newsgroups(subset='all')`, "
            "or give its folder with --data-home."
        ) from problem
    return LabelledSet(bunch.data, np.asarray(bunch.target, dtype=np.int64))


def _embedded(load: Callable[..., tuple[Any, Any]]) -> LabelledSet:
    samples, labels = load(return_X_y=True)
    return LabelledSet(samples, labels.astype(np.int64))


SETS: dict[str, Callable[[Path | None], LabelledSet]] = {
    "breast_cancer": lambda _: _embedded(datasets.load_breast_cancer),
    "wine": lambda _: _embedded(datasets.load_wine),
    "digits": lambda _: _embedded(datasets.load_digits),
    "docstrings": lambda _: LabelledSet(*docstrings()),
    "newsgroups": newsgroups,
    **{name: lambda _, make=make: make() for name, (make, _) in NOISY_SETS.items()},
}

SYMMETRIC = ("symmetric:0.3", "symmetric:0.45")
"""Noise of sets that have none of their own."""

NOISE = {name: SYMMETRIC if name not in NOISY_SETS else (NOISY_SETS[name][1],) for name in SETS}
"""Noise of every set."""


def split(whole: LabelledSet, noise: str, seed: int) -> Parts:
    """Hold out a quarter, draw wrong labels for the rest, and encode texts with the vocabulary of the rest."""
    kept, held = train_test_split(
        np.arange(len(whole.labels)), test_size=0.25, stratify=whole.labels, random_state=seed
    )
    right, test_labels = whole.labels[kept], whole.labels[held]
    if isinstance(whole.samples, np.ndarray):
        samples, test_samples = whole.samples[kept], whole.samples[held]
    elif isinstance(whole.samples, pd.DataFrame):
        samples, test_samples = (whole.samples.iloc[part].reset_index(drop=True) for part in (kept, held))
    else:
        vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True).fit(whole.samples[i] for i in kept)
        samples, test_samples = (vectorizer.transform(whole.samples[i] for i in part) for part in (kept, held))
    given = given_labels(samples, right, noise, np.random.default_rng(derive(seed, "noise", noise)))
    return Parts(samples, given.labels, right, test_samples, test_labels, given.annotations)


# ------------------------------------------------------------------------------------------------------------ methods


class PlainNetwork(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The network that `S2EClassifier` chooses for these samples, trained on all given labels.

    Args:
        random_state: seed of everything that is drawn at random.
    """

    def __init__(self, *, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PlainNetwork:
        """Train on samples (N, …), of one of the kinds in `Kind`, with labels (N,)."""
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.n_features_in_ = X.shape[1]
        if sparse.issparse(X):
            seed = derive(self.random_state, "features") % 2**32
            self._features: TableEncoder | ImageEncoder | SparseEncoder = SparseEncoder.fit(X.tocsr(), DIRECTIONS, seed)
        elif isinstance(X, pd.DataFrame):
            self._features = TableEncoder.fit(X)
        else:
            self._features = fit_array(np.asarray(X))
        inputs = self._inputs(X)
        # The defaults of S2EClassifier depend on the number of samples that it does not hold out.
        samples = round(len(labels) * (1 - default_share(len(labels))))
        self.batch_size_ = batch_size_for(samples)
        self.epochs_ = epochs_for(samples, self.batch_size_)
        trained = train(
            (inputs, labels.astype(np.int64)),
            constant(1.0, self.epochs_),
            method="standard",
            batch_size=self.batch_size_,
            seed=self.random_state,
        )
        self._classifier = Classifier(trained.networks, tuple(map(str, self.classes_)), inputs.shape[1:])
        return self

    def _inputs(self, X: Any) -> NDArray[Any]:
        if isinstance(self._features, SparseEncoder) or isinstance(X, pd.DataFrame):
            return self._features.encode(X)
        return encode_array(self._features, np.asarray(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class, (N, C)."""
        found = self._classifier.probabilities(self._inputs(X))[0].astype(np.float64)  # (N, C)
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every sample, (N,)."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


CATEGORIES = make_column_selector(dtype_exclude="number")
"""Selects the columns of a table that do not hold numbers."""


def _flattened(*steps: Any) -> Any:
    """Return a pipeline for images: their pixels become columns."""
    return make_pipeline(FunctionTransformer(lambda images: images.reshape(len(images), -1)), *steps)


def _with_categories(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype(dict.fromkeys(CATEGORIES(table), "category"))


def logistic(kind: Kind) -> Any:
    """Return a logistic regression for samples of a kind."""
    plain = LogisticRegression(max_iter=2000)
    if kind == "text":
        return plain
    if kind == "images":
        return _flattened(StandardScaler(), plain)
    if kind == "table":
        numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
        columns = [("categories", OneHotEncoder(handle_unknown="ignore"), CATEGORIES)]
        return make_pipeline(ColumnTransformer(columns, remainder=numbers), plain)
    return make_pipeline(StandardScaler(), plain)


def boosting(kind: Kind, seed: int) -> Any:
    """Return a boosting for samples of a kind."""
    plain = HistGradientBoostingClassifier(random_state=seed)
    if kind == "text":
        return make_pipeline(TruncatedSVD(DIRECTIONS, random_state=seed), plain)
    if kind == "images":
        return _flattened(plain)
    if kind == "table":
        return make_pipeline(FunctionTransformer(_with_categories), plain)  # which recognises the type of such columns
    return plain


def clean_learning(estimator: Any, seed: int) -> Any:
    """Return cleanlab around an estimator."""
    return CleanLearning(estimator, seed=seed, find_label_issues_kwargs={"n_jobs": 1})  # too few samples for processes


METHODS: dict[str, Callable[[Kind, int, int | None], Any]] = {  # arguments: kind of samples, seed, trials
    "s2e": lambda _, seed, trials: S2EClassifier(n_trials=trials, random_state=seed),
    "network": lambda _, seed, __: PlainNetwork(random_state=seed),
    "boosting": lambda kind, seed, _: boosting(kind, seed),
    "logistic": lambda kind, _, __: logistic(kind),
    "cleanlab": lambda _, seed, __: clean_learning(PlainNetwork(random_state=seed), seed),
    "cleanlab-boosting": lambda kind, seed, _: clean_learning(boosting(kind, seed), seed),
    "cleanlab-logistic": lambda kind, seed, _: clean_learning(logistic(kind), seed),
}


def trained_row(method: str, parts: Parts, seed: int, trials: int | None) -> dict[str, Any]:
    """Train once; return the results, and under "more" further content of the JSON file."""
    classifier = METHODS[method](parts.kind, seed, trials)
    is_own, is_crowd = isinstance(classifier, S2EClassifier), parts.annotations is not None
    given = parts.annotations if is_own and is_crowd else parts.given
    began, began_cpu = time.perf_counter(), time.process_time()
    classifier.fit(parts.samples, given)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    wrong = parts.given != parts.right
    found, more = dict.fromkeys(ESTIMATES), {}
    named = None
    if is_own:
        issues = classifier.find_label_issues()
        named = issues["is_label_issue"].to_numpy()
        wrong = issues["given_label"].to_numpy() != parts.right  # of the consensus of annotators
        found = estimates(classifier, wrong)
        more = {
            "schedule": classifier.schedule_.tolist(),
            "trials": len(classifier.study_.trials),
            "validation_accuracy": classifier.validation_accuracy_,
            "batch_size": classifier.batch_size_,
            "audit_message": classifier.audit_message_,
            "calibration": calibration(1 - classifier.label_quality_, wrong),
        }
    elif isinstance(classifier, CleanLearning):
        named = classifier.get_label_issues()["is_label_issue"].to_numpy()
    f1 = None if named is None or is_crowd else 2 * (named & wrong).sum() / max(1, named.sum() + wrong.sum())
    return {
        "method": method,
        **scores_on(classifier, parts.test_samples, parts.test_labels),
        "f1": None if f1 is None else float(f1),
        "true_noise_rate": float(wrong.mean()),
        **found,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "more": more,
    }


def scores_on(classifier: Any, samples: Any, labels: Labels) -> dict[str, float | None]:
    """Return the scores on the test part."""
    predicted = np.asarray(classifier.predict(samples))
    precision = None
    if labels.max() == 1:
        precision = float(average_precision_score(labels, classifier.predict_proba(samples)[:, 1]))
    return {
        "accuracy": float((predicted == labels).mean()),
        "balanced_accuracy": float(balanced_accuracy_score(labels, predicted)),
        "average_precision": precision,
    }


ESTIMATES = (
    "noise_rate",
    "noise_rate_low",
    "noise_rate_high",
    "estimated_accuracy",
    "estimated_accuracy_low",
    "estimated_accuracy_high",
    "flagged",
    "flagged_wrong",
    "votes",
)
"""Columns that only s2e has."""


def estimates(classifier: S2EClassifier, wrong: NDArray[np.bool_]) -> dict[str, Any]:
    """Return what the classifier says about its labels and itself; None for what it does not say.

    Args:
        classifier: a fitted one.
        wrong: (n,) whether the label that was trained on is wrong.
    """
    flagged = 1 - classifier.label_quality_ >= SURE
    numbers = [
        classifier.noise_rate_,
        *classifier.noise_rate_interval_,
        classifier.estimated_accuracy_,
        *classifier.estimated_accuracy_interval_,
    ]
    known = [float(number) if np.isfinite(number) else None for number in numbers]
    counts = [int(flagged.sum()), int((flagged & wrong).sum())]
    return dict(zip(ESTIMATES, [*known, *counts, classifier.final_name_], strict=True))


def calibration(stated: NDArray[np.float64], wrong: NDArray[np.bool_]) -> list[list[float]]:
    """Return for each bin of `BINS` the number of labels, the sum of their probabilities, and how many are wrong.

    Args:
        stated: (n,) probability of each label to be wrong, according to s2e.
        wrong: (n,) whether it is.
    """
    bins = np.clip(np.searchsorted(BINS, stated, side="right") - 1, 0, len(BINS) - 2)
    sums = [np.bincount(bins, weights, len(BINS) - 1) for weights in (np.ones(len(bins)), stated, wrong)]
    return [[float(each) for each in line] for line in zip(*sums, strict=True)]


# ---------------------------------------------------------------------------------------------------------- reporting


def write(out: Path, about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all files atomically: an interruption leaves the previous version."""
    flat = [{name: value for name, value in row.items() if name != "more"} for row in rows]
    contents = {
        "classifiers.json": json.dumps({**about, "rows": rows}, indent=2) + "\n",
        "classifiers.csv": csv_text(flat),
        "tables.md": page(rows, list(METHODS), markdown, "**", bins=BINS),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        replace_output(out / name, text.encode())


def rows_before(out: Path, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that are in the folder; refuse rows that are not comparable with new ones."""
    if not (out / "classifiers.json").is_file():
        return []
    before = json.loads((out / "classifiers.json").read_text(encoding="utf-8"))
    check_same(about, before, f"`--out` must be a folder whose rows were made with {{}}, but got {out}, made with {{}}")
    return list(before["rows"])


def check_same(first: Mapping[str, Any], second: Mapping[str, Any], message: str) -> None:
    """Raise `InvalidInput` unless rows with these descriptions are comparable; the message has places for both."""
    one, other = ({"versions": each["versions"], "trials": each["settings"]["trials"]} for each in (first, second))
    for name, value in one.items():
        if value != other[name]:
            raise InvalidInput(f"{message.format(f'the same {name}, {value}', other[name])}; use another folder.")


def joined(folders: Sequence[Path]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the description and the rows of several folders; refuse rows that are not comparable."""
    contents = []
    for folder in folders:
        if not (folder / "classifiers.json").is_file():
            raise UnreadableData(f"`--join` must name folders with a file classifiers.json, but got {folder}.")
        contents.append(json.loads((folder / "classifiers.json").read_text(encoding="utf-8")))
    for folder, content in zip(folders, contents, strict=True):
        check_same(contents[0], content, f"`--join` must name rows made with {{}}, but got {folder}, made with {{}}")
    about = {name: contents[0][name] for name in ("versions", "device", "threads")}
    rows = {
        (row["set"], row["noise"], row["seed"], row["method"]): row for content in contents for row in content["rows"]
    }
    order = [(name, noise) for name in SETS for noise in sorted({key[1] for key in rows if key[0] == name})]
    return (
        {**about, "settings": contents[0]["settings"], "joined": [content["settings"] for content in contents]},
        sorted(rows.values(), key=lambda row: (order.index((row["set"], row["noise"])), row["seed"])),
    )


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=[name for name in SETS if name != "newsgroups"])
    parser.add_argument("--noise", nargs="+", help="noise of all sets; that of each set when not given")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int, help="schedules that s2e searches; its default when not given")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--data-home", type=Path, help="folder of scikit-learn's 20 newsgroups")
    parser.add_argument(
        "--join", nargs="+", type=Path, help="folders whose rows are written to --out, without training"
    )
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    for name, least in (("seeds", 1), ("trials", 1), ("first_seed", 0)):
        value = getattr(given, name)
        if value is not None and value < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}, but got {value}.")
    return given


def description(given: argparse.Namespace) -> dict[str, Any]:
    """Return versions, device and options, for the JSON file."""
    return {
        "versions": {
            "python": platform.python_version(),
            "s2e": __version__,
            **{each.__name__: each.__version__ for each in (cleanlab, matplotlib, np, pd, scipy, sklearn, torch)},
        },
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in vars(given).items()},
    }


def main(words: Sequence[str] | None = None) -> None:
    """Train the rows that are missing in the folder, seed by seed; print the tables."""
    given = arguments(words)
    if given.join is not None:
        about, rows = joined(given.join)
    else:
        about = description(given)
        rows = rows_before(given.out, about)
        train_missing(given, about, rows)
    write(given.out, about, rows)
    print(f"\n{page(rows, list(METHODS), aligned, bins=BINS)}")


def train_missing(given: argparse.Namespace, about: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
    """Train what the options ask for and the rows do not hold; append to the rows, and write them every time."""
    done = {(row["set"], row["noise"], row["seed"], row["method"]) for row in rows}
    wholes = {name: SETS[name](given.data_home) for name in given.sets}
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        for name in given.sets:
            for noise in given.noise or NOISE[name]:
                parts = split(wholes[name], noise, seed)
                for method in given.methods:
                    if (name, noise, seed, method) in done:
                        continue
                    row = trained_row(method, parts, seed, given.trials)
                    rows.append({"set": name, "noise": noise, "seed": seed, **row})
                    write(given.out, about, rows)
                    print(
                        f"{name} {noise} seed {seed} {method}: {row['accuracy']:.4f}, {row['seconds']:.1f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    try:
        main()
    except S2EError as problem:
        raise SystemExit(f"classifiers.py: {problem}") from problem
