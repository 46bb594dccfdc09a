"""The eight methods in plain PyTorch: what one would write without an engine, one member at a time.

`nn.Module`s, fused `torch.optim.Adam`s, data resident on the device; no records and no evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from s2e.data.samples import LabelledData

BATCH, LEARNING_RATE = 128, 1e-3
KEEP_RATE = 0.55
"""Keep rate of a member that is measured on its own."""
KEEP = int(KEEP_RATE * BATCH)

Step: TypeAlias = Callable[[], None]
Draw: TypeAlias = Callable[[], tuple[Tensor, Tensor]]


class Given(NamedTuple):
    """What a plain training starts from."""

    network: Callable[[], nn.Module]  # builds one on the device
    batch: Draw  # the next training batch, (B, ...) in [0, 1] and (B,)
    clean_batch: Draw  # the next clean batch
    transition: Tensor  # (C, C)


def plain_standard(given: Given) -> Step:
    """Mean cross-entropy of the batch."""
    network = given.network()
    optimizer = _adam(network)

    def step() -> None:
        inputs, labels = given.batch()
        _descend(functional.cross_entropy(network(inputs), labels), optimizer)

    return step


def plain_forward_correction(given: Given) -> Step:
    """−log (Tᵀp)_y, averaged over the batch."""
    network = given.network()
    optimizer = _adam(network)

    def step() -> None:
        inputs, labels = given.batch()
        shares = network(inputs).softmax(dim=-1) @ given.transition
        _descend(functional.nll_loss(shares.log(), labels), optimizer)

    return step


def plain_mentornet(given: Given) -> Step:
    """Mean over a network's own smallest losses."""
    network = given.network()
    optimizer = _adam(network)

    def step() -> None:
        inputs, labels = given.batch()
        losses = functional.cross_entropy(network(inputs), labels, reduction="none")
        _descend(losses.topk(KEEP, largest=False).values.mean(), optimizer)

    return step


def plain_coteaching(given: Given) -> Step:
    """Mean over the samples for which the other network's losses are smallest."""
    one, other = given.network(), given.network()
    optimizers = _adam(one), _adam(other)

    def step() -> None:
        inputs, labels = given.batch()
        losses = [functional.cross_entropy(each(inputs), labels, reduction="none") for each in (one, other)]
        _descend(_exchanged(losses, KEEP), *optimizers)

    return step


def plain_decoupling(given: Given) -> Step:
    """Σ w·CE / max(0.1·B, Σ w) of each network, where w marks the samples they predict differently."""
    one, other = given.network(), given.network()
    optimizers = _adam(one), _adam(other)

    def step() -> None:
        inputs, labels = given.batch()
        logits = one(inputs), other(inputs)
        differ = logits[0].argmax(dim=-1) != logits[1].argmax(dim=-1)
        wanted = labels[differ]
        if len(wanted) == 0:
            return
        first, second = (functional.cross_entropy(each[differ], wanted, reduction="sum") for each in logits)
        _descend((first + second) / max(0.1 * BATCH, len(wanted)), *optimizers)

    return step


def plain_coteaching_plus(given: Given) -> Step:
    """Co-teaching among the samples that the networks predict differently."""
    one, other = given.network(), given.network()
    optimizers = _adam(one), _adam(other)

    def step() -> None:
        inputs, labels = given.batch()
        logits = one(inputs), other(inputs)
        differ = logits[0].argmax(dim=-1) != logits[1].argmax(dim=-1)
        wanted = labels[differ]
        if len(wanted) == 0:
            return
        losses = [functional.cross_entropy(each[differ], wanted, reduction="none") for each in logits]
        _descend(_exchanged(losses, max(1, int(KEEP_RATE * len(wanted)))), *optimizers)

    return step


def plain_reweight(given: Given) -> Step:
    """Weights max(−∂L/∂ε, 0)/Σ from the clean loss L after a virtual step, which is unrolled."""
    network = given.network()
    optimizer = _adam(network)
    weights = dict(network.named_parameters())

    def step() -> None:
        inputs, labels = given.batch()
        clean_inputs, clean_labels = given.clean_batch()
        losses = functional.cross_entropy(network(inputs), labels, reduction="none")
        epsilon = torch.zeros_like(losses, requires_grad=True)
        gradients = torch.autograd.grad((epsilon * losses).sum(), list(weights.values()), create_graph=True)
        moved = {
            name: weight - LEARNING_RATE * gradient
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
        }
        clean_loss = functional.cross_entropy(functional_call(network, moved, (clean_inputs,)), clean_labels)
        # The graph is kept, so that the losses of the batch need not be computed again for the step itself.
        (slope,) = torch.autograd.grad(clean_loss, epsilon, retain_graph=True)
        shares = (-slope).clamp(min=0)
        shares = shares / shares.sum().clamp(min=torch.finfo(shares.dtype).tiny)
        _descend((shares * losses).sum(), optimizer)

    return step


def plain_jocor(given: Given) -> Step:
    """Mean over the smallest joint losses (1−λ)(CE₁ + CE₂) + λ(KL₁₂ + KL₂₁)."""
    one, other = given.network(), given.network()
    optimizer = _adam(one, other)  # one loss, one optimizer
    agreement = 0.9

    def step() -> None:
        inputs, labels = given.batch()
        logs = [functional.log_softmax(each(inputs), dim=-1) for each in (one, other)]
        first, second = (functional.nll_loss(each, labels, reduction="none") for each in logs)
        apart = ((logs[0].exp() - logs[1].exp()) * (logs[0] - logs[1])).sum(dim=-1)
        joint = (1 - agreement) * (first + second) + agreement * apart
        _descend(joint.topk(KEEP, largest=False).values.mean(), optimizer)

    return step


PLAIN: dict[str, Callable[[Given], Step]] = {
    "standard": plain_standard,
    "decoupling": plain_decoupling,
    "f-correction": plain_forward_correction,
    "mentornet": plain_mentornet,
    "coteaching": plain_coteaching,
    "coteaching+": plain_coteaching_plus,
    "reweight": plain_reweight,
    "jocor": plain_jocor,
}


def _exchanged(losses: list[Tensor], keep: int) -> Tensor:
    """Sum over two networks of the mean loss on the samples the other one finds easy."""
    first, second = (loss.detach().topk(keep, largest=False).indices for loss in losses)
    return losses[0][second].mean() + losses[1][first].mean()


def _adam(*networks: nn.Module) -> torch.optim.Adam:
    weights = [weight for network in networks for weight in network.parameters()]
    return torch.optim.Adam(weights, lr=LEARNING_RATE, fused=True)


def _descend(loss: Tensor, *optimizers: torch.optim.Adam) -> None:
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()


def drawn(labelled: LabelledData, device: torch.device) -> Draw:
    """Return a function that gives the next batch, over and over in one random order."""
    inputs, labels = (torch.from_numpy(each).to(device) for each in (labelled.inputs, labelled.labels))
    order = torch.randperm(len(labelled)).to(device)
    size = min(BATCH, len(labelled))
    place = 0

    def draw() -> tuple[Tensor, Tensor]:
        nonlocal place
        index = order[place : place + size]
        place = place + size if place + 2 * size <= len(labelled) else 0
        return inputs[index].float() / 255, labels[index]

    return draw
