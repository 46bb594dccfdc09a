"""The examples as a stranger runs them: a program each, with `--quick`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from safetensors import safe_open

from command_line import TINY_SEARCH, s2e

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = ["table", "images", "text"]
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Finished:
    """An example that has run.

    Attributes:
        printed: on standard output.
        complained: on standard error.
        status: of the process.
        out: the directory given to it.
        elsewhere: its working directory, which also is where it would make temporary directories.
    """

    printed: str
    complained: str
    status: int
    out: Path
    elsewhere: Path

    def number(self, before: str) -> float:
        """Return the number printed after some words."""
        found = re.search(re.escape(before) + r"[^\d\n]*([\d.]+)", self.printed)
        assert found, f"{before!r} is not in: {self.printed}"
        return float(found[1])


def run(name: str, out: Path, elsewhere: Path) -> Finished:
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", "--quick", "--out", out],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=elsewhere,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(elsewhere), "PYTHONIOENCODING": "utf-8"},
    )
    return Finished(done.stdout, done.stderr, done.returncode, out, elsewhere)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Every example, run once; side by side, since each is a process of one thread."""
    root = tmp_path_factory.mktemp("examples")
    with ThreadPoolExecutor() as side_by_side:
        started = {name: side_by_side.submit(run, name, root / name, root / f"{name}-elsewhere") for name in NAMES}
        return {name: example.result() for name, example in started.items()}


@pytest.mark.parametrize("name", NAMES)
def test_it_succeeds_without_a_warning(finished, name):
    example = finished[name]
    assert (example.status, example.complained) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_it_writes_into_the_directory_it_is_given_and_nowhere_else(finished, name):
    example = finished[name]
    assert f"written to: {example.out}\n" in example.printed
    assert any(example.out.iterdir())
    assert list(example.elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_most_labels_in_doubt_are_wrong_and_most_wrong_labels_are_in_doubt(finished, name):
    example = finished[name]
    doubted, found, wrong = map(example.number, ["labels in doubt:", "really wrong:", "wrong in all:"])
    assert found > 0.8 * doubted
    assert found > 0.8 * wrong


def test_new_customers_are_classified_better_than_the_labels_given_would(finished):
    assert finished["table"].number("right on new customers:") > 85  # with one label in four wrong, 75 would agree


@pytest.mark.parametrize(("name", "samples"), [("table", 2000), ("text", 800)])
def test_the_file_of_verdicts_says_what_was_printed(finished, name, samples):
    example = finished[name]
    verdicts = pd.read_csv(example.out / "label_issues.csv", index_col=0)
    assert len(verdicts) == samples
    assert verdicts["label_quality"].is_monotonic_increasing
    assert verdicts["is_label_issue"].sum() == example.number("labels in doubt:")
    assert (verdicts["is_label_issue"] & verdicts["really_wrong"]).sum() == example.number("really wrong:")
    assert verdicts["really_wrong"].sum() == example.number("wrong in all:")
    assert str(verdicts.index[0]) in example.printed or verdicts["sentence"].iloc[0] in example.printed


def test_images_are_classified_better_than_by_plain_training(finished):
    example = finished["images"]
    assert example.number("test images, S2EClassifier:") > example.number("test images, plain training:")


def test_labels_of_images_are_mended(finished):
    given, suggested = re.search(
        r"right labels: ([\d.]+)% as given, ([\d.]+)% as suggested", finished["images"].printed
    ).groups()
    assert float(suggested) > float(given) + 20


def test_images_are_drawn_and_the_classifier_is_saved_and_loaded(finished):
    example = finished["images"]
    assert (example.out / "doubtful.png").read_bytes().startswith(PNG)
    with safe_open(example.out / "digits.safetensors", framework="np") as file:
        assert any("network" in key for key in file.keys())  # noqa: SIM118  # it is no dictionary
    assert "loaded classifier predicts the same: True" in example.printed


def test_sentences_are_classified_as_well_as_by_logistic_regression(finished):
    example = finished["text"]
    assert example.number("sentences, S2EClassifier:") > example.number("sentences, LogisticRegression:") - 2


def test_the_commands_that_the_table_prints_do_what_it_says(finished, monkeypatch):
    example = finished["table"]
    monkeypatch.chdir(example.out)
    commands = [line.split()[1:] for line in example.printed.splitlines() if line.startswith("    s2e ")]
    assert [command[0] for command in commands] == ["search", "audit", "predict", "report"]
    for command in commands:
        result = s2e(*command, *(TINY_SEARCH if command[0] == "search" else []))
        assert result.exit_code == 0, (command, result.output, result.exception)
    customers = pd.read_csv("customers.csv")["customer"]
    assert set(pd.read_csv("run/label_issues.csv")["id"]) == set(customers)
    assert len(pd.read_csv("predictions.csv")) == len(pd.read_csv("new.csv"))
    assert Path("run/report.html").stat().st_size > 0
