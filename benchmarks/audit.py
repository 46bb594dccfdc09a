"""Finding wrong labels: the label audit of s2e and cleanlab, on the same rows with the same wrong labels.

    python benchmarks/audit.py mnist --noise symmetric:0.2 --noise symmetric:0.5 --noise pair:0.45 --out DIR
    python benchmarks/audit.py digits --noise pair:0.3 --batch-size 32 --trials 6 --out DIR          half a minute

Noise is added to every row of the training part, and every row is audited. For each noise setting and seed:

- s2e: what `s2e search --validation noisy --no-baselines` and `s2e audit` do. Some of the noisy rows are held out and
  relabelled, the schedule of Co-teaching is searched by the agreement with these labels, and the final training is
  audited. The noise rate is not given, and nothing is selected with clean labels. With `--trials 0` there is no search:
  one training with the schedule coteaching:0.5, which falls to half of every batch whatever the noise rate is.
- s2e, true rate: one Co-teaching with its own schedule for the true noise rate, audited. It measures the value of
  knowing the rate.
- cleanlab: probabilities of the same network from cross-validation (same optimizer, batch size and learning-rate
  schedule, plain cross-entropy, `--fold-epochs` epochs, folds stratified by the given labels), then
  `find_label_issues` and `get_label_quality_scores` with their defaults. Its other filters and scores are in the JSON
  file.

AUROC is that of the quality scores, for truly wrong labels. Precision, recall and F1 are those of the issues each side
finds; the number of issues is not given. "suggested" is the share of right suggestions among the issues that are
truly wrong labels; for cleanlab, the most probable class is the suggestion. Seconds of training are those of the whole
search with its final training, or of all folds; seconds of the audit start after the last training. The device is
initialised before the first measurement. On a CPU, s2e trains as many members at once as there are threads, and the
folds are trained one after another, each by one thread. DIR/audit.json holds everything, DIR/audit.csv the table.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import cleanlab
import numpy as np
import optuna
import scipy
import sklearn
import torch
from cleanlab.count import estimate_joint
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from numpy.typing import NDArray
from rich.console import Console
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from s2e import schedules
from s2e._version import __version__
from s2e.audit import FOLDS, audit_run
from s2e.data import LabelledData, prepare
from s2e.engine import Member, Task, predictions, resolve_device, train_population
from s2e.errors import InvalidInput, S2EError
from s2e.methods import Standard
from s2e.networks import factory_of
from s2e.runs import Run, RunLocation, csv_text
from s2e.seeds import derive
from s2e.specs import DataSpec, SearchOptions, SearchSpec, TrainingSpec, TrainOptions
from s2e.workflows import ProgressListener
from s2e.workflows.progress import progress
from s2e.workflows.search import search
from s2e.workflows.train import train

S2E, TRUE_RATE, CLEANLAB = "s2e", "s2e, true rate", "cleanlab"
UNSEARCHED = "coteaching:0.5"
"""Schedule that needs no noise rate: if more than half of the labels were wrong, few classes could be learnt."""
OTHER_FILTERS = ("prune_by_class", "both", "confident_learning", "predicted_neq_given")
OTHER_SCORES = ("normalized_margin", "confidence_weighted_entropy")
COLUMNS = {  # of the table: title and width
    "noise": ("noise", 16),
    "seed": ("seed", 4),
    "side": ("  side", 18),
    "auroc": ("AUROC", 8),
    "precision": ("precision", 11),
    "recall": ("recall", 8),
    "f1": ("F1", 8),
    "noise_rate": ("rate", 8),
    "true_noise_rate": ("true", 8),
    "suggested_right": ("suggested", 11),
    "training_seconds": ("training s", 12),
    "audit_seconds": ("audit s", 11),
}

Labels = NDArray[np.int64]
Floats = NDArray[np.float64]


class Seconds(NamedTuple):
    """Duration of the two phases of a side."""

    training: float
    audit: float


@dataclass(frozen=True, eq=False)
class Audit:
    """The audit of every row by one side, in the order of the file.

    Attributes:
        quality: (N,) scores; a lower score means a more doubtful label.
        issues: (N,) bool, labels that are probably wrong.
        suggested: (N,) suggested labels; used for issues only.
        noise_rate: estimated share of wrong labels.
        seconds: duration.
        more: further content of the JSON file.
    """

    quality: Floats
    issues: NDArray[np.bool_]
    suggested: Labels
    noise_rate: float
    seconds: Seconds
    more: Mapping[str, Any]


# ------------------------------------------------------------------------------------------------------------- scores


def scores(quality: Floats, issues: NDArray[np.bool_], suggested: Labels, given: Labels, right: Labels) -> Scores:
    """Compare an audit with the true labels; all arrays are (N,)."""
    wrong = given != right
    found = issues & wrong
    return Scores(
        auroc=auroc(quality, wrong),
        precision=_share(found.sum(), issues.sum()),
        recall=_share(found.sum(), wrong.sum()),
        f1=_share(2 * found.sum(), issues.sum() + wrong.sum()),  # 2PR/(P + R), also where P or R is 0
        suggested_right=_share((suggested == right)[found].sum(), found.sum()),
        issues=int(issues.sum()),
    )


class Scores(NamedTuple):
    """Scores of an audit; NaN where the denominator is zero."""

    auroc: float
    precision: float
    recall: float
    f1: float
    suggested_right: float
    issues: int


def auroc(quality: Floats, wrong: NDArray[np.bool_]) -> float:
    """Return the AUROC of 1 − quality for wrong labels, computed from −quality to avoid rounding."""
    return float(roc_auc_score(wrong, -quality)) if 0 < wrong.sum() < len(wrong) else float("nan")


def _share(part: int, whole: int) -> float:
    return float(part / whole) if whole else float("nan")


# -------------------------------------------------------------------------------------------------------------- sides


def all_rows(options: TrainOptions, root: Path) -> LabelledData:
    """Return every row of the training part with its noisy label, in the order of the file.

    The noise depends on the seed alone, so runs with these options have the same labels.
    """
    splits = prepare(options.dataset, options.noise, options.seed, root).splits
    parts = (splits.train, splits.valid)
    order = np.argsort(np.concatenate([part.rows for part in parts]))

    def joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(arrays)[order]

    return replace(
        splits.train,
        inputs=joined([part.inputs for part in parts]),
        labels=joined([part.labels for part in parts]),
        clean_labels=joined([_true_labels(part) for part in parts]),
        rows=joined([part.rows for part in parts]),
    )


def by_s2e(options: TrainOptions, trials: int, restarts: int, data: LabelledData, location: RunLocation) -> Audit:
    """Audit a search on noisy validation data; with no trials, one training that needs no noise rate."""
    if trials == 0:
        return by_training(options, UNSEARCHED, data, location)
    searched = SearchOptions(
        options.dataset,
        options.noise,
        training=options.training,
        search=SearchSpec(trials=trials),
        baselines=False,
        restarts=restarts,
        seed=options.seed,
    )
    return _audited(lambda listener: search(searched, location, listener), data)


def by_training(options: TrainOptions, schedule: str, data: LabelledData, location: RunLocation) -> Audit:
    """Audit one training with a given schedule."""
    return _audited(lambda listener: train(replace(options, schedule=schedule), location, listener), data)


def _audited(make_run: Callable[[ProgressListener], Run], data: LabelledData) -> Audit:
    began = time.perf_counter()
    with progress(Console(stderr=True, highlight=False, soft_wrap=True)) as listener:
        run = make_run(listener)
    trained = time.perf_counter()
    audited = audit_run(run)
    ended = time.perf_counter()
    order = np.argsort(audited.rows)
    if not (np.array_equal(audited.rows[order], data.rows) and np.array_equal(audited.labels[order], data.labels)):
        raise RuntimeError("the run must audit every row with the labels that cleanlab receives, but it does not.")
    found = audited.audit
    more = {
        "schedule": run.read_json("schedule.json")["keep_rates"],
        "temperature": found.temperature,
        "noise_rate_interval": list(found.noise_rate_interval),
        "accuracy": audited.summary()["accuracy"],
        "accuracy_interval": audited.summary()["accuracy_interval"],
        "message": found.message,
        "doubtful_classes": audited.summary()["doubtful_classes"],
        "result": run.read_json("result.json"),
    }
    seconds = Seconds(trained - began, ended - trained)
    quality, issues, suggested = found.quality[order], found.issues[order], found.suggested[order]
    return Audit(quality, issues, suggested, found.noise_rate, seconds, more)


def by_cleanlab(options: TrainOptions, folds: int, data: LabelledData, device: torch.device) -> Audit:
    """Audit with cleanlab and probabilities from cross-validation."""
    began = time.perf_counter()
    probabilities = cross_validated(options, folds, data, device)
    trained = time.perf_counter()
    quality = get_label_quality_scores(data.labels, probabilities)
    issues = find_label_issues(data.labels, probabilities, n_jobs=1)
    joint = estimate_joint(data.labels, probabilities)  # (C, C), rows given, columns true
    ended = time.perf_counter()
    suggested = probabilities.argmax(axis=1)
    right = _true_labels(data)
    more = {
        "accuracy_of_folds": float((suggested == right).mean()),
        "other_filters": {
            name: scores(quality, other, suggested, data.labels, right)._asdict()
            for name in OTHER_FILTERS
            for other in [find_label_issues(data.labels, probabilities, filter_by=name, n_jobs=1)]
        },
        "auroc_of_other_scores": {
            name: auroc(get_label_quality_scores(data.labels, probabilities, method=name), data.labels != right)
            for name in OTHER_SCORES
        },
    }
    seconds = Seconds(trained - began, ended - trained)
    return Audit(quality, issues, suggested, float(1 - np.trace(joint)), seconds, more)


def cross_validated(options: TrainOptions, folds: int, data: LabelledData, device: torch.device) -> Floats:
    """Return probabilities (N, C), each row from a network trained on the other folds."""
    training = options.training
    probabilities = np.empty((len(data), data.classes))
    network = factory_of(training.network, data.sample_shape, data.classes)
    schedule = schedules.constant(1.0, training.epochs)
    for fold, (others, held) in enumerate(_folds(data.labels, folds, options.seed)):
        seed = derive(options.seed, "fold", fold)
        task = Task(data.take(others), network, Standard(), {}, training.epochs, training.batch_size, seed, device)
        trained = train_population(task, [Member(schedule, seed, training.learning_rate)])
        held_out = predictions(task, trained.state, data.inputs[held])[0, :, : data.classes]  # (n, C)
        probabilities[held] = held_out / held_out.sum(axis=1, keepdims=True, dtype=np.float64)
    return probabilities


def _folds(labels: Labels, folds: int, seed: int) -> Iterator[tuple[Labels, Labels]]:
    """Yield indices to train on and indices to predict."""
    splitter = StratifiedKFold(folds, shuffle=True, random_state=derive(seed, "folds") % 2**32)
    yield from splitter.split(np.zeros(len(labels)), labels)


def _true_labels(data: LabelledData) -> Labels:
    if data.clean_labels is None:
        raise InvalidInput("`noise` must not be none for data whose true labels are unknown.")
    return data.clean_labels


# ---------------------------------------------------------------------------------------------------------- reporting


def row_of(options: TrainOptions, side: str, audited: Audit, data: LabelledData) -> dict[str, Any]:
    """Return the results of a side as a row of the table."""
    right = _true_labels(data)
    counted = scores(audited.quality, audited.issues, audited.suggested, data.labels, right)
    return {
        "noise": options.noise,
        "seed": options.seed,
        "side": side,
        **counted._asdict(),
        "noise_rate": audited.noise_rate,
        "true_noise_rate": float((data.labels != right).mean()),
        "training_seconds": audited.seconds.training,
        "audit_seconds": audited.seconds.audit,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format the rows as a table, text aligned left and numbers right."""
    lines = ["".join(_aligned(name, title) for name, (title, _) in COLUMNS.items())]
    lines += ["".join(_aligned(name, _cell(name, row[name])) for name in COLUMNS) for row in rows]
    return "\n".join(lines)


