"""Members that are stopped while others train on, and members spread over threads."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from torch import nn

from populations import ALL_METHODS, assert_same, only, stopping, with_batch_norm, with_batch_norm_and_dropout
from s2e.engine.training import train_population
from s2e.methods import Coteaching, Reweight, Standard
from small_tasks import member, small_mlp, task

# Members that are stopped


@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("chunk", [None, 2])
def test_members_that_go_on_are_not_changed_by_those_that_are_stopped(method, chunk, train_data, valid_data):
    shared = task(train_data, method, evaluate={"valid": valid_data}, chunk=chunk, network=with_batch_norm_and_dropout)
    members = [member(0.5, seed=1), member(0.9, seed=2, learning_rate=3e-3), member(0.2, seed=3), member(0.6, seed=4)]
    everyone = train_population(shared, members)
    some = train_population(shared, members, stop=stopping({0: 1, 2: 3}))
    for place in (1, 3):
        assert_same(only(some, place), only(everyone, place))
        for name in ("kept", "agreed", "loss"):
            np.testing.assert_array_equal(getattr(some.dynamics, name)[place], getattr(everyone.dynamics, name)[place])
    assert some.curves.epochs.tolist() == [1, 4, 3, 4]
    for place, epochs in ((0, 1), (2, 3)):
        for name, curve in some.curves.arrays().items():
            if curve.ndim == 2:
                whole = everyone.curves.arrays()[name]
                np.testing.assert_array_equal(curve[place, :epochs], whole[place, :epochs], err_msg=name)
                assert np.isnan(curve[place, epochs:]).all()
        last = everyone.curves.accuracy["valid"][place, :epochs].mean()
        assert some.curves.last("valid")[place] == pytest.approx(last)


def test_a_stopped_member_keeps_the_weights_it_had(train_data):
    stopped = train_population(task(train_data, Coteaching()), [member(), member(seed=1)], stop=stopping({0: 2}))
    seen = []
    train_population(
        task(train_data, Coteaching()),
        [member()],
        on_epoch=lambda progress: seen.append(progress.epoch),
        stop=stopping({0: 2}),
    )
    assert seen == [1, 2]  # nobody is left to train
    alone = train_population(task(train_data, Coteaching()), [member()], stop=stopping({0: 2}))
    assert_same(only(stopped, 0), alone)


def test_stopping_at_the_last_epoch_changes_nothing(train_data):
    members = [member(seed=1), member(seed=2)]
    shared = task(train_data, Standard())
    assert_same(train_population(shared, members, stop=stopping({0: 4, 1: 4})), train_population(shared, members))


def test_best_epochs_are_kept_for_members_that_go_on_and_for_those_that_are_stopped(train_data, valid_data):
    shared = task(train_data, Coteaching(), evaluate={"valid": valid_data}, remember_best="valid")
    members = [member(0.5, seed=1), member(0.9, seed=2), member(0.3, seed=3)]
    everyone = train_population(shared, members)
    some = train_population(shared, members, stop=stopping({1: 2}))
    for name, tensor in everyone.best_state.items():
        for place in (0, 2):
            assert torch.equal(some.best_state[name][some.rows(place)], tensor[everyone.rows(place)])


# Threads


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def all_methods_together():
    return [member(0.5, seed=seed, method=method) for method in ALL_METHODS for seed in (1, 2)]


@pytest.mark.parametrize("network", [small_mlp, with_batch_norm])
def test_members_in_several_threads_train_as_in_one(network, train_data, valid_data, two_threads):
    shared = task(train_data, Reweight(), network=network, evaluate={"valid": valid_data})
    told = []
    several = train_population(shared, all_methods_together(), on_epoch=told.append)
    assert torch.get_num_threads() == 2
    assert {len(progress.indices) for progress in told} == {len(ALL_METHODS)}  # two halves
    torch.set_num_threads(1)
    assert_same(several, train_population(shared, all_methods_together()))


def test_initial_weights_do_not_depend_on_a_thread_that_trains_already(train_data, two_threads):
    def slow_to_build():
        first = nn.Linear(6, 8)
        time.sleep(0.05)
        return nn.Sequential(first, nn.ReLU(), nn.Linear(8, 4))

    shared = task(train_data, Coteaching(), network=slow_to_build)
    members = [member(seed=seed) for seed in (1, 2, 3)]  # two for one thread, one for the other, which is ready first
    several = train_population(shared, members)
    torch.set_num_threads(1)
    assert_same(several, train_population(shared, members))


def test_networks_that_draw_random_numbers_are_not_spread_over_threads(train_data, two_threads):
    told = []
    shared = task(train_data, Coteaching(), network=with_batch_norm_and_dropout, epochs=2)
    members = [member(seed=seed, epochs=2) for seed in (1, 2)]
    several = train_population(shared, members, on_epoch=told.append)
    assert {progress.indices for progress in told} == {(0, 1)}
    assert_same(several, train_population(shared, members))


def test_what_goes_wrong_in_one_thread_ends_the_others(train_data, two_threads):
    told = []

    def fail(progress):
        told.append(progress)
        if len(told) == 3:
            raise RuntimeError("enough")

    shared = task(train_data, Coteaching(), epochs=1000)
    with pytest.raises(RuntimeError, match="enough"):
        train_population(shared, [member(seed=seed, epochs=1000) for seed in (1, 2)], on_epoch=fail)
    assert len(told) == 3
    assert torch.get_num_threads() == 2


def test_members_are_stopped_in_several_threads_as_in_one(train_data, valid_data, two_threads):
    shared = task(train_data, Coteaching(), evaluate={"valid": valid_data})
    members = [member(0.5, seed=seed) for seed in range(5)]
    several = train_population(shared, members, stop=stopping({1: 2, 4: 3}))
    torch.set_num_threads(1)
    assert_same(several, train_population(shared, members, stop=stopping({1: 2, 4: 3})))
