"""Mistakes users make, and states that accidents leave behind: refused in one line, or put right without a word."""

from __future__ import annotations

import io
import json
import shlex
import struct
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress

from command_line import TINY, TINY_SEARCH, assert_refused, s2e, save
from s2e.data.preparing import DataOptions, prepare
from s2e.engine.curves import Curves
from s2e.engine.task import Progress, Task
from s2e.methods import MentorNet
from s2e.runs.directory import CONFIG, TEMPORARY, Run
from s2e.samplers import algorithm
from s2e.schedules.spaces import SPACES
from s2e.studies.loop import ask, best, epochs_left, search_schedule
from s2e.studies.plan import Search, SearchPlan
from s2e.studies.storage import open_study
from s2e.workflows import search as commands
from s2e.workflows.progress import Bars
from small_tasks import blobs, small_mlp, task

pytestmark = pytest.mark.usefixtures("work")

EPOCHS = 2
TRAIN = ["--method", "standard", *TINY]


# Options that cannot be used


BAD_OPTIONS = [
    ("--epochs 0", "`epochs` must be"),
    ("--epochs -1", "`epochs` must be"),
    ("--batch-size 0", "`batch_size` must be at least 1, but got 0"),
    ("--batch-size -5", "`batch_size` must be at least 1, but got -5"),
    ("--learning-rate 0", "`learning_rate` must be positive and finite"),
    ("--learning-rate -1", "`learning_rate` must be positive and finite"),
    ("--learning-rate nan", "`learning_rate` must be positive and finite"),
    ("--learning-rate inf", "`learning_rate` must be positive and finite"),
    ("--network cifar10-cnn", "`network` cifar10-cnn must be given images"),
    ("--device meta", "`device` must be one this machine has, but got 'meta'"),
    ("--device privateuseone", "`device` must be one this machine has, but got 'privateuseone'"),
]


@pytest.mark.parametrize(("options", "mention"), BAD_OPTIONS)
def test_an_impossible_option_of_a_search_is_refused_before_the_run_is_made(options: str, mention: str) -> None:
    result = s2e("search", "digits", "--noise", "pair:0.4", *TINY_SEARCH, "--out", "run", *options.split())
    assert_refused(result, mention)


@pytest.mark.parametrize(("options", "mention"), BAD_OPTIONS)
def test_an_impossible_option_of_training_is_refused_before_the_run_is_made(options: str, mention: str) -> None:
    assert_refused(s2e("train", "digits", *TRAIN, "--out", "run", *options.split()), mention)


@pytest.mark.parametrize("storage", ["garbage", "postgresql://u:p@localhost/x", "sqlite:///nowhere/x.db"])
def test_a_storage_that_cannot_be_opened_is_refused_before_the_run_is_made(storage: str) -> None:
    result = s2e("search", save(), *TINY_SEARCH, "--out", "run", "--storage", storage)
    assert_refused(result, f"the storage '{storage}' could not be opened")


def test_noise_none_among_spaces_is_no_noise() -> None:
    assert prepare(DataOptions(save(), noise=" none"), Path()).validation == "noisy"


# Paths that cannot be used


def test_a_run_below_a_file_is_refused() -> None:
    Path("file").touch()
    result = s2e("train", save(), *TRAIN, "--out", "file/run")
    assert_refused(result, "`out` must be a directory to write to, but 'file/run' is not")


def test_numbers_to_be_written_into_a_missing_directory_are_refused() -> None:
    result = s2e("reproduce", "convergence", "--out", "nowhere/x.json")
    assert_refused(result, "`--out` must be a file to write to, but 'nowhere/x.json' is not")


@pytest.mark.parametrize("ending", ["", ".npz"])
def test_a_name_too_long_for_a_file_is_refused(ending: str) -> None:
    assert_refused(s2e("search", "a" * 300 + ending), "cannot be a path")


def test_a_name_that_reads_as_an_emoji_is_repeated_as_it_was_given() -> None:
    assert_refused(s2e("search", ":warning:"), "':warning:'")


# Data that do not fit together


def test_validation_samples_of_another_type_than_the_training_samples_are_refused() -> None:
    images = np.random.default_rng(0).integers(0, 256, (192, 8, 8), dtype=np.uint8)
    np.savez("train.npz", X=images, y=np.arange(192) % 4)
    np.savez("valid.npz", X=images.astype(np.float32), y=np.arange(192) % 4)
    result = s2e("train", "train.npz", "--validation", "valid.npz", *TRAIN, "--out", "run")
    assert_refused(result, "`validation` must hold samples of uint8", "'valid.npz' holds float32")


def test_human_labels_for_only_some_of_the_samples_are_refused() -> None:
    batches = Path("data/cifar-10-batches-bin")
    batches.mkdir(parents=True)
    record = np.zeros((2, 1 + 3072), dtype=np.uint8)
    for name in (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"):
        (batches / name).write_bytes(record.tobytes())
    Path("data/cifar-n").mkdir()
    np.savez("data/cifar-n/cifar10n.npz", worse_label=np.array([1, 2, 3]))
    result = s2e("train", "cifar10", "--noise", "human:worst", "--validation", "noisy", *TRAIN, "--out", "run")
    assert_refused(result, "the human labels must cover all of cifar10, but there are only 3")


# Interrupted, and continued


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_the_command_that_continues_an_interrupted_search_can_be_pasted_into_a_shell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "search_schedule", interrupt)
    out = "my run; it's $HOME"
    result = s2e("search", save(), *TINY_SEARCH, "--out", out)
    assert result.exit_code == 130
    assert (Path(out) / CONFIG).exists()
    command = shlex.split(result.stderr.partition("continue with: ")[2])
    assert command == ["s2e", "search", "--resume", "--out", out]


