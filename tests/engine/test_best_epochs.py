"""Networks as they were at the best epoch of the member they belong to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from populations import assert_same, trained_with_states, with_batch_norm
from s2e.engine.stacked_networks import BestEpochs, Population
from s2e.engine.task import Member, Task
from s2e.engine.training import train_population
from s2e.methods import Coteaching, Standard
from small_tasks import blobs, member, small_mlp, task

EPOCHS = 8
CPU = torch.device("cpu")


def a_task(**changes: Any) -> Task:
    evaluate = {"valid": blobs(96, wrong=0.0, seed=1)}
    return task(blobs(), Coteaching(), evaluate=evaluate, epochs=EPOCHS, **changes)


def a_member(seed: int, **changes: Any) -> Member:
    return member(seed=seed, epochs=EPOCHS, learning_rate=3e-2, **changes)


def assert_rows_equal(found: dict[str, Tensor], row: int, expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name][row], tensor[row]), name


def test_networks_of_a_member_are_kept_together_as_they_were_at_its_best_score() -> None:
    population = Population(with_batch_norm, [0, 1, 2], CPU)
    best = BestEpochs(population, [2, 1])
    states = []
    nan = float("nan")
    for scores in ([0.5, 0.1], [0.4, 0.3], [0.5, 0.2], [0.7, 0.3], [nan, nan], [0.6, 0.31]):
        for tensor in population.tensors().values():
            tensor.data += 1
        states.append(population.state())
        best.update(np.array(scores))
    for row in (0, 1):
        assert_rows_equal(best.state(), row, states[3])
    assert_rows_equal(best.state(), 2, states[5])


def test_of_equal_epochs_the_first_is_kept() -> None:
    population = Population(small_mlp, [0], CPU)
    best = BestEpochs(population, [1])
    states = []
    for _ in range(2):
        for tensor in population.tensors().values():
            tensor.data += 1
        states.append(population.state())
        best.update(np.array([0.0]))  # nothing right is still better than nothing trained
    first = states[0]
    assert_rows_equal(best.state(), 0, first)


@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_a_training_remembers_the_weights_of_each_members_best_epoch(
    monkeypatch: pytest.MonkeyPatch, chunk: int | None
) -> None:
    members = [a_member(seed) for seed in range(3)]
    trained = train_population(a_task(remember_best="valid", chunk=chunk), members)
    assert trained.best_state is not None
    _, states = trained_with_states(a_task(), members, monkeypatch)
    epochs = [int(np.argmax(curve)) for curve in trained.curves.accuracy["valid"]]
    assert len({*epochs, EPOCHS - 1}) > 2  # not all alike, and not all at the end
    for place, epoch in enumerate(epochs):
        for row in (2 * place, 2 * place + 1):
            assert_rows_equal(trained.best_state, row, states[epoch])


def test_remembering_changes_nothing_else() -> None:
    members = [a_member(0), a_member(1, method=Standard())]
    plain, remembering = (train_population(a_task(remember_best=name), members) for name in (None, "valid"))
    assert plain.best_state is None
    assert_same(remembering, plain)
    for name in ("kept", "agreed", "loss"):
        np.testing.assert_array_equal(getattr(remembering.dynamics, name), getattr(plain.dynamics, name))
