"""Populations trained one after the other, each in what the one before has left on the device."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from populations import ALL_METHODS, assert_same, stopping, with_batch_norm_and_dropout
from s2e.engine.population import Crew
from s2e.engine.step import Lockstep
from s2e.engine.training import Trainer, train_population
from s2e.methods import Coteaching
from small_tasks import member, small_mlp, task


@pytest.fixture
def made(monkeypatch):
    """Crews put on the device anew, by their number of members; they are kept as if a graph had been captured."""
    sizes, real = [], Crew.of

    def put_on_device(shared, members):
        sizes.append(len(members))
        return real(shared, members)

    monkeypatch.setattr(Crew, "of", put_on_device)
    monkeypatch.setattr(Lockstep, "captured", True)
    monkeypatch.setattr("s2e.engine.training.small_on_a_cpu", lambda *_: False)
    return sizes


def generation(*seeds: int, **changes: object):
    return [member(0.3 + 0.1 * seed, seed=seed, **changes) for seed in seeds]


@pytest.mark.parametrize("network", [small_mlp, with_batch_norm_and_dropout])
@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)
def test_the_second_generation_is_trained_as_if_it_were_the_first(method, network, made, train_data, valid_data):
    shared = task(train_data, method, network=network, evaluate={"valid": valid_data}, remember_best="valid")
    trainer = Trainer(shared)
    first = trainer.train(generation(1, 2))
    before = copy.deepcopy(first)
    second = trainer.train(generation(3, 4))
    assert made == [2]
    for trained, seeds in ((first, (1, 2)), (second, (3, 4))):
        alone = train_population(shared, generation(*seeds))
        assert_same(trained, alone)
        assert_same(replace(trained, state=trained.best_state), replace(alone, state=alone.best_state))
        for name, array in alone.dynamics.arrays().items():
            np.testing.assert_array_equal(trained.dynamics.arrays()[name], array, err_msg=name)
    for name, array in before.dynamics.arrays().items():
        np.testing.assert_array_equal(first.dynamics.arrays()[name], array, err_msg=name)


def test_the_chunks_of_a_large_population_share_what_is_on_the_device(made, train_data):
    members = generation(*range(6))
    in_chunks = train_population(task(train_data, Coteaching(), chunk=2), members)
    assert made == [2]
    assert_same(in_chunks, train_population(task(train_data, Coteaching()), members))


@pytest.mark.parametrize(
    "other",
    [
        generation(3, 4, 5),
        generation(3, 4, learning_rate=3e-3),
        generation(3, 4, transition=None),
        generation(3, 4, labels=np.zeros(192, dtype=np.int64)),
    ],
    ids=["more members", "another learning rate", "another transition", "other labels"],
)
def test_members_of_another_kind_are_put_on_the_device_anew(other, made, train_data):
    shared = task(train_data, Coteaching())
    trainer = Trainer(shared)
    trainer.train(generation(1, 2))
    trained = trainer.train(other)
    assert made == [2, len(other)]
    assert_same(trained, train_population(shared, other))


def test_a_generation_after_one_whose_members_were_stopped_is_whole_again(made, train_data):
    shared = task(train_data, Coteaching())
    trainer = Trainer(shared)
    trainer.train(generation(1, 2), stop=stopping({0: 2}))
    assert_same(trainer.train(generation(3, 4)), train_population(shared, generation(3, 4)))
