"""The cost of having no trusted validation labels: test accuracy of a search with clean, noisy and relabelled ones.

    python benchmarks/validation.py digits --noise symmetric:0.4 pair:0.3 instance:0.3 --seeds 5 --out DIR
    python benchmarks/validation.py mnist --epochs 40 --trials 30 --batch-size 128 --data-root data --out DIR

The noisy training data are the same each time. Three kinds of validation labels select the schedule and the restart:

    clean       true labels
    relabelled  labels as noisy as those of the training samples, relabelled by networks trained first, as `s2e` does
    as given    the same noisy labels, unchanged

The test part is used once, by the final classifier. Rows that exist in DIR are not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import optuna
import torch

from s2e import __version__
from s2e.engine import LAST_EPOCHS
from s2e.plots import noise_title
from s2e.runs import RunLocation, csv_text
from s2e.specs import SearchOptions, assemble
from s2e.workflows.search import search

VALIDATIONS: dict[str, dict[str, Any]] = {
    "clean": {"validation": "clean"},
    "relabelled": {"validation": "noisy"},
    "as given": {"validation": "noisy", "relabel": False},
}


def row(given: argparse.Namespace, noise: str, kind: str, seed: int) -> dict[str, Any]:
    """Search with one kind of validation labels; return the test accuracy of the final classifier."""
    values = {
        "data": given.data,
        "noise": noise,
        "seed": seed,
        "epochs": given.epochs,
        "batch_size": given.batch_size,
        "trials": given.trials,
        "baselines": False,
        **VALIDATIONS[kind],
    }
    with tempfile.TemporaryDirectory() as folder:
        location = RunLocation(Path(folder) / "run", given.data_root, given.device)
        run = search(assemble(SearchOptions, values), location)
        found = run.read_json("result.json")
        changed = run.read_arrays("validation.npz")
    (own,) = found["methods"]
    return {
        "noise": noise,
        "validation": kind,
        "seed": seed,
        "test": own["test"][f"last_{LAST_EPOCHS}_epochs"],
        "seconds": round(found["seconds"], 1),
        "validation_samples": len(changed["labels"]) if changed else found["samples"]["valid"],
    }


def main() -> None:
    """Run the rows that are missing, print and write all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--noise", nargs="+", default=["symmetric:0.4", "pair:0.3", "instance:0.3"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "validation.csv"
    rows: list[dict[str, Any]] = []
    if file.exists():
        numbers = {"seed": int, "test": float, "seconds": float, "validation_samples": int}
        with file.open() as before:
            rows = [
                {key: numbers.get(key, str)(value) for key, value in each.items()} for each in csv.DictReader(before)
            ]
    done = {(each["noise"], each["validation"], each["seed"]) for each in rows}
    for seed in range(given.seeds):
        for noise in given.noise:
            for kind in VALIDATIONS:
                if (noise, kind, seed) in done:
                    continue
                rows.append(row(given, noise, kind, seed))
                file.write_text(csv_text(rows))
                print(f"{noise:16} {kind:10} seed {seed}: {rows[-1]['test']:.2%}", flush=True)
    summary = [_summary(rows, noise, kind) for noise in given.noise for kind in VALIDATIONS]
    print(f"\n{'noise':26}{'validation':12}{'test accuracy':>18}{'minus clean':>20}")
    for each in summary:
        gap = f"{each['minus_clean']:+.2%} ± {each['standard_error']:.2%}" if each["validation"] != "clean" else ""
        print(
            f"{noise_title(each['noise']):26}{each['validation']:12}{each['mean']:9.2%} ± {each['std']:6.2%}{gap:>20}"
        )
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(given).items()}
    about = {"s2e": __version__, "torch": torch.__version__, "settings": settings}
    (given.out / "validation.json").write_text(json.dumps({**about, "summary": summary}, indent=2) + "\n")


def _summary(rows: list[dict[str, Any]], noise: str, kind: str) -> dict[str, Any]:
    def of(other: str) -> dict[int, float]:
        return {each["seed"]: each["test"] for each in rows if (each["noise"], each["validation"]) == (noise, other)}

    own, clean = of(kind), of("clean")
    gaps = [own[seed] - clean[seed] for seed in own]
    several = len(own) > 1
    return {
        "noise": noise,
        "validation": kind,
        "seeds": len(own),
        "mean": statistics.mean(own.values()),
        "std": statistics.stdev(own.values()) if several else 0.0,
        "minus_clean": statistics.mean(gaps),
        "standard_error": statistics.stdev(gaps) / len(gaps) ** 0.5 if several else 0.0,
    }


if __name__ == "__main__":
    main()
