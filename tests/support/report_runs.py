"""Small runs to report on, each made once for all tests, with names that would be markup if they were not escaped."""

from __future__ import annotations

import atexit
import csv
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from command_line import s2e

EVIL = "<script>document.title='evil'</script>"
CLASSES = ("one", f"two & {EVIL}", 'three "quoted"')
SAMPLES = 90
QUICK = ["--epochs", "4", "--batch-size", "32"]
SEARCHED = [*QUICK, "--trials", "12", "--generation", "4", "--restarts", "1", "--sampler", "random"]


@cache
def home() -> Path:
    """A folder that lasts as long as the tests do."""
    folder = Path(tempfile.mkdtemp(prefix="s2e-report-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def made(name: str, *command: str) -> Path:
    """Run a command in the common folder, and return the run it made."""
    before = Path.cwd()
    os.chdir(home())
    try:
        done = s2e(*command, "--out", name)
    finally:
        os.chdir(before)
    assert done.exit_code == 0, done.output
    return home() / name


def labelled(seed: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (N, 8, 8) with a bright column by which the class is known."""
    generator = np.random.default_rng(seed)
    labels = np.arange(samples) % len(CLASSES)
    images = generator.integers(0, 60, size=(samples, 8, 8))
    images[np.arange(samples), :, 2 * labels + 1] = 230
    return images.astype(np.uint8), labels


@cache
def pictures() -> Path:
    """A searched run on pictures, with noise, so that true labels are known, and with test data."""
    (x, y), (x_test, y_test) = labelled(0, SAMPLES), labelled(1, 30)
    np.savez(home() / "pictures.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test, class_names=np.array(CLASSES))
    return made("of-pictures", "search", str(home() / "pictures.npz"), "--noise", "symmetric:0.3", *SEARCHED)


@cache
def table() -> Path:
    """A searched run on a table with labels as they are, without test data and with many columns."""
    generator = np.random.default_rng(0)
    with (home() / "table.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["name", "kind", *(f"column {number}" for number in range(12)), EVIL])
        for row in range(SAMPLES):
            label = row % len(CLASSES)
            values = generator.normal(size=12) + 3 * label
            rows.writerow([f"row {row}", CLASSES[(label + (row % 9 == 0)) % 3], *values.round(2), EVIL * (row % 2)])
    return made("of-table", "search", str(home() / "table.csv"), "--label", "kind", "--id", "name", *SEARCHED)


@cache
def trained() -> Path:
    """A single training, by a method without a keep rate, on samples that are neither pictures nor rows of a table."""
    images, labels = labelled(0, SAMPLES)
    np.savez(home() / "flat.npz", x_train=images.reshape(SAMPLES, -1) / np.float32(255), y_train=labels)
    return made("trained", "train", str(home() / "flat.npz"), "--method", "standard", *QUICK)


@cache
def compared() -> Path:
    """A comparison of three methods under two noise settings, from two seeds."""
    pictures()
    noises = ["--noise", "symmetric:0.3", "--noise", "pair:0.3"]
    methods = ["--methods", "standard,coteaching,s2e", "--seeds", "2", "--trials", "4", "--generation", "2"]
    return made("compared", "compare", str(home() / "pictures.npz"), *noises, *methods, *QUICK)


def copy_of(run: Callable[[], Path], where: Path) -> Path:
    """Copy a run, to change it."""
    return Path(shutil.copytree(run(), where / run().name))
