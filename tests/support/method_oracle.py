"""Plain PyTorch training of one member at a time, for every method: the reference for the population engine.

Ordinary modules, `torch.optim.Adam`, Python loops over batches and samples, sorting and slicing where the engine ranks
and masks, an unrolled virtual step where it computes a Jacobian-vector product. Shared with the engine are the order of
batches, seeds and learning rates only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from s2e.engine.task import Member, Task, Trained
from s2e.engine.training import batch_order, clean_batch_order
from s2e.methods import Coteaching, MentorNet, Method, Standard
from s2e.methods.coteaching_plus import CoteachingPlus
from s2e.methods.decoupling import Decoupling
from s2e.methods.forward_correction import ForwardCorrection
from s2e.methods.jocor import JoCoR
from s2e.methods.reweight import Reweight
from s2e.seeds import derive


@dataclass
class StepInputs:
    """The inputs of one step of plain training."""

    networks: list[nn.Module]
    logits: list[Tensor]  # of each network, (B, C)
    labels: list[int]
    keep_rate: float
    epoch: int
    method: Method
    transition: Tensor | None  # (C, C)
    clean_inputs: Tensor  # (V, ...)
    clean_labels: Tensor  # (V,)
    seed_draws: Callable[[int, int], None]  # (network, number of forward passes after this one)


@dataclass
class Step:
    """The output of a method: the differentiated loss, each network's own loss, the positions it is trained on."""

    differentiated: Tensor
    losses: list[float]
    selected: list[list[int]]


def cross_entropy(logits: Tensor, labels: Sequence[int]) -> list[Tensor]:
    """Loss of every sample, one by one."""
    return [-row.log_softmax(dim=0)[label] for row, label in zip(logits, labels, strict=True)]


def share(rate: float, size: int) -> int:
    """Return the number of samples in a share, at least one; 0.29 · 100 is 29."""
    return max(1, int(round(rate * size, 6)))


def easiest(losses: Sequence[Tensor], among: Sequence[int], count: int) -> list[int]:
    """Sort positions by loss, then by position, and take the first."""
    return sorted(among, key=lambda position: (losses[position].item(), position))[:count]


def mean(losses: Sequence[Tensor], selected: Sequence[int]) -> Tensor:
    return sum((losses[position] for position in selected), torch.zeros(())) / len(selected)


def each_on(losses: Sequence[Sequence[Tensor]], selected: list[list[int]]) -> Step:
    """Train every network on the mean loss of its selected samples; without any the loss is 0 without a gradient."""
    own = [mean(row, chosen) if chosen else torch.zeros(()) for row, chosen in zip(losses, selected, strict=True)]
    return Step(sum(own, torch.zeros(())), [loss.item() for loss in own], selected)


def disagreements(step: StepInputs) -> list[int]:
    first, second = ([int(row.argmax()) for row in logits] for logits in step.logits)
    return [position for position in range(len(step.labels)) if first[position] != second[position]]


def standard(step: StepInputs) -> Step:
    return each_on([cross_entropy(step.logits[0], step.labels)], [list(range(len(step.labels)))])


def mentornet(step: StepInputs) -> Step:
    losses = cross_entropy(step.logits[0], step.labels)
    count = share(step.keep_rate, len(losses))
    return each_on([losses], [easiest(losses, range(len(losses)), count)])


def coteaching(step: StepInputs, among: list[int] | None = None) -> Step:
    losses = [cross_entropy(logits, step.labels) for logits in step.logits]
    among = list(range(len(step.labels))) if among is None else among
    if not among:
        return each_on(losses, [[], []])
    count = share(step.keep_rate, len(among))
    first, second = (easiest(row, among, count) for row in losses)
    return each_on(losses, [second, first])  # each is trained on the selection of its peer


def coteaching_plus(step: StepInputs) -> Step:
    assert isinstance(step.method, CoteachingPlus)
    return coteaching(step, among=None if step.epoch < step.method.warm_up else disagreements(step))


def decoupling(step: StepInputs) -> Step:
    """Σ_D CE / max(0.1·B, |D|) over the disagreements D."""
    differ = disagreements(step)
    floor = max(0.1 * len(step.labels), len(differ))
    own = []
    for logits in step.logits:
        losses = cross_entropy(logits, step.labels)
        own.append(sum((losses[position] for position in differ), torch.zeros(())) / floor)
    return Step(own[0] + own[1], [loss.item() for loss in own], [differ, differ])


