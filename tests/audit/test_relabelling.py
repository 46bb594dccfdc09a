"""Relabelled validation labels are better than the given ones, and nothing else of the task changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from s2e.audit.relabelling import relabelled_validation, with_validation_labels
from s2e.data.noise import apply_noise, parse_noise
from s2e.data.samples import LabelledData, hold_out
from s2e.engine.task import VALIDATION, Task
from s2e.methods import Standard
from small_tasks import blobs, task


def noisy_task(noise: str) -> tuple[Task, LabelledData]:
    """A task whose validation labels are as noisy as the training labels, and its validation part."""
    data = apply_noise(parse_noise(noise), blobs(480, wrong=0.0, seed=3), np.random.default_rng(0))
    rest, held = hold_out(data, 0.2, np.random.default_rng(1))
    return task(rest, Standard(), evaluate={VALIDATION: held}, epochs=6), held


@pytest.mark.parametrize("noise", ["symmetric:0.5", "pair:0.3"])
def test_most_wrong_labels_are_corrected(noise: str) -> None:
    shared, held = noisy_task(noise)
    labels = relabelled_validation(shared, learning_rate=1e-2, seed=0)
    assert (labels != held.clean_labels).mean() < (held.labels != held.clean_labels).mean() / 2


def test_correct_labels_are_kept() -> None:
    shared, held = noisy_task("none")
    assert (relabelled_validation(shared, learning_rate=1e-2, seed=0) == held.labels).mean() > 0.97


@pytest.mark.slow
def test_same_seed_gives_the_same_labels() -> None:
    shared, _ = noisy_task("symmetric:0.5")
    one, other = (relabelled_validation(shared, learning_rate=1e-2, seed=0) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_only_the_validation_labels_of_a_task_change() -> None:
    shared, held = noisy_task("none")
    other = with_validation_labels(shared, np.zeros_like(held.labels))
    assert (other.evaluate[VALIDATION].labels == 0).all()
    assert other.evaluate[VALIDATION].inputs is held.inputs
    assert other.train is shared.train
    assert (shared.evaluate[VALIDATION].labels == held.labels).all()


def test_reviewed_labels_are_not_relabelled() -> None:
    shared, held = noisy_task("symmetric:0.5")
    reviewed = np.arange(len(held)) % 2 == 0  # as if noisy labels had been found right
    trusted = replace(shared, evaluate={VALIDATION: replace(held, reviewed=reviewed)})
    labels = relabelled_validation(trusted, learning_rate=1e-2, seed=0)
    np.testing.assert_array_equal(labels[reviewed], held.labels[reviewed])
    assert (labels != held.labels)[~reviewed].any()
