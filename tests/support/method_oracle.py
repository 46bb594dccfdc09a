"""The program anyone would write without an engine, for every method: one member at a time in plain PyTorch.

Ordinary modules, `torch.optim.Adam`, Python loops over batches and samples, sorting and slicing where the engine ranks
and masks, a really unrolled virtual step where it takes a Jacobian-vector product. It shares with the engine only what
draws orders and seeds, and the plan of learning rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from s2e.engine.optimizers import learning_plan
from s2e.engine.task import Member, Task, Trained
from s2e.engine.training import _batch_order, _clean_order
from s2e.methods import Coteaching, MentorNet, Method, Standard
from s2e.methods.coteaching_plus import CoteachingPlus
from s2e.methods.decoupling import Decoupling
from s2e.methods.forward_correction import ForwardCorrection
from s2e.methods.jocor import JoCoR
from s2e.methods.reweight import Reweight
from s2e.seeds import derive


@dataclass
class Seen:
    """What one step of plain training has before it: the networks' logits of a batch, and all there is to know."""

    networks: list[nn.Module]
    logits: list[Tensor]  # of each network, (B, C)
    labels: list[int]
    keep_rate: float
    epoch: int
    method: Method
    transition: Tensor | None  # (C, C)
    clean_inputs: Tensor  # (V, ...)
    clean_labels: Tensor  # (V,)
    seed_draws: Callable[[int, int], None]  # of a network, for so many passes after this one


@dataclass
class Step:
    """What a method makes of it: what is differentiated, each network's own loss, the positions it is trained on."""

    differentiated: Tensor
    losses: list[float]
    picks: list[list[int]]


def cross_entropy(logits: Tensor, labels: Sequence[int]) -> list[Tensor]:
    """Loss of every sample, one by one."""
    return [-row.log_softmax(dim=0)[label] for row, label in zip(logits, labels, strict=True)]


def share(rate: float, size: int) -> int:
    """Whole samples in a share of so many, at least one; a product such as 0.29 · 100 is meant as 29."""
    return max(1, int(round(rate * size, 6)))


def easiest(losses: Sequence[Tensor], among: Sequence[int], count: int) -> list[int]:
    """Sort positions by loss, then by place, and take the first."""
    return sorted(among, key=lambda position: (losses[position].item(), position))[:count]


def mean(losses: Sequence[Tensor], picks: Sequence[int]) -> Tensor:
    return sum((losses[position] for position in picks), torch.zeros(())) / len(picks)


def each_on(losses: Sequence[Sequence[Tensor]], picks: list[list[int]]) -> Step:
    """Every network on the mean loss over its picks; on none, its loss is 0 and has no gradient."""
    own = [mean(row, chosen) if chosen else torch.zeros(()) for row, chosen in zip(losses, picks, strict=True)]
    return Step(sum(own, torch.zeros(())), [loss.item() for loss in own], picks)


def disagreements(seen: Seen) -> list[int]:
    first, second = ([int(row.argmax()) for row in logits] for logits in seen.logits)
    return [position for position in range(len(seen.labels)) if first[position] != second[position]]


def standard(seen: Seen) -> Step:
    return each_on([cross_entropy(seen.logits[0], seen.labels)], [list(range(len(seen.labels)))])


def mentornet(seen: Seen) -> Step:
    losses = cross_entropy(seen.logits[0], seen.labels)
    count = share(seen.keep_rate, len(losses))
    return each_on([losses], [easiest(losses, range(len(losses)), count)])


def coteaching(seen: Seen, among: list[int] | None = None) -> Step:
    losses = [cross_entropy(logits, seen.labels) for logits in seen.logits]
    among = list(range(len(seen.labels))) if among is None else among
    if not among:
        return each_on(losses, [[], []])
    count = share(seen.keep_rate, len(among))
    first, second = (easiest(row, among, count) for row in losses)
    return each_on(losses, [second, first])  # each is trained on what the other finds easy


def coteaching_plus(seen: Seen) -> Step:
    assert isinstance(seen.method, CoteachingPlus)
    return coteaching(seen, among=None if seen.epoch < seen.method.warm_up else disagreements(seen))


def decoupling(seen: Seen) -> Step:
    """Σ_differ CE / max(0.1·B, how many differ)."""
    differ = disagreements(seen)
    floor = max(0.1 * len(seen.labels), len(differ))
    own = []
    for logits in seen.logits:
        losses = cross_entropy(logits, seen.labels)
        own.append(sum((losses[position] for position in differ), torch.zeros(())) / floor)
    return Step(own[0] + own[1], [loss.item() for loss in own], [differ, differ])


