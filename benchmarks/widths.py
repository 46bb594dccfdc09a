"""The width of the MLP on small tables: accuracy and time of `S2EClassifier` whose networks predict alone.

    python benchmarks/widths.py --out FILE                              seven sets, two seeds, three widths
    python benchmarks/widths.py --out FILE --sets wine --seeds 1 --trials 6

The width that `workflows/defaults.py` chooses by the number of samples was chosen on these sets, which no reported
comparison uses with these seeds and this noise. A quarter of the samples is the test part; no method receives clean
labels. CPU seconds are of `fit`, with the threads of PyTorch.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.model_selection import train_test_split

from noisy_sets import given_labels
from s2e import S2EClassifier
from s2e._version import __version__
from s2e.atomic_write import replace_output

Samples = NDArray[np.float64]
Labels = NDArray[np.int64]


def _made(rows: int, columns: int, informative: int, classes: int, clusters: int, separation: float) -> Any:
    return make_classification(
        rows,
        columns,
        n_informative=informative,
        n_redundant=0,
        n_classes=classes,
        n_clusters_per_class=clusters,
        class_sep=separation,
        flip_y=0.0,
        random_state=91,
    )


SETS = {
    "wine": (partial(load_wine, return_X_y=True), "symmetric:0.3"),
    "breast_cancer": (partial(load_breast_cancer, return_X_y=True), "symmetric:0.3"),
    "digits": (partial(load_digits, return_X_y=True), "symmetric:0.3"),
    "digits, pair noise": (partial(load_digits, return_X_y=True), "pair:0.4"),
    "four classes": (partial(_made, 2000, 30, 12, 4, 3, 1.2), "symmetric:0.3"),
    "eight classes": (partial(_made, 3000, 60, 16, 8, 2, 1.5), "symmetric:0.3"),
    "256 columns": (partial(_made, 1500, 256, 32, 4, 2, 1.5), "symmetric:0.3"),
}
"""Samples with right labels, and their noise, by name."""


def measured(name: str, width: int, seed: int, trials: int) -> dict[str, Any]:
    """Fit once; return the accuracy and the time."""
    load, noise = SETS[name]
    samples, right = load()
    train, test, of_train, of_test = train_test_split(samples, right, test_size=0.25, stratify=right, random_state=seed)
    given = given_labels(train, of_train.astype(np.int64), noise, np.random.default_rng(seed)).labels
    classifier = S2EClassifier(network=f"mlp:widths={width}", final_estimator=None, n_trials=trials, random_state=seed)
    began = time.process_time()
    classifier.fit(train, given)
    return {
        "set": name,
        "samples": len(train),
        "width": width,
        "seed": seed,
        "cpu_seconds": time.process_time() - began,
        "accuracy": classifier.score(test, of_test),
    }


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return means over sets and seeds, one row for each width."""
    found = []
    for width in sorted({row["width"] for row in rows}):
        own = [row for row in rows if row["width"] == width]
        means = {key: float(np.mean([row[key] for row in own])) for key in ("accuracy", "cpu_seconds")}
        found.append({"width": width, "trainings": len(own), **means})
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 128, 256])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    rows: list[dict[str, Any]] = []
    versions = {each.__name__: each.__version__ for each in (np, sklearn, torch)}
    about = {"trials": given.trials, "versions": {"python": platform.python_version(), "s2e": __version__, **versions}}
    for name in given.sets:
        for width in given.widths:
            for seed in range(given.seeds):
                rows.append(measured(name, width, seed, given.trials))
                print(json.dumps(rows[-1]), flush=True)
                text = json.dumps({**about, "summary": summary(rows), "rows": rows}, indent=2) + "\n"
                replace_output(given.out, text.encode())


if __name__ == "__main__":
    main()
