"""Small runs to report on, each made once for all tests. Some of their names are markup unless escaped."""

from __future__ import annotations

import atexit
import csv
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from command_line import s2e
from s2e.runs.directory import Run

MARKUP = "<script>document.title='evil'</script>"
CLASSES = ("one", f"two & {MARKUP}", 'three "quoted"')
SAMPLES = 90
QUICK = ["--epochs", "4", "--batch-size", "32"]
SEARCH = [*QUICK, "--trials", "12", "--generation-size", "4", "--restarts", "1", "--sampler", "random"]


@cache
def home() -> Path:
    """A folder that is deleted after the tests."""
    folder = Path(tempfile.mkdtemp(prefix="s2e-report-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def make(name: str, *command: str) -> Path:
    """Make a run in the folder of all runs, and return its path."""
    before = Path.cwd()
    os.chdir(home())
    try:
        done = s2e(*command, "--out", name)
    finally:
        os.chdir(before)
    assert done.exit_code == 0, done.output
    return home() / name


def labelled_images(seed: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 8, 8) with a bright column that depends on the class, and labels (N,)."""
    generator = np.random.default_rng(seed)
    labels = np.arange(samples) % len(CLASSES)
    images = generator.integers(0, 60, size=(samples, 8, 8))
    images[np.arange(samples), :, 2 * labels + 1] = 230
    return images.astype(np.uint8), labels


@cache
def images() -> Path:
    """A search on images with added noise, so that true labels are known, and with test data."""
    (x, y), (x_test, y_test) = labelled_images(0, 2 * SAMPLES), labelled_images(1, 30)
    np.savez(home() / "images.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test, class_names=np.array(CLASSES))
    np.savez(home() / "images-to-predict.npz", x=x_test[:, None])
    return make("images", "search", str(home() / "images.npz"), "--noise", "symmetric:0.3", "--no-models", *SEARCH)


@cache
def table() -> Path:
    """A search on a table with many columns, without added noise and without test data."""
    generator = np.random.default_rng(0)
    with (home() / "table.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["name", "kind", *(f"column {number}" for number in range(12)), MARKUP])
        for row in range(SAMPLES):
            label = row % len(CLASSES)
            values = generator.normal(size=12) + 3 * label
            rows.writerow([f"row {row}", CLASSES[(label + (row % 9 == 0)) % 3], *values.round(2), MARKUP * (row % 2)])
    return make("table", "search", str(home() / "table.csv"), "--label", "kind", "--id", "name", *SEARCH)


@cache
def training() -> Path:
    """A training of a method without a keep rate on samples that are neither images nor rows of a table."""
    x, y = labelled_images(0, SAMPLES)
    np.savez(home() / "flat.npz", x_train=x.reshape(SAMPLES, -1) / np.float32(255), y_train=y)
    return make("training", "train", str(home() / "flat.npz"), "--method", "standard", *QUICK)


@cache
def comparison() -> Path:
    """A comparison of three methods under two noise settings with two seeds."""
    images()
    noises = ["--noise", "symmetric:0.3", "--noise", "pair:0.3"]
    methods = ["--methods", "standard,coteaching,s2e", "--seeds", "2", "--trials", "4", "--generation-size", "2"]
    return make("comparison", "compare", str(home() / "images.npz"), *noises, *methods, *QUICK)


def copy_of(run: Callable[[], Path], folder: Path) -> Path:
    """Copy a run into a folder, to change the copy."""
    return Path(shutil.copytree(run(), folder / run().name))


def method_rows(run: Run) -> list[dict[str, Any]]:
    """The rows of the methods in the result of a run."""
    rows: list[dict[str, Any]] = run.read_json("result.json")["methods"]
    return rows
