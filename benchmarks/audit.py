"""Finding wrong labels: the label audit of s2e beside cleanlab, on the same rows with the same wrong labels.

    python benchmarks/audit.py mnist --noise symmetric:0.2 --noise symmetric:0.5 --noise pair:0.45 --out DIR
    python benchmarks/audit.py digits --noise pair:0.3 --batch-size 32 --trials 6 --out DIR          half a minute

Noise is added to every row of the training part, and every row is judged. For each noise setting and seed:

- s2e: what `s2e search --validation noisy --no-baselines` and `s2e audit` do. Some of the noisy rows are held out and
  their labels relabelled, the schedule of Co-teaching is searched by the agreement with these, and the final training is
  judged. Nobody tells it the noise rate, and nothing is chosen by clean labels. With `--trials 0` nothing is searched:
  one training with the schedule coteaching:0.5, which comes down to half of every batch whatever the noise.
- s2e, told: one Co-teaching with its own schedule for the true noise rate, audited: what knowing the rate is worth.
- cleanlab: probabilities of the same network from cross-validation (same optimiser, batch size and plan of the learning
  rate, plain cross-entropy, `--fold-epochs` epochs, folds stratified by the given labels), then `find_label_issues` and
  `get_label_quality_scores` as they come. Its other filters and scores are in the JSON file.

AUROC is of the quality scores, for labels that are truly wrong; precision, recall and F1 are of the issues each side
names without being told how many there are. "suggested" is the share of right suggestions among the issues that are
truly wrong labels; for cleanlab, the likeliest class is the suggestion. Seconds of training are those of the whole
search with its final training, or of all folds; those of judging come after the last training. A device is started
before the first clock. On a CPU, s2e trains as many members at a time as there are threads, and the folds are trained
one after another, each by one thread. DIR/audit.json has everything, DIR/audit.csv the table.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from s2e.audit.run_audit import audit_run
from s2e.data.preparing import prepare
from s2e.data.samples import LabelledData
from s2e.engine.devices import device_of
from s2e.engine.inference import predictions
from s2e.engine.task import Member, Task
from s2e.engine.training import train_population
from s2e.errors import InvalidInput, S2EError
from s2e.methods import Standard
from s2e.networks.factories import reference_network
from s2e.runs.csv_files import csv_text
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.seeds import derive
from s2e.workflows import search as commands
from s2e.workflows.bench import TrainingOptions
from s2e.workflows.progress import ProgressListener, progress

OURS, TOLD, THEIRS = "s2e", "s2e, told", "cleanlab"
UNSEARCHED = "coteaching:0.5"
"""Needs no noise rate: where more than half of the labels are wrong, there is hardly a class left to be learnt."""
OTHER_FILTERS = ("prune_by_class", "both", "confident_learning", "predicted_neq_given")
OTHER_SCORES = ("normalized_margin", "confidence_weighted_entropy")
COLUMNS = {  # of the table: what it is called there, and how wide it is
    "noise": ("noise", 16),
    "seed": ("seed", 4),
    "side": ("  side", 13),
    "auroc": ("AUROC", 8),
    "precision": ("precision", 11),
    "recall": ("recall", 8),
    "f1": ("F1", 8),
    "noise_rate": ("rate", 8),
    "true_noise_rate": ("true", 8),
    "suggested_right": ("suggested", 11),
    "training_seconds": ("training s", 12),
    "judging_seconds": ("judging s", 11),
}

Labels = NDArray[np.int64]
Floats = NDArray[np.float64]


class Seconds(NamedTuple):
    """What a side took."""

    training: float
    judging: float


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What a side says about every row, in the order of the file.

    Attributes:
        quality: (N,) the lower, the more doubtful the given label.
        issues: (N,) bool, labels it takes for wrong.
        suggested: (N,) what the label should be; only looked at for issues.
        noise_rate: its estimate of the share of wrong labels.
        seconds: what it took.
        more: what else goes into the JSON file.
    """

    quality: Floats
    issues: NDArray[np.bool_]
    suggested: Labels
    noise_rate: float
    seconds: Seconds
    more: Mapping[str, Any]


# ------------------------------------------------------------------------------------------------------------ figures


def figures(quality: Floats, issues: NDArray[np.bool_], suggested: Labels, given: Labels, right: Labels) -> Figures:
    """Compare verdicts with the truth; all arrays are (N,)."""
    wrong = given != right
    found = issues & wrong
    return Figures(
        auroc=auroc(quality, wrong),
        precision=_share(found.sum(), issues.sum()),
        recall=_share(found.sum(), wrong.sum()),
        f1=_share(2 * found.sum(), issues.sum() + wrong.sum()),  # 2PR/(P + R), also where P or R is 0
        suggested_right=_share((suggested == right)[found].sum(), found.sum()),
        issues=int(issues.sum()),
    )


