"""Training a population: members are independent of other members, chunks, reuse and stopping."""

from __future__ import annotations

import copy
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from populations import (
    ALL_METHODS,
    DataDependent,
    assert_same,
    stop_after,
    train_with_states,
    with_batch_norm,
    with_batch_norm_and_dropout,
    with_convolutions,
)
from s2e.data.samples import LabelledData
from s2e.engine.learning_rates import Linear
from s2e.engine.population import Population
from s2e.engine.step import TrainingStep
from s2e.engine.task import Member
from s2e.engine.training import Trainer, train_population
from s2e.errors import InvalidInput
from s2e.methods import Coteaching, MentorNet, Reweight, Standard
from s2e.seeds import derive
from small_tasks import blobs, member, small_mlp, task


def members_of_all_methods(epochs: int = 4) -> list[Member]:
    """Two members of each method; the second has another learning rate and other labels."""
    labels = np.roll(blobs().labels, 5)
    return [
        one
        for seed, method in enumerate(ALL_METHODS)
        for one in (
            member(0.5, seed=seed, epochs=epochs, method=method),
            member(0.9, seed=100 + seed, epochs=epochs, method=method, learning_rate=3e-3, labels=labels),
        )
    ]


def task_of_all_methods(train, valid, **changes):
    return task(train, Reweight(), evaluate={"valid": valid}, keep_best_on="valid", **changes)


# A member


