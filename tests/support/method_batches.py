"""Batches for methods, and slow implementations to compare them with."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from s2e.methods import Batch, Need

P, B, C = 3, 16, 5

FEATURES, CLEAN = 4, 7


class LinearNetworks:
    """Networks whose logits are inputs @ weights, one product for each, so that none depends on the others.

    The change of a linear network along a gradient is inputs @ gradient.
    """

    def __init__(self, weights: Tensor, inputs: Tensor, clean_inputs: Tensor, clean_labels: Tensor) -> None:
        self.weights = weights.detach().clone().requires_grad_()  # (P, M, F, C)
        self.inputs = inputs  # (B, F)
        self.clean_inputs = clean_inputs  # (V, F)
        self.clean_labels = clean_labels  # (V,)

    def logits(self) -> Tensor:
        return products(self.inputs, self.weights)

    def clean_logits(self) -> Tensor:
        return products(self.clean_inputs, self.weights)

    def change_along_gradient(self, loss: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(loss, self.weights)
        return products(self.inputs, gradient)

    def with_weights(self, weights: Tensor) -> LinearNetworks:
        return LinearNetworks(weights, self.inputs, self.clean_inputs, self.clean_labels)


def products(inputs: Tensor, weights: Tensor) -> Tensor:
    """(B, F), (P, M, F, C) -> (P, M, B, C)."""
    return torch.stack([torch.stack([inputs @ network for network in member]) for member in weights])


def drawn_batch(networks, members=P, size=B, classes=C, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(members, networks, size, classes, generator=generator)
    labels = torch.randint(classes, (members, size), generator=generator)
    keep = 1 + torch.arange(members) * (size - 1) // max(1, members - 1)  # from one sample to all of them
    return Batch(logits.requires_grad_(), labels, keep, keep.double() / size, torch.tensor(0))


def batch_for(one, members=P, seed=0):
    """Return a batch with everything a method needs: random transition matrices, logits of linear networks."""
    batch = drawn_batch(one.networks, members, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    if Need.TRANSITION in one.needs:
        batch = batch._replace(transition=torch.rand(members, C, C, generator=generator).softmax(dim=-1))
    if Need.CLEAN_SAMPLES in one.needs:
        weights = torch.randn(members, one.networks, FEATURES, C, generator=generator)
        inputs, clean_inputs = (torch.randn(size, FEATURES, generator=generator) for size in (B, CLEAN))
        clean_labels = torch.randint(C, (CLEAN,), generator=generator)
        networks = LinearNetworks(weights, inputs, clean_inputs, clean_labels)
        batch = batch._replace(logits=leaf(networks.logits()), networks=networks)
    return batch


def leaf(tensor):
    return tensor.detach().clone().requires_grad_()


def inputs_of(batch):
    """Return every tensor that a method receives, by name."""
    tensors = {name: tensor for name, tensor in batch._asdict().items() if isinstance(tensor, Tensor)}
    return {**tensors, **(vars(batch.networks) if batch.networks else {})}


def for_members(batch, change):
    """Return the batch with every tensor changed that has a row for each member."""
    logits, labels, keep, keep_rate, epoch, transition, networks, samples_last, eligible = batch
    return Batch(
        change(logits.detach().clone()).requires_grad_(),
        *(change(tensor.clone()) for tensor in (labels, keep, keep_rate)),
        epoch,
        None if transition is None else change(transition.clone()),
        None if networks is None else networks.with_weights(change(networks.weights.detach().clone())),
        samples_last,
        None if eligible is None else change(eligible.clone()),
    )


def outcome(one, batch):
    """Return the objective of a batch, and the gradient that the engine computes from it."""
    objective = one.objective(batch)
    (gradient,) = torch.autograd.grad(objective.loss.sum(), batch.logits)
    return {**objective._asdict(), "gradient": gradient}


def slow_losses(logits, labels):
    """Cross-entropy of every sample, one by one: (B, C), (B,) -> (B,)."""
    return [math.log(sum(math.exp(z - row[y]) for z in row)) for row, y in zip(logits, labels, strict=True)]


def slow_softmax(row):
    """Softmax of a list."""
    exponentials = [math.exp(z - max(row)) for z in row]
    return [each / sum(exponentials) for each in exponentials]


def slow_smallest(losses, keep):
    """Positions of the smallest losses, ties to the lower position, in order."""
    return sorted(position for _, position in sorted(zip(losses, range(len(losses)), strict=True))[:keep])


def slow_gradient(inputs, logits, labels, selected):
    """Gradient of the mean loss of the selected samples by W, logits = inputs @ W: Σ x (softmax − onehot)/n, (F, C)."""
    gradient = np.zeros((inputs.shape[1], logits.shape[1]))
    for position in selected:
        shares = np.exp(logits[position] - logits[position].max())
        shares /= shares.sum()
        shares[labels[position]] -= 1
        gradient += np.outer(inputs[position], shares) / len(selected)
    return gradient
