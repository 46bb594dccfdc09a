"""What fifty decisions on labels are worth, by how the labels were chosen.

    python benchmarks/review.py digits --noise symmetric:0.4 pair:0.4 --seeds 12 --out DIR

A network is trained on noisy labels and its labels are audited. Then the labels of some samples are reviewed, with the
true labels as the decisions, and the same training is repeated with `--reviewed`:

    valuable   those that the page of `s2e report` names as worth most
    doubtful   those of lowest quality
    random     drawn from all

Reported are the test accuracy, and the share of wrong labels among the suggested ones of all audited samples, reviewed
ones included: what remains wrong for a user who accepts all suggestions. Differences are paired by seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from s2e import __version__
from s2e.audit import AuditedRun, audit_run, order_by_value
from s2e.engine import LAST_EPOCHS
from s2e.runs import RunLocation, csv_text
from s2e.seeds import derive
from s2e.specs import TrainOptions, assemble
from s2e.workflows.train import train

NONE = "none"
CHOICES = (NONE, "valuable", "doubtful", "random")
MEASURES = ("test", "wrong")


def chosen(audited: AuditedRun, choice: str, count: int, seed: int) -> np.ndarray:
    """Return the samples to review."""
    if choice == "valuable":
        return order_by_value(audited.audit, audited.labels, count)
    if choice == "doubtful":
        return audited.order[:count]
    return np.random.default_rng(derive(seed, "review")).choice(len(audited.labels), count, replace=False)


def decisions(audited: AuditedRun, samples: np.ndarray) -> str:
    """Return the true labels of samples as a file of decisions."""
    assert audited.true is not None, "the true labels must be known"
    names = audited.class_names
    return csv_text(
        [
            {
                "id": audited.ids[index],
                "row": int(audited.rows[index]),
                "given_label": names[audited.labels[index]],
                "decision": "right" if audited.labels[index] == audited.true[index] else "wrong",
                "label": names[audited.true[index]],
            }
            for index in samples.tolist()
        ]
    )


def rows_of_seed(given: argparse.Namespace, noise: str, seed: int) -> list[dict[str, Any]]:
    """Train without decisions, then with those of every choice."""
    rows, first = [], None
    with tempfile.TemporaryDirectory() as folder:
        for choice in CHOICES:
            values = {
                "data": given.data,
                "noise": noise,
                "schedule": f"coteaching:{noise.partition(':')[2]}",
                "epochs": given.epochs,
                "validation": "noisy",
                "seed": seed,
            }
            if first is not None:
                file = Path(folder) / f"{choice}.csv"
                file.write_text(decisions(first, chosen(first, choice, given.decisions, seed)))
                values["reviewed"] = [str(file)]
            location = RunLocation(Path(folder) / choice, given.data_root, given.device)
            run = train(assemble(TrainOptions, values), location)
            audited = audit_run(run)
            first = audited if first is None else first
            (own,) = run.read_json("result.json")["methods"]
            wrong = float((audited.audit.suggested != audited.true).mean())
            test = own["test"][f"last_{LAST_EPOCHS}_epochs"]
            rows.append({"noise": noise, "choice": choice, "seed": seed, "test": test, "wrong": wrong})
    return rows


def summary(rows: list[dict[str, Any]], noise: str, choice: str) -> dict[str, Any]:
    """Return the means of a choice, and its differences from no decisions with their standard errors."""
    found: dict[str, Any] = {"noise": noise, "choice": choice}
    for measure in MEASURES:
        own, without = (
            [each[measure] for each in rows if (each["noise"], each["choice"]) == (noise, one)]
            for one in (choice, NONE)
        )
        gaps = [mine - before for mine, before in zip(own, without, strict=True)]
        error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else None
        found[measure] = {"mean": statistics.mean(own), "difference": statistics.mean(gaps), "standard_error": error}
    return found


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--noise", nargs="+", default=["symmetric:0.4", "pair:0.4"])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--decisions", type=int, default=50)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [row for noise in given.noise for seed in range(given.seeds) for row in rows_of_seed(given, noise, seed)]
    (given.out / "review.csv").write_text(csv_text(rows))
    found = [summary(rows, noise, choice) for noise in given.noise for choice in CHOICES]
    for each in found:
        texts = [
            f"{measure} {each[measure]['mean']:.2%} ({each[measure]['difference']:+.2%} "
            f"± {each[measure]['standard_error'] or 0:.2%})"
            for measure in MEASURES
        ]
        print(f"{each['noise']:16}{each['choice']:10}{'   '.join(texts)}")
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(given).items()}
    about = {"s2e": __version__, "torch": torch.__version__, "settings": settings}
    (given.out / "review.json").write_text(json.dumps({**about, "summary": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
