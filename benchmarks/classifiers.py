"""Classification with wrong labels: `S2EClassifier` and other estimators that scikit-learn's users would choose.

    python benchmarks/classifiers.py --out DIR                                   all sets, 30% and 45% noise, five seeds
    python benchmarks/classifiers.py --out DIR --sets wine --seeds 1 --trials 6                            half a minute

For each seed a quarter of the samples, with right labels and stratified by class, is the test part. Wrong labels are
drawn for the rest, the same for all methods. No method receives the noise rate or a label known to be right, and
nothing is selected on the test part. All methods have their default settings, except:

- s2e: `S2EClassifier`; `--trials` schedules are searched on a part of the noisy samples that it holds out itself.
- network: the network of s2e, alone, trained plainly on all noisy samples. Inputs, batch size, epochs, optimizer and
  learning-rate schedule are those that s2e chooses for this number of samples.
- boosting: `HistGradientBoostingClassifier`; for text, on 256 directions (truncated SVD), because it does not accept
  sparse input.
- logistic: `StandardScaler` and `LogisticRegression(max_iter=2000)`; for text, on the sparse columns unchanged.
- cleanlab: `CleanLearning` around the network, with its five folds: it removes labels that are probably wrong and
  trains again.
- cleanlab-logistic: `CleanLearning` around the logistic regression.

Sets: breast_cancer, wine and digits (a table of 64 columns) are part of scikit-learn. Texts become TF-IDF columns with
the vocabulary of the training texts.

- docstrings: paragraphs of documentation, classified by library (five of them). docstrings.py describes how the set is
  made; results from different versions of these libraries are not comparable.
- newsgroups: 20 newsgroups without headers, footers and quotes, read from `--data-home` (scikit-learn's default folder
  when not given); nothing is downloaded.

"F1" is that of the labels a method finds to be wrong; seconds are those of `fit`. DIR/classifiers.json holds
everything, DIR/classifiers.csv one row for each training, DIR/table.md means and standard deviations over the seeds.
All files are written after every training; rows that exist in DIR are not trained again.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from docstrings import docstrings
from s2e import S2EClassifier, train
from s2e._version import __version__
from s2e.data import default_share, parse_noise
from s2e.data.encoders import encode_array, fit_array
from s2e.data.image_encoding import ImageEncoder
from s2e.data.noise import corrupt, transition_matrix
from s2e.data.sparse_projection import SparseEncoder
from s2e.data.table_encoding import TableEncoder
from s2e.engine import Classifier
from s2e.errors import InvalidInput, S2EError, UnreadableData
from s2e.runs import csv_text
from s2e.schedules import constant
from s2e.seeds import derive
from s2e.studies import DEFAULT_GENERATIONS, SIZES
from s2e.workflows.defaults import batch_size_for, epochs_for

Labels = NDArray[np.int64]

DIRECTIONS = 256
"""Dimensions that texts are reduced to for methods that do not accept sparse input."""


class LabelledSet(NamedTuple):
    """Samples, (N, F) or N texts, with their right labels (N,)."""

    samples: Any
    labels: Labels


class Parts(NamedTuple):
    """Training samples, which every method receives, and test samples.

    Attributes:
        samples: (n, F) to train on, dense or sparse.
        given: (n,) their labels, some wrong.
        right: (n,) the right labels, which no method receives.
        test_samples: (m, F).
        test_labels: (m,) their right labels.
    """

    samples: Any
    given: Labels
    right: Labels
    test_samples: Any
    test_labels: Labels


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
}


def split(whole: LabelledSet, noise: str, seed: int) -> Parts:
    """Hold out a quarter, draw wrong labels for the rest, and encode texts with the vocabulary of the rest."""
    classes = len(np.unique(whole.labels))
    kept, held = train_test_split(
        np.arange(len(whole.labels)), test_size=0.25, stratify=whole.labels, random_state=seed
    )
    right = whole.labels[kept]
    matrix = transition_matrix(parse_noise(noise), classes)
    given = corrupt(right, matrix, np.random.default_rng(derive(seed, "noise", noise)))
    if isinstance(whole.samples, np.ndarray):
        return Parts(whole.samples[kept], given, right, whole.samples[held], whole.labels[held])
    vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True).fit(whole.samples[i] for i in kept)
    return Parts(
        vectorizer.transform(whole.samples[i] for i in kept),
        given,
        right,
        vectorizer.transform(whole.samples[i] for i in held),
        whole.labels[held],
    )


# ------------------------------------------------------------------------------------------------------------ methods


class PlainNetwork(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The network that `S2EClassifier` chooses for these samples, trained on all given labels.

    Args:
        random_state: seed of everything that is drawn at random.
    """

    def __init__(self, *, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PlainNetwork:
        """Train on samples (N, F), dense or sparse, with labels (N,)."""
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.n_features_in_ = X.shape[1]
        if sparse.issparse(X):
            seed = derive(self.random_state, "features") % 2**32
            self._features: TableEncoder | ImageEncoder | SparseEncoder = SparseEncoder.fit(X.tocsr(), DIRECTIONS, seed)
        else:
            self._features = fit_array(np.asarray(X, dtype=np.float64))
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
        if isinstance(self._features, SparseEncoder):
            return self._features.encode(X)
        return encode_array(self._features, np.asarray(X, dtype=np.float64))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class, (N, C)."""
        found = self._classifier.probabilities(self._inputs(X))[0].astype(np.float64)  # (N, C)
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every sample, (N,)."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


def _logistic(is_text: bool) -> Any:
    plain = LogisticRegression(max_iter=2000)
    return plain if is_text else make_pipeline(StandardScaler(), plain)


def _boosting(is_text: bool, seed: int) -> Any:
    boosting = HistGradientBoostingClassifier(random_state=seed)
    return make_pipeline(TruncatedSVD(DIRECTIONS, random_state=seed), boosting) if is_text else boosting


def _clean_learning(estimator: Any, seed: int) -> Any:
    return CleanLearning(estimator, seed=seed, find_label_issues_kwargs={"n_jobs": 1})  # too few samples for processes


METHODS: dict[str, Callable[[bool, int, int], Any]] = {  # arguments: whether the set is text, seed, trials
    "s2e": lambda _, seed, trials: S2EClassifier(n_trials=trials, random_state=seed),
    "network": lambda _, seed, __: PlainNetwork(random_state=seed),
    "boosting": lambda is_text, seed, _: _boosting(is_text, seed),
    "logistic": lambda is_text, _, __: _logistic(is_text),
    "cleanlab": lambda _, seed, __: _clean_learning(PlainNetwork(random_state=seed), seed),
    "cleanlab-logistic": lambda is_text, seed, _: _clean_learning(_logistic(is_text), seed),
}


def trained_row(method: str, parts: Parts, seed: int, trials: int) -> dict[str, Any]:
    """Train once; return the results, and under "more" further content of the JSON file."""
    classifier = METHODS[method](sparse.issparse(parts.samples), seed, trials)
    began = time.perf_counter()
    classifier.fit(parts.samples, parts.given)
    seconds = time.perf_counter() - began
    wrong = parts.given != parts.right
    named, estimate, more = None, None, {}
    if isinstance(classifier, S2EClassifier):
        named = np.zeros(len(wrong), dtype=bool)
        named[classifier.label_issues_] = True
        estimate = float(classifier.noise_rate_)
        more = {
            "schedule": classifier.schedule_.tolist(),
            "validation_accuracy": classifier.validation_accuracy_,
            "batch_size": classifier.batch_size_,
        }
    elif isinstance(classifier, CleanLearning):
        named = classifier.get_label_issues()["is_label_issue"].to_numpy()
    return {
        "method": method,
        "accuracy": float((classifier.predict(parts.test_samples) == parts.test_labels).mean()),
        "f1": None if named is None else float(2 * (named & wrong).sum() / max(1, named.sum() + wrong.sum())),
        "noise_rate": estimate,
        "true_noise_rate": float(wrong.mean()),
        "seconds": seconds,
        "more": more,
    }


# ---------------------------------------------------------------------------------------------------------- reporting


def settings(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return every set and noise in the rows."""
    return sorted({(row["set"], row["noise"]) for row in rows}, key=lambda key: (list(SETS).index(key[0]), key[1]))


def _title(setting: tuple[str, str]) -> str:
    return f"{setting[0]} {setting[1].removeprefix('symmetric:')}"


def drawn(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe the shares of wrong labels; labels are drawn independently, so the share varies with few samples."""
    parts = []
    for setting in settings(rows):
        shares = [100 * row["true_noise_rate"] for row in rows if (row["set"], row["noise"]) == setting]
        parts.append(f"{_title(setting)}: {min(shares):.1f} to {max(shares):.1f}")
    return f"Wrong labels as drawn, %, minimum and maximum over the seeds: {'; '.join(parts)}."


def grid(rows: Sequence[Mapping[str, Any]], figure: str, factor: float, bold: str = "") -> list[list[str]]:
    """Return a table of one quantity: a header and a line for each method; the best value of a column is in `bold`."""
    having = [row for row in rows if row[figure] is not None]
    columns = settings(having)
    methods = [method for method in METHODS if any(row["method"] == method for row in having)]
    lines = [["", *map(_title, columns)]]
    lines += [[method] for method in methods]
    for column in columns:
        values = {
            method: [
                factor * row[figure] for row in having if (row["set"], row["noise"], row["method"]) == (*column, method)
            ]
            for method in methods
        }
        best = max(round(float(np.mean(each)), 1) for each in values.values() if each)
        most = max(map(len, values.values()))
        for line, each in zip(lines[1:], values.values(), strict=True):
            marked = bold if each and round(float(np.mean(each)), 1) == best else ""
            missing = f" ({len(each)})" if 0 < len(each) < most else ""
            line.append(f"{marked}{_mean_and_spread(each)}{marked}{missing}")
    return lines


def _mean_and_spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Format a table for the terminal."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines
    )


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Format a table as Markdown."""
    head, *rest = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|---" + "|---:" * (len(lines[0]) - 1) + "|", *rest])


TABLES = {  # quantity: title, factor, and mark of the best value
    "accuracy": ("Accuracy on the test samples, %", 100.0, "**"),
    "f1": ("F1 of the labels found to be wrong, %", 100.0, "**"),
    "seconds": ("Seconds of a fit", 1.0, ""),
}


def write(out: Path, about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all files atomically: an interruption leaves the previous version."""
    flat = [{name: value for name, value in row.items() if name != "more"} for row in rows]
    tables = [
        f"{title}; mean ± standard deviation over {len({row['seed'] for row in rows})} seeds.\n\n{markdown(lines)}\n"
        for figure, (title, factor, bold) in TABLES.items()
        if len(lines := grid(rows, figure, factor, bold)) > 1
    ]
    contents = {
        "classifiers.json": json.dumps({**about, "rows": rows}, indent=2) + "\n",
        "classifiers.csv": csv_text(flat),
        "table.md": "\n".join([*tables, drawn(rows) + "\n"]),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        unfinished = out / f"{name}.unfinished"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(out / name)


def rows_before(out: Path, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that are in the folder; refuse rows that are not comparable with new ones."""
    if not (out / "classifiers.json").is_file():
        return []
    before = json.loads((out / "classifiers.json").read_text(encoding="utf-8"))
    made, wanted = ({"versions": each["versions"], "trials": each["settings"]["trials"]} for each in (before, about))
    for name, value in wanted.items():
        if made[name] != value:
            raise InvalidInput(
                f"`--out` must be a folder whose rows were made with the same {name}, {value}, but got {out}, "
                f"made with {made[name]}; use another folder."
            )
    return list(before["rows"])


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=[name for name in SETS if name != "newsgroups"])
    parser.add_argument("--noise", nargs="+", default=["symmetric:0.3", "symmetric:0.45"])
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0")
    parser.add_argument(
        "--trials",
        type=int,
        default=DEFAULT_GENERATIONS * SIZES[0],
        help="schedules that s2e searches",
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--data-home", type=Path, help="folder of scikit-learn's 20 newsgroups")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    for name in ("seeds", "trials"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1, but got {getattr(given, name)}.")
    return given


def main(words: Sequence[str] | None = None) -> None:
    """Train the rows that are missing in the folder, seed by seed; print the tables."""
    given = arguments(words)
    about = {
        "versions": {
            "python": platform.python_version(),
            "s2e": __version__,
            **{each.__name__: each.__version__ for each in (cleanlab, matplotlib, np, pd, scipy, sklearn, torch)},
        },
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in vars(given).items()},
    }
    rows = rows_before(given.out, about)
    done = {(row["set"], row["noise"], row["seed"], row["method"]) for row in rows}
    wholes = {name: SETS[name](given.data_home) for name in given.sets}
    for seed in range(given.seeds):
        for name in given.sets:
            for noise in given.noise:
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
    write(given.out, about, rows)  # also where nothing was left to train
    for figure, (title, factor, _) in TABLES.items():
        print(f"\n{title}\n{aligned(grid(rows, figure, factor))}")
    print(f"\n{drawn(rows)}")


if __name__ == "__main__":
    try:
        main()
    except S2EError as problem:
        raise SystemExit(f"classifiers.py: {problem}") from problem
