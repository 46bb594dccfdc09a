"""What a few samples with trusted labels are worth: accuracy and audit of `S2EClassifier` with and without them.

    python benchmarks/trusted.py --out DIR                            six settings, three seeds, 0, 30 and 100 trusted
    python benchmarks/trusted.py --out DIR --settings confused --seeds 1 --trusted 30

The trusted samples are drawn at random, and taken out of the training samples; the test part is the same for all.
Beside `s2e`, with the same samples: logistic regression and boosting, fitted to the trusted samples alone and to all
samples together. Columns of the audit: labels that are wrong among those that it holds for wrong with a probability of
at least 90%, and among those that it holds for right with at least 95%.

Digits, wine and breast_cancer with seeds 0 and 1 were used in development; the settings here have the seeds 2 and up.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import noisy_sets
from s2e import S2EClassifier
from s2e._version import __version__
from s2e.atomic_write import replace_output

FIRST_SEED = 2
SETTINGS: dict[str, tuple[Any, str]] = {
    "digits": (lambda: load_digits(return_X_y=True), "pair:0.45"),
    "wine": (lambda: load_wine(return_X_y=True), "pair:0.45"),
    "breast_cancer": (lambda: load_breast_cancer(return_X_y=True), "symmetric:0.4"),
    "confused": (noisy_sets.confused, "pair:0.45"),
    "instance": (noisy_sets.instance, "instance:0.4"),
    "many_classes": (noisy_sets.many_classes, "symmetric:0.3"),
}
PLAIN = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "boosting": lambda: HistGradientBoostingClassifier(random_state=0),
}


def rows_of(name: str, seed: int, trusted_counts: Sequence[int]) -> list[dict[str, Any]]:
    """Return the results of every method with every number of trusted samples."""
    load, noise = SETTINGS[name]
    samples, right, given, train, test = noisy_sets.noisy_split(load, noise, seed)
    found = []
    for count in trusted_counts:
        order = np.random.default_rng(seed).permutation(len(train))
        known, rest = order[:count], order[count:]
        trusted = {"X_val": samples[train[known]], "y_val": right[train[known]]} if count else {}
        began = time.process_time()
        fitted = S2EClassifier(random_state=seed).fit(samples[train[rest]], given[rest], **trusted)
        row = {
            "setting": f"{name}, {noise}",
            "seed": seed,
            "trusted": count,
            "cpu_seconds": time.process_time() - began,
        }
        wrong, quality = given[rest] != right[train[rest]], fitted.label_quality_
        row |= {
            "s2e": float((fitted.predict(samples[test]) == right[test]).mean()),
            "held_for_wrong": _share(wrong[quality <= 0.1]),
            "held_for_right": _share(wrong[quality >= 0.95]),
            "message": fitted.audit_message_,
        }
        labels = np.concatenate([right[train[known]], given[rest]])
        for kind, chosen in (("trusted", slice(count)), ("all", slice(None))):
            if len(np.unique(labels[chosen])) > 1:
                own = samples[train[order[chosen]]]
                for plain, model in PLAIN.items():
                    row[f"{plain}, {kind}"] = float(model().fit(own, labels[chosen]).score(samples[test], right[test]))
        found.append(row)
        print(json.dumps(row), flush=True)
    return found


def _share(wrong: NDArray[np.bool_]) -> float | None:
    return float(wrong.mean()) if len(wrong) else None


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return means over the seeds as Markdown, in percent."""
    columns = ["s2e", *(f"{plain}, {kind}" for kind in ("trusted", "all") for plain in PLAIN)]
    columns += ["held_for_wrong", "held_for_right"]
    lines = [f"| setting | trusted | {' | '.join(columns)} |", "|---|---:|" + "---:|" * len(columns)]
    for setting, count in dict.fromkeys((row["setting"], row["trusted"]) for row in rows):
        own = [row for row in rows if (row["setting"], row["trusted"]) == (setting, count)]
        means = [[row[column] for row in own if row.get(column) is not None] for column in columns]
        cells = [f"{100 * np.mean(values):.1f}" if values else "" for values in means]
        lines.append(f"| {setting} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--trusted", nargs="+", type=int, default=[0, 30, 100])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [
        row
        for name in given.settings
        for seed in range(FIRST_SEED, FIRST_SEED + given.seeds)
        for row in rows_of(name, seed, given.trusted)
    ]
    versions = {"python": platform.python_version(), "s2e": __version__}
    versions |= {each.__name__: each.__version__ for each in (np, sklearn, torch)}
    table = table_of(rows)
    replace_output(
        given.out / "trusted.json", (json.dumps({"rows": rows, "versions": versions}, indent=2) + "\n").encode()
    )
    replace_output(given.out / "table.md", table.encode())
    print(table, end="")


if __name__ == "__main__":
    main()