class Figures(NamedTuple):
    """How good verdicts are; NaN where there is nothing to count."""

    auroc: float
    precision: float
    recall: float
    f1: float
    suggested_right: float
    issues: int


def auroc(quality: Floats, wrong: NDArray[np.bool_]) -> float:
    """Area under the curve of 1 − quality for wrong labels; by −quality, whose order no rounding disturbs."""
    return float(roc_auc_score(wrong, -quality)) if 0 < wrong.sum() < len(wrong) else float("nan")


def _share(part: int, whole: int) -> float:
    return float(part / whole) if whole else float("nan")


# -------------------------------------------------------------------------------------------------------------- sides


def all_rows(options: TrainingOptions, root: Path) -> LabelledData:
    """Return every row of the training part with its noisy label, in the order of the file.

    The noise comes from the seed alone: commands with these options work on the same labels.
    """
    splits = prepare(options, root).splits
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


def by_s2e(options: TrainingOptions, trials: int, restarts: int, data: LabelledData, place: RunLocation) -> Verdicts:
    """GenerationPruner by a search on noisy validation data; with no trials, by one training that needs no noise rate either."""
    if trials == 0:
        return by_training(options, UNSEARCHED, data, place)
    searched = commands.SearchOptions(**asdict(options), trials=trials, baselines=False, restarts=restarts)
    return _audited(lambda watch: commands.search(searched, place, watch), data)


def by_training(options: TrainingOptions, schedule: str, data: LabelledData, place: RunLocation) -> Verdicts:
    """GenerationPruner by one training with a given schedule."""
    given = commands.TrainOptions(**asdict(options), schedule=schedule)
    return _audited(lambda watch: commands.train(given, place, watch), data)


def _audited(make: Callable[[ProgressListener], Run], data: LabelledData) -> Verdicts:
    began = time.perf_counter()
    with progress(Console(stderr=True, highlight=False, soft_wrap=True)) as watch:
        run = make(watch)
    trained = time.perf_counter()
    audited = audit_run(run)
    judged = time.perf_counter()
    order = np.argsort(audited.rows)
    if not (np.array_equal(audited.rows[order], data.rows) and np.array_equal(audited.labels[order], data.labels)):
        raise RuntimeError("the run must judge every row under the labels that cleanlab is given, but it does not.")
    found = audited.verdicts
    more = {
        "schedule": run.read_json("schedule.json")["keep_rates"],
        "temperature": found.temperature,
        "doubtful_classes": audited.summary()["doubtful_classes"],
        "result": run.read_json("result.json"),
    }
    seconds = Seconds(trained - began, judged - trained)
    quality, issues, suggested = found.quality[order], found.issues[order], found.suggested[order]
    return Verdicts(quality, issues, suggested, found.noise_rate, seconds, more)


def by_cleanlab(options: TrainingOptions, folds: int, data: LabelledData, device: torch.device) -> Verdicts:
    """GenerationPruner by probabilities from cross-validation."""
    began = time.perf_counter()
    probabilities = cross_validated(options, folds, data, device)
    trained = time.perf_counter()
    quality = get_label_quality_scores(data.labels, probabilities)
    issues = find_label_issues(data.labels, probabilities, n_jobs=1)
    joint = estimate_joint(data.labels, probabilities)  # (C, C), rows given, columns true
    judged = time.perf_counter()
    suggested = probabilities.argmax(axis=1)
    right = _true_labels(data)
    more = {
        "accuracy_of_folds": float((suggested == right).mean()),
        "other_filters": {
            name: figures(quality, other, suggested, data.labels, right)._asdict()
            for name in OTHER_FILTERS
            for other in [find_label_issues(data.labels, probabilities, filter_by=name, n_jobs=1)]
        },
        "auroc_of_other_scores": {
            name: auroc(get_label_quality_scores(data.labels, probabilities, method=name), data.labels != right)
            for name in OTHER_SCORES
        },
    }
    seconds = Seconds(trained - began, judged - trained)
    return Verdicts(quality, issues, suggested, float(1 - np.trace(joint)), seconds, more)


