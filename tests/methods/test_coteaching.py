"""Standard training, MentorNet and Co-teaching against loops in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from method_batches import B, C, P, drawn_batch, leaf, outcome, slow_gradient, slow_losses, slow_smallest
from s2e.methods import Batch, Coteaching, MentorNet, Standard

SMALL_LOSS = pytest.mark.parametrize("one", [MentorNet(), Coteaching()], ids=lambda one: one.name)


@pytest.mark.parametrize("one", [Standard(), MentorNet(), Coteaching()], ids=lambda one: one.name)
def test_gradient_descent_equals_a_loop_over_members_networks_and_samples(one):
    generator = np.random.default_rng(0)
    samples, features, steps, networks = 256, 4, 8, one.networks
    inputs = generator.normal(size=(samples, features))
    labels = generator.integers(0, C, size=(P, samples))  # every member has its own
    weights = generator.normal(size=(P, networks, features, C))  # of linear networks
    stacked = torch.tensor(weights, requires_grad=True)
    for step in range(steps):
        index = np.arange(samples)[step * 32 : (step + 1) * 32]
        keep = [1, 12 + step, 32]
        logits = torch.einsum("bf,pmfc->pmbc", torch.from_numpy(inputs[index]), stacked)
        counts = torch.tensor(keep)
        batch = Batch(logits, torch.from_numpy(labels[:, index]), counts, counts.double() / 32, torch.tensor(step))
        objective = one.objective(batch)
        (gradient,) = torch.autograd.grad(objective.loss.sum(), stacked)
        for member in range(P):
            own = [inputs[index] @ weights[member, network] for network in range(networks)]
            losses = [slow_losses(logits, labels[member, index]) for logits in own]
            selected = [slow_smallest(row, keep[member]) for row in losses]
            if one.name == "standard":
                selected = [list(range(len(index)))]
            if one.name == "coteaching":
                selected = [selected[1], selected[0]]  # the first network is trained on the selection of the second
            for network in range(networks):
                kept, row = selected[network], losses[network]
                at = (member, network)
                assert objective.selected[at].nonzero().flatten().tolist() == kept
                np.testing.assert_allclose(objective.sample_losses[at], row, rtol=1e-10)
                np.testing.assert_allclose(objective.loss[at].item(), sum(row[k] for k in kept) / len(kept), rtol=1e-10)
                expected = slow_gradient(inputs[index], own[network], labels[member, index], kept)
                np.testing.assert_allclose(gradient[at], expected, rtol=1e-8, atol=1e-10)
                weights[at] -= 0.5 * expected
        with torch.no_grad():
            stacked -= 0.5 * gradient
        np.testing.assert_allclose(stacked.detach(), weights, rtol=1e-7, atol=1e-9)


@SMALL_LOSS
def test_keeping_the_whole_batch_is_standard_training(one):
    batch = drawn_batch(one.networks)._replace(keep=torch.full((P,), B), keep_rate=torch.ones(P).double())
    kept = one.objective(batch)
    assert kept.selected.all()
    for network in range(one.networks):
        single = Standard().objective(batch._replace(logits=batch.logits[:, network : network + 1]))
        torch.testing.assert_close(kept.loss[:, network], single.loss[:, 0])


def test_coteaching_with_equal_networks_is_mentornet_twice():
    batch = drawn_batch(1)
    pair = outcome(Coteaching(), batch._replace(logits=leaf(batch.logits.repeat(1, 2, 1, 1))))
    single = outcome(MentorNet(), batch)
    for name, tensor in single.items():
        for network in (0, 1):
            torch.testing.assert_close(pair[name][:, network], tensor[:, 0])


def test_coteaching_networks_exchange_their_selections():
    losses = torch.tensor([[[0.1, 0.2, 3.0, 4.0], [4.0, 3.0, 0.2, 0.1]]])
    logits = torch.stack([torch.zeros_like(losses), torch.expm1(losses).log()], dim=-1)  # these losses for label 0
    keep = torch.tensor([2])
    batch = Batch(logits, torch.zeros(1, 4, dtype=torch.int64), keep, keep.double() / 4, torch.tensor(0))
    objective = Coteaching().objective(batch)
    torch.testing.assert_close(objective.sample_losses, losses)
    assert objective.selected.tolist() == [[[False, False, True, True], [True, True, False, False]]]
    torch.testing.assert_close(objective.loss, torch.tensor([[3.5, 3.5]]))


@SMALL_LOSS
def test_unselected_infinite_loss_is_ignored(one):
    batch = drawn_batch(one.networks, members=1)
    with torch.no_grad():
        batch.logits[0, :, 3] = 3e38 * (1 - 2 * torch.nn.functional.one_hot(batch.labels[0, 3], C))
    found = outcome(one, batch._replace(keep=torch.tensor([4])))
    assert found["sample_losses"][0, :, 3].isinf().all()
    assert found["selected"].sum(dim=-1).tolist() == [[4] * one.networks]
    assert not found["selected"][0, :, 3].any()
    assert found["loss"].isfinite().all()
    assert found["gradient"].isfinite().all()
    assert not found["gradient"][0, :, 3].any()
