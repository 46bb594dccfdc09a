"""Every reader of files, with a valid file to damage, and what it must do with a damaged one.

A reader returns a result, or raises an `S2EError` of one line. Another exception, a warning, a longer message, or more
than `SECONDS` is a failure, and Hypothesis looks for the smallest change that leads to it.
"""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from safetensors.torch import load as tensors_of
from safetensors.torch import save as saved_tensors

import image_files
import published_files
import report_runs
import s2e
import sampler_runs
from fitted_classifiers import fitted, three_blobs
from frequent_checkpoints import Killed, every_epoch, kill_at
from mutations import (
    Mutate,
    element,
    mutated_array,
    mutated_bytes,
    mutated_json,
    mutated_npy,
    mutated_npz,
    mutated_safetensors,
    mutated_sqlite,
    weighted,
)
from s2e import S2EClassifier
from s2e.audit import audit_run
from s2e.data import load, parse_noise
from s2e.data.image_encoding import ImageEncoder
from s2e.data.input_readers import ArrayReader
from s2e.data.loading import human_labels
from s2e.data.noise import transition_matrix
from s2e.data.reviewed import read_decisions
from s2e.engine import Task
from s2e.engine.checkpoints import DIGEST, digest_of
from s2e.engine.training import train_population
from s2e.errors import S2EError
from s2e.experiments import memorization
from s2e.experiments.schedule_table.table import ScheduleTable
from s2e.methods import Coteaching
from s2e.report import build_report
from s2e.runs import Run, RunLocation, Session, stored_options
from s2e.schedules import parse_schedule
from s2e.specs import CompareOptions, SearchOptions, assemble, flatten
from s2e.studies.studies import DATA_FINGERPRINT, copy_in_memory, open_study
from s2e.workflows import SILENT
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.pipeline import relabelled_task
from s2e.workflows.predict import predict
from searches import make_plan
from small_runs import save_clusters
from small_tasks import blobs, member, task
from tables import random_table

SECONDS = 20.0
MAX_MESSAGE = 2000
"""Longest message: it is one line, not the contents of a file."""