def test_a_search_interrupted_before_its_run_exists_is_not_said_to_be_continuable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "search", interrupt)
    result = s2e("search", "digits", "--out", "run")
    assert (result.exit_code, result.stderr) == (130, "s2e: interrupted\n")


@pytest.mark.parametrize(
    ("config", "mention"),
    [
        ({}, "is not the configuration of a run"),
        ([], "is not the configuration of a run"),
        (
            {
                "command": "search",
                "options": {"data": "digits", "colour": 1},
                "data_root": "data",
                "device": "cpu",
                "storage": None,
            },
            "has options this version does not know: colour",
        ),
    ],
    ids=["empty", "a list", "an unknown option"],
)
def test_a_configuration_of_another_program_or_version_is_refused(config: Any, mention: str) -> None:
    Path("old").mkdir()
    Path("old", CONFIG).write_text(json.dumps(config))
    assert_refused(s2e("search", "--resume", "--out", "old"), f"'old/{CONFIG}' {mention}")


def idx(array: np.ndarray) -> bytes:
    """Write bytes the way MNIST is stored."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def test_a_continued_search_finds_its_data_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    root = Path("elsewhere/mnist")
    root.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for part, samples in (("train", 192), ("t10k", 32)):
        images = generator.integers(0, 256, (samples, 28, 28), dtype=np.uint8)
        (root / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (root / f"{part}-labels-idx1-ubyte").write_bytes(idx((np.arange(samples) % 10).astype(np.uint8)))
    result = s2e("search", "mnist", "--noise", "pair:0.3", *TINY_SEARCH, "--out", "run", "--data-root", "elsewhere")
    assert result.exit_code == 0, result.stderr
    result = s2e("search", "--resume", "--out", "run")
    assert result.exit_code == 0, result.stderr


def test_a_run_another_process_works_on_is_left_as_it_is() -> None:
    assert s2e("search", save(), *TINY_SEARCH, "--out", "busy").exit_code == 0
    before = Path("busy", CONFIG).read_text()
    with Run("busy").locked():
        assert_refused(s2e("search", "--resume", "--out", "busy", "--trials", "40"), "another process is working on")
    assert Path("busy", CONFIG).read_text() == before


def test_a_file_half_written_by_a_killed_process_is_no_obstacle_and_is_removed() -> None:
    half_written = Path("run", f".{CONFIG}.abc{TEMPORARY}")
    half_written.parent.mkdir()
    half_written.write_text("{")
    result = s2e("train", save(), *TRAIN, "--out", "run")
    assert result.exit_code == 0, result.stderr
    assert not half_written.exists()


def test_two_runs_begun_in_the_same_second_have_directories_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda *_: "20250101-000000")
    for _ in range(2):
        result = s2e("train", save(), *TRAIN)
        assert result.exit_code == 0, result.stderr
    assert len(list(Path("runs").iterdir())) == 2


# Studies that went another way than usual


def a_task() -> Task:
    evaluate = {"valid": blobs(96, wrong=0.0, seed=1)}
    return task(blobs(), MentorNet(), network=small_mlp, evaluate=evaluate, epochs=EPOCHS, batch_size=64)


def a_plan(trials: int = 6, generation: int = 3) -> SearchPlan:
    family = SPACES["s2e"]
    return SearchPlan(family, algorithm("newton", family, EPOCHS, generation), trials, generation, learning_rate=1e-2)


def in_memory() -> optuna.Study:
    return open_study(None, "search", {})


def test_the_epochs_announced_for_an_extended_search_are_those_it_trains() -> None:
    study = in_memory()
    search_schedule(a_task(), a_plan(trials=5), study)
    extended, trained = a_plan(trials=8), []
    announced = epochs_left([Search(extended, study)], EPOCHS)
    search_schedule(a_task(), extended, study, on_epoch=trained.append)
    assert announced == len(trained)


def test_of_equally_good_trials_the_first_is_the_best_whichever_ended_first() -> None:
    study, plan = in_memory(), a_plan()
    ask(study, plan, 3)
    for number, error in ((2, 0.2), (0, 0.5), (1, 0.2)):
        study.tell(number, error)
    assert best(study, plan.space, EPOCHS).trial == 1


# What is shown


def test_a_bar_reaches_its_end_when_chunks_are_thirds_of_the_members() -> None:
    shown = RichProgress(console=Console(file=io.StringIO()), auto_refresh=False)
    watch = Bars(shown)
    watch.stage("search", 6)
    for epoch in range(1, 7):
        for first in (0, 2, 4):
            watch.epoch(Progress(epoch, 6, (first, first + 1), 6, Curves.empty(2, 6, [])))
    assert shown.tasks[0].finished


def test_a_long_path_of_a_run_is_printed_on_one_line(work: Path) -> None:
    out = work / ("a" * 60) / ("b" * 60)
    result = s2e("train", save(), *TRAIN, "--out", str(out))
    assert f"run: {out}\n" in result.stdout


def test_the_table_says_over_how_many_epochs_its_means_are() -> None:
    result = s2e("train", save(), *TRAIN, "--out", "run")
    assert result.exit_code == 0, result.stderr
    assert "last 3 epochs" in result.stdout
    assert "10 epochs" not in result.stdout
