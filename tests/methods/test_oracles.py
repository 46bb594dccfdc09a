"""Every method, end to end: the population engine against plain PyTorch training of one member at a time."""

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

# ------------------------------------------------------------------------------------------- every method on its own


@every_method
def test_a_method_equals_plain_training(method):
    shared, one = shared_task(method), member(method)
    assert_equals_plain(train_population(shared, [one]), 0, plain_training(shared, one))


@every_method
def test_a_method_with_convolutions_and_batch_norm_equals_plain_training(method):
    shared = shared_task(method, train=images(136, 0), clean=clean_images(40, 1), network=small_cnn)
    one = member(method, keep=0.5, seed=3)
    assert_equals_plain(train_population(shared, [one]), 0, plain_training(shared, one))


@every_method
def test_a_method_with_dropout_equals_plain_training(method):
    shared, one = shared_task(method, network=mlp_with_buffers_and_dropout), member(method, seed=4)
    assert_equals_plain(train_population(shared, [one]), 0, plain_training(shared, one))


@every_method
def test_every_setting_of_a_member_reaches_plain_training_too(method):
    shared = shared_task(Standard())
    generator = np.random.default_rng(3)
    members = [
        member(method, keep=0.1 + 0.4 * k, seed=k, learning_rate=10.0 ** (-3 - k / 2), labels=labels)
        for k, labels in enumerate([None, generator.permutation(shared.train.labels)])
    ]
    trained = train_population(shared, members)
    for position, one in enumerate(members):
        assert_equals_plain(trained, position, plain_training(shared, one))


@pytest.mark.parametrize("method", [CoteachingPlus(warm_up=0), Decoupling()], ids=lambda method: method.name)
def test_networks_that_agree_on_some_batches_skip_those_alone(method):
    # Two far clusters: the pair soon agrees on all of a batch of 20, or on all but one, fewer than a tenth of it.
    shared = shared_task(method, train=blobs(200, 2, wrong=0.1), network=lambda: small_mlp(classes=2), batch_size=20)
    one = member(method, seed=2)
    plain = plain_training(shared, one)
    assert 10 < plain.steps[0] < EPOCHS * 10 - 5, plain.steps
    assert_equals_plain(train_population(shared, [one]), 0, plain)


def test_clean_samples_that_sometimes_oppose_all_others_stop_reweight_for_that_step():
    generator = np.random.default_rng(0)
    train = blobs(200, 2, wrong=0.5)
    clean = replace(train, labels=generator.integers(0, 2, size=200), clean_labels=None)
    shared = shared_task(Reweight(), train=train, network=lambda: small_mlp(classes=2), batch_size=2, clean=clean)
    one = member(Reweight(), seed=2)
    plain = plain_training(shared, one)
    assert 50 < plain.steps[0] < EPOCHS * 100 - 50, plain.steps
    assert_equals_plain(train_population(shared, [one]), 0, plain)


@pytest.mark.parametrize("clean", [1, 5, 32, 33])
def test_any_number_of_clean_samples_reweights(clean):
    shared = shared_task(Reweight(), clean=blobs(clean, CLASSES, wrong=0.0, seed=4))
    assert_equals_plain(train_population(shared, [member()]), 0, plain_training(shared, member()))


# --------------------------------------------------------------------------------------- all methods in one population


def company(train: LabelledData) -> list[Member]:
    """Two members of every method, methods taking turns; no two share seed, labels, schedule or matrix."""
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


@pytest.mark.parametrize("network", [small_mlp, mlp_with_buffers_and_dropout])
def test_a_member_alone_equals_that_member_among_all_methods_exactly(network):
    shared = shared_task(Standard(), network=network, evaluate={"valid": blobs(96, CLASSES, wrong=0.0, seed=1)})
    members = company(shared.train)
    together = train_population(shared, members)
    for position, one in enumerate(members):
        assert_same_member(together, position, train_population(shared, [one]), 0)


def test_members_without_a_method_of_their_own_train_with_the_tasks():
    for method in CASES.values():
        own = train_population(shared_task(Standard()), [member(method)])
        tasks = train_population(shared_task(method), [replace(member(method), method=None)])
        assert_same_member(own, 0, tasks, 0)


@pytest.mark.parametrize("chunk", [1, 3])
def test_chunks_of_all_methods_change_nothing(chunk):
    shared = shared_task(Standard())
    members = company(shared.train)
    whole, parts = (train_population(replace(shared, chunk=size), members) for size in (None, chunk))
    for position in range(len(members)):
        assert_same_member(whole, position, parts, position)


