"""Every method, end to end: the population engine against plain PyTorch training, one member at a time."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from method_oracle import assert_equals_plain, assert_same_member, plain_training, states, untrained
from method_tasks import (
    CASES,
    CLASSES,
    EPOCHS,
    clean_images,
    every_method,
    images,
    member,
    mlp_with_buffers,
    mlp_with_buffers_and_dropout,
    shared_task,
    small_cnn,
    twin_mlp,
)
from s2e.data.samples import LabelledData
from s2e.engine.task import Member, Task, Trained
from s2e.engine.training import train_population
from s2e.methods import Coteaching, Standard
from s2e.methods.coteaching_plus import CoteachingPlus
from s2e.methods.decoupling import Decoupling
from s2e.methods.forward_correction import ForwardCorrection
from s2e.methods.jocor import JoCoR
from s2e.methods.reweight import Reweight
from small_tasks import blobs, small_mlp

# --------------------------------------------------------------------------------------------- one method at a time


@every_method
def test_method_equals_plain_training(method):
    shared = shared_task(Standard(), network=mlp_with_buffers_and_dropout)
    labels = np.random.default_rng(3).permutation(shared.train.labels)
    members = [
        member(method, keep=0.6, seed=1),
        member(method, keep=0.1, seed=4, learning_rate=3e-4, labels=labels),
    ]
    trained = train_population(shared, members)
    for position, one in enumerate(members):
        assert_equals_plain(trained, position, plain_training(shared, one))


@pytest.mark.parametrize("method", [Coteaching(), Reweight(), JoCoR()], ids=lambda method: method.name)
def test_method_with_convolutions_equals_plain_training(method):
    shared = shared_task(method, train=images(104, 0), clean=clean_images(40, 1), network=small_cnn)
    one = member(method, keep=0.5, seed=3)
    assert_equals_plain(train_population(shared, [one]), 0, plain_training(shared, one))


@pytest.mark.parametrize("method", [CoteachingPlus(warm_up=0), Decoupling()], ids=lambda method: method.name)
def test_batches_without_disagreement_are_skipped(method):
    # Two distant clusters: the pair soon agrees on all of a batch of 20, or on all but one, less than a tenth.
    shared = shared_task(method, train=blobs(200, 2, wrong=0.1), network=lambda: small_mlp(classes=2), batch_size=20)
    one = member(method, seed=2)
    plain = plain_training(shared, one)
    assert 10 < plain.steps[0] < EPOCHS * 10 - 5, plain.steps
    assert_equals_plain(train_population(shared, [one]), 0, plain)


def test_batches_without_positive_weight_are_skipped_by_reweight():
    generator = np.random.default_rng(0)
    train = blobs(80, 2, wrong=0.5)
    clean = replace(train, labels=generator.integers(0, 2, size=80), clean_labels=None)
    shared = shared_task(Reweight(), train=train, network=lambda: small_mlp(classes=2), batch_size=2, clean=clean)
    one = member(Reweight(), seed=2)
    plain = plain_training(shared, one)
    assert 20 < plain.steps[0] < EPOCHS * 40 - 20, plain.steps
    assert_equals_plain(train_population(shared, [one]), 0, plain)


@pytest.mark.parametrize("clean", [1, 33])
def test_reweight_takes_any_number_of_clean_samples(clean):
    shared = shared_task(Reweight(), clean=blobs(clean, CLASSES, wrong=0.0, seed=4))
    assert_equals_plain(train_population(shared, [member()]), 0, plain_training(shared, member()))


# --------------------------------------------------------------------------------------- all methods in one population


def mixed_members(train: LabelledData) -> list[Member]:
    """Two members of every method, methods alternating; no two share seed, labels, schedule or matrix."""
    generator = np.random.default_rng(8)
    members = []
    for seed in (1, 2):
        for k, method in enumerate(CASES.values()):
            flipped = np.where(generator.random(len(train)) < 0.2, (train.labels + 2) % CLASSES, train.labels)
            one = member(method, keep=0.3 + 0.05 * k + 0.02 * seed, seed=10 * k + seed, labels=flipped)
            if one.transition is not None:
                one = replace(one, transition=(one.transition + seed * np.eye(CLASSES)) / (1 + seed))
            members.append(replace(one, learning_rate=1e-3 * (1 + k % 3)))
    members[2] = replace(members[2], labels=None)
    return members


def test_member_alone_equals_member_among_all_methods_exactly():
    network = mlp_with_buffers_and_dropout
    shared = shared_task(Standard(), network=network, evaluate={"valid": blobs(96, CLASSES, wrong=0.0, seed=1)})
    members = mixed_members(shared.train)
    together = train_population(shared, members)
    for position, one in enumerate(members[: len(CASES)]):  # one of each method
        assert_same_member(together, position, train_population(shared, [one]), 0)


def test_members_without_a_method_use_the_method_of_the_task():
    for method in (Coteaching(), ForwardCorrection()):
        own = train_population(shared_task(Standard()), [member(method)])
        tasks = train_population(shared_task(method), [replace(member(method), method=None)])
        assert_same_member(own, 0, tasks, 0)


@pytest.mark.slow  # the member-alone test above covers most of it
def test_chunks_of_all_methods_change_nothing():
    chunk, shared = 3, shared_task(Standard())
    members = mixed_members(shared.train)
    whole, parts = (train_population(replace(shared, chunk=size), members) for size in (None, chunk))
    for position in range(len(members)):
        assert_same_member(whole, position, parts, position)


# --------------------------------------------------------------------------------------------- vectorised over members


def vectorised_and_looped(shared: Task, members: list[Member], caplog: pytest.LogCaptureFixture) -> tuple[Trained, ...]:
    with caplog.at_level(logging.WARNING):
        both = tuple(train_population(replace(shared, vectorize=vectorize), members) for vectorize in (True, False))
    assert "cannot be vectorised" not in caplog.text
    return both


@pytest.mark.parametrize("method", [Coteaching(), Reweight()], ids=lambda method: method.name)
def test_vectorised_convolutions_equal_looped_ones(method, caplog):
    shared = shared_task(method, train=images(104, 0), clean=clean_images(40, 1), network=small_cnn)
    members = [member(method, keep=0.5, seed=1), member(method, keep=0.8, seed=2)]
    vectorised, looped = vectorised_and_looped(shared, members, caplog)
    for position in range(len(members)):
        assert_same_member(vectorised, position, looped, position, tolerance=1e-4)


def test_all_methods_vectorised_together_equal_looped_ones(caplog):
    shared = shared_task(Standard(), network=mlp_with_buffers)
    members = mixed_members(shared.train)
    vectorised, looped = vectorised_and_looped(shared, members, caplog)
    for position in range(len(members)):
        assert_same_member(vectorised, position, looped, position, tolerance=1e-4)


# -------------------------------------------------------------------------------------------------- degenerate cases


@pytest.mark.parametrize(("method", "vectorize"), [(Decoupling(), True), (CoteachingPlus(warm_up=0), False)])
def test_networks_that_never_disagree_are_never_trained(method, vectorize):
    shared = shared_task(method, network=twin_mlp, vectorize=vectorize)
    trained = train_population(shared, [member(method), member(Standard())])
    for which, state in enumerate(states(trained, 0)):
        for name, tensor in untrained(shared, member(), which).items():
            assert torch.equal(state[name], tensor), name
    assert not torch.equal(states(trained, 1)[0]["0.weight"], untrained(shared, member(), 0)["0.weight"])
    assert (trained.curves.kept[0] == 0).all()
    assert (trained.curves.loss[0] == 0).all()
    assert np.isnan(trained.curves.label_precision[0]).all()
    assert not trained.curves.diverged[0]


def test_networks_that_never_disagree_are_trained_until_the_warm_up_ends():
    shared = shared_task(CoteachingPlus(warm_up=2), network=twin_mlp)
    trained, plain = train_population(shared, [member()]), plain_training(shared, member())
    assert plain.steps == [6, 6]
    assert_equals_plain(trained, 0, plain)
    np.testing.assert_array_equal(trained.curves.kept[0, 2:], 0)


def test_warm_up_that_never_ends_is_coteaching():
    plus, plain = (train_population(shared_task(method), [member()]) for method in (CoteachingPlus(9), Coteaching()))
    assert_same_member(plus, 0, plain, 0)


def test_identity_transition_is_standard_training():
    corrected = train_population(shared_task(ForwardCorrection()), [member(transition=np.eye(CLASSES))])
    assert_same_member(corrected, 0, train_population(shared_task(Standard()), [member()]), 0, tolerance=1e-6)


def test_jocor_without_agreement_keeping_all_is_standard_training_of_both():
    joint = train_population(shared_task(JoCoR(agreement=0.0)), [member(keep=1.0)])
    pair = train_population(shared_task(Coteaching()), [member(keep=1.0)])
    for here, there in zip(states(joint, 0), states(pair, 0), strict=True):
        for name, tensor in here.items():
            torch.testing.assert_close(tensor, there[name], rtol=1e-5, atol=1e-6)


def positive_inputs(samples: int, label: int, seed: int) -> LabelledData:
    inputs = np.random.default_rng(seed).uniform(0.5, 1.5, size=(samples, 6)).astype(np.float32)
    return LabelledData(inputs, np.full(samples, label, dtype=np.int64), ("a", "b"))


@pytest.mark.parametrize("vectorize", [False, True])
def test_reweight_without_positive_weights_is_never_trained(vectorize):
    # Linear networks, ⟨∇ℓ_i, ∇L_clean⟩ = mean_j (1 + ⟨x_i, x_j⟩)⟨p_i − e_0, p_j − e_1⟩ = −2·(1 + …) p_i1 p_j0 < 0.
    train = replace(positive_inputs(96, 0, 0), labels=np.arange(96) % 2, clean_labels=np.zeros(96, dtype=np.int64))
    shared = shared_task(
        Reweight(),
        train=train,
        clean=positive_inputs(40, 1, 1),
        network=lambda: nn.Linear(6, 2),
        vectorize=vectorize,
    )
    opposed = member(labels=np.zeros(96, dtype=np.int64))
    trained = train_population(shared, [opposed, member()])
    for name, tensor in untrained(shared, opposed, 0).items():
        assert torch.equal(states(trained, 0)[0][name], tensor), name
        assert not torch.equal(states(trained, 1)[0][name], tensor), name  # half of its labels match the clean ones
    assert (trained.curves.kept[0] == 0).all()
    assert (trained.curves.loss[0] == 0).all()
    assert np.isnan(trained.curves.label_precision[0]).all()
    assert not trained.curves.diverged.any()


def test_reweight_of_identical_clean_samples_is_standard_training():
    train = replace(positive_inputs(96, 0, 0), inputs=np.ones((96, 6), dtype=np.float32), labels=np.arange(96) % 2)
    shared = shared_task(Reweight(), train=train, clean=positive_inputs(40, 0, 1), network=lambda: small_mlp(classes=2))
    alike = member(labels=np.zeros(96, dtype=np.int64))
    reweighted, standard_ = (
        train_population(replace(shared, method=method), [alike]) for method in (Reweight(), Standard())
    )
    assert (reweighted.curves.kept == 1).all()
    assert_same_member(reweighted, 0, standard_, 0, tolerance=1e-5)
