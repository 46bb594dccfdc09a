"""Mended validation labels are better than those given, and the rest of the task stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from s2e.audit.relabelling import relabelled_validation, with_validation_labels
from s2e.data.noise import apply_noise, parse_noise
from s2e.data.samples import hold_out
from s2e.engine.task import VALIDATION
from s2e.methods import Standard
from small_tasks import blobs, task

EPOCHS = 15


def held_out_of(noise: str):
    """A task whose validation part is as doubtful as what is trained on; whoever searches brings his own method."""
    data = apply_noise(parse_noise(noise), blobs(600, wrong=0.0, seed=3), np.random.default_rng(0))
    rest, held = hold_out(data, 0.2, np.random.default_rng(1))
    return task(rest, Standard(), evaluate={VALIDATION: held}, epochs=EPOCHS), held


@pytest.mark.parametrize("noise", ["symmetric:0.3", "symmetric:0.5", "pair:0.3"])
def test_most_wrong_labels_are_put_right(noise):
    shared, held = held_out_of(noise)
    wrong_before = (held.labels != held.clean_labels).mean()
    wrong_after = (relabelled_validation(shared, learning_rate=3e-3, seed=0) != held.clean_labels).mean()
    assert wrong_after < wrong_before / 2


def test_right_labels_stay():
    shared, held = held_out_of("none")
    labels = relabelled_validation(shared, learning_rate=3e-3, seed=0)
    assert (labels == held.labels).mean() > 0.97


def test_the_same_seed_mends_alike():
    shared, _ = held_out_of("symmetric:0.3")
    np.testing.assert_array_equal(
        relabelled_validation(shared, learning_rate=3e-3, seed=0),
        relabelled_validation(shared, learning_rate=3e-3, seed=0),
    )


def test_only_the_validation_labels_of_a_task_change():
    shared, held = held_out_of("none")
    other = with_validation_labels(shared, np.zeros_like(held.labels))
    assert (other.evaluate[VALIDATION].labels == 0).all()
    assert other.evaluate[VALIDATION].inputs is held.inputs
    assert other.train is shared.train
    assert (shared.evaluate[VALIDATION].labels == held.labels).all()