def plain_training(train: LabelledData, which: Member, epochs: int, batch_size: int, seed: int) -> nn.Module:
    """Ordinary training of one network in plain PyTorch."""
    torch.manual_seed(derive(which.seed, "network", 0))
    network = small_mlp()
    adam = torch.optim.Adam(network.parameters(), lr=which.learning_rate)
    inputs, labels = torch.from_numpy(train.inputs), torch.from_numpy(train.labels)
    for epoch in range(epochs):
        factor = Linear().factor(epoch, epochs)
        adam.param_groups[0].update(lr=which.learning_rate * factor)
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(derive(seed, "order", epoch)))
        for index in order[: len(order) // batch_size * batch_size].split(batch_size):
            adam.zero_grad()
            functional.cross_entropy(network(inputs[index]), labels[index]).backward()
            adam.step()
    return network


@pytest.mark.parametrize("method", [Standard(), MentorNet()], ids=lambda method: method.name)
def test_keep_rate_1_equals_ordinary_training(method, train_data):
    trained = train_population(task(train_data, method), [member(1.0, seed=3)])
    plain = plain_training(train_data, member(1.0, seed=3), epochs=4, batch_size=32, seed=0)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(trained.state[name][0], parameter.detach(), rtol=1e-5, atol=1e-6)
    assert (trained.curves.kept == 1).all()


def test_coteaching_with_equal_networks_and_keep_rate_1_equals_standard(train_data, monkeypatch):
    monkeypatch.setattr("s2e.engine.population.derive", lambda seed, *path: derive(seed, path[0], 0))
    pair = train_population(task(train_data, Coteaching()), [member(1.0)])
    single = train_population(task(train_data, Standard()), [member(1.0)])
    for name, tensor in single.state.items():
        torch.testing.assert_close(pair.state[name], tensor.expand_as(pair.state[name]), rtol=1e-6, atol=1e-7)


def test_member_alone_equals_member_in_population(train_data, valid_data):
    shared = task_of_all_methods(train_data, valid_data, network=with_batch_norm_and_dropout, epochs=2)
    members = members_of_all_methods(epochs=2)
    together = train_population(shared, members)
    for index, one in enumerate(members):
        assert_same(together.take([index]), train_population(shared, [one]))


@pytest.mark.parametrize(
    "network",
    [with_batch_norm, pytest.param(with_convolutions, marks=pytest.mark.slow)],  # `methods/test_oracles.py` has some
)
def test_vectorized_equals_looped(network, train_data, valid_data):
    vectorized, looped = (
        train_population(
            task_of_all_methods(train_data, valid_data, network=network, vectorize=vectorize, epochs=2),
            [member(0.5, seed=seed, epochs=2, method=method) for seed, method in enumerate(ALL_METHODS)],
        )
        for vectorize in (True, False)
    )
    assert_same(vectorized, looped, exactly=False)


def test_seeds_determine_the_outcome(train_data):
    first, again = (train_population(task(train_data, Coteaching()), [member(seed=1)]) for _ in range(2))
    assert_same(first, again)
    other_weights = train_population(task(train_data, Coteaching()), [member(seed=2)])
    other_order = train_population(task(train_data, Coteaching(), seed=9), [member(seed=1)])
    for other in (other_weights, other_order):
        assert not torch.equal(first.state["0.weight"], other.state["0.weight"])


def test_random_state_of_the_caller_is_kept(train_data):
    before = torch.random.get_rng_state()
    train_population(task(train_data, Standard(), network=with_batch_norm_and_dropout), [member()])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_streamed_equals_resident(train_data):
    resident, streamed = (
        train_population(task(train_data, Reweight(), stream=stream), [member(seed=1)]) for stream in (False, True)
    )
    assert_same(resident, streamed)


def test_pixels_are_scaled():
    pixels = np.random.default_rng(0).integers(0, 256, size=(64, 6), dtype=np.uint8)
    sets = [LabelledData(inputs, np.arange(64) % 4, tuple("abcd")) for inputs in (pixels, np.float32(pixels) / 255)]
    assert_same(*(train_population(task(data, Standard()), [member()]) for data in sets), exactly=False)


def test_loop_is_used_if_vmap_fails(train_data, caplog):
    members = [member(seed=1), member(seed=2)]
    with caplog.at_level(logging.WARNING):
        trained = train_population(task(train_data, MentorNet(), network=DataDependent, vectorize=True), members)
    assert caplog.text.count("cannot be vectorised") == 1
    looped = train_population(task(train_data, MentorNet(), network=DataDependent, vectorize=False), members)
    assert_same(trained, looped)


def test_diverged_member_scores_0_and_does_not_affect_others(train_data, valid_data):
    shared = task(train_data, Coteaching(), evaluate={"valid": valid_data})
    members = [member(seed=1), member(seed=2, learning_rate=1e38), member(seed=3)]
    trained = train_population(shared, members)
    assert trained.curves.diverged.tolist() == [False, True, False]
    assert trained.curves.last("valid")[1] == 0
    assert_same(trained.take([0]), train_population(shared, members[:1]))


# Records


def test_curves_of_a_known_schedule(train_data, valid_data):
    schedule = np.array([1.0, 0.5, 0.25, 0.0])
    shared = task(train_data, Coteaching(), evaluate={"valid": valid_data})
    curves = train_population(shared, [Member(schedule, seed=1)]).curves
    np.testing.assert_allclose(curves.kept[0], [1.0, 0.5, 0.25, 1 / 32])  # at least one sample is kept
    correct = train_data.labels == train_data.clean_labels
    np.testing.assert_allclose(curves.label_precision[0, 0], correct.mean(), atol=1e-6)  # all samples are kept
    assert ((curves.accuracy["valid"] >= 0) & (curves.accuracy["valid"] <= 1)).all()
    assert not curves.diverged.any()


def test_label_precision_is_nan_without_true_labels(train_data):
    unknown = LabelledData(train_data.inputs, train_data.labels, train_data.class_names)
    trained = train_population(task(unknown, Coteaching()), [member()])
    assert np.isnan(trained.curves.label_precision).all()


def test_dynamics_count_every_sample(train_data):
    trained = train_population(task(train_data, Coteaching()), [member(0.5), member(1.0, seed=2)])
    dynamics, samples = trained.dynamics, len(train_data)
    np.testing.assert_array_equal(dynamics.seen.sum(axis=0), np.full(samples, 4))  # 192 samples fill 6 batches of 32
    np.testing.assert_array_equal(dynamics.kept[1], np.full(samples, 2 * 4))  # keep rate 1: both networks, every epoch
    np.testing.assert_allclose(dynamics.kept[0].sum(), 2 * samples * trained.curves.kept[0].sum())
    assert (dynamics.agreed <= 2 * 4).all()
    assert (dynamics.loss > 0).all()


def test_dynamics_separate_wrong_labels():
    data = blobs(512, wrong=0.3)
    trained = train_population(task(data, Coteaching(), epochs=15), [member(0.7, epochs=15, learning_rate=1e-2)])
    wrong = data.labels != data.clean_labels
    kept = trained.dynamics.kept[0] / (2 * trained.dynamics.seen.sum(axis=0))
    assert kept[wrong].mean() < kept[~wrong].mean() - 0.3
    late_loss = trained.dynamics.loss[0, -1]
    assert late_loss[wrong].mean() > 2 * late_loss[~wrong].mean()


def test_left_out_samples_differ_by_epoch():
    trained = train_population(task(blobs(100), Standard(), epochs=30), [member(1.0, epochs=30)])
    seen = trained.dynamics.seen.sum(axis=0)
    assert seen.sum() == 30 * 96
    assert seen.min() > 20


def test_best_state_is_the_state_at_the_best_epoch(valid_data, monkeypatch):
    changes = {"evaluate": {"valid": valid_data}, "epochs": 8}
    members = [member(seed=seed, epochs=8, learning_rate=3e-2) for seed in range(3)]
    trained = train_population(task(blobs(), Coteaching(), keep_best_on="valid", chunk=2, **changes), members)
    plain, states = train_with_states(task(blobs(), Coteaching(), **changes), members, monkeypatch)
    best_epochs = [int(np.argmax(curve)) for curve in trained.curves.accuracy["valid"]]
    assert len({*best_epochs, 7}) > 2  # different, and not all the last epoch
    for index, epoch in enumerate(best_epochs):
        for name, tensor in states[epoch].items():
            assert torch.equal(trained.best_state[name][trained.rows(index)], tensor[trained.rows(index)]), name
    assert plain.best_state is None
    for name, tensor in plain.state.items():
        assert torch.equal(trained.state[name], tensor), name


# Chunks


def test_chunks_equal_whole_population(train_data, valid_data):
    members = [member(0.4 + 0.1 * k, seed=k) for k in range(5)]
    shared = {"evaluate": {"valid": valid_data}}
    whole = train_population(task(train_data, Coteaching(), **shared), members)
    assert_same(whole, train_population(task(train_data, Coteaching(), chunk=4, **shared), members))


def test_chunks_are_planned_by_memory(train_data, monkeypatch, caplog):
    members, chunks = [member(seed=k) for k in range(6)], set()
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr("s2e.engine.memory.free_memory", lambda _: 60_000)
        in_chunks = train_population(
            task(train_data, Coteaching()), members, on_epoch=lambda finished: chunks.add(finished.indices)
        )
    assert "do not fit the memory" in caplog.text
    assert len(chunks) > 1
    assert_same(in_chunks, train_population(task(train_data, Coteaching()), members))


def out_of_memory_on_a_gpu():
    raise torch.OutOfMemoryError("no memory")


@pytest.mark.parametrize(
    "allocate",
    [out_of_memory_on_a_gpu, lambda: torch.empty(10**15), lambda: np.empty(10**15)],
    ids=["gpu", "cpu", "numpy"],
)
def test_out_of_memory_halves_the_chunk(train_data, monkeypatch, caplog, allocate):
    create = Population.create

    def create_at_most_two(shared, members):
        if len(members) > 2:
            allocate()
        return create(shared, members)

    members = [member(seed=k) for k in range(5)]
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(Population, "create", create_at_most_two)
        trained = train_population(task(train_data, Standard()), members)
    assert "out of memory with 5 members" in caplog.text
    assert_same(trained, train_population(task(train_data, Standard()), members))


def test_progress_after_every_epoch_of_every_chunk(train_data):
    events = []
    train_population(task(train_data, Standard(), chunk=2), [member(seed=k) for k in range(3)], on_epoch=events.append)
    expected = [(epoch, indices) for indices in ((0, 1), (2,)) for epoch in range(1, 5)]
    assert [(event.epoch, event.indices) for event in events] == expected
    assert {(event.epochs, event.population_size) for event in events} == {(4, 3)}


# Reuse of populations on the device


@pytest.fixture
def created(monkeypatch):
    """Sizes of newly created populations; all are kept for reuse, as if their step had been captured."""
    sizes, create = [], Population.create

    def recorded_create(shared, members):
        sizes.append(len(members))
        return create(shared, members)

    monkeypatch.setattr(Population, "create", recorded_create)
    monkeypatch.setattr(TrainingStep, "captured", True)
    monkeypatch.setattr("s2e.engine.training.small_network_flops", lambda *_, **__: None)
    monkeypatch.setattr("s2e.engine.training.gc", SimpleNamespace(collect=lambda: None))  # a full collection is slow
    return sizes


def generation(*seeds: int, **changes: object):
    return [member(0.3 + 0.1 * seed, seed=seed, **changes) for seed in seeds]


def test_reused_population_equals_new_population(created, train_data, valid_data):
    shared = task_of_all_methods(train_data, valid_data, network=with_batch_norm_and_dropout, epochs=2)
    trainer, labels = Trainer(shared), np.roll(train_data.labels, 5)
    generations = [
        [member(0.5, seed=first + k, epochs=2, method=method, labels=labels) for k, method in enumerate(ALL_METHODS)]
        for first in (0, 50)
    ]
    first = trainer.train(generations[0])
    unchanged = copy.deepcopy(first)
    second = trainer.train(generations[1])
    assert created == [len(ALL_METHODS)]
    assert_same(first, unchanged)
    for trained, members in zip((first, second), generations, strict=True):
        new = train_population(shared, members)
        assert_same(trained, new)
        np.testing.assert_array_equal(trained.dynamics.seen, new.dynamics.seen)


def test_chunks_reuse_one_population(created, train_data):
    members = generation(*range(6))
    in_chunks = train_population(task(train_data, Coteaching(), chunk=2), members)
    assert created == [2]
    assert_same(in_chunks, train_population(task(train_data, Coteaching()), members))


@pytest.mark.parametrize(
    "other",
    [
        generation(3, 4, 5),
        generation(3, 4, learning_rate=3e-3),
        generation(3, 4, transition=None),
        generation(3, 4, labels=np.zeros(192, dtype=np.int64)),
    ],
    ids=["number", "learning rate", "transition", "labels"],
)
def test_different_members_get_a_new_population(other, created, train_data):
    shared = task(train_data, Coteaching())
    trainer = Trainer(shared)
    trainer.train(generation(1, 2))
    trained = trainer.train(other)
    assert created == [2, len(other)]
    assert_same(trained, train_population(shared, other))


def test_reuse_after_stopped_members(created, train_data):
    shared = task(train_data, Coteaching())
    trainer = Trainer(shared)
    trainer.train(generation(1, 2), stop=stop_after({0: 2}))
    assert_same(trainer.train(generation(3, 4)), train_population(shared, generation(3, 4)))


# Stopping


def test_stopped_members_do_not_affect_others(train_data, valid_data):
    shared = task_of_all_methods(train_data, valid_data, chunk=5, network=with_batch_norm_and_dropout)
    members = members_of_all_methods()[::2]
    stopped_after = {index: 1 + index % 3 for index in range(0, len(members), 3)}
    whole = train_population(shared, members)
    some = train_population(shared, members, stop=stop_after(stopped_after))
    for index in range(len(members)):
        epochs = stopped_after.get(index, 4)
        assert some.curves.epochs[index] == epochs
        if epochs == 4:
            assert_same(some.take([index]), whole.take([index]))
            continue
        for name, curve in some.curves.arrays().items():
            if curve.ndim == 2:
                np.testing.assert_array_equal(curve[index, :epochs], whole.curves.arrays()[name][index, :epochs])
                assert np.isnan(curve[index, epochs:]).all()
        last = whole.curves.accuracy["valid"][index, :epochs].mean()
        assert some.curves.last("valid")[index] == pytest.approx(last)


def test_stopped_member_keeps_its_weights(train_data):
    shared, epochs = task(train_data, Coteaching()), []
    together = train_population(shared, [member(), member(seed=1)], stop=stop_after({0: 2}))
    alone = train_population(
        shared, [member()], on_epoch=lambda finished: epochs.append(finished.epoch), stop=stop_after({0: 2})
    )
    assert epochs == [1, 2]  # no member is left
    assert_same(together.take([0]), alone)


@pytest.mark.parametrize("chunk", [None, 1])
def test_seen_counts_are_those_of_the_members_trained_longest(chunk, train_data):
    members, shared = [member(seed=seed) for seed in range(3)], task(train_data, Standard(), chunk=chunk)
    whole = train_population(shared, members).dynamics.seen
    for stopped_after in ({0: 1}, {0: 2, 1: 1}, {1: 3, 2: 2}):
        some = train_population(shared, members, stop=stop_after(stopped_after)).dynamics.seen
        np.testing.assert_array_equal(some, whole)
    some = train_population(shared, members, stop=stop_after({0: 1, 1: 3, 2: 2})).dynamics.seen
    np.testing.assert_array_equal(some, np.where(np.arange(4)[:, None] < 3, whole, 0))


def test_stopping_at_the_last_epoch_changes_nothing(train_data):
    members, shared = [member(seed=1), member(seed=2)], task(train_data, Standard())
    assert_same(train_population(shared, members, stop=stop_after({0: 4, 1: 4})), train_population(shared, members))


# Invalid input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 500}, "must not exceed the number of training samples, but got 500 for 192"),
        ({"epochs": 0}, "`epochs` must be"),
        ({"network": lambda: nn.Sequential(nn.Linear(6, 4), nn.Flatten(0))}, "must map a batch .* to float logits"),
    ],
)
def test_invalid_tasks(changes, message, train_data):
    with pytest.raises(InvalidInput, match=message):
        train_population(task(train_data, Standard(), **changes), [member()])


def test_invalid_members(train_data):
    for members, message in (
        ([], "at least one member"),
        ([member(epochs=3)], "one number for each of the 4 epochs"),
        ([member(learning_rate=0.0)], "`learning_rate` must be positive"),
        ([member(labels=np.zeros(3, dtype=np.int64))], "one entry for each of the 192 inputs"),
        ([Member(np.full(4, np.nan), 0)], "must be finite"),
    ):
        with pytest.raises(InvalidInput, match=message):
            train_population(task(train_data, Standard()), members)
