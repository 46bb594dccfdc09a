"""Every method, end to end: the population engine against plain PyTorch training of one member at a time.

The oracle is the program anyone would write without an engine: ordinary modules, `torch.optim.Adam`, Python loops over
batches and samples, sorting and slicing where the engine ranks and masks, a really unrolled virtual step where it takes
a Jacobian-vector product. It shares with the engine only what draws orders and seeds, and the plan of learning rates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from conftest import blobs, small_mlp
from s2e.data import LabelledData
from s2e.methods import Coteaching, MentorNet, Method, Standard
from s2e.methods.coteaching_plus import CoteachingPlus
from s2e.methods.decoupling import Decoupling
from s2e.methods.forward_correction import ForwardCorrection
from s2e.methods.jocor import JoCoR
from s2e.methods.reweight import Reweight
from s2e.optimizer import learning_plan
from s2e.seeds import derive
from s2e.tasks import Member, Task, Trained
from s2e.training import _batch_order, _clean_order, train_population

EPOCHS, BATCH, CLASSES = 5, 32, 4

CASES: dict[str, Method] = {
    "standard": Standard(),
    "mentornet": MentorNet(),
    "coteaching": Coteaching(),
    "coteaching_plus": CoteachingPlus(warm_up=0),
    "coteaching_plus after 2 epochs": CoteachingPlus(warm_up=2),
    "decoupling": Decoupling(),
    "f_correction": ForwardCorrection(),
    "reweight": Reweight(),
    "jocor": JoCoR(agreement=0.9),
    "jocor that agrees less": JoCoR(agreement=0.3),
}
every_method = pytest.mark.parametrize("method", CASES.values(), ids=CASES)

TRANSITION = np.array(
    [[0.7, 0.3, 0.0, 0.0], [0.0, 0.6, 0.3, 0.1], [0.05, 0.05, 0.8, 0.1], [0.4, 0.0, 0.0, 0.6]]
)  # row = true class, no two alike and not symmetric


# ------------------------------------------------------------------------------------------------------ data, networks


def shared_task(method: Method, **changes: object) -> Task:
    """200 samples, of which an epoch of 6 batches leaves 8 out; 40 clean ones, more than a batch of them."""
    settings = {
        "train": blobs(200, CLASSES),
        "network": small_mlp,
        "evaluate": {},
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "seed": 5,
        "clean": blobs(40, CLASSES, wrong=0.0, seed=2),
    }
    return Task(method=method, **{**settings, **changes})  # type: ignore[arg-type]


def images(samples: int, seed: int) -> LabelledData:
    """Small pictures whose brightest quarter is their class, a third of them mislabelled."""
    generator = np.random.default_rng(seed)
    clean = generator.permutation(np.arange(samples) % CLASSES).astype(np.int64)
    pixels = generator.integers(0, 180, size=(samples, 1, 8, 8))
    for picture, label in zip(pixels[:, 0], clean, strict=True):
        row, column = divmod(int(label), 2)
        picture[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 75
    noisy = np.where(generator.random(samples) < 0.3, (clean + 1) % CLASSES, clean)
    return LabelledData(pixels.astype(np.uint8), noisy, tuple("abcd"), clean_labels=clean)


def clean_images(samples: int, seed: int) -> LabelledData:
    drawn = images(samples, seed)
    return replace(drawn, labels=drawn.clean_labels)


def small_cnn() -> nn.Module:
    # Without a bias before a norm: its gradient is 0 but for rounding, and Adam makes whole steps of that.
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 2, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, CLASSES),
    )


class DrawnScale(nn.Module):
    """Scales each feature by a number drawn once: a buffer that logits depend on and every network has its own of."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", 0.5 + torch.rand(6))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.scale


def mlp_with_buffers() -> nn.Module:
    return nn.Sequential(
        DrawnScale(), nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)
    )


def mlp_with_buffers_and_dropout() -> nn.Module:
    return nn.Sequential(*[*mlp_with_buffers()][:-1], nn.Dropout(0.3), nn.Linear(16, CLASSES))


def twin_mlp() -> nn.Module:
    """The same weights whatever the seed, so that both networks of a pair are one."""
    torch.manual_seed(7)
    return small_mlp()


def member(method: Method | None = None, *, keep: float = 0.6, seed: int = 1, **changes: object) -> Member:
    needs_transition = isinstance(method, ForwardCorrection)
    settings = {"method": method, "transition": TRANSITION if needs_transition else None, **changes}
    return Member(np.linspace(1.0, keep, EPOCHS), seed, **settings)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------- the oracle


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
        torch.manual_seed((derive(one.seed, "network", which) + 0x9E3779B97F4A7C15 * (passes + ahead)) % 2**63)

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


# ------------------------------------------------------------------------------------------------------- what is equal


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
