"""The same study, curves and weights with any number of threads, in processes of their own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from small_tasks import blobs

pytestmark = pytest.mark.slow

TABLE = ["--epochs", "2", "--batch-size", "32", "--trials", "16", "--generation-size", "4", "--restarts", "2"]
IMAGES = ["--network", "cifar10-cnn", "--epochs", "1", "--batch-size", "16", "--trials", "2", "--generation-size", "2"]
IMAGES += ["--restarts", "1", "--no-baselines", "--no-relabel", "--no-models"]


def searched(
    data: str, options: list[str], threads: int, out: str
) -> tuple[list[object], dict[str, NDArray[np.generic]]]:
    """Return the trials of a search with a number of threads, and all its arrays."""
    fixed = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in fixed}
    command = [sys.executable, "-m", "s2e", "search", data, *options, "--out", out]
    environment["OMP_NUM_THREADS"] = str(threads)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(f"{out}/study.db") as study:
        points = study.execute("select trial_id, param_name, param_value from trial_params order by 1, 2").fetchall()
        values = study.execute("select trial_id, value from trial_values order by 1").fetchall()
        accuracies = study.execute(
            "select trial_id, key, value_json from trial_user_attributes order by 1, 2"
        ).fetchall()
    arrays: dict[str, NDArray[np.generic]] = dict(load_file(f"{out}/model.safetensors"))
    for name in ("curves.npz", "dynamics.npz"):
        with np.load(f"{out}/{name}") as stored:
            arrays |= {f"{name}/{key}": stored[key] for key in stored.files}
    return [points, values, accuracies], arrays


@pytest.mark.parametrize("sampler", ["curve", "newton-curve"])
def test_search_of_a_table_does_not_depend_on_the_number_of_threads(work: Path, sampler: str) -> None:
    data = blobs(300, wrong=0.3)
    np.savez(work / "table.npz", x_train=data.inputs, y_train=data.labels)
    trials, arrays = searched("table.npz", [*TABLE, "--sampler", sampler], 1, "run 1")
    for threads in (2, 4):
        others, again = searched("table.npz", [*TABLE, "--sampler", sampler], threads, f"run {threads}")
        assert others == trials
        assert again.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(again[name], array, err_msg=name)


def test_search_of_images_repeats_with_the_same_threads_and_is_rounded_otherwise_with_others(work: Path) -> None:
    """PyTorch sums a convolution's gradient by weight over the batch in as many parts as there are threads."""
    pixels = np.random.default_rng(0).integers(0, 256, size=(64, 3, 16, 16), dtype=np.uint8)
    np.savez(work / "images.npz", x_train=pixels, y_train=np.arange(64) % 2)
    (trials, arrays), (others, again), (_, rounded) = (
        searched("images.npz", IMAGES, threads, f"run {index}") for index, threads in enumerate((2, 2, 1))
    )
    assert others == trials
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array, err_msg=name)
    weights = [name for name in arrays if name.endswith("weight")]
    for name in weights:
        np.testing.assert_allclose(rounded[name], arrays[name], atol=0.02, err_msg=name)
