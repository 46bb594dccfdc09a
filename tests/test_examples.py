"""The examples, each run as a program with `--quick`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

from command_line import TINY_SEARCH, s2e

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = ["table", "images", "text", "embeddings"]
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Finished:
    """A finished example.

    Attributes:
        stdout: standard output.
        stderr: standard error.
        status: exit status.
        out: the directory given with --out.
        elsewhere: its working directory, also for temporary directories.
    """

    stdout: str
    stderr: str
    status: int
    out: Path
    elsewhere: Path

    def number(self, before: str) -> float:
        """Return the number printed after a text."""
        found = re.search(re.escape(before) + r"[^\d\n]*([\d.]+)", self.stdout)
        assert found, f"{before!r} is not in: {self.stdout}"
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
    """Every example, run once; in parallel, because each is a process of one thread."""
    root = tmp_path_factory.mktemp("examples")
    with ThreadPoolExecutor() as pool:
        started = {name: pool.submit(run, name, root / name, root / f"{name}-elsewhere") for name in NAMES}
        return {name: example.result() for name, example in started.items()}


@pytest.mark.parametrize("name", NAMES)
def test_examples_succeed_and_write_to_their_directory_only(finished, name):
    example = finished[name]
    assert (example.status, example.stderr) == (0, "")
    assert f"written to: {example.out}\n" in example.stdout
    assert any(example.out.iterdir())
    assert list(example.elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_most_wrong_labels_are_found(finished, name):
    example = finished[name]
    issues, found, wrong = map(example.number, ["label issues:", "truly wrong:", "wrong labels in total:"])
    assert found > 0.8 * issues
    assert found > 0.8 * wrong


@pytest.mark.parametrize(("name", "samples"), [("table", 2000), ("text", 800), ("embeddings", 1297)])
def test_csv_file_agrees_with_the_output(finished, name, samples):
    example = finished[name]
    audited = pd.read_csv(example.out / "label_issues.csv", index_col=0)
    assert len(audited) == samples
    assert audited["label_quality"].is_monotonic_increasing
    assert audited["is_label_issue"].sum() == example.number("label issues:")
    assert (audited["is_label_issue"] & audited["truly_wrong"]).sum() == example.number("truly wrong:")
    assert audited["truly_wrong"].sum() == example.number("wrong labels in total:")
    assert str(audited.index[0]) in example.stdout or audited["sentence"].iloc[0] in example.stdout


def test_embeddings_are_saved_for_the_command_line(finished):
    with np.load(finished["embeddings"].out / "embeddings.npz") as arrays:
        assert {name: array.shape for name, array in arrays.items()} == {
            "x_train": (1297, 256),
            "y_train": (1297,),
            "x_test": (500, 256),
            "y_test": (500,),
        }
        np.testing.assert_allclose(arrays["x_train"].mean(axis=0), 0, atol=1e-4)


def test_accuracies_exceed_the_alternatives(finished):
    table, images, text, embeddings = (finished[name] for name in NAMES)
    assert table.number("accuracy on new customers:") > 85  # 75% of the given labels are right
    assert images.number("test accuracy, S2EClassifier:") > images.number("test accuracy, plain training:")
    assert embeddings.number("test accuracy, S2EClassifier:") > 85  # 70% of the given labels are right
    assert text.number("sentences, S2EClassifier:") > text.number("sentences, LogisticRegression:") - 2


def test_suggested_labels_are_better_than_given_ones(finished):
    given, suggested = re.search(
        r"correct labels: ([\d.]+)% as given, ([\d.]+)% as suggested", finished["images"].stdout
    ).groups()
    assert float(suggested) > float(given) + 20


def test_images_are_drawn_and_the_classifier_is_saved(finished):
    example = finished["images"]
    assert (example.out / "label_issues.png").read_bytes().startswith(PNG)
    with safe_open(example.out / "digits.safetensors", framework="np") as file:
        assert any("network" in key for key in file.keys())  # noqa: SIM118  # not a dictionary
    assert "loaded classifier predicts the same: True" in example.stdout


def test_printed_commands_work(finished, monkeypatch):
    example = finished["table"]
    monkeypatch.chdir(example.out)
    commands = [line.split()[1:] for line in example.stdout.splitlines() if line.startswith("    s2e ")]
    assert [command[0] for command in commands] == ["search", "audit", "predict", "report"]
    for command in commands:
        result = s2e(*command, *(TINY_SEARCH if command[0] == "search" else []))
        assert result.exit_code == 0, (command, result.output, result.exception)
    customers = pd.read_csv("customers.csv")["customer"]
    assert set(pd.read_csv("run/label_issues.csv")["id"]) == set(customers)
    assert len(pd.read_csv("predictions.csv")) == len(pd.read_csv("new.csv"))
    assert Path("run/report.html").stat().st_size > 0
