"""What trainings on audited labels are worth where networks predict alone: accuracy and audit with 0 to 2 rounds.

    python benchmarks/audit_rounds.py --out DIR                               six settings, three seeds, 0 and 2 rounds
    python benchmarks/audit_rounds.py --out DIR --settings wrong_digits --seeds 1 --rounds 0 1 2

`S2EClassifier(final_estimator=None)` with its defaults; it receives neither the noise rate nor a label known to be
correct. Columns: accuracy on a test part with correct labels; F1 of the labels found to be wrong; wrong labels among
those with a probability of at least 90% of being wrong; the error of the estimated noise rate.

Some of these seeds were used to choose the number of rounds and where there is none, so this is no independent test.
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
from sklearn.datasets import load_breast_cancer, load_digits

import noisy_sets
from s2e import S2EClassifier
from s2e._version import __version__
from s2e.atomic_write import replace_output
from s2e.workflows import pipeline

FIRST_SEED = 2
SETTINGS: dict[str, tuple[Any, str]] = {
    "wrong_digits": (lambda: load_digits(return_X_y=True), "symmetric:0.45"),
    "exchanged_digits": (lambda: load_digits(return_X_y=True), "pair:0.45"),
    "breast_cancer": (lambda: load_breast_cancer(return_X_y=True), "symmetric:0.3"),
    "instance": (noisy_sets.instance, "instance:0.4"),
    "confused": (noisy_sets.confused, "pair:0.4"),
    "many_classes": (noisy_sets.many_classes, "symmetric:0.3"),
}


def row_of(name: str, seed: int, rounds: int) -> dict[str, Any]:
    """Return the results of a fit with at most so many rounds."""
    samples, right, given, train, test = noisy_sets.noisy_split(*SETTINGS[name], seed)
    noise = SETTINGS[name][1]
    pipeline.AUDIT_ROUNDS = rounds
    began = time.process_time()
    fitted = S2EClassifier(random_state=seed, final_estimator=None).fit(samples[train], given)
    seconds = time.process_time() - began
    wrong, found = given != right[train], np.zeros(len(given), dtype=bool)
    found[np.asarray(fitted.label_issues_)] = True
    flagged = fitted.label_quality_ <= 0.1
    row = {
        "setting": f"{name}, {noise}",
        "seed": seed,
        "rounds": rounds,
        "accuracy": float(fitted.score(samples[test], right[test])),
        "f1": float(2 * (found & wrong).sum() / max(1, found.sum() + wrong.sum())),
        "flagged_wrong": float(wrong[flagged].mean()) if flagged.any() else None,
        "noise_rate_error": float(abs(fitted.noise_rate_ - wrong.mean())),
        "cpu_seconds": seconds,
    }
    print(json.dumps(row), flush=True)
    return row


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return means over the seeds as Markdown, shares in percent."""
    columns = ["accuracy", "f1", "flagged_wrong", "noise_rate_error"]
    lines = [f"| setting | rounds | {' | '.join(columns)} | CPU s |", "|---|---:|" + "---:|" * (len(columns) + 1)]
    for setting, rounds in dict.fromkeys((row["setting"], row["rounds"]) for row in rows):
        own = [row for row in rows if (row["setting"], row["rounds"]) == (setting, rounds)]
        known = [[row[column] for row in own if row[column] is not None] for column in columns]
        cells = [f"{100 * np.mean(values):.1f}" if values else "" for values in known]
        lines.append(
            f"| {setting} | {rounds} | {' | '.join(cells)} | {np.mean([row['cpu_seconds'] for row in own]):.0f} |"
        )
    return "\n".join(lines) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--rounds", nargs="+", type=int, default=[0, 2])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [
        row_of(name, seed, rounds)
        for name in given.settings
        for rounds in given.rounds
        for seed in range(FIRST_SEED, FIRST_SEED + given.seeds)
    ]
    versions = {"python": platform.python_version(), "s2e": __version__}
    versions |= {each.__name__: each.__version__ for each in (np, sklearn, torch)}
    table = table_of(rows)
    content = json.dumps({"rows": rows, "versions": versions}, indent=2) + "\n"
    replace_output(given.out / "rounds.json", content.encode())
    replace_output(given.out / "table.md", table.encode())
    print(table, end="")


if __name__ == "__main__":
    main()
