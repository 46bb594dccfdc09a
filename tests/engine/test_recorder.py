"""Recorded curves and dynamics equal values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from s2e.engine.curves import EPOCH_INTERVALS, Curves
from s2e.engine.recorder import Recorder, StepOutcome, bytes_per_member
from s2e.methods import Objective

CPU = torch.device("cpu")
CORRECT = torch.tensor([[True, False, True, True], [False, False, True, False]])  # (P, N)
LABELS = torch.tensor([[0, 1, 2, 0], [1, 1, 1, 1]])

STEPS = [  # two members of two networks, four samples, two steps of two samples
    {
        "index": [0, 1],
        "loss": [[1.0, 3.0], [5.0, 5.0]],
        "sample_losses": [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 5.0], [5.0, 5.0]]],
        "selected": [[[1, 0], [1, 1]], [[0, 0], [0, 0]]],
        "predicted": [[[0, 1], [0, 0]], [[0, 0], [0, 1]]],
    },
    {
        "index": [3, 2],
        "loss": [[2.0, 2.0], [7.0, 9.0]],
        "sample_losses": [[[0.5, 0.25], [0.5, 0.75]], [[1.0, 2.0], [3.0, 4.0]]],
        "selected": [[[1, 1], [1, 0]], [[0, 1], [0, 0]]],
        "predicted": [[[0, 2], [1, 1]], [[1, 1], [1, 1]]],
    },
]


def record_step(recorder, step):
    index = torch.tensor(step["index"])
    objective = Objective(
        torch.tensor(step["loss"]),
        torch.tensor(step["sample_losses"]),
        torch.tensor(step["selected"], dtype=torch.bool),
    )
    recorder.record(index, [StepOutcome(objective, torch.tensor(step["predicted"]), LABELS[:, index])])


def recorded(correct=CORRECT, epochs=1, steps=STEPS, *, collect=False):
    """Record the same steps in every epoch."""
    recorder = Recorder(2, 4, epochs, correct, CPU, collect=collect)
    curves = Curves.empty(2, epochs, ["valid"])
    for epoch in range(epochs):
        recorder.begin_epoch(epoch, torch.cat([torch.tensor(step["index"]) for step in steps]), len(steps))
        for step in steps:
            record_step(recorder, step)
        recorder.end_epoch(epoch, curves, np.arange(2))
    return curves, recorder.dynamics()


@pytest.mark.parametrize("collect", [False, True], ids=["by step", "by epoch"])
def test_curves_of_an_epoch(collect):
    curves, _ = recorded(collect=collect)
    np.testing.assert_allclose(curves.loss[:, 0], [(2 + 2) / 2, (5 + 8) / 2])
    # Member 0: 2 and 1 of 2 correct, then 2 and 0. Member 1: 0 and 1, then all four.
    np.testing.assert_allclose(curves.train_accuracy[:, 0], [(0.75 + 0.5) / 2, (0.25 + 1.0) / 2])
    np.testing.assert_allclose(curves.kept[:, 0], [(0.75 + 0.75) / 2, (0.0 + 0.25) / 2])
    # Member 0: one of one and one of two, then two of two and one of one. Member 1: sample 2 only, which is correct.
    np.testing.assert_allclose(curves.label_precision[:, 0], [((1 + 0.5) / 2 + (1 + 1) / 2) / 2, 1.0])


def test_label_precision_is_nan_if_no_sample_is_kept():
    curves, _ = recorded(steps=STEPS[:1])
    np.testing.assert_allclose(curves.label_precision[0, 0], 0.75)
    assert np.isnan(curves.label_precision[1, 0])
    assert curves.kept[1, 0] == 0


def test_label_precision_is_nan_if_true_labels_are_unknown():
    known, unknown = (recorded(correct)[0] for correct in (CORRECT, None))
    assert np.isnan(unknown.label_precision).all()
    for name in ("loss", "kept", "train_accuracy"):
        np.testing.assert_array_equal(getattr(unknown, name), getattr(known, name))


@pytest.mark.parametrize("collect", [False, True], ids=["by step", "by epoch"])
def test_dynamics_of_an_epoch(collect):
    _, dynamics = recorded(collect=collect)
    np.testing.assert_array_equal(dynamics.seen, [[1, 1, 1, 1]])
    np.testing.assert_array_equal(dynamics.kept, [[2, 1, 1, 2], [0, 0, 1, 0]])
    np.testing.assert_array_equal(dynamics.agreed, [[2, 1, 1, 1], [0, 1, 2, 2]])
    np.testing.assert_allclose(dynamics.loss, [[[4.0, 6.0, 1.0, 1.0]], [[10.0, 10.0, 6.0, 4.0]]])


@pytest.mark.parametrize("collect", [False, True], ids=["by step", "by epoch"])
def test_curves_are_per_epoch_and_dynamics_sums(collect):
    once, dynamics_once = recorded(collect=collect)
    thrice, dynamics_thrice = recorded(epochs=3, collect=collect)
    for epoch in range(3):
        np.testing.assert_allclose(thrice.loss[:, epoch], once.loss[:, 0])
        np.testing.assert_allclose(thrice.label_precision[:, epoch], once.label_precision[:, 0])
    np.testing.assert_array_equal(dynamics_thrice.kept, 3 * dynamics_once.kept)
    np.testing.assert_array_equal(dynamics_thrice.agreed, 3 * dynamics_once.agreed)
    np.testing.assert_array_equal(dynamics_thrice.loss, np.repeat(dynamics_once.loss, 3, axis=1))  # an interval each


@pytest.mark.parametrize("epochs", [1, 9, 10, 25])
def test_epoch_intervals_are_equal(epochs):
    recorder = Recorder(1, 3, epochs, None, CPU)
    for epoch in range(epochs):
        recorder.begin_epoch(epoch, torch.tensor([0, 2]), 1)
    seen, intervals = recorder.dynamics().seen, min(EPOCH_INTERVALS, epochs)
    assert seen.shape == (intervals, 3)
    assert seen[:, 0].sum() == seen[:, 2].sum() == epochs
    assert set(seen[:, 0]) <= {epochs // intervals, -(-epochs // intervals)}
    assert not seen[:, 1].any()


@pytest.mark.parametrize("collect", [False, True], ids=["by step", "by epoch"])
@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_diverged_members_stay_diverged(loss, collect):
    recorder = Recorder(2, 4, 2, CORRECT, CPU, collect=collect)
    curves = Curves.empty(2, 2, [])
    diverging = {**STEPS[0], "loss": [[1.0, 3.0], [5.0, loss]]}  # one of two networks
    for epoch, step in enumerate((diverging, STEPS[1])):
        recorder.begin_epoch(epoch, torch.tensor(step["index"]), 1)
        record_step(recorder, step)
        recorder.end_epoch(epoch, curves, np.arange(2))
        assert curves.diverged.tolist() == [False, True]


def test_bytes_per_member():
    dynamics, networks = Recorder(3, 50, 200, None, CPU).dynamics(), 2
    collected = 3 * networks * 50 * (4 + 1 + 1)
    records = dynamics.kept.nbytes + dynamics.agreed.nbytes + dynamics.loss.nbytes
    assert records + collected == 3 * bytes_per_member(50, networks)