def f_correction(step: StepInputs) -> Step:
    """−log Σ_i T[i, y] p_i: the negative log-probability of the given label."""
    assert step.transition is not None
    losses = []
    for row, label in zip(step.logits[0], step.labels, strict=True):
        shares = row.softmax(dim=0)
        given = sum((step.transition[true, label] * shares[true] for true in range(len(shares))), torch.zeros(()))
        losses.append(-given.log())
    return each_on([losses], [list(range(len(losses)))])


def reweight(step: StepInputs) -> Step:
    """Take a virtual step with weights ε = 0, and differentiate the loss of clean samples by ε."""
    (network,) = step.networks
    losses = torch.stack(cross_entropy(step.logits[0], step.labels))  # (B,)
    names, parameters = zip(*network.named_parameters(), strict=True)
    epsilon = torch.zeros(len(losses), requires_grad=True)
    gradients = torch.autograd.grad((epsilon * losses).sum(), parameters, create_graph=True)
    stepped = {
        name: parameter - 0.1 * gradient for name, parameter, gradient in zip(names, parameters, gradients, strict=True)
    }
    copies = {
        name: buffer.clone() for name, buffer in network.named_buffers()
    }  # clean samples do not change statistics
    step.seed_draws(0, 1)
    clean_logits = functional_call(network, {**stepped, **copies}, (step.clean_inputs,))
    clean_loss = functional.cross_entropy(clean_logits, step.clean_labels)
    (by_epsilon,) = torch.autograd.grad(clean_loss, epsilon, retain_graph=True)
    weights = [max(-change, 0.0) for change in by_epsilon.tolist()]
    selected = [position for position, weight in enumerate(weights) if weight > 0]
    if not selected:
        return Step(torch.zeros(()), [0.0], [[]])
    loss = sum((weights[k] / sum(weights) * losses[k] for k in selected), torch.zeros(()))
    return Step(loss, [loss.item()], [selected])


def jocor(step: StepInputs) -> Step:
    """(1−λ)(CE1 + CE2) + λ(KL12 + KL21); both networks are trained on its smallest values."""
    assert isinstance(step.method, JoCoR)
    agreement = step.method.agreement
    supervised = [cross_entropy(logits, step.labels) for logits in step.logits]
    first, second = (logits.log_softmax(dim=1) for logits in step.logits)
    losses = []
    for k in range(len(step.labels)):
        apart = functional.kl_div(first[k], second[k], reduction="sum", log_target=True)
        apart = apart + functional.kl_div(second[k], first[k], reduction="sum", log_target=True)
        losses.append((1 - agreement) * (supervised[0][k] + supervised[1][k]) + agreement * apart)
    selected = easiest(losses, range(len(losses)), share(step.keep_rate, len(losses)))
    joint = mean(losses, selected)
    half = joint.item() / 2  # one loss, half of it for each network
    return Step(joint, [half, half], [selected, selected])


STEPS: dict[type, Callable[[StepInputs], Step]] = {
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
    """The outcome of plain training: networks, the number of steps of each, and means by epoch."""

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
    """Train one member."""
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
        """Seed dropout as the engine does, by the network and its number of forward passes."""
        torch.default_generator.manual_seed(
            (derive(one.seed, "network", which) + 0x9E3779B97F4A7C15 * (passes + ahead)) % 2**63
        )

    def logits(which: int, batch: Tensor) -> Tensor:
        seed_draws(which, 0)
        return networks[which](batch)

    batches = len(given) // shared.batch_size
    for epoch in range(shared.epochs):
        factor = shared.plan.factor(epoch, shared.epochs)
        for optimizer in optimizers:
            optimizer.param_groups[0].update(lr=one.learning_rate * factor)
        order = batch_order(shared, epoch).tolist()
        clean_order = clean_batch_order(shared, shared.clean, epoch, batches).tolist()
        clean_size = len(clean_order) // batches
        losses, kept, precisions = [], [], []
        for batch in range(batches):
            index = order[batch * shared.batch_size : (batch + 1) * shared.batch_size]
            clean_index = clean_order[batch * clean_size : (batch + 1) * clean_size]
            step = STEPS[type(method)](
                StepInputs(
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
            if any(step.selected):
                step.differentiated.backward()
            for which, selected in enumerate(step.selected):
                losses.append(step.losses[which])
                kept.append(len(selected) / len(index))
                if selected:  # otherwise the moments of Adam stay unchanged
                    optimizers[which].step()
                    outcome.steps[which] += 1
                    correct = [given[index[k]] == shared.train.clean_labels[index[k]] for k in selected]
                    precisions.append(sum(correct) / len(selected))
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
    """Compare weights, curves and dynamics of a member in two trainings; without a tolerance, bit for bit."""
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
