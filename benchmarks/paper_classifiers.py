"""The classifier that one gets on the paper's data: whole searches from the command line, over several seeds.

    python benchmarks/paper_classifiers.py mnist --seeds 5 --jobs 3 --out DIR
    python benchmarks/paper_classifiers.py cifar10 --seeds 5 --out DIR
    python benchmarks/paper_classifiers.py mnist --seeds 1 --noise pair:0.45 --out DIR -- --epochs 20 --trials 12

For each noise setting and seed it runs `s2e search DATA --noise NOISE --seed SEED --no-baselines`, with clean
validation samples and further options after `--`. The noise rate is not given. The seed decides the noise, the split,
the search and the trainings. Runs are in DIR/runs; finished ones are kept, others are resumed, `--jobs` of them at the
same time.

| column | meaning |
|---|---|
| one_network | test accuracy of the selected training, mean over the last ten epochs: the paper's protocol |
| classifier | test accuracy of the classifier of the run, which is what `s2e predict` uses |
| validation | its accuracy on the validation samples by which it was chosen |
| networks, trials | networks that vote; trials of the search |
| audit_f1, auroc | of the labels found to be wrong among those of the training part; of their quality |
| flagged, flagged_wrong | labels that are held for wrong with a probability of 0.9 or more, and those that are wrong |
| noise_rate, …_low, …_high, true_noise_rate | the estimate with its 90% interval, and the share of wrong labels |
| seconds | of the command; the last session's where it was resumed |

DIR/classifiers.csv holds one row for each run, DIR/table.md means and standard deviations over the seeds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from audit import scores
from s2e.atomic_write import replace_output
from s2e.audit import audit_run
from s2e.errors import S2EError
from s2e.runs import Run, csv_text

NOISES = ("symmetric:0.2", "symmetric:0.5", "pair:0.45")
HELD_FOR_WRONG = 0.1
"""Quality up to which a label is held for wrong: 1 minus the probability."""


def train_run(data: str, noise: str, seed: int, folder: Path, given: argparse.Namespace) -> Path | None:
    """Search from the command line, or resume a search; return its run, None if it failed."""
    path = folder / f"{data}-{noise.replace(':', '-')}-{seed}"
    if (path / "result.json").is_file():
        return path
    command = [
        sys.executable, "-m", "s2e", "search", data, "--noise", noise, "--seed", str(seed), "--no-baselines",
        "--data-root", str(given.data_root), "--device", given.device, "--out", str(path), *given.options,
    ]  # fmt: skip
    with (folder / f"{path.name}.log").open("a") as log:
        resume = ["--resume"] if path.exists() else []
        ended = subprocess.run([*command, *resume], check=False, stderr=log, stdout=log)
    print(f"{path.name}: exit status {ended.returncode}", flush=True)
    return path if ended.returncode == 0 else None


def row_of(path: Path, noise: str, seed: int) -> dict[str, Any]:
    """Return the results of a finished run."""
    run = Run.open(path)
    result, audited = run.read_json("result.json"), audit_run(run)
    found, true = audited.audit, audited.true
    if true is None:
        raise SystemExit("paper_classifiers.py: the true labels must be known, but they are not.")
    counted = scores(found.quality, found.issues, found.suggested, audited.labels, true)
    flagged = found.quality <= HELD_FOR_WRONG
    classifier = result["classifier"]
    low, high = found.noise_rate_interval
    return {
        "noise": noise,
        "seed": seed,
        "one_network": result["methods"][-1]["test"]["last_10_epochs"],
        "classifier": classifier["test"],
        "validation": classifier["valid"],
        "networks": classifier["networks"],
        "trials": result["search"]["trials"],
        "audit_f1": counted.f1,
        "auroc": counted.auroc,
        "flagged": int(flagged.sum()),
        "flagged_wrong": int((flagged & (audited.labels != true)).sum()),
        "noise_rate": found.noise_rate,
        "noise_rate_low": low,
        "noise_rate_high": high,
        "true_noise_rate": float((audited.labels != true).mean()),
        "seconds": result["seconds"],
    }


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return means and standard deviations over the seeds as Markdown, shares in percent."""
    columns = {
        "one_network": "one network", "classifier": "classifier", "validation": "its validation",
        "audit_f1": "audit F1", "noise_rate": "noise rate", "true_noise_rate": "true",
    }  # fmt: skip
    titles = [*columns.values(), "interval holds it", "wrong of flagged", "seconds"]
    lines = [f"| noise | seeds | {' | '.join(titles)} |", "|---|---:|" + "---:|" * len(titles)]
    for noise in dict.fromkeys(row["noise"] for row in rows):
        own = [row for row in rows if row["noise"] == noise]
        cells = [_mean([100 * row[column] for row in own]) for column in columns]
        held = sum(row["noise_rate_low"] <= row["true_noise_rate"] <= row["noise_rate_high"] for row in own)
        flagged = sum(row["flagged"] for row in own)
        wrong = f"{100 * sum(row['flagged_wrong'] for row in own) / flagged:.1f}" if flagged else ""
        cells += [f"{held} of {len(own)}", wrong, f"{np.mean([row['seconds'] for row in own]):.0f}"]
        lines.append(f"| {noise} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(values: Sequence[float]) -> str:
    deviation = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{deviation}"


def main(words: Sequence[str] | None = None) -> None:
    """Search, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="name of a data set with a test part and clean validation samples")
    parser.add_argument("--noise", action="append", help="a noise setting; may be given several times")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="searches at the same time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, required=True)
    words = list(sys.argv[1:] if words is None else words)
    end = words.index("--") if "--" in words else len(words)
    given = parser.parse_args(words[:end])
    given.options = words[end + 1 :]
    runs = given.out / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    wanted = [(noise, seed) for seed in range(given.seeds) for noise in given.noise or NOISES]
    began = time.monotonic()
    with ThreadPoolExecutor(given.jobs) as pool:
        paths = list(pool.map(lambda each: train_run(given.data, *each, runs, given), wanted))
    rows = [row_of(path, *each) for path, each in zip(paths, wanted, strict=True) if path is not None]
    rows.sort(key=lambda row: [row["noise"] != noise for noise in given.noise or NOISES])
    replace_output(given.out / "classifiers.csv", csv_text(rows).encode())
    table = table_of(rows)
    replace_output(given.out / "table.md", table.encode())
    print(table, f"{time.monotonic() - began:.0f} s", sep="\n")
    if len(rows) < len(wanted):
        raise SystemExit(f"{len(wanted) - len(rows)} of {len(wanted)} searches did not finish; see the logs in {runs}.")


if __name__ == "__main__":
    try:
        main()
    except S2EError as problem:
        raise SystemExit(f"paper_classifiers.py: {problem}") from problem