DETERMINISTIC = settings(
    derandomize=True,  # the same files in every run; nothing is kept between runs
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


class TooSlow(BaseException):
    """The reader took longer than `SECONDS`; no reader catches it."""


class Foreign(AssertionError):
    """A reader was too slow, or refused a file with more than a line."""


class Content(bytes):
    """The content of a file, which is not printed."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


@dataclass(frozen=True)
class Reader:
    """A reader with a valid file.

    Attributes:
        name: of the reader and the file.
        prepare: writes valid files into an empty folder and returns the one to damage.
        mutate: returns a strategy for damaged contents.
        read: reads the folder, with the damaged file in it.
        examples: how many damaged files are read in the suite; fewer where reading takes long.
    """

    name: str
    prepare: Callable[[Path], Path]
    mutate: Mutate
    read: Callable[[Path], object]
    examples: int = 24


def try_damaged(reader: Reader, folder: Path, examples: int) -> Counter[str]:
    """Let a reader read damaged files; return how many were read and refused, or raise the smallest failure."""
    folder.mkdir(parents=True, exist_ok=True)
    path = reader.prepare(folder)
    whole, outcomes = path.read_bytes(), Counter[str]()
    reader.read(folder)

    @settings(DETERMINISTIC, max_examples=examples)
    @given(reader.mutate(whole).map(Content))
    def reads_or_refuses(damaged: Content) -> None:
        path.write_bytes(damaged)
        outcomes[outcome(reader, folder)] += 1

    reads_or_refuses()
    path.write_bytes(whole)
    return outcomes


def outcome(reader: Reader, folder: Path) -> str:
    """Return "read" or "refused"; raise what makes it a failure."""
    try:
        with time_limit(SECONDS):
            reader.read(folder)
    except S2EError as refusal:
        message = str(refusal)
        if len(message.splitlines()) == 1 and message.isprintable() and len(message) <= MAX_MESSAGE:
            return "refused"
        raise Foreign(f"not one line: {message[:300]!a}") from refusal
    except TooSlow as slow:
        raise Foreign(str(slow)) from slow
    return "read"


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` in the body after some time."""

    def stop(*_: object) -> None:
        raise TooSlow(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ----------------------------------------------------------------------------------------------------------- data files


def _clusters(folder: Path) -> Path:
    return Path(save_clusters(folder / "data.npz"))


def _samples(folder: Path) -> Path:
    np.savez(folder / "data.npz", x=np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32))
    return folder / "data.npz"


def _pixels(folder: Path) -> Path:
    np.savez_compressed(folder / "data.npz", x=np.random.default_rng(0).integers(0, 256, (9, 1, 4, 4), dtype=np.uint8))
    return folder / "data.npz"


def _table(suffix: str) -> Callable[[Path], Path]:
    def prepare(folder: Path) -> Path:
        path, frame = folder / f"data{suffix}", random_table(np.random.default_rng(1), 60)
        if suffix == ".parquet":
            frame.astype({"flag": object, "written": str}).to_parquet(path)
            return path
        if suffix.startswith((".jsonl", ".ndjson")):
            text = frame.to_json(orient="records", lines=True).encode()
        else:
            text = frame.to_csv(index=False, sep="\t" if suffix == ".tsv" else ",").encode()
        path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
        return path

    return prepare


def _load(name: str, **options: Any) -> Callable[[Path], object]:
    return lambda folder: load(folder / name, **options)


def _image_folder(suffix: str) -> Callable[[Path], Path]:
    def prepare(folder: Path) -> Path:
        for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
            image_files.save(folder / name, image_files.GREY)
        return Path(image_files.save(folder / f"b/3{suffix}", image_files.COLOUR))

    return prepare


def _mnist(name: str) -> Callable[[Path], Path]:
    def prepare(folder: Path) -> Path:
        published_files.write(folder / "mnist", published_files.mnist_files())
        return folder / "mnist" / name

    return prepare


def _cifar10(name: str) -> Callable[[Path], Path]:
    def prepare(folder: Path) -> Path:
        names = "\n".join([*"abcdefghij", ""]).encode()
        files = {**published_files.cifar10_files(), "batches.meta.txt": names}
        published_files.write(folder / "cifar-10-batches-bin", files)
        return folder / "cifar-10-batches-bin" / name

    return prepare


def _human_labels(folder: Path) -> Path:
    (folder / "cifar-n").mkdir()
    labels = np.random.default_rng(0).integers(0, 10, 30)
    np.savez(folder / "cifar-n" / "cifar10n.npz", worse_label=labels, clean_label=labels)
    return folder / "cifar-n" / "cifar10n.npz"


def _matrix(suffix: str) -> Callable[[Path], Path]:
    def prepare(folder: Path) -> Path:
        path, matrix = folder / f"matrix{suffix}", np.full((3, 3), 0.1) + 0.7 * np.eye(3)
        if suffix == ".npy":
            np.save(path, matrix)
        elif suffix == ".json":
            path.write_text(json.dumps(matrix.tolist()))
        else:
            np.savetxt(path, matrix, delimiter=",")
        return path

    return prepare


def _read_matrix(suffix: str) -> Callable[[Path], object]:
    return lambda folder: transition_matrix(parse_noise(f"asymmetric:{folder / f'matrix{suffix}'}"), 3)


def _decisions(folder: Path) -> Path:
    path = folder / "reviewed.csv"
    rows = [f'"a, {row}",{row},cat,{"right,cat" if row % 2 else "wrong,dog"}' for row in range(20)]
    path.write_text("\n".join(["id,row,given_label,decision,label", *rows]) + "\n")
    return path


def _schedule(folder: Path) -> Path:
    (folder / "schedule.json").write_text(json.dumps({"keep_rates": [1.0, 0.8, 0.6, 0.5], "trial": 3}))
    return folder / "schedule.json"


# ------------------------------------------------------------------------------------------------------------ run files


def _copied(made: Callable[[], Path], name: str) -> Callable[[Path], Path]:
    def prepare(folder: Path) -> Path:
        shutil.copytree(made(), folder / "run", dirs_exist_ok=True)
        return folder / "run" / name

    return prepare


def _report(folder: Path) -> object:
    return build_report([Run.open(folder / "run")])


def _audit(folder: Path) -> object:
    audited = audit_run(Run.open(folder / "run"))
    return audited.table(), audited.summary()


def _loaded(folder: Path) -> object:
    """Read all of a run, as `s2e.load` and `S2EClassifier.load` do."""
    run = s2e.load(folder / "run")
    read = run.config, run.result, run.schedule, run.curves, run.classifier, run.audit(), run.study.trials
    return read, S2EClassifier.load(folder / "run")


def _predict(data: str) -> Callable[[Path], object]:
    return lambda folder: predict(Run.open(folder / "run"), report_runs.home() / data).table()


def _resume(command: str, kind: type) -> Callable[[Path], object]:
    """Read the options of a run and open it again, as `--resume` does."""

    def read(folder: Path) -> object:
        known = frozenset(flatten(kind()))
        options, location = stored_options(folder / "run", command, known)
        return Session(command, assemble(kind, options), RunLocation(folder / "run", **location), resume=True)

    return read


def _study(folder: Path) -> object:
    run = Run.open(folder / "run")
    config = run.read_json("config.json")
    with tempfile.TemporaryDirectory() as fresh:  # a storage that is still open is not opened again
        copied = shutil.copy(run.path / "study.db", fresh)
        return copy_in_memory(open_study(f"sqlite:///{copied}", config["study"], _study_settings(config)))


def _study_settings(config: Any) -> dict[str, Any]:
    left_out = {*SearchOptions.MUTABLE_ON_RESUME, "data", "reviewed"}
    options = {name: value for name, value in config["options"].items() if name not in left_out}
    return {**options, DATA_FINGERPRINT: config[DATA_FINGERPRINT]}


def _validated() -> Task:
    return task(blobs(), Coteaching(), evaluate={"valid": blobs(96, wrong=0.0, seed=1)}, epochs=1)


def _validation(folder: Path) -> Path:
    Run.create(folder / "run", {})
    _read_validation(folder)
    return folder / "run" / "validation.npz"


def _read_validation(folder: Path) -> object:
    return relabelled_task(_validated(), make_plan(epochs=1), Run(folder / "run"), SILENT)


ENTRIES = [
    (memorization.TrainingSetting("digits"), noise, seed) for noise in ("pair:0.4", "symmetric:0.2") for seed in (0, 1)
]


def _population(folder: Path) -> Path:
    shares = np.random.default_rng(0).random((len(ENTRIES), 3))
    about = np.array(["cpu", "0123abcd", "12.5"])
    Run(folder).write_arrays(
        "population-all.npz", {"train": shares, "test": shares, "precision": shares, "about": about}
    )
    return folder / "population-all.npz"


def _read_population(folder: Path) -> object:
    return memorization.read_population(Run(folder), "all", ENTRIES, 3)


_SEARCHERS = {"repeats": 2, "generation_size": 2, "space": "coteaching", "trials": 4, "random_trials": 6}
_SEARCHERS |= {"samplers": ("random",), "jobs": 1, "seed": 5}


def _searchers(folder: Path) -> Path:
    options = sampler_runs.sampler_options(on=f"table:{sampler_runs.write_table(folder / 'table.npz')}", **_SEARCHERS)
    sampler_runs.compare(options, folder / "run")
    return folder / "run" / "traces-random.npz"


def _resume_searchers(folder: Path) -> object:
    options = sampler_runs.sampler_options(on=f"table:{folder / 'table.npz'}", **_SEARCHERS)
    return sampler_runs.compare(options, folder / "run", resume=True)


def _finished(folder: Path) -> object:
    return FinishedTrainings.of(Run.open(folder / "run"))


# ---------------------------------------------------------------------------------------------- estimators, checkpoints


def _saved(features: str) -> Callable[[Path], Path]:
    def prepare(folder: Path) -> Path:
        _fitted(features).save(folder / "saved.safetensors")
        return folder / "saved.safetensors"

    return prepare


_FITTED: dict[str, S2EClassifier] = {}


def _samples_of(features: str) -> Any:
    import pandas as pd
    from scipy import sparse

    X, _ = three_blobs()
    if features == "table":
        return pd.DataFrame(X, columns=list("abcd")).assign(e=np.where(X[:, 0] > 0, "yes", "no"))
    return {"numbers": X, "sparse": sparse.csr_matrix(X), "images": X.reshape(-1, 2, 2)}[features]


def _fitted(features: str) -> S2EClassifier:
    if features not in _FITTED:
        _FITTED[features] = fitted(_samples_of(features), np.array(["a", "b", "c"])[three_blobs()[1]])
    return _FITTED[features]


def _load_saved(features: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        loaded = S2EClassifier.load(folder / "saved.safetensors")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X has feature names")  # of columns whose names were no texts
            return loaded.predict(_samples_of(features)), loaded.find_label_issues()

    return read


def _schedule_table(folder: Path) -> Path:
    counts = np.random.default_rng(0).integers(0, 100, size=200, dtype=np.uint8)
    about = {"space": "coteaching", "noises": ["pair:0.45", "symmetric:0.2"], "judged": 100, "data": "synthetic"}
    np.savez_compressed(
        folder / "table.npz",
        about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        points=counts[:12].reshape(4, 3).astype(np.uint16),
        accuracy=counts[:40].reshape(2, 4, 5),
        again=counts[:40].reshape(2, 2, 2, 5),
        found=counts[:12].reshape(2, 2, 3).astype(np.uint16),
        found_accuracy=counts[:20].reshape(2, 2, 5),
    )
    return folder / "table.npz"


def _read_schedule_table(folder: Path) -> object:
    table = ScheduleTable.read(folder / "table.npz")
    return [(table.trained(noise), table.errors_again(noise)) for noise in table.noises]


def _checkpointed(folder: Path) -> Task:
    valid = blobs(96, wrong=0.0, seed=1)
    shared = task(blobs(), Coteaching(), evaluate={"valid": valid}, epochs=3, keep_best_on="valid")
    return replace(shared, checkpoints=every_epoch(folder / "checkpoints"))


def _train(folder: Path) -> object:
    members = [member(rate, seed=seed, epochs=3) for seed, rate in enumerate((0.5, 0.9))]
    return train_population(_checkpointed(folder), members)


def _checkpoint(folder: Path) -> Path:
    members = [member(rate, seed=seed, epochs=3) for seed, rate in enumerate((0.5, 0.9))]
    with suppress(Killed):
        train_population(_checkpointed(folder), members, on_epoch=kill_at(2))
    (path,) = (folder / "checkpoints").iterdir()
    return path


@st.composite
def _tampered_checkpoint(draw: DrawFn, content: bytes) -> bytes:
    """Change, remove or rename tensors, with a digest that fits."""
    tensors = tensors_of(content)
    del tensors[DIGEST]
    name, kind = element(draw, sorted(tensors)), draw(weighted(values=3, delete=1, rename=1, copy=1))
    note(f"{kind} of {name}")
    match kind:
        case "delete":
            del tensors[name]
        case "rename":
            tensors[f"{name}x"] = tensors.pop(name)
        case "copy":
            tensors[name] = tensors[element(draw, sorted(tensors))].clone()
        case _:
            changed = draw(mutated_array(tensors[name].numpy()))
            native = changed.dtype.kind in "fib" and changed.dtype.isnative
            tensors[name] = torch.from_numpy(changed.copy()) if native else torch.zeros(0)
    return saved_tensors({**tensors, DIGEST: digest_of(tensors)})


DATA = [
    Reader("data .npz", _clusters, mutated_npz, _load("data.npz")),
    Reader(
        ".npz to predict",
        _samples,
        mutated_npz,
        lambda folder: ArrayReader(ImageEncoder((4,), False)).read(folder / "data.npz"),
    ),
    Reader(
        "pixels to predict",
        _pixels,
        mutated_npz,
        lambda folder: ArrayReader(ImageEncoder((1, 4, 4), True)).read(folder / "data.npz"),
    ),
    *(
        Reader(f"table {suffix}", _table(suffix), mutated_bytes, _load(f"data{suffix}", label="label"))
        for suffix in (".csv", ".tsv", ".csv.gz", ".jsonl", ".ndjson.gz", ".parquet")
    ),
    *(
        Reader(f"image {suffix}", _image_folder(suffix), mutated_bytes, lambda folder: load(folder))
        for suffix in (".png", ".jpg", ".bmp", ".gif", ".webp", ".tif")
    ),
    *(
        Reader(f"mnist {name}", _mnist(name), mutated_bytes, lambda folder: load("mnist", folder, download=False))
        for name in ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    ),
    *(
        Reader(f"cifar10 {name}", _cifar10(name), mutated_bytes, lambda folder: load("cifar10", folder, download=False))
        for name in ("data_batch_2.bin", "batches.meta.txt")
    ),
    Reader("human labels", _human_labels, mutated_npz, lambda folder: human_labels("cifar10", "worst", folder)),
    Reader("matrix .npy", _matrix(".npy"), mutated_npy, _read_matrix(".npy")),
    Reader("matrix .json", _matrix(".json"), mutated_json, _read_matrix(".json")),
    Reader("matrix .csv", _matrix(".csv"), mutated_bytes, _read_matrix(".csv")),
    Reader("decisions", _decisions, mutated_bytes, lambda folder: read_decisions([folder / "reviewed.csv"])),
    Reader("schedule", _schedule, mutated_json, lambda folder: parse_schedule(str(folder / "schedule.json"), 4)),
    Reader("table of schedules", _schedule_table, mutated_npz, _read_schedule_table),
]

_KINDS: dict[str, Mutate] = {
    ".json": mutated_json,
    ".npz": mutated_npz,
    ".safetensors": mutated_safetensors,
    ".db": mutated_sqlite,
}


def _of_run(
    action: str, read: Callable[[Path], object], made: Callable[[], Path], *names: str, examples: int = 24
) -> list[Reader]:
    return [
        Reader(f"{action}, {name} of {made.__name__}", _copied(made, name), _KINDS[Path(name).suffix], read, examples)
        for name in names
    ]


RUNS = [
    *_of_run(
        "report",
        _report,
        report_runs.images,
        *("config.json", "result.json", "schedule.json", "curves.npz", "dynamics.npz", "model.safetensors", "study.db"),
        "review.npz",
        examples=4,
    ),
    *_of_run(
        "report", _report, report_runs.table, "config.json", "result.json", "review.json", "columns.json", examples=4
    ),
    *_of_run(
        "report",
        _report,
        report_runs.comparison,
        *("config.json", "result.json", "outcomes.npz", "study.db"),
        examples=4,
    ),
    *_of_run("audit", _audit, report_runs.images, "config.json", "dynamics.npz", "model.safetensors"),
    *_of_run("load", _loaded, report_runs.images, "config.json", "result.json", "study.db", examples=10),
    *_of_run("load", _loaded, report_runs.table, "models.safetensors", examples=10),
    *_of_run("predict", _predict("images-to-predict.npz"), report_runs.images, "encoding.json", "model.safetensors"),
    *_of_run("predict", _predict("table.csv"), report_runs.table, "encoding.json", "model.safetensors", examples=6),
    *_of_run("resume", _resume("search", SearchOptions), report_runs.images, "config.json"),
    *_of_run("resume", _resume("compare", CompareOptions), report_runs.comparison, "config.json", examples=10),
    Reader("resume, validation.npz", _validation, mutated_npz, _read_validation),
    Reader("resume, population of memorization", _population, mutated_npz, _read_population),
    Reader("resume, traces of searchers", _searchers, mutated_npz, _resume_searchers, examples=4),
    *_of_run("study", _study, report_runs.images, "study.db", examples=10),
    *_of_run("finished trainings", _finished, report_runs.comparison, "outcomes.npz"),
]
ESTIMATORS = [
    Reader(f"saved estimator, {features}", _saved(features), mutated_safetensors, _load_saved(features), examples=10)
    for features in ("numbers", "table", "sparse", "images")
]
CHECKPOINTS = [
    Reader("checkpoint", _checkpoint, mutated_safetensors, _train, examples=10),
    Reader("checkpoint with a digest that fits", _checkpoint, _tampered_checkpoint, _train, examples=10),
]
READERS = {reader.name: reader for reader in [*DATA, *RUNS, *ESTIMATORS, *CHECKPOINTS]}
