"""Co-teaching+ against a loop over members, networks and samples, and where it equals Co-teaching."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from method_batches import B, C, P, drawn_batch, leaf, outcome, slow_gradient, slow_losses
from s2e.errors import InvalidInput
from s2e.methods import Batch, Coteaching, CoteachingPlus


def with_predictions(batch, first, second):
    """Return the batch with each network confident of given classes, (B,) or one for all samples."""
    classes = torch.zeros(len(batch.labels), 2, batch.labels.shape[1], dtype=torch.int64)
    classes[:, 0], classes[:, 1] = torch.as_tensor(first), torch.as_tensor(second)
    return batch._replace(logits=leaf(batch.logits + 20 * functional.one_hot(classes, batch.logits.shape[-1])))


def differing_at(batch, positions):
    """Return the batch with predictions that differ at these positions only."""
    second = torch.zeros(batch.labels.shape[1], dtype=torch.int64)
    second[positions] = 1
    return with_predictions(batch, 0, second)


def rates(*values):
    return torch.tensor(values, dtype=torch.float64)


def assert_same(found, expected):
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, equal_nan=True)


def test_gradient_descent_equals_a_loop_over_members_networks_and_samples():
    generator = np.random.default_rng(0)
    samples, features, steps, size, warm_up = 400, 4, 10, 40, 3
    percents = [7, 55, 100, 29]  # of each member; integers, to count exactly
    inputs = generator.normal(size=(samples, features))
    labels = generator.integers(0, C, size=(4, samples))
    weights = generator.normal(size=(4, 2, features, C))  # of linear networks
    weights[0, 1] = weights[0, 0] + 0.05 * generator.normal(size=(features, C))  # a pair that rarely disagrees
    stacked = torch.tensor(weights, requires_grad=True)
    disagreements = set()
    for step in range(steps):
        index = np.arange(samples)[step * size : (step + 1) * size]
        logits = torch.einsum("bf,pmfc->pmbc", torch.from_numpy(inputs[index]), stacked)
        keep = [max(1, percent * size // 100) for percent in percents]
        shares = rates(*(percent / 100 for percent in percents))
        batch = Batch(logits, torch.from_numpy(labels[:, index]), torch.tensor(keep), shares, torch.tensor(step))
        objective = CoteachingPlus(warm_up).objective(batch)
        (gradient,) = torch.autograd.grad(objective.loss.sum(), stacked)
        for member, percent in enumerate(percents):
            own = [inputs[index] @ weights[member, network] for network in (0, 1)]
            losses = [slow_losses(logits, labels[member, index]) for logits in own]
            among = list(range(size))
            if step >= warm_up:
                among = [k for k in among if np.argmax(own[0][k]) != np.argmax(own[1][k])]
                disagreements.add(len(among))
            count = max(1, percent * len(among) // 100) if among else 0
            easy = [sorted(sorted(among, key=lambda k, row=row: row[k])[:count]) for row in losses]
            for network in (0, 1):
                kept, row = easy[1 - network], losses[network]  # each is trained on the selection of its peer
                at = (member, network)
                assert objective.selected[at].nonzero().flatten().tolist() == kept
                np.testing.assert_allclose(objective.sample_losses[at], row, rtol=1e-10)
                mean = sum(row[k] for k in kept) / max(1, count)
                np.testing.assert_allclose(objective.loss[at].item(), mean, rtol=1e-10)
                expected = slow_gradient(inputs[index], own[network], labels[member, index], kept)
                np.testing.assert_allclose(gradient[at], expected, rtol=1e-8, atol=1e-10)
                weights[at] -= 0.2 * expected
        with torch.no_grad():
            stacked -= 0.2 * gradient
        np.testing.assert_allclose(stacked.detach(), weights, rtol=1e-7, atol=1e-9)
    assert 0 in disagreements
    assert len(disagreements) > 5


def test_networks_that_always_disagree_are_coteaching():
    batch = with_predictions(drawn_batch(2), 1, 3)
    assert_same(outcome(CoteachingPlus(), batch), outcome(Coteaching(), batch))


def test_warm_up_is_coteaching():
    batch = drawn_batch(2)
    plain = outcome(Coteaching(), batch)
    for epoch in (0, 1, 4):
        assert_same(outcome(CoteachingPlus(warm_up=5), batch._replace(epoch=torch.tensor(epoch))), plain)
    among_disagreements = outcome(CoteachingPlus(), batch)
    assert not torch.equal(among_disagreements["selected"], plain["selected"])
    for epoch in (5, 6, 100):
        later = batch._replace(epoch=torch.tensor(epoch))
        assert_same(outcome(CoteachingPlus(warm_up=5), later), among_disagreements)
        assert_same(outcome(CoteachingPlus(), later), among_disagreements)


def test_warm_up_uses_the_keep_count_and_later_epochs_the_keep_rate():
    batch = with_predictions(drawn_batch(2), 1, 3)
    batch = batch._replace(keep=torch.tensor([1, 4, 9]), keep_rate=rates(0.25, 0.5, 1.0))
    for epoch, counts in ((0, [1, 4, 9]), (1, [4, 8, 16])):
        selected = CoteachingPlus(warm_up=1).objective(batch._replace(epoch=torch.tensor(epoch))).selected
        assert selected.sum(dim=-1).tolist() == [[count, count] for count in counts]


def test_equal_networks_are_trained_in_the_warm_up_only():
    batch = drawn_batch(1)
    batch = batch._replace(logits=leaf(batch.logits.repeat(1, 2, 1, 1)))
    assert_same(outcome(CoteachingPlus(warm_up=1), batch), outcome(Coteaching(), batch))
    found = outcome(CoteachingPlus(), batch)
    assert not found["selected"].any()
    assert found["loss"].tolist() == [[0.0, 0.0]] * P
    assert not found["gradient"].any()
    assert (found["sample_losses"] > 0).all()


def test_networks_exchange_their_selections_among_disagreements():
    losses = torch.tensor([[[0.1, 0.2, 3.0, 0.3, 4.0, 5.0], [0.1, 4.0, 0.2, 3.0, 5.0, 0.3]]])
    wrong = torch.expm1(losses).log()  # with a logit of 0 for the label, the others share exp(wrong)
    classes = torch.tensor([[0, 1, 1, 1, 1, 1], [0, 2, 2, 2, 2, 1]])  # which wrong class has all of it
    logits = torch.full((1, 2, 6, 3), -math.inf)
    logits[..., 0] = 0
    logits.scatter_(-1, classes.clamp(min=1).view(1, 2, 6, 1), wrong.unsqueeze(-1))
    batch = drawn_batch(2, members=1, size=6, classes=3)
    batch = batch._replace(logits=logits, labels=torch.zeros(1, 6, dtype=torch.int64))
    predicted = logits.argmax(dim=-1)[0]
    assert predicted.tolist() == [[0, 0, 1, 0, 1, 1], [0, 2, 0, 2, 2, 0]]  # both correct for the easiest sample
    objective = CoteachingPlus().objective(batch._replace(keep_rate=rates(0.4)))  # 2 of 5
    torch.testing.assert_close(objective.sample_losses, losses)
    second_finds_easy, first_finds_easy = objective.selected[0].nonzero()[:, 1].view(2, 2).tolist()
    assert first_finds_easy == [1, 3]
    assert second_finds_easy == [2, 5]
    torch.testing.assert_close(objective.loss, torch.tensor([[(3.0 + 5.0) / 2, (4.0 + 3.0) / 2]]))


@pytest.mark.parametrize(
    ("rate", "size", "count"),
    [
        (0.0, 5, 1),  # at least one
        (0.59, 5, 2),
        (1.0, 5, 5),
        (0.5, 0, 0),  # no disagreement
        (0.29, 100, 29),  # 0.29 · 100 is 28.999999999999996 in floating point
        (0.29 - 1e-8, 100, 28),
    ],
)
def test_kept_share_of_disagreements_is_rounded_down_to_at_least_one(rate, size, count):
    batch = differing_at(drawn_batch(2, members=1, size=120), torch.arange(size))
    batch = batch._replace(keep_rate=rates(rate))
    selected = CoteachingPlus().objective(batch).selected
    assert selected.sum(dim=-1).tolist() == [[count, count]]
    assert not selected[..., size:].any()


def test_ties_go_to_the_lower_position():
    batch = differing_at(drawn_batch(2, members=1), [2, 5, 6, 11])
    logits = batch.logits.detach().clone()
    logits[:] = 0
    logits[0, 0, :, 1] = 1
    logits[0, 1, :, 1] = 1
    logits[0, 1, [2, 5, 6, 11], 1] = 0
    logits[0, 1, [2, 5, 6, 11], 2] = 1  # another prediction, and the same loss for label 0
    batch = batch._replace(logits=logits, labels=torch.zeros(1, B, dtype=torch.int64))
    objective = CoteachingPlus().objective(batch._replace(keep_rate=rates(0.5)))
    assert objective.selected[0].nonzero().tolist() == [[0, 2], [0, 5], [1, 2], [1, 5]]


@pytest.mark.parametrize(
    ("value", "networks", "warm_up"), [(math.nan, [0], 0), (math.inf, [1], 0), (3e38, [0, 1], 0), (math.nan, [0, 1], 1)]
)
def test_unselected_sample_without_finite_loss_is_ignored(value, networks, warm_up):
    batch = differing_at(drawn_batch(2, members=1), [1, 3, 4, 8, 9, 12])
    batch = batch._replace(keep=torch.tensor([4]), keep_rate=rates(0.5))
    labels = batch.labels.clone()
    labels[0, 3] = 2
    logits = batch.logits.detach().clone()
    predicting = torch.tensor([[value, 0.0, -3e38, 0.0, 0.0], [0.0, value, -3e38, 0.0, 0.0]])  # different classes
    logits[0, networks, 3] = predicting[networks]
    found = outcome(CoteachingPlus(warm_up), batch._replace(logits=leaf(logits), labels=labels))
    assert not found["sample_losses"][0, networks, 3].isfinite().any()
    assert found["selected"].sum(dim=-1).tolist() == [[4, 4] if warm_up else [3, 3]]
    for network in (0, 1):
        trained_on = found["selected"][0, network]
        if 1 - network in networks:
            assert not trained_on[3]  # not selected by the peer
        if network not in networks or not trained_on[3]:
            assert found["loss"][0, network].isfinite()
            assert found["gradient"][0, network].isfinite().all()


@pytest.mark.parametrize("value", [math.nan, 3e38])
def test_sample_without_finite_loss_ranks_last_among_disagreements(value):
    among = [1, 3, 4, 8, 9, 12]
    batch = differing_at(drawn_batch(2, members=1), among)
    labels = batch.labels.clone()
    labels[0, [3, 8]] = 2
    logits = batch.logits.detach().clone()
    logits[0, 1, 8] = torch.tensor([0.0, 3e38, -3e38, 0.0, 0.0])  # an infinite loss
    logits[0, 1, 3] = torch.tensor([0.0, value, -3e38, 0.0, 0.0])
    batch = batch._replace(logits=logits, labels=labels)
    for count, left_out in ((6, []), (5, [3] if math.isnan(value) else [8]), (4, [3, 8])):
        rate = rates(count / 6)
        selected = CoteachingPlus().objective(batch._replace(keep_rate=rate)).selected[0, 0]  # of the second network
        assert selected.nonzero().flatten().tolist() == [k for k in among if k not in left_out]


def test_networks_that_diverge_together_have_nan_loss():
    batch = drawn_batch(2, members=1)
    objective = CoteachingPlus().objective(batch._replace(logits=torch.full_like(batch.logits, math.nan)))
    assert objective.selected.any()
    assert objective.loss.isnan().all()


def test_epoch_tensor_is_read_in_every_step():
    batch = drawn_batch(2)
    selected = []
    for epoch in range(4):
        batch.epoch.fill_(epoch)  # in place, as between replays of a captured step
        selected.append(CoteachingPlus(warm_up=2).objective(batch).selected)
    assert torch.equal(selected[0], selected[1])
    assert not torch.equal(selected[1], selected[2])
    assert torch.equal(selected[2], selected[3])


def test_negative_warm_up_is_refused():
    with pytest.raises(InvalidInput, match=r"^`warm_up` must be at least 0 epochs, but got -1\.$"):
        CoteachingPlus(warm_up=-1)
