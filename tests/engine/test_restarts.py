"""Restarts: one is selected by validation for each final training."""

from __future__ import annotations

import numpy as np
import torch

from populations import assert_same
from s2e.engine.restarts import FinalTraining, train_restarts
from s2e.engine.two_stage import train_in_two_stages
from s2e.methods import Coteaching, ForwardCorrection, Standard
from small_tasks import task


def test_restart_with_the_best_validation_accuracy_is_selected(train_data, valid_data):
    shared = task(train_data, Standard(), evaluate={"valid": valid_data}, epochs=6)
    trainings = [
        FinalTraining("pair", Coteaching(), np.linspace(1, 0.7, 6), restarts=3),
        FinalTraining("corrected", ForwardCorrection(), np.ones(6), restarts=2),
    ]
    selected = train_restarts(shared, trainings, learning_rate=1e-2, seed=5)
    members = [member for training in trainings for member in training.members(1e-2, 5)]
    assert [member.seed for member in members[:2]] == [member.seed for member in members[3:]]  # equal initial weights
    trained, as_trained = train_in_two_stages(shared, members)
    for one, training, indices in zip(selected, trainings, ([0, 1, 2], [3, 4]), strict=True):
        assert one.training is training
        assert_same(one.trained, trained)
        np.testing.assert_array_equal(one.validation_accuracies, trained.curves.last("valid")[indices])
        assert one.index == indices[int(one.validation_accuracies.argmax())]
        for name, tensor in one.state.items():
            assert torch.equal(tensor, trained.take([one.index]).state[name]), name
    assert selected[0].transition is None
    np.testing.assert_array_equal(selected[1].transition, as_trained[selected[1].index].transition)
