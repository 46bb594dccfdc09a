"""Names from data and from the file system: on the terminal, in run names, and where they are not UTF-8."""

from __future__ import annotations

import csv
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import TINY, TINY_SEARCH, s2e, save
from s2e.cli.terminal import printable
from s2e.cli.workflow_commands import new_directory
from s2e.runs.csv_files import plain_text
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("work")

EVIL = "\x1b]0;owned\x07\x1b[2Jcat\x9b\u202e"


# ------------------------------------------------------------------------------------------------- on the terminal


def test_control_characters_are_written_as_escapes() -> None:
    assert printable("a\x1b[31m\x07\n\udce9\u202e\x9b") == r"a\x1b[31m\x07\n\udce9\u202e\x9b"
    assert printable("Übung – 猫 👩‍💻 'quoted'") == "Übung – 猫 👩‍💻 'quoted'"


def write_table(path: str, classes: tuple[str, ...]) -> str:
    data = blobs()
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["name", *(f"{EVIL}{column}" for column in range(data.inputs.shape[1])), "kind"])
        for row, values in enumerate(data.inputs):
            table.writerow([f"{'=' if row % 2 else ''}{EVIL}{row}", *values, classes[data.labels[row]]])
    return path


def assert_no_controls(*texts: str) -> None:
    for text in texts:
        assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text) is None, ascii(text)


def test_names_of_data_never_control_the_terminal() -> None:
    classes = (EVIL, "=cmd|'/C calc'!A0", "@dog", "-bird")
    data = write_table(f"evil{EVIL.replace('/', '')}.csv", classes)
    trained = s2e(
        "train", data, "--label", "kind", "--id", "name", "--method", "standard", "--epochs", "6", "--batch-size", "32"
    )
    assert trained.exit_code == 0, trained.stderr
    run = str(next(Path("runs").iterdir()))
    audited, reported = s2e("audit", run), s2e("report", run)
    predicted = s2e("predict", run, data, "-o", f"{EVIL}.csv")
    refused = s2e("predict", run, f"{EVIL}/absent.csv")
    for done in (audited, reported, predicted):
        assert done.exit_code == 0, done.stderr
        assert_no_controls(done.stdout, done.stderr)
    assert_no_controls(trained.stdout, trained.stderr, refused.stderr)
    assert refused.exit_code == 2
    assert r"\x1b" in audited.stdout
    with Path(f"{EVIL}.csv").open(newline="") as file:
        cells = [row["predicted_label"] for row in csv.DictReader(file)]
    assert {plain_text(cell) for cell in cells} <= set(classes)
    assert not any(cell[:1] in tuple("=+-@\t\r") for cell in cells)


# ------------------------------------------------------------------------------------------------------ names of runs


def test_directories_made_at_the_same_time_have_different_names() -> None:
    with ThreadPoolExecutor(8) as together:
        made = list(together.map(lambda _: new_directory(Path("runs"), "search", "digits"), range(40)))
    assert len(set(made)) == 40
    assert all(path.is_dir() for path in made)


@pytest.mark.parametrize("data", ["x" * 300 + ".csv", "é" * 200, "a?b%20c#d.csv", "\udce9\x1b.npz", "hf:user/name"])
def test_names_of_runs_are_short_and_plain(data: str) -> None:
    name = new_directory(Path("runs"), "search", data).name
    assert len(os.fsencode(name)) <= 160
    assert re.fullmatch(r"[\w.-]+", name)


def test_a_refused_command_leaves_no_directory() -> None:
    assert s2e("search", "absent.npz").exit_code == 2
    assert not Path("runs").exists()


def test_runs_that_is_a_file_is_refused_in_one_line() -> None:
    Path("runs").write_text("")
    refused = s2e("search", save(), *TINY_SEARCH)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


def test_a_too_long_name_is_refused_in_one_line() -> None:
    refused = s2e("search", save(), *TINY_SEARCH, "--out", "x" * 300)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "File name too long" in refused.stderr


@pytest.mark.parametrize("option", ["--trials", "--epochs", "--generation-size", "--restarts"])
def test_huge_counts_are_refused(option: str) -> None:
    refused = s2e("search", save(), option, "1000000000")
    assert refused.exit_code == 2
    assert "must be at most 1,000,000" in refused.stderr


# -------------------------------------------------------------------------------------------------------- not UTF-8


def image_folder(folder: bytes) -> str:
    generator = np.random.default_rng(0)
    for label in (b"caf\xe9", b"dog"):
        os.makedirs(os.path.join(folder, label))
        for index in range(30):
            image = Image.fromarray(generator.integers(0, 255, (8, 8, 3), dtype=np.uint8))
            with open(os.path.join(folder, label, b"\xe9%d.png" % index), "wb") as file:
                image.save(file, "PNG")
    return os.fsdecode(folder)


def test_names_that_are_not_utf_8_pass_through_every_command() -> None:
    data, run = image_folder(b"d\xe9"), "run"
    searched = s2e("search", data, *TINY_SEARCH, "--batch-size", "16", "--image-size", "8", "--out", run)
    assert searched.exit_code == 0, searched.stderr or searched.exception
    Path("out.csv").write_text("old")
    for arguments in (
        ("search", "--resume", "--out", run),
        ("audit", run),
        ("report", run),
        ("predict", run, f"{data}/dog", "-o", "out.csv"),
    ):
        done = s2e(*arguments)
        assert done.exit_code == 0, (arguments, done.stderr, done.exception)
        done.stdout.encode()
    assert r"caf\udce9" in Path(run, "label_issues.csv").read_text(encoding="utf-8")
    with open("out.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 30
    assert {row["predicted_label"] for row in rows} <= {r"caf\udce9", "dog"}


def test_a_run_directory_that_is_not_utf_8_is_refused() -> None:
    refused = s2e("search", save(), *TINY_SEARCH, "--out", os.fsdecode(b"run\xe9"))
    assert (refused.exit_code, refused.stderr) == (2, "s2e: `out` must be a name in UTF-8, but got 'run\\udce9'.\n")


# ------------------------------------------------------------------------------------------- --resume before a start


def test_resuming_a_run_that_never_started_starts_it() -> None:
    data = save()
    started = s2e("search", data, *TINY_SEARCH, "--resume", "--out", "run")
    assert started.exit_code == 0, started.stderr
    os.makedirs("empty")
    assert s2e("train", data, *TINY, "--method", "standard", "--resume", "--out", "empty").exit_code == 0


def test_resuming_nothing_without_data_is_refused() -> None:
    refused = s2e("search", "--resume", "--out", "run")
    assert refused.exit_code == 2
    assert "holds no run" in refused.stderr