# --------------------------------------------------------------------------------------------- vectorised over members


def vectorised_and_looped(shared: Task, members: list[Member], caplog: pytest.LogCaptureFixture) -> tuple[Trained, ...]:
    with caplog.at_level(logging.WARNING):
        both = tuple(train_population(replace(shared, vectorize=vectorize), members) for vectorize in (True, False))
    assert "cannot be vectorised" not in caplog.text
    return both


@every_method
@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_a_vectorised_method_equals_the_looped_one(method, network, caplog):
    shared = shared_task(method)
    if network == "cnn":
        shared = replace(shared, train=images(136, 0), clean=clean_images(40, 1), network=small_cnn)
    members = [member(method, keep=0.5, seed=1), member(method, keep=0.8, seed=2)]
    vectorised, looped = vectorised_and_looped(shared, members, caplog)
    for position in range(len(members)):
        assert_same_member(vectorised, position, looped, position, tolerance=1e-4)


def test_all_methods_vectorised_together_equal_the_looped_ones(caplog):
    shared = shared_task(Standard(), network=mlp_with_buffers)
    members = company(shared.train)
    vectorised, looped = vectorised_and_looped(shared, members, caplog)
    for position in range(len(members)):
        assert_same_member(vectorised, position, looped, position, tolerance=1e-4)


# --------------------------------------------------------------------------------------------------- degenerate cases


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("method", [Decoupling(), CoteachingPlus(warm_up=0)], ids=lambda method: method.name)
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


def test_networks_that_never_disagree_stop_when_the_warm_up_ends():
    shared = shared_task(CoteachingPlus(warm_up=2), network=twin_mlp)
    trained, plain = train_population(shared, [member()]), plain_training(shared, member())
    assert plain.steps == [12, 12]
    assert_equals_plain(trained, 0, plain)
    np.testing.assert_array_equal(trained.curves.kept[0, 2:], 0)


def test_a_warm_up_that_never_ends_is_coteaching():
    plus, plain = (train_population(shared_task(method), [member()]) for method in (CoteachingPlus(9), Coteaching()))
    assert_same_member(plus, 0, plain, 0)


def test_the_identity_as_transition_is_standard_training():
    corrected = train_population(shared_task(ForwardCorrection()), [member(transition=np.eye(CLASSES))])
    assert_same_member(corrected, 0, train_population(shared_task(Standard()), [member()]), 0, tolerance=1e-6)


def test_jocor_that_wants_no_agreement_and_keeps_all_is_standard_training_of_both():
    joint = train_population(shared_task(JoCoR(agreement=0.0)), [member(keep=1.0)])
    pair = train_population(shared_task(Coteaching()), [member(keep=1.0)])
    for here, there in zip(states(joint, 0), states(pair, 0), strict=True):
        for name, tensor in here.items():
            torch.testing.assert_close(tensor, there[name], rtol=1e-5, atol=1e-6)


def positive_inputs(samples: int, label: int, seed: int) -> LabelledData:
    inputs = np.random.default_rng(seed).uniform(0.5, 1.5, size=(samples, 6)).astype(np.float32)
    return LabelledData(inputs, np.full(samples, label, dtype=np.int64), ("a", "b"))


@pytest.mark.parametrize("vectorize", [False, True])
def test_clean_samples_that_oppose_all_others_leave_reweight_untrained(vectorize):
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
        assert not torch.equal(states(trained, 1)[0][name], tensor), (
            name
        )  # half of its labels agree with the clean ones
    assert (trained.curves.kept[0] == 0).all()
    assert (trained.curves.loss[0] == 0).all()
    assert np.isnan(trained.curves.label_precision[0]).all()
    assert not trained.curves.diverged.any()


def test_samples_that_are_all_alike_and_clean_are_reweighted_to_standard_training():
    train = replace(positive_inputs(96, 0, 0), inputs=np.ones((96, 6), dtype=np.float32), labels=np.arange(96) % 2)
    shared = shared_task(Reweight(), train=train, clean=positive_inputs(40, 0, 1), network=lambda: small_mlp(classes=2))
    alike = member(labels=np.zeros(96, dtype=np.int64))
    reweighted, standard_ = (
        train_population(replace(shared, method=method), [alike]) for method in (Reweight(), Standard())
    )
    assert (reweighted.curves.kept == 1).all()
    assert_same_member(reweighted, 0, standard_, 0, tolerance=1e-5)