def f_correction(seen: Seen) -> Step:
    """−log Σ_i T[i, y] p_i: the probability of the given label, whatever the true class."""
    assert seen.transition is not None
    losses = []
    for row, label in zip(seen.logits[0], seen.labels, strict=True):
        shares = row.softmax(dim=0)
        given = sum((seen.transition[true, label] * shares[true] for true in range(len(shares))), torch.zeros(()))
        losses.append(-given.log())
    return each_on([losses], [list(range(len(losses)))])


def reweight(seen: Seen) -> Step:
    """Take a virtual step with weights ε = 0 and ask by how much each ε_i would lower the loss of clean samples."""
    (network,) = seen.networks
    losses = torch.stack(cross_entropy(seen.logits[0], seen.labels))  # (B,)
    names, parameters = zip(*network.named_parameters(), strict=True)
    epsilon = torch.zeros(len(losses), requires_grad=True)
    gradients = torch.autograd.grad((epsilon * losses).sum(), parameters, create_graph=True)
    stepped = {
        name: parameter - 0.1 * gradient for name, parameter, gradient in zip(names, parameters, gradients, strict=True)
    }
    copies = {name: buffer.clone() for name, buffer in network.named_buffers()}  # clean samples move no statistics
    seen.seed_draws(0, 1)
    clean_logits = functional_call(network, {**stepped, **copies}, (seen.clean_inputs,))
    clean_loss = functional.cross_entropy(clean_logits, seen.clean_labels)
    (by_epsilon,) = torch.autograd.grad(clean_loss, epsilon, retain_graph=True)
    weights = [max(-change, 0.0) for change in by_epsilon.tolist()]
    picks = [position for position, weight in enumerate(weights) if weight > 0]
    if not picks:
        return Step(torch.zeros(()), [0.0], [[]])
    loss = sum((weights[k] / sum(weights) * losses[k] for k in picks), torch.zeros(()))
    return Step(loss, [loss.item()], [picks])


def jocor(seen: Seen) -> Step:
    """(1−λ)(CE1 + CE2) + λ(KL12 + KL21), and the samples for which this is small are everyone's."""
    assert isinstance(seen.method, JoCoR)
    agreement = seen.method.agreement
    supervised = [cross_entropy(logits, seen.labels) for logits in seen.logits]
    first, second = (logits.log_softmax(dim=1) for logits in seen.logits)
    losses = []
    for k in range(len(seen.labels)):
        apart = functional.kl_div(first[k], second[k], reduction="sum", log_target=True)
        apart = apart + functional.kl_div(second[k], first[k], reduction="sum", log_target=True)
        losses.append((1 - agreement) * (supervised[0][k] + supervised[1][k]) + agreement * apart)
    picks = easiest(losses, range(len(losses)), share(seen.keep_rate, len(losses)))
    joint = mean(losses, picks)
    return Step(joint, [joint.item() / 2, joint.item() / 2], [picks, picks])  # one loss, half of it booked to each


STEPS: dict[type, Callable[[Seen], Step]] = {
    Standard: standard,
    MentorNet: mentornet,
    Coteaching: coteaching,
    CoteachingPlus: coteaching_plus,
    Decoupling: decoupling,
    ForwardCorrection: f_correction,
    Reweight: reweight,
    JoCoR: jocor,
}
PAIRS = (Coteaching, CoteachingPlus, Decoupling, JoCoR)


@dataclass
class Plain:
    """What plain training leaves behind: networks, how often each was stepped, and means by epoch."""

    networks: list[nn.Module]
    steps: list[int]
    loss: list[float]
    kept: list[float]
    label_precision: list[float]


def as_floats(inputs: np.ndarray) -> Tensor:
    tensor = torch.from_numpy(inputs)
    return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor


