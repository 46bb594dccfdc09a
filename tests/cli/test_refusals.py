"""The command line refuses bad input in one line with exit code 2, before a run is made."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import TINY, TINY_SEARCH, assert_refused, s2e, save
from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.runs.directory import CONFIG, Run
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("work")

TRAIN = ["--method", "standard", *TINY]


# Data


@pytest.mark.parametrize(
    ("arguments", "mentions"),
    [
        ("", ["`data` must be given", "digits", "FILE.npz"]),
        ("fashionmnist", ["must be one of fashion-mnist, ", "'fashionmnist'"]),
        ("[bold]digits[/bold]", ["'[bold]digits[/bold]'"]),
        (":warning:", ["':warning:'"]),
        ("nowhere.npz", ["'nowhere.npz' does not exist"]),
        ("own.txt", ["own.txt", "convert it"]),
        ("own.csv", ["`label`", "size, kind"]),
        ("own.csv --label knd", ["`label` must be one of kind, size"]),
        ("folder", ["folder", "class"]),
        ("digits --label kind", ["`label`", "digits", "omit it"]),
        ("truncated.npz", ["truncated.npz", "truncated"]),
        ("corrupted.npz", ["corrupted.npz"]),
        ("a" * 300 + ".npz", ["cannot be a path"]),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_unusable_data_are_refused(arguments: str, mentions: list[str]) -> None:
    whole = Path(save()).read_bytes()
    Path("truncated.npz").write_bytes(whole[: len(whole) // 2])
    middle = len(whole) // 2
    Path("corrupted.npz").write_bytes(whole[:middle] + bytes(64) + whole[middle + 64 :])
    Path("own.txt").write_text("1,2,3\n")
    Path("own.csv").write_text("size,kind\n1,a\n2,b\n")
    Path("folder").mkdir()
    assert_refused(s2e("search", *shlex.split(arguments)), *mentions)


@pytest.mark.parametrize(
    ("changes", "mention"),
    [
        ({"y_train": None}, "y_train is missing"),
        ({"y_train": blobs().labels + 0.5}, "`y_train` must hold integers"),
        ({"x_train": np.full_like(blobs().inputs, np.nan)}, "must have a column to learn from, but all are left out"),
        ({"y_train": blobs().labels[:-1]}, "`y_train` must hold 192 labels, one for each sample of `x_train`"),
        ({"y_train": np.zeros(192, dtype=int)}, "at least two classes, but got 1"),
        ({"y_train": np.array([{}] * 192, dtype=object)}, "Python objects"),
    ],
    ids=["no labels", "fractions", "NaN", "lengths", "one class", "pickle"],
)
def test_unusable_arrays_are_refused(changes: dict[str, Any], mention: str) -> None:
    assert_refused(s2e("search", save(**changes), "--batch-size", "32", "--out", "run"), mention)


def test_validation_of_another_type_is_refused() -> None:
    images = np.random.default_rng(0).integers(0, 256, (192, 8, 8), dtype=np.uint8)
    np.savez("train.npz", X=images, y=np.arange(192) % 4)
    np.savez("valid.npz", X=images.astype(np.float32), y=np.arange(192) % 4)
    result = s2e("train", "train.npz", "--validation", "valid.npz", *TRAIN, "--out", "run")
    assert_refused(result, "valid.npz: samples must be uint8 of shape (N, 8, 8), as in training, but got float32")


# Options


@pytest.mark.parametrize(
    ("options", "mention"),
    [
        ("--noise symmetric:1.0", "`rate` must lie in [0, 1), but got 1.0"),
        ("--noise symetric:0.2", "`noise` must be one of symmetric:RATE, "),
        ("--noise asymmetric:nowhere.csv", "nowhere.csv"),
        ("--method cotaching", "`method` must be one of coteaching, "),
        ("--method standard", "`method` must have a keep rate"),
        ("--network mpl", "`network` must be one of mlp, "),
        ("--network cifar10-cnn", "`network` cifar10-cnn must be given images"),
        ("--space s3e", "`space` must be one of s2e, "),
        ("--sampler neuton", "`sampler` must be one of newton, "),
        ("--device meta", "`device` must be one this machine has, but got 'meta'"),
        ("--epochs 0", "`epochs` must be an integer of at least 1 or None, but got 0"),
        ("--batch-size 9999", "`batch_size` must not exceed"),
        ("--learning-rate nan", "`learning_rate` must be positive and finite"),
        ("--trials 0", "`trials` must be an integer of at least 1 or None, but got 0"),
        ("--generation-size many", "`generation_size` must be an integer of at least 1 or auto, but got 'many'"),
        ("--generation-size 1 --sampler newton", "`generation_size` must be at least 2"),
        ("--restarts 0", "`restarts` must be an integer of at least 1, but got 0"),
        ("--validation-share 1", "must lie strictly between 0 and 1, but got 1"),
        ("--validation nowhere.npz", "nowhere.npz"),
        ("--validation clean", "needs clean labels"),
        ("--storage garbage", "the storage 'garbage' could not be opened"),
    ],
)
def test_unusable_options_of_search_are_refused(options: str, mention: str) -> None:
    assert_refused(s2e("search", "digits", "--out", "run", *options.split()), mention)


@pytest.mark.parametrize(
    ("options", "mention"),
    [
        ("", "`schedule` must be given for coteaching"),
        ("--schedule garbage", "`schedule` must be one of "),
        ("--schedule constant:1.5", "`rate` must lie in [0, 1], but got 1.5"),
        ("--schedule nowhere.json", "nowhere.json"),
        ("--schedule three.json --epochs 200", "one number for each of the 200 epochs, but got 3 numbers"),
        ("--schedule broken.json", "is not JSON"),
        ("--schedule constant:1 --transition three.json", "`transition` must be used with a method that needs one"),
        ("--schedule constant:1 --learning-rate 0", "`learning_rate` must be positive and finite"),
    ],
)
def test_unusable_options_of_train_are_refused(options: str, mention: str) -> None:
    Path("three.json").write_text('{"keep_rates": [1, 0.8, 0.6]}')
    Path("broken.json").write_text('{"keep_rates": [1, ')
    assert_refused(s2e("train", "digits", "--out", "run", *options.split()), mention)


def test_several_bad_numbers_are_reported_at_once() -> None:
    result = s2e("search", "digits", "--epochs", "0", "--batch-size", "0", "--out", "run")
    assert_refused(result, "`epochs` must be", "`batch_size` must be")


@pytest.mark.parametrize(
    ("arguments", "mention"),
    [
        (
            "search digits --seed -1",
            "`--seed` must be at least 0, but got '-1'. See s2e search --help.",
        ),
        ("search digits --epochs 1.5", "`--epochs` must be an integer, but got '1.5'. See s2e search --help."),
        ("search digits --trials=many", "`--trials` must be an integer, but got 'many'."),
        ("search digits --learning-rate fast", "`--learning-rate` must be a number, but got 'fast'."),
        ("search digits --epochs", "option '--epochs' requires an argument."),
        ("search digits --trails 5", "there is no option --trails; did you mean --trials"),
        ("search digits other", "unexpected extra argument"),
        ("predict", "`RUN` must be given. See s2e predict --help."),
        ("frobnicate", "`command` must be one of "),
        ("--frobnicate", "there is no option --frobnicate. See s2e --help."),
    ],
)
def test_arguments_that_cannot_be_parsed_are_usage_errors_in_one_line(arguments: str, mention: str) -> None:
    assert_refused(s2e(*arguments.split()), mention)


# Run directories


@pytest.mark.parametrize("command", [["search"], ["train", "--method", "standard"], ["compare"]], ids=lambda c: c[0])
def test_a_used_directory_is_refused_and_not_changed(command: list[str]) -> None:
    Path("used").mkdir()
    Path("used/config.json").write_text("{}")
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("")
    assert_refused(s2e(*command, "digits", "--out", "used"), "'used' already holds a run")
    assert_refused(s2e(*command, "digits", "--out", "full"), "new or an empty directory")
    assert_refused(s2e(*command, "digits", "--out", "full/thesis.tex"), "a directory to write to")
    assert_refused(s2e(*command, save(), *TINY, "--out", "full/thesis.tex/run"), "a directory to write to")
    assert [entry.name for entry in Path("used").iterdir()] == ["config.json"]
    assert [entry.name for entry in Path("full").iterdir()] == ["thesis.tex"]


def test_resuming_needs_a_run_of_the_same_command(work: Path) -> None:
    assert_refused(s2e("search", "--resume"), "must be used with --out")
    assert_refused(s2e("search", "--resume", "--out", "nowhere"), "holds no run")
    assert s2e("train", save(), *TRAIN, "--out", "trained").exit_code == 0
    assert_refused(s2e("search", "--resume", "--out", "trained"), "is of s2e train")


@pytest.mark.parametrize(
    ("config", "mention"),
    [
        ("[]", "is not the configuration of a run"),
        ('{"command": "sea', "could not be read"),
        (
            json.dumps(
                {"command": "search", "options": {"data": "digits", "colour": 1}}
                | {"data_root": "data", "device": "cpu", "storage": None}
            ),
            "has options unknown to this version: colour",
        ),
    ],
    ids=["a list", "damaged", "an unknown option"],
)
def test_a_configuration_that_cannot_be_used_is_refused(config: str, mention: str) -> None:
    Path("old").mkdir()
    Path("old", CONFIG).write_text(config)
    assert_refused(s2e("search", "--resume", "--out", "old"), f"'old/{CONFIG}' {mention}")


def test_a_run_in_use_is_not_changed() -> None:
    assert s2e("search", save(), *TINY_SEARCH, "--out", "busy").exit_code == 0
    before = Path("busy", CONFIG).read_text()
    with Run("busy").locked():
        assert_refused(s2e("search", "--resume", "--out", "busy", "--trials", "40"), "another process is working on")
    assert Path("busy", CONFIG).read_text() == before


# How errors are shown


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["search", "digts"], InvalidInput),
        (["search", "nowhere.npz"], UnreadableData),
        (["train", "digits", "--method", "standard", "--out", "."], RunConflict),
    ],
    ids=["input", "data", "run"],
)
def test_debug_raises_the_exception(arguments: list[str], error: type[Exception]) -> None:
    Path("something").touch()
    assert type(s2e(*arguments, "--debug").exception) is error
