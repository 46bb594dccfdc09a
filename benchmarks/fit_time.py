"""The time of `S2EClassifier().fit` with all defaults, on a table of numbers.

    python benchmarks/fit_time.py --out FILE                          2,000 × 256, four classes, 30% symmetric noise
    python benchmarks/fit_time.py --out FILE --rows 200 --columns 8

The samples are made with `make_classification` and a fixed seed. Seconds depend on what else the machine does; CPU
seconds less so. The file holds both, the number of threads, the load of the machine before the fit, and versions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from sklearn.datasets import make_classification

from noisy_sets import given_labels
from s2e import S2EClassifier
from s2e._version import __version__
from s2e.atomic_write import replace_output

CLASSES = 4
NOISE = "symmetric:0.3"


def measured(rows: int, columns: int, seed: int) -> dict[str, Any]:
    """Fit once; return the times, and what explains them."""
    informative = max(3, columns // 8)  # four classes of two clusters need three
    samples, right = make_classification(
        rows, columns, n_informative=informative, n_redundant=0, n_classes=CLASSES, flip_y=0.0, random_state=seed
    )
    given = given_labels(samples, right.astype(np.int64), NOISE, np.random.default_rng(seed)).labels
    load = os.getloadavg()[0]
    began, began_cpu = time.perf_counter(), time.process_time()
    classifier = S2EClassifier(random_state=seed).fit(samples, given)
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - began_cpu,
        "load_before": load,
        "trials": len(classifier.study_.trials),
        "epochs": classifier.epochs_,
        "votes": classifier.final_name_,
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    found = {
        "rows": given.rows,
        "columns": given.columns,
        "seed": given.seed,
        "classes": CLASSES,
        "noise": NOISE,
        **measured(given.rows, given.columns, given.seed),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "versions": {
            "python": platform.python_version(),
            "s2e": __version__,
            **{each.__name__: each.__version__ for each in (np, sklearn, torch)},
        },
    }
    text = json.dumps(found, indent=2) + "\n"
    replace_output(given.out, text.encode())
    print(text, end="")


if __name__ == "__main__":
    main()
