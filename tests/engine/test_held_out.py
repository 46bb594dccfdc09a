"""Samples that a member holds out: they never influence it, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from populations import ALL_METHODS, assert_same, stop_after, with_batch_norm_and_dropout
from s2e.engine.checkpoints import Checkpoints
from s2e.engine.task import Member, Task
from s2e.engine.training import Trainer, train_population
from s2e.errors import InvalidInput
from s2e.methods import (
    Batch,
    Coteaching,
    CoteachingPlus,
    JoCoR,
    MentorNet,
    Method,
    Standard,
    keep_count,
    may_hold_out,
    smallest,
)
from small_tasks import blobs, member, task

HOLDING_OUT = [Standard(), MentorNet(), Coteaching(), CoteachingPlus(), CoteachingPlus(warm_up=2), JoCoR()]
METHODS = pytest.mark.parametrize("method", HOLDING_OUT, ids=lambda method: f"{method.name}-{method!r}")
TRAIN = blobs(200)
FOLD = np.random.default_rng(5).random(200) < 0.3


def shared_task(method: Method, **changes: object) -> Task:
    return task(TRAIN, method, evaluate={"valid": blobs(64, seed=2)}, **changes)


@METHODS
@pytest.mark.parametrize("network", [None, with_batch_norm_and_dropout], ids=["linear", "batch norm"])
def test_labels_of_held_out_samples_change_nothing_but_their_own_records(method: Method, network: object) -> None:
    shared = shared_task(method, **({} if network is None else {"network": network}))
    outcomes = []
    for seed in range(2):
        junk = np.random.default_rng(seed).integers(4, size=200)
        labels = np.where(FOLD, junk, TRAIN.labels)
        outcomes.append(train_population(shared, [member(held_out=FOLD, labels=labels)]))
    one, other = outcomes
    for name, tensor in one.state.items():
        assert torch.equal(tensor, other.state[name]), name
    for name, array in one.curves.arrays().items():
        np.testing.assert_array_equal(array, other.curves.arrays()[name], err_msg=name)
    assert (one.dynamics.kept[:, FOLD] == 0).all()
    assert (one.dynamics.kept[:, ~FOLD] > 0).any()
    for name in ("kept", "agreed", "loss"):
        array, same = getattr(one.dynamics, name), getattr(other.dynamics, name)
        np.testing.assert_array_equal(array[..., ~FOLD], same[..., ~FOLD], err_msg=name)
    assert not np.array_equal(one.dynamics.loss, other.dynamics.loss), "of held-out samples, under their own labels"


@METHODS
def test_holding_nothing_out_equals_no_mask(method: Method) -> None:
    shared = shared_task(method)
    nothing = member(held_out=np.zeros(200, dtype=np.bool_))
    assert_same(train_population(shared, [member()]), train_population(shared, [nothing]))


def members_with_and_without_folds() -> list[Member]:
    return [
        one
        for seed, method in enumerate(HOLDING_OUT)
        for one in (
            member(0.5, seed=seed, method=method, held_out=FOLD),
            member(0.9, seed=seed, method=method),
            member(0.9, seed=seed, method=method, held_out=~FOLD, labels=np.roll(TRAIN.labels, 5)),
        )
    ]


def test_member_with_held_out_samples_alone_equals_it_in_a_population() -> None:
    shared, members = shared_task(Standard()), members_with_and_without_folds()
    together = train_population(shared, members)
    for index, alone in enumerate(members):
        assert_same(train_population(shared, [alone]), together.take([index]))


def test_members_continue_with_their_folds_after_others_stop() -> None:
    shared, members = shared_task(Coteaching()), [member(seed=seed, held_out=FOLD) for seed in range(2)]
    stopped = train_population(shared, [*members, member(seed=7)], stop=stop_after({0: 1, 2: 2}))
    assert_same(train_population(shared, members).take([1]), stopped.take([1]))


def test_population_is_reused_only_with_the_same_folds() -> None:
    trainer = Trainer(shared_task(Coteaching()))
    for held_out in (None, FOLD, ~FOLD):
        again = trainer.train([member(held_out=held_out)])
        assert_same(again, train_population(trainer.task, [member(held_out=held_out)]))


def test_training_accuracy_and_kept_share_count_samples_that_are_not_held_out() -> None:
    trained = train_population(
        shared_task(Standard()), [member(held_out=FOLD), member(method=MentorNet(), held_out=FOLD)]
    )
    np.testing.assert_allclose(trained.curves.kept[0], 1)
    assert (np.abs(trained.curves.kept[1] - member().schedule) < 0.05).all()
    assert trained.curves.train_accuracy.max() <= 1


def test_precision_is_that_of_samples_trained_on() -> None:
    wrong = TRAIN.labels != TRAIN.clean_labels
    trained = train_population(shared_task(Standard()), [member(held_out=wrong)])
    np.testing.assert_array_equal(trained.curves.label_precision, 1)


def test_checkpoint_of_another_fold_is_not_used(tmp_path) -> None:
    def train(held_out: np.ndarray, stopping: bool = False) -> object:
        stored = shared_task(Coteaching(), checkpoints=Checkpoints(tmp_path, interval=0.0, max_share=np.inf))

        def stop(progress: object) -> list[int]:
            if stopping and progress.epoch == 2:  # type: ignore[attr-defined]
                raise KeyboardInterrupt
            return []

        return train_population(stored, [member(held_out=held_out)], stop=stop)

    with pytest.raises(KeyboardInterrupt):
        train(FOLD, stopping=True)
    expected = train_population(shared_task(Coteaching()), [member(held_out=~FOLD)])
    assert_same(expected, train(~FOLD))


# Selection


def test_smallest_among_eligible_samples() -> None:
    losses = torch.tensor([3.0, 1.0, float("nan"), 0.0, float("inf"), 2.0])
    eligible = torch.tensor([True, True, True, False, True, False])
    for keep, expected in ((1, [1]), (2, [0, 1]), (3, [0, 1, 4]), (4, [0, 1, 2, 4]), (6, [0, 1, 2, 4])):
        assert smallest(losses, torch.tensor(keep), eligible).nonzero().flatten().tolist() == expected
    assert not smallest(losses, torch.tensor(2), torch.zeros(6, dtype=torch.bool)).any()


def test_keep_count_is_a_share_rounded_down_and_at_least_1() -> None:
    rates, sizes = torch.tensor([0.29, 0.5, 0.0, 1.0, 1.0], dtype=torch.float64), torch.tensor([100, 7, 5, 9, 0])
    assert keep_count(rates, sizes).tolist() == [29, 3, 1, 9, 1]


@METHODS
def test_batch_without_eligible_samples_has_no_loss(method: Method) -> None:
    logits = torch.randn(1, method.networks, 6, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    batch = Batch(
        logits,
        torch.zeros(1, 6, dtype=torch.int64),
        torch.tensor([1]),
        torch.ones(1, dtype=torch.float64),
        torch.tensor(0),
        eligible=torch.zeros(1, 6, dtype=torch.bool),
    )
    objective = method.objective(batch)
    assert not objective.selected.any()
    assert (objective.loss == 0).all()
    (gradient,) = torch.autograd.grad(objective.loss.sum(), logits)
    assert (gradient == 0).all()


# Bad input


def test_members_that_cannot_hold_out_are_refused() -> None:
    for method in ALL_METHODS:
        if not may_hold_out(method):
            with pytest.raises(InvalidInput, match=f"`held_out` must be None for method {method.name}"):
                train_population(task(TRAIN, method), [member(held_out=FOLD)])
    for held_out in (FOLD[:-1], FOLD.astype(int), np.ones(200, dtype=np.bool_)):
        with pytest.raises(InvalidInput, match=r"`held_out` must be \(200,\) booleans"):
            train_population(shared_task(Standard()), [replace(member(), held_out=held_out)])