@torch.random.fork_rng(devices=[])
def plain_training(shared: Task, one: Member) -> Plain:
    """Train one member: the loop of any tutorial."""
    method = one.method if one.method is not None else shared.method
    networks, optimizers = [], []
    for which in range(2 if isinstance(method, PAIRS) else 1):
        torch.manual_seed(derive(one.seed, "network", which))
        networks.append(shared.network())
        optimizers.append(torch.optim.Adam(networks[-1].parameters(), lr=one.learning_rate))
    inputs, given = as_floats(shared.train.inputs), shared.train.labels if one.labels is None else one.labels
    outcome = Plain(networks, [0 for _ in networks], [], [], [])
    passes = 0

    def seed_draws(which: int, ahead: int) -> None:
        """Make dropout draw what it draws in the engine: by the network and its passes over batches so far."""
        torch.default_generator.manual_seed(
            (derive(one.seed, "network", which) + 0x9E3779B97F4A7C15 * (passes + ahead)) % 2**63
        )

    def logits(which: int, batch: Tensor) -> Tensor:
        seed_draws(which, 0)
        return networks[which](batch)

    batches = len(given) // shared.batch_size
    for epoch in range(shared.epochs):
        factor, beta1 = learning_plan(epoch, shared.epochs)
        for optimizer in optimizers:
            optimizer.param_groups[0].update(lr=one.learning_rate * factor, betas=(beta1, 0.999))
        order = _batch_order(shared, epoch).tolist()
        clean_order = _clean_order(shared, shared.clean, epoch, batches).tolist()
        clean_size = len(clean_order) // batches
        losses, kept, precisions = [], [], []
        for batch in range(batches):
            index = order[batch * shared.batch_size : (batch + 1) * shared.batch_size]
            clean_index = clean_order[batch * clean_size : (batch + 1) * clean_size]
            step = STEPS[type(method)](
                Seen(
                    networks,
                    [logits(which, inputs[index]) for which in range(len(networks))],
                    given[index].tolist(),
                    float(one.schedule[epoch]),
                    epoch,
                    method,
                    None if one.transition is None else torch.tensor(one.transition, dtype=torch.float32),
                    as_floats(shared.clean.inputs)[clean_index],
                    torch.from_numpy(shared.clean.labels)[clean_index],
                    seed_draws,
                )
            )
            passes += 1
            for optimizer in optimizers:
                optimizer.zero_grad()
            if any(step.picks):
                step.differentiated.backward()
            for which, picks in enumerate(step.picks):
                losses.append(step.losses[which])
                kept.append(len(picks) / len(index))
                if picks:  # otherwise not even the moments of Adam move
                    optimizers[which].step()
                    outcome.steps[which] += 1
                    right = [given[index[k]] == shared.train.clean_labels[index[k]] for k in picks]
                    precisions.append(sum(right) / len(picks))
        outcome.loss.append(float(np.mean(losses)))
        outcome.kept.append(float(np.mean(kept)))
        outcome.label_precision.append(float(np.mean(precisions)) if precisions else float("nan"))
    return outcome


def states(trained: Trained, position: int) -> list[dict[str, Tensor]]:
    """Weights and buffers of each network of a member."""
    rows = range(*trained.rows(position).indices(len(next(iter(trained.state.values())))))
    return [{name: tensor[row] for name, tensor in trained.state.items()} for row in rows]


def assert_equals_plain(trained: Trained, position: int, plain: Plain) -> None:
    own = states(trained, position)
    assert len(own) == len(plain.networks)
    for state, network in zip(own, plain.networks, strict=True):
        expected = network.state_dict()
        assert state.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-5, atol=1e-6, msg=lambda text, n=name: n + text)
    for name in ("loss", "kept", "label_precision"):
        curve = getattr(trained.curves, name)[position]
        np.testing.assert_allclose(curve, getattr(plain, name), rtol=1e-5, atol=1e-5, err_msg=name)
    assert not trained.curves.diverged[position]


def assert_same_member(one: Trained, position: int, other: Trained, there: int, tolerance: float = 0.0) -> None:
    """Weights, curves and dynamics of a member here and there; without a tolerance, to the last bit."""
    for here, elsewhere in zip(states(one, position), states(other, there), strict=True):
        for name, tensor in here.items():
            if tolerance == 0:
                assert torch.equal(tensor, elsewhere[name]), name
            else:
                torch.testing.assert_close(tensor, elsewhere[name], rtol=tolerance, atol=tolerance / 10)
    curves, curves_there = one.curves.arrays(), other.curves.arrays()
    for name, curve in curves.items():
        np.testing.assert_allclose(
            curve[position], curves_there[name][there], rtol=tolerance, atol=tolerance, err_msg=name
        )
    for name in ("kept", "agreed", "loss"):
        np.testing.assert_allclose(
            getattr(one.dynamics, name)[position],
            getattr(other.dynamics, name)[there],
            rtol=tolerance,
            atol=tolerance,
            err_msg=name,
        )


@torch.random.fork_rng(devices=[])
def untrained(shared: Task, one: Member, which: int) -> dict[str, Tensor]:
    torch.manual_seed(derive(one.seed, "network", which))
    return shared.network().state_dict()