def _aligned(name: str, text: str) -> str:
    width = COLUMNS[name][1]
    return text.ljust(width) if name in ("noise", "side") else text.rjust(width)


def _cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}" if name.endswith("seconds") else f"{value:.4f}"
    return f"  {value}" if name == "side" else str(value)


def compared(options: TrainOptions, given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Yield the results of each side under one noise setting and seed, as soon as they are available."""
    data = all_rows(options, given.data_root)
    rate = float((data.labels != _true_labels(data)).mean())
    with tempfile.TemporaryDirectory() as made:

        def location(name: str) -> RunLocation:
            return RunLocation(Path(made) / name, given.data_root, given.device)

        shorter = replace(options, training=replace(options.training, epochs=given.fold_epochs))
        sides: dict[str, Callable[[], Audit]] = {
            S2E: lambda: by_s2e(options, given.trials, given.restarts, data, location("searched")),
            TRUE_RATE: lambda: by_training(options, f"coteaching:{rate!r}", data, location("true-rate")),
            CLEANLAB: lambda: by_cleanlab(shorter, given.folds, data, device),
        }
        for side, audit_rows in sides.items():
            audited = audit_rows()
            yield {**row_of(options, side, audited, data), "more": audited.more}


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="name or path of a data set, as for s2e search")
    parser.add_argument(
        "--noise", action="append", required=True, help="for instance symmetric:0.2; may be given several times"
    )
    parser.add_argument(
        "--seed", action="append", type=int, help="of noise, folds and trainings; may be given several times"
    )
    parser.add_argument("--epochs", type=int, default=40, help="epochs of every training of s2e")
    parser.add_argument(
        "--trials", type=int, default=12, help="schedules to search; 0 for one training without a search"
    )
    parser.add_argument(
        "--restarts", type=int, default=3, help="seeds of the final training; noisy validation selects one"
    )
    parser.add_argument("--folds", type=int, default=5, help="folds of the cross-validation for cleanlab")
    parser.add_argument("--fold-epochs", type=int, default=10, help="epochs of the training of each fold")
    parser.add_argument("--network", default="auto", help="network of both sides")
    parser.add_argument("--batch-size", type=int, default=128, help="batch size of both sides")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="learning rate of both sides")
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    given.seed = given.seed or [0]
    for name, least in {"trials": 0, "restarts": 1, "folds": 2, "epochs": 1, "fold_epochs": 1}.items():
        if getattr(given, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}, but got {getattr(given, name)}.")
    return given


def main(words: Sequence[str] | None = None) -> None:
    """Run all sides, print a table, write JSON and CSV after every row."""
    given = arguments(words)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    device = resolve_device(given.device)
    torch.zeros(1, device=device).item()  # initialise the device before anything is measured
    about = {
        "versions": {
            "python": platform.python_version(),
            "s2e": __version__,
            **{each.__name__: each.__version__ for each in (cleanlab, torch, np, scipy, sklearn, optuna)},
        },
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "threads": torch.get_num_threads(),
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in vars(given).items()},
        "schedule_without_trials": UNSEARCHED,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for seed in given.seed:
        for noise in given.noise:
            training = TrainingSpec(given.network, given.epochs, given.batch_size, given.learning_rate)
            data = DataSpec(given.data, validation="noisy")
            options = TrainOptions(data, noise, training=training, folds=FOLDS, seed=seed)
            for row in compared(options, given, device):
                rows.append(row)
                (given.out / "audit.json").write_text(json.dumps({**about, "rows": _finite(rows)}, indent=2) + "\n")
                flat = [{name: value for name, value in row.items() if name != "more"} for row in rows]
                (given.out / "audit.csv").write_text(csv_text(flat))
    print(table(rows))


def _finite(value: Any) -> Any:
    """Replace NaN, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and np.isnan(value) else value


if __name__ == "__main__":
    try:
        main()
    except S2EError as problem:
        raise SystemExit(f"audit.py: {problem}") from problem
