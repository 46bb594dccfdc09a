"""The command line: one line and exit code 2 for every bad input."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import assert_refused, process, s2e, save
from s2e.errors import InvalidInput, RunConflict, UnreadableData
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("work")


# Data that cannot be used


@pytest.mark.parametrize("command", ["search", "train"])
def test_an_unknown_name_is_refused_with_the_nearest_first(command: str) -> None:
    more = ["--schedule", "constant:1"] if command == "train" else []
    assert_refused(s2e(command, "fashionmnist", *more), "must be one of fashion-mnist, ", "'fashionmnist'")
    assert_refused(s2e(command, "digit", *more), "must be one of digits, ")


def test_no_data_at_all_are_refused() -> None:
    assert_refused(s2e("search"), "`DATA` must be given", "digits", "FILE.npz")


def test_a_missing_file_is_refused() -> None:
    assert_refused(s2e("search", "nowhere.npz"), "nowhere.npz does not exist")


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99])
def test_a_truncated_file_is_refused(kept: float) -> None:
    whole = Path(save()).read_bytes()
    Path("own.npz").write_bytes(whole[: int(kept * len(whole)) if kept < 1 else int(kept)])
    assert_refused(s2e("search", "own.npz"), "own.npz", "truncated")


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_corrupted_file_is_refused(place: float) -> None:
    content = bytearray(Path(save()).read_bytes())
    first = int(place * len(content))
    content[first : first + 64] = bytes(byte ^ 0xFF for byte in content[first : first + 64])
    Path("own.npz").write_bytes(content)
    assert_refused(s2e("search", "own.npz"), "own.npz")


def test_a_file_of_another_kind_is_refused_with_what_to_do() -> None:
    Path("own.txt").write_text("1,2,3\n")
    assert_refused(s2e("search", "own.txt"), "own.txt", "convert it to")


def test_a_table_without_a_word_of_its_labels_is_refused_with_its_columns() -> None:
    Path("own.csv").write_text("size,kind\n1,a\n2,b\n")
    assert_refused(s2e("search", "own.csv"), "`label`", "size, kind")
    assert_refused(s2e("search", "own.csv", "--label", "knd"), "'kind'")


def test_an_empty_folder_and_columns_of_what_is_no_table_are_refused() -> None:
    Path("folder").mkdir()
    assert_refused(s2e("search", "folder"), "folder", "class")
    assert_refused(s2e("search", "digits", "--label", "kind"), "`label`", "digits", "leave it out")


def test_a_file_without_the_needed_arrays_is_refused() -> None:
    assert_refused(s2e("search", save(y_train=None)), "lacks y_train")


def labels(**replaced: int) -> np.ndarray:
    """Labels of the clusters with the first of them replaced."""
    changed = blobs().labels.copy()
    changed[0] = replaced["first"]
    return changed


def inputs(first: float) -> np.ndarray:
    changed = blobs().inputs.copy()
    changed[3, 2] = first
    return changed


@pytest.mark.parametrize(
    ("changes", "mention"),
    [
        ({"y_train": labels(first=4), "class_names": list("abcd")}, "`y_train` must hold only labels in 0..3"),
        ({"y_train": labels(first=-1)}, "`y_train` must not hold negative numbers, but got -1"),
        ({"y_train": blobs().labels + 0.5}, "`y_train` must hold whole numbers"),
        ({"x_train": inputs(np.nan)}, "1 of 192 samples hold NaN or infinite values"),
        ({"x_train": inputs(np.inf)}, "1 of 192 samples hold NaN or infinite values"),
        ({"x_train": inputs(0).astype(np.float64) * 1e300}, "NaN or infinite values"),
        ({"y_train": blobs().labels[:-1]}, "`y_train` must hold 192 labels, one for each sample of `x_train`"),
        ({"y_train": np.zeros(192, dtype=int)}, "at least two classes, but got 1"),
        ({"class_names": list("abcde")}, "every class must have training samples, but 1 of 5 have none: e"),
        ({"x_train": np.zeros((0, 6)), "y_train": np.zeros(0, dtype=int)}, "at least one sample"),
        ({"x_train": np.array(["a"] * 192)}, "must hold real numbers"),
        ({"y_train": np.array([{}] * 192, dtype=object)}, "Python objects"),
    ],
    ids=[
        "label out of range",
        "negative label",
        "fractional labels",
        "NaN",
        "infinite",
        "too large for float32",
        "lengths that differ",
        "one class",
        "an empty class",
        "no samples",
        "inputs that are strings",
        "labels that need pickle",
    ],
)
@pytest.mark.parametrize("command", ["search", "train"])
def test_samples_that_cannot_be_used_are_refused(command: str, changes: dict[str, Any], mention: str) -> None:
    more = ["--method", "standard"] if command == "train" else []
    assert_refused(s2e(command, save(**changes), "--batch-size", "32", "--out", "run", *more), mention)


@pytest.mark.parametrize("command", [["search"], ["train", "--method", "standard"]], ids=["search", "train"])
def test_fewer_samples_than_a_batch_are_refused(command: list[str]) -> None:
    few = blobs(96)
    save(x_train=few.inputs, y_train=few.labels)
    said = "`batch_size` must not exceed the number of training samples, but got 128"
    assert_refused(s2e(*command, "own.npz", "--out", "run"), said)


# Options that cannot be used


@pytest.mark.parametrize(
    ("noise", "mention"),
    [
        ("symmetric:1.0", "`rate` must lie in [0, 1), but got 1.0"),
        ("symmetric:-0.1", "`rate` must lie in [0, 1), but got -0.1"),
        ("symmetric:nan", "`rate` must lie in [0, 1), but got nan"),
        ("symmetric:much", "`noise` must be written as symmetric:RATE"),
        ("symmetric", "`noise` must be written as symmetric:RATE"),
        ("symetric:0.2", "`noise` must be one of symmetric:RATE, "),
        ("asymmetric:nowhere.csv", "nowhere.csv"),
        ("human:worst", "Human labels exist for no other data set"),
    ],
)
def test_noise_that_cannot_be_made_is_refused(noise: str, mention: str) -> None:
    assert_refused(s2e("search", "digits", "--noise", noise, "--out", "run"), mention)


@pytest.mark.parametrize(
    ("options", "mention"),
    [
        ("--method cotaching", "`method` must be one of coteaching, "),
        ("--method standard", "`method` must have a keep rate"),
        ("--network mpl", "`network` must be one of mlp, "),
        ("--space s3e", "`space` must be one of s2e, "),
        ("--sampler neuton", "`sampler` must be one of newton, "),
        ("--device toaster", "`device` must be one this machine has, but got 'toaster'"),
        ("--device cuda:99", "`device` must be one this machine has, but got 'cuda:99'"),
        ("--trials 0", "`trials` must be at least 1, but got 0"),
        ("--trials -1", "`trials` must be at least 1, but got -1"),
        ("--generation 0", "`generation` must be at least 1, but got 0"),
        ("--generation 0 --sampler newton", "`generation` must be at least 2, but got 0"),
        ("--generation 1 --sampler newton", "`generation` must be at least 2, but got 1"),
        ("--restarts 0", "`restarts` must be at least 1, but got 0"),
        ("--validation-share 0", "must lie strictly between 0 and 1, but got 0"),
        ("--validation-share 1", "must lie strictly between 0 and 1, but got 1"),
        ("--validation-share nan", "must lie strictly between 0 and 1, but got nan"),
        ("--validation maybe", "`validation` must be auto, clean, noisy, a .npz file"),
        ("--validation nowhere.npz", "nowhere.npz does not exist"),
        ("--validation clean", "needs clean labels"),
        ("--batch-size 9999", "`batch_size` must not exceed"),
    ],
)
def test_an_option_of_search_that_cannot_be_used_is_refused(options: str, mention: str) -> None:
    assert_refused(s2e("search", "digits", "--out", "run", *options.split()), mention)


@pytest.mark.parametrize(
    ("options", "mention"),
    [
        ("--method cotaching --schedule constant:1", "`method` must be one of coteaching, "),
        ("", "`schedule` must be given for coteaching"),
        ("--schedule garbage", "`schedule` must be one of "),
        ("--schedule constant:much", "`schedule` must be written as constant:RATE"),
        ("--schedule constant:1.5", "`rate` must lie in [0, 1], but got 1.5"),
        ("--schedule coteaching:nan", "`noise_rate` must lie in [0, 1], but got nan"),
        ("--schedule nowhere.json", "nowhere.json"),
        ("--schedule three.json", "one number for each of the 200 epochs, but got 3 of them"),
        ("--schedule list.json", 'a schedule file must hold {"keep_rates": [...]}'),
        ("--schedule words.json --epochs 3", "must be 3 numbers, one for each epoch"),
        ("--schedule broken.json", "is not JSON"),
        ("--schedule outside.json --epochs 3", "must lie in [0, 1], but got 2"),
        ("--epochs 0 --schedule constant:1", "`epochs` must be a positive integer, but got 0"),
        ("--epochs -3 --schedule constant:1", "`epochs` must be a positive integer, but got -3"),
    ],
)
def test_an_option_of_train_that_cannot_be_used_is_refused(options: str, mention: str) -> None:
    files = {
        "three.json": '{"keep_rates": [1, 0.8, 0.6]}',
        "list.json": "[1, 0.8, 0.6]",
        "words.json": '{"keep_rates": ["all", "most", "some"]}',
        "broken.json": '{"keep_rates": [1, ',
        "outside.json": '{"keep_rates": [1, 2, 0.5]}',
    }
    for name, content in files.items():
        Path(name).write_text(content)
    assert_refused(s2e("train", "digits", "--out", "run", *options.split()), mention)


@pytest.mark.parametrize(
    "arguments",
    [
        "search digits --seed -1",
        "search digits --trials many",
        "search digits --epochs 1.5",
        "search digits --nonsense",
        "train",
        "frobnicate",
        "search digits mnist",
    ],
)
def test_what_cannot_be_parsed_is_a_usage_error(arguments: str) -> None:
    result = s2e(*arguments.split())
    assert result.exit_code == 2
    assert "Usage:" in result.stderr
    assert result.stdout == ""
    assert not Path("runs").exists()


@pytest.mark.parametrize("command", [["search"], ["train", "--method", "standard"]], ids=["search", "train"])
def test_an_out_that_is_taken_is_refused_and_left_as_it_is(command: list[str]) -> None:
    Path("taken").mkdir()
    Path("taken/config.json").write_text("{}")
    assert_refused(s2e(*command, "digits", "--out", "taken"), "'taken' already holds a run")
    assert [entry.name for entry in Path("taken").iterdir()] == ["config.json"]
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("")
    assert_refused(s2e(*command, "digits", "--out", "full"), "new or an empty directory")
    assert [entry.name for entry in Path("full").iterdir()] == ["thesis.tex"]
    assert_refused(s2e(*command, "digits", "--out", "full/thesis.tex"), "a directory to write to")


def test_a_message_is_not_read_as_markup() -> None:
    assert_refused(s2e("search", "[bold]digits[/bold]"), "but got '[bold]digits[/bold]'")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["search", "digts"], InvalidInput),
        (["search", "nowhere.npz"], UnreadableData),
        (["search", "digits", "--resume"], InvalidInput),
        (["train", "digits", "--schedule", "garbage"], InvalidInput),
        (["train", "digits", "--method", "standard", "--out", "."], RunConflict),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_debug_shows_the_traceback(arguments: list[str], error: type[Exception]) -> None:
    Path("something").touch()
    result = s2e(*arguments, "--debug")
    assert type(result.exception) is error
    assert not result.stderr.startswith("s2e: ")


def test_a_real_process_says_one_line_and_exits_with_2(work: Path) -> None:
    refused = process("search", "digts", where=work)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.fullmatch(r"s2e: .*digits.*\n", refused.stderr)