def cross_validated(options: TrainingOptions, folds: int, data: LabelledData, device: torch.device) -> Floats:
    """Return probabilities (N, C), each row from a network trained on the other folds."""
    probabilities = np.empty((len(data), data.classes))
    network = reference_network(options.network, data.sample_shape, data.classes)
    schedule = schedules.constant(1.0, options.epochs)
    for fold, (others, held) in enumerate(_folds(data.labels, folds, options.seed)):
        seed = derive(options.seed, "fold", fold)
        task = Task(data.take(others), network, Standard(), {}, options.epochs, options.batch_size, seed, device)
        trained = train_population(task, [Member(schedule, seed, options.learning_rate)])
        held_out = predictions(task, trained.state, data.inputs[held])[0, :, : data.classes]  # (n, C)
        probabilities[held] = held_out / held_out.sum(axis=1, keepdims=True, dtype=np.float64)
    return probabilities


def _folds(labels: Labels, folds: int, seed: int) -> Iterator[tuple[Labels, Labels]]:
    """Yield positions to train on and positions to predict."""
    parted = StratifiedKFold(folds, shuffle=True, random_state=derive(seed, "folds") % 2**32)
    yield from parted.split(np.zeros(len(labels)), labels)


def _true_labels(data: LabelledData) -> Labels:
    if data.clean_labels is None:
        raise InvalidInput("`noise` must add wrong labels to data whose true labels are not known, but got none.")
    return data.clean_labels


# ---------------------------------------------------------------------------------------------------------- reporting


def row_of(options: TrainingOptions, side: str, verdicts: Verdicts, data: LabelledData) -> dict[str, Any]:
    """Return a side's figures, a row of the table."""
    right = _true_labels(data)
    counted = figures(verdicts.quality, verdicts.issues, verdicts.suggested, data.labels, right)
    return {
        "noise": options.noise,
        "seed": options.seed,
        "side": side,
        **counted._asdict(),
        "noise_rate": verdicts.noise_rate,
        "true_noise_rate": float((data.labels != right).mean()),
        "training_seconds": verdicts.seconds.training,
        "judging_seconds": verdicts.seconds.judging,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay the rows out under each other, words to the left and numbers to the right."""
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


def compared(options: TrainingOptions, given: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Yield what each side finds under one noise setting and seed, as soon as it is known."""
    data = all_rows(options, given.data_root)
    rate = float((data.labels != _true_labels(data)).mean())
    with tempfile.TemporaryDirectory() as made:

        def place(name: str) -> RunLocation:
            return RunLocation(Path(made) / name, given.data_root, given.device)

        plain = replace(options, epochs=given.fold_epochs)
        sides: dict[str, Callable[[], Verdicts]] = {
            OURS: lambda: by_s2e(options, given.trials, given.restarts, data, place("searched")),
            TOLD: lambda: by_training(options, f"coteaching:{rate!r}", data, place("told")),
            THEIRS: lambda: by_cleanlab(plain, given.folds, data, device),
        }
        for side, judge in sides.items():
            verdicts = judge()
            yield {**row_of(options, side, verdicts, data), "more": verdicts.more}


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a name or a path, as s2e takes it")
    parser.add_argument("--noise", action="append", required=True, help="as symmetric:0.2; several for several rows")
    parser.add_argument("--seed", action="append", type=int, help="decides noise, folds and trainings; several too")
    parser.add_argument("--epochs", type=int, default=40, help="of every training of s2e")
    parser.add_argument("--trials", type=int, default=12, help="schedules searched; 0 for one training without")
    parser.add_argument("--restarts", type=int, default=3, help="of the final training; noisy validation chooses")
    parser.add_argument("--folds", type=int, default=5, help="of the cross-validation for cleanlab")
    parser.add_argument("--fold-epochs", type=int, default=10, help="of the training for each of them")
    parser.add_argument("--network", default="auto", help="of both sides")
    parser.add_argument("--batch-size", type=int, default=128, help="of both sides")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of both sides")
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
    """Run both sides, print a table, write JSON and CSV after every row."""
    given = arguments(words)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    device = device_of(given.device)
    torch.zeros(1, device=device).item()  # starting the device is nobody's training
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
            options = TrainingOptions(
                given.data, noise, "noisy", seed=seed, network=given.network, epochs=given.epochs,
                batch_size=given.batch_size, learning_rate=given.learning_rate,
            )  # fmt: skip
            for row in compared(options, given, device):
                rows.append(row)
                (given.out / "audit.json").write_text(json.dumps({**about, "rows": _finite(rows)}, indent=2) + "\n")
                flat = [{name: value for name, value in row.items() if name != "more"} for row in rows]
                (given.out / "audit.csv").write_text(csv_text(flat))
    print(table(rows))


def _finite(value: Any) -> Any:
    """Return the same with None for NaN, which JSON does not know."""
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
