"""The eight methods in plain PyTorch, one member at a time.

`nn.Module`s, fused `torch.optim.Adam`s, data resident on the device; no records and no evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from s2e.data import LabelledData
from s2e.engine.batches import scaled

BATCH, LEARNING_RATE = 128, 1e-3
KEEP_RATE = 0.55
"""Keep rate of a member that is measured alone."""
KEEP = int(KEEP_RATE * BATCH)

Step: TypeAlias = Callable[[], None]
Draw: TypeAlias = Callable[[], tuple[Tensor, Tensor]]


class PlainTask(NamedTuple):
    """Inputs of a plain training."""

    network: Callable[[], nn.Module]  # returns a new network on the device
    batch: Draw  # returns the next training batch, (B, ...) in [0, 1] and (B,)
    clean_batch: Draw  # returns the next clean batch
    transition: Tensor  # (C, C)


def plain_standard(task: PlainTask) -> Step:
    """Mean cross-entropy of the batch."""
    network = task.network()
    optimizer = _adam(network)

    def step() -> None:
        inputs, labels = task.batch()
        _descend(functional.cross_entropy(network(inputs), labels), optimizer)

    return step


def plain_forward_correction(task: PlainTask) -> Step:
    """−log (Tᵀp)_y, averaged over the batch."""
    network = task.network()
    optimizer = _adam(network)

    def step() -> None:
        inputs, labels = task.batch()
        shares = network(inputs).softmax(dim=-1) @ task.transition
        _descend(functional.nll_loss(shares.log(), labels), optimizer)

    return step


def plain_mentornet(task: PlainTask) -> Step:
    """Mean over a network's own smallest losses."""
    network = task.network()
    optimizer = _adam(network)

    def step() -> None:
        inputs, labels = task.batch()
        losses = functional.cross_entropy(network(inputs), labels, reduction="none")
        _descend(losses.topk(KEEP, largest=False).values.mean(), optimizer)

    return step


def plain_coteaching(task: PlainTask) -> Step:
    """Mean over the samples for which the other network's losses are smallest."""
    return coteaching_step(task.network, task.batch, KEEP)


def coteaching_step(network: Callable[[], nn.Module], batch: Draw, keep: int, *, fused: bool = True) -> Step:
    """Return a step of Co-teaching that keeps some samples of a batch, with PyTorch's fused Adam or the default."""
    one, other = network(), network()
    optimizers = _adam(one, fused=fused), _adam(other, fused=fused)

    def step() -> None:
        inputs, labels = batch()
        losses = [functional.cross_entropy(each(inputs), labels, reduction="none") for each in (one, other)]
        _descend(exchanged(losses, keep), *optimizers)

    return step


def plain_decoupling(task: PlainTask) -> Step:
    """Σ w·CE / max(0.1·B, Σ w) of each network, where w marks the samples they predict differently."""
    one, other = task.network(), task.network()
    optimizers = _adam(one), _adam(other)

    def step() -> None:
        inputs, labels = task.batch()
        logits = one(inputs), other(inputs)
        differ = logits[0].argmax(dim=-1) != logits[1].argmax(dim=-1)
        selected = labels[differ]
        if len(selected) == 0:
            return
        first, second = (functional.cross_entropy(each[differ], selected, reduction="sum") for each in logits)
        _descend((first + second) / max(0.1 * BATCH, len(selected)), *optimizers)

    return step


def plain_coteaching_plus(task: PlainTask) -> Step:
    """Co-teaching among the samples that the networks predict differently."""
    one, other = task.network(), task.network()
    optimizers = _adam(one), _adam(other)

    def step() -> None:
        inputs, labels = task.batch()
        logits = one(inputs), other(inputs)
        differ = logits[0].argmax(dim=-1) != logits[1].argmax(dim=-1)
        selected = labels[differ]
        if len(selected) == 0:
            return
        losses = [functional.cross_entropy(each[differ], selected, reduction="none") for each in logits]
        _descend(exchanged(losses, max(1, int(KEEP_RATE * len(selected)))), *optimizers)

    return step


