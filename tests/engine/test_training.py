"""The engine's claims: what training a population means, whatever the company, the mode or the chunk."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from populations import ALL_METHODS, Stubborn, assert_same, only, with_batch_norm, with_batch_norm_and_dropout
from s2e.data.samples import LabelledData
from s2e.engine.optimizers import learning_plan
from s2e.engine.population import Crew
from s2e.engine.task import Member
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import Coteaching, MentorNet, Standard
from s2e.seeds import derive
from small_tasks import blobs, member, small_mlp, task


def plain_training(train: LabelledData, which: Member, epochs: int, batch_size: int, seed: int) -> nn.Module:
    """Ordinary training of one network as anyone would write it."""
    torch.manual_seed(derive(which.seed, "network", 0))
    network = small_mlp()
    adam = torch.optim.Adam(network.parameters(), lr=which.learning_rate)
    inputs, labels = torch.from_numpy(train.inputs), torch.from_numpy(train.labels)
    for epoch in range(epochs):
        factor, beta1 = learning_plan(epoch, epochs)
        adam.param_groups[0].update(lr=which.learning_rate * factor, betas=(beta1, 0.999))
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(derive(seed, "order", epoch)))
        for index in order[: len(order) // batch_size * batch_size].split(batch_size):
            adam.zero_grad()
            functional.cross_entropy(network(inputs[index]), labels[index]).backward()
            adam.step()
    return network


@pytest.mark.parametrize("method", [Standard(), MentorNet(), Coteaching()], ids=lambda method: method.name)
def test_keep_rate_1_equals_ordinary_training(method, train_data):
    trained = train_population(task(train_data, method), [member(1.0, seed=3)])
    if method.networks == 1:
        plain = plain_training(train_data, member(1.0, seed=3), epochs=4, batch_size=32, seed=0)
        for name, parameter in plain.named_parameters():
            torch.testing.assert_close(trained.state[name][0], parameter.detach(), rtol=1e-5, atol=1e-6)
    assert (trained.curves.kept == 1).all()


@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("network", [small_mlp, with_batch_norm_and_dropout])
def test_a_member_alone_equals_that_member_in_a_population_exactly(method, network, train_data, valid_data):
    shared = task(train_data, method, network=network, evaluate={"valid": valid_data})
    own_labels = np.roll(train_data.labels, 5)
    members = [
        member(0.5, seed=1),
        member(0.9, seed=2, learning_rate=3e-3),
        member(0.2, seed=3, labels=own_labels),
        member(0.7, seed=4),
    ]
    together = train_population(shared, members)
    for position, one in enumerate(members):
        alone = train_population(shared, [one])
        assert_same(only(together, position), alone)
        np.testing.assert_array_equal(together.dynamics.kept[position], alone.dynamics.kept[0])
        np.testing.assert_array_equal(together.dynamics.loss[position], alone.dynamics.loss[0])


@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("network", [small_mlp, with_batch_norm])
def test_vmapped_equals_looped(method, network, train_data, valid_data):
    members = [member(0.5, seed=1), member(0.8, seed=2)]
    vmapped, looped = (
        train_population(
            task(train_data, method, network=network, evaluate={"valid": valid_data}, vectorize=vectorize), members
        )
        for vectorize in (True, False)
    )
    assert_same(vmapped, looped, exactly=False)


def test_convolutions_vmapped_equal_convolutions_looped():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, size=(64, 1, 8, 8), dtype=np.uint8)
    data = LabelledData(images, generator.integers(0, 3, size=64), ("a", "b", "c"))

    def network() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))

    vmapped, looped = (
        train_population(
            task(data, Coteaching(), network=network, vectorize=vectorize), [member(seed=1), member(seed=2)]
        )
        for vectorize in (True, False)
    )
    assert_same(vmapped, looped, exactly=False)


def test_coteaching_with_equal_networks_and_keep_1_equals_standard(train_data, monkeypatch):
    monkeypatch.setattr(
        "s2e.engine.population.derive", lambda seed, *path: derive(seed, path[0], 0)
    )  # the peer's seed is equal
    pair = train_population(task(train_data, Coteaching()), [member(1.0)])
    single = train_population(task(train_data, Standard()), [member(1.0)])
    for name, tensor in single.state.items():
        for which in (0, 1):
            torch.testing.assert_close(pair.state[name][which], tensor[0], rtol=1e-6, atol=1e-7)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(train_data):
    first, again = (train_population(task(train_data, Coteaching()), [member(seed=1)]) for _ in range(2))
    assert_same(first, again)
    other = train_population(task(train_data, Coteaching()), [member(seed=2)])
    assert not torch.equal(first.state["0.weight"], other.state["0.weight"])
    reordered = train_population(task(train_data, Coteaching(), seed=9), [member(seed=1)])
    assert not torch.equal(first.state["0.weight"], reordered.state["0.weight"])


def test_training_leaves_the_callers_random_state_alone(train_data):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    train_population(task(train_data, Standard(), network=with_batch_norm_and_dropout), [member()])
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_chunks_change_nothing(chunk, train_data, valid_data):
    members = [member(0.4 + 0.1 * k, seed=k) for k in range(5)]
    shared = {"evaluate": {"valid": valid_data}}
    whole = train_population(task(train_data, Coteaching(), **shared), members)
    parts = train_population(task(train_data, Coteaching(), chunk=chunk, **shared), members)
    assert_same(whole, parts)
    np.testing.assert_array_equal(whole.dynamics.loss, parts.dynamics.loss)


def test_a_population_that_does_not_fit_the_memory_is_trained_in_chunks(train_data, monkeypatch, caplog):
    monkeypatch.setattr("s2e.engine.memory.free_memory", lambda _: 60_000)
    members = [member(seed=k) for k in range(6)]
    seen = []
    with caplog.at_level(logging.WARNING):
        small = train_population(
            task(train_data, Coteaching()), members, on_epoch=lambda p: seen.append((p.places[0], p.places[-1] + 1))
        )
    assert "do not fit the memory" in caplog.text
    assert len(set(seen)) > 1
    monkeypatch.undo()
    assert_same(small, train_population(task(train_data, Coteaching()), members))


def test_running_out_of_memory_halves_the_chunk_and_loses_nothing(train_data, monkeypatch, caplog):

    real = Crew.of

    def put_on_device(shared, members):
        if len(members) > 2:
            raise torch.OutOfMemoryError("no more")
        return real(shared, members)

    monkeypatch.setattr(Crew, "of", put_on_device)
    members = [member(seed=k) for k in range(5)]
    with caplog.at_level(logging.WARNING):
        survived = train_population(task(train_data, Standard()), members)
    assert "out of memory with 5 members" in caplog.text
    monkeypatch.undo()
    assert_same(survived, train_population(task(train_data, Standard()), members))


def test_streamed_inputs_train_the_same_networks_as_resident_ones(train_data):
    resident, streamed = (
        train_population(task(train_data, Coteaching(), stream=stream), [member(seed=1)]) for stream in (False, True)
    )
    assert_same(resident, streamed)


def test_pixels_are_scaled_to_the_unit_interval():
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, size=(64, 6), dtype=np.uint8)
    labels = generator.integers(0, 4, size=64)
    as_bytes = LabelledData(pixels, labels, tuple("abcd"))
    as_floats = LabelledData(pixels.astype(np.float32) / 255, labels, tuple("abcd"))
    assert_same(
        *(train_population(task(data, Standard()), [member()]) for data in (as_bytes, as_floats)), exactly=False
    )


def test_a_network_that_cannot_be_vmapped_is_looped_over_and_the_log_says_so_once(train_data, caplog):
    members = [member(seed=1), member(seed=2)]
    with caplog.at_level(logging.WARNING):
        fallen_back = train_population(task(train_data, MentorNet(), network=Stubborn, vectorize=True), members)
    assert caplog.text.count("cannot be vectorised") == 1
    assert_same(
        fallen_back, train_population(task(train_data, MentorNet(), network=Stubborn, vectorize=False), members)
    )


def test_a_member_that_diverges_is_scored_worst_and_the_others_go_on(train_data, valid_data):
    shared = task(train_data, Coteaching(), evaluate={"valid": valid_data})
    members = [member(seed=1), member(seed=2, learning_rate=1e38), member(seed=3)]
    trained = train_population(shared, members)
    assert trained.curves.diverged.tolist() == [False, True, False]
    assert trained.curves.last("valid")[1] == 0
    assert_same(only(trained, 0), train_population(shared, members[:1]))


def test_curves_hold_what_happened(train_data, valid_data):
    schedule = np.array([1.0, 0.5, 0.25, 0.0])
    trained = train_population(
        task(train_data, Coteaching(), evaluate={"valid": valid_data}), [Member(schedule, seed=1)]
    )
    curves = trained.curves
    np.testing.assert_allclose(curves.kept[0], [1.0, 0.5, 0.25, 1 / 32])  # at least one sample is kept
    right = train_data.labels == train_data.clean_labels
    np.testing.assert_allclose(curves.label_precision[0, 0], right.mean(), atol=1e-6)  # all samples: the share right
    assert (curves.accuracy["valid"] >= 0).all()
    assert (curves.accuracy["valid"] <= 1).all()
    assert not curves.diverged.any()


def test_label_precision_is_unknown_without_true_labels(train_data):
    nobody_knows = LabelledData(train_data.inputs, train_data.labels, train_data.class_names)
    trained = train_population(task(nobody_knows, Coteaching()), [member()])
    assert np.isnan(trained.curves.label_precision).all()


def test_dynamics_count_every_sample(train_data):
    trained = train_population(task(train_data, Coteaching()), [member(0.5), member(1.0, seed=2)])
    dynamics = trained.dynamics
    samples = len(train_data)
    np.testing.assert_array_equal(dynamics.seen.sum(axis=0), np.full(samples, 4))  # 192 samples fill 6 batches of 32
    np.testing.assert_array_equal(dynamics.kept[1], np.full(samples, 2 * 4))  # keep 1: both networks, every epoch
    expected = 2 * samples * trained.curves.kept[0].sum()
    np.testing.assert_allclose(dynamics.kept[0].sum(), expected)
    assert (dynamics.agreed <= 2 * 4).all()
    assert (dynamics.loss > 0).all()


def test_dynamics_tell_wrong_labels_from_right_ones():
    data = blobs(512, wrong=0.3)
    trained = train_population(task(data, Coteaching(), epochs=15), [member(0.7, epochs=15, learning_rate=1e-2)])
    wrong = data.labels != data.clean_labels
    kept = trained.dynamics.kept[0] / (2 * trained.dynamics.seen.sum(axis=0))
    assert kept[wrong].mean() < kept[~wrong].mean() - 0.3
    late_loss = trained.dynamics.loss[0, -1]
    assert late_loss[wrong].mean() > 2 * late_loss[~wrong].mean()


def test_samples_that_do_not_fill_a_batch_are_others_every_epoch():
    data = blobs(100)
    trained = train_population(task(data, Standard(), epochs=30), [member(1.0, epochs=30)])
    seen = trained.dynamics.seen.sum(axis=0)
    assert seen.sum() == 30 * 96
    assert seen.min() > 20


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"batch_size": 500}, "must not exceed the number of training samples, but got 500 for 192"),
        ({"epochs": 0}, "`epochs` must be"),
    ],
)
def test_tasks_that_cannot_be_trained_are_refused(changes, complaint, train_data):
    with pytest.raises(InvalidInput, match=complaint):
        train_population(task(train_data, Standard(), **changes), [member()])


def test_members_that_cannot_be_trained_are_refused(train_data):
    shared = task(train_data, Standard())
    for bad, complaint in (
        ([], "at least one member"),
        ([member(epochs=3)], "one number for each of the 4 epochs"),
        ([member(learning_rate=0.0)], "`learning_rate` must be positive"),
        ([member(labels=np.zeros(3, dtype=np.int64))], "one entry for each of the 192 inputs"),
        ([Member(np.full(4, np.nan), 0)], "must be finite"),
    ):
        with pytest.raises(InvalidInput, match=complaint):
            train_population(shared, bad)


def test_a_network_of_the_wrong_shape_is_refused(train_data):
    with pytest.raises(InvalidInput, match=r"must map a batch .* to float logits"):
        train_population(
            task(train_data, Standard(), network=lambda: nn.Sequential(nn.Linear(6, 4), nn.Flatten(0))), [member()]
        )


def test_progress_is_told_after_every_epoch(train_data):
    told = []
    train_population(task(train_data, Standard(), chunk=2), [member(seed=k) for k in range(3)], on_epoch=told.append)
    assert [(p.epoch, p.places[0], p.places[-1] + 1) for p in told] == [(e, 0, 2) for e in range(1, 5)] + [
        (e, 2, 3) for e in range(1, 5)
    ]
    assert {(p.epochs, p.members) for p in told} == {(4, 3)}