def plain_reweight(task: PlainTask) -> Step:
    """Weights max(−∂L/∂ε, 0)/Σ from the clean loss L after a virtual step, which is unrolled."""
    network = task.network()
    optimizer = _adam(network)
    weights = dict(network.named_parameters())

    def step() -> None:
        inputs, labels = task.batch()
        clean_inputs, clean_labels = task.clean_batch()
        losses = functional.cross_entropy(network(inputs), labels, reduction="none")
        epsilon = torch.zeros_like(losses, requires_grad=True)
        gradients = torch.autograd.grad((epsilon * losses).sum(), list(weights.values()), create_graph=True)
        moved = {
            name: weight - LEARNING_RATE * gradient
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
        }
        clean_loss = functional.cross_entropy(functional_call(network, moved, (clean_inputs,)), clean_labels)
        # The graph is retained, so that the losses of the batch are not computed again for the step itself.
        (slope,) = torch.autograd.grad(clean_loss, epsilon, retain_graph=True)
        shares = (-slope).clamp(min=0)
        shares = shares / shares.sum().clamp(min=torch.finfo(shares.dtype).tiny)
        _descend((shares * losses).sum(), optimizer)

    return step


def plain_jocor(task: PlainTask) -> Step:
    """Mean over the smallest joint losses (1−λ)(CE₁ + CE₂) + λ(KL₁₂ + KL₂₁)."""
    one, other = task.network(), task.network()
    optimizer = _adam(one, other)  # one loss, one optimizer
    agreement = 0.9

    def step() -> None:
        inputs, labels = task.batch()
        logs = [functional.log_softmax(each(inputs), dim=-1) for each in (one, other)]
        first, second = (functional.nll_loss(each, labels, reduction="none") for each in logs)
        apart = ((logs[0].exp() - logs[1].exp()) * (logs[0] - logs[1])).sum(dim=-1)
        joint = (1 - agreement) * (first + second) + agreement * apart
        _descend(joint.topk(KEEP, largest=False).values.mean(), optimizer)

    return step


PLAIN: dict[str, Callable[[PlainTask], Step]] = {
    "standard": plain_standard,
    "decoupling": plain_decoupling,
    "f-correction": plain_forward_correction,
    "mentornet": plain_mentornet,
    "coteaching": plain_coteaching,
    "coteaching+": plain_coteaching_plus,
    "reweight": plain_reweight,
    "jocor": plain_jocor,
}


def exchanged(losses: list[Tensor], keep: int) -> Tensor:
    """Return the sum over two networks of the mean loss on the samples with the smallest losses of the other one."""
    first, second = (loss.detach().topk(keep, largest=False).indices for loss in losses)
    return losses[0][second].mean() + losses[1][first].mean()


def _adam(*networks: nn.Module, fused: bool = True) -> torch.optim.Adam:
    weights = [weight for network in networks for weight in network.parameters()]
    return torch.optim.Adam(weights, lr=LEARNING_RATE, fused=True if fused else None)


def _descend(loss: Tensor, *optimizers: torch.optim.Adam) -> None:
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()


def batches_of(labelled: LabelledData, device: torch.device, batch_size: int = BATCH) -> Draw:
    """Return a function that returns the next batch, in one random order that is repeated."""
    inputs, labels = (torch.from_numpy(each).to(device) for each in (labelled.inputs, labelled.labels))
    order = torch.randperm(len(labelled)).to(device)
    size = min(batch_size, len(labelled))
    position = 0

    def draw() -> tuple[Tensor, Tensor]:
        nonlocal position
        index = order[position : position + size]
        position = position + size if position + 2 * size <= len(labelled) else 0
        return scaled(inputs[index]), labels[index]

    return draw
