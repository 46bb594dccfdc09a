"""G stacked networks equal G separate networks, vectorised or not."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from populations import DataDependent
from s2e.engine.stacked_networks import BestEpochs, StackedNetworks
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import Standard
from s2e.seeds import derive
from small_tasks import member, small_mlp, task

CPU = torch.device("cpu")
SEEDS = (5, 2**62 + 1, 7)
BOTH = pytest.mark.parametrize("vectorize", [True, False], ids=["vectorized", "looped"])


def with_batch_norm():
    return nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 4))


def small_cnn():
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(6, 4)
    )


class Tied(nn.Module):
    """Uses one weight in two layers."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 6)
        self.decoder = nn.Linear(6, 6)
        self.decoder.weight = self.encoder.weight

    def forward(self, inputs):
        return self.decoder(torch.tanh(self.encoder(inputs)))


class Counting(nn.Module):
    """Has a frozen weight and buffers, one of which is not in its state dict."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.register_buffer("offset", torch.randn(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, inputs):
        if self.training:
            self.calls.add_(1)
        return self.layer(inputs) + self.frozen + self.offset


def alone(factory, seed):
    """One network in plain PyTorch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory()


def random_inputs(samples=12, seed=0):
    return torch.randn(samples, 6, generator=torch.Generator().manual_seed(seed))


def test_initial_weights_depend_on_the_own_seed_only():
    together, reversed_order = (StackedNetworks(with_batch_norm, seeds, CPU) for seeds in (SEEDS, SEEDS[::-1]))
    for row, seed in enumerate(SEEDS):
        single = StackedNetworks(with_batch_norm, [seed], CPU)
        for name, parameter in alone(with_batch_norm, seed).named_parameters():
            assert torch.equal(together.parameters[name][row], parameter)
            assert torch.equal(reversed_order.parameters[name][len(SEEDS) - 1 - row], parameter)
            assert torch.equal(single.parameters[name][0], parameter)
    assert len(together) == 3
    assert not torch.equal(together.parameters["0.weight"][0], together.parameters["0.weight"][1])


@BOTH
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("factory", [small_cnn, Tied, Counting])
def test_forward_equals_separate_networks(factory, training, vectorize):
    networks = StackedNetworks(factory, SEEDS, CPU, vectorize=vectorize)
    modules = [alone(factory, seed).train(training) for seed in SEEDS]
    for step in range(3):
        inputs = random_inputs(seed=step)
        logits = networks.forward(inputs, training=training)
        expected = torch.stack([module(inputs) for module in modules])
        torch.testing.assert_close(logits, expected)
    state = networks.state()
    for row, module in enumerate(modules):  # running statistics and counters too
        for name, buffer in module.named_buffers():
            torch.testing.assert_close(state[name][row], buffer)


@BOTH
def test_gradients_equal_those_of_separate_networks(vectorize):
    networks = StackedNetworks(Tied, SEEDS, CPU, vectorize=vectorize)
    inputs = random_inputs()
    labels = torch.arange(12) % 6
    losses = torch.stack([functional.cross_entropy(x, labels) for x in networks.forward(inputs, training=True)])
    gradients = networks.gradients(losses.sum())
    for row, seed in enumerate(SEEDS):
        module = alone(Tied, seed)
        functional.cross_entropy(module(inputs), labels).backward()
        for (name, parameter), gradient in zip(module.named_parameters(), gradients, strict=True):
            torch.testing.assert_close(gradient[row], parameter.grad, msg=name)


@BOTH
def test_running_statistics_are_per_network_and_change_in_training_only(vectorize):
    networks = StackedNetworks(with_batch_norm, SEEDS, CPU, vectorize=vectorize)
    fresh = networks.state()
    networks.forward(random_inputs(), training=False)
    assert torch.equal(networks.state()["1.running_mean"], fresh["1.running_mean"])
    networks.forward(random_inputs(), training=True)
    means = networks.state()["1.running_mean"]
    assert not torch.equal(means, fresh["1.running_mean"])
    assert not torch.allclose(means[0], means[1])
    assert networks.state()["1.num_batches_tracked"].tolist() == [1, 1, 1]


def test_buffers_and_frozen_parameters_are_stacked_but_not_trained():
    networks = StackedNetworks(Counting, SEEDS, CPU)
    assert set(networks.parameters) == {"layer.weight", "layer.bias"}
    assert set(networks.buffers) == {"frozen", "offset", "calls"}
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in networks.parameters.values())
    assert not any(buffer.requires_grad for buffer in networks.buffers.values())


def test_frozen_parameters_are_not_trained(train_data):
    trained = train_population(task(train_data, Standard(), network=Counting), [member(seed=3), member(seed=4)])
    for row, seed in enumerate((3, 4)):
        module = alone(Counting, derive(seed, "network", 0))
        assert torch.equal(trained.state["frozen"][row], module.frozen)
        assert torch.equal(trained.state["offset"][row], module.offset)
        assert not torch.equal(trained.state["layer.weight"][row], module.layer.weight)
    assert trained.state["calls"].flatten().tolist() == [4 * 6, 4 * 6]  # epochs times batches


def test_tied_weights_are_one_parameter():
    assert set(StackedNetworks(Tied, SEEDS, CPU).parameters) == {"encoder.weight", "encoder.bias", "decoder.bias"}


def test_state_is_a_detached_copy():
    networks = StackedNetworks(with_batch_norm, SEEDS, CPU)
    state = networks.state()
    assert set(state) == {*networks.parameters, *networks.buffers}
    assert not any(tensor.requires_grad for tensor in state.values())
    for tensor in state.values():
        tensor.fill_(9)
    assert not any((tensor == 9).all() for tensor in networks.state().values())


def test_state_loads_into_a_module():
    networks = StackedNetworks(with_batch_norm, SEEDS, CPU)
    networks.forward(random_inputs(), training=True)
    logits = networks.forward(random_inputs(seed=1), training=False)
    module = with_batch_norm().eval()
    module.load_state_dict({name: tensor[1] for name, tensor in networks.state().items()})
    torch.testing.assert_close(module(random_inputs(seed=1)), logits[1])


@pytest.mark.parametrize("factory", [nn.Identity, lambda: nn.Linear(6, 4).requires_grad_(False)])
def test_network_without_trainable_parameters(factory):
    with pytest.raises(InvalidInput, match="`network` must have trainable parameters"):
        StackedNetworks(factory, SEEDS, CPU)


def test_random_state_of_the_caller_is_kept():
    before = torch.random.get_rng_state()
    StackedNetworks(with_batch_norm, SEEDS, CPU)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_dropout_depends_on_network_and_step_only():
    def factory():
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 4))

    def drawn(seeds):
        networks = StackedNetworks(factory, seeds, CPU, vectorize=False)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            return [networks.forward(torch.ones(8, 6), training=True) for _ in range(2)]

    first, second = drawn(SEEDS)
    assert not torch.equal(first, second)
    for row, seed in enumerate(SEEDS):
        lone_first, lone_second = drawn([seed])
        assert torch.equal(lone_first[0], first[row])
        assert torch.equal(lone_second[0], second[row])


def test_fallback_to_the_loop_updates_buffers_once(caplog):
    fallen_back, looped = (
        StackedNetworks(DataDependent, SEEDS, CPU, vectorize=vectorize) for vectorize in (True, False)
    )
    with caplog.at_level(logging.WARNING):
        logits = fallen_back.forward(random_inputs(), training=True)
    assert "cannot be vectorised" in caplog.text
    assert not fallen_back.vectorized
    assert torch.equal(logits, looped.forward(random_inputs(), training=True))
    for name, tensor in looped.state().items():
        assert torch.equal(fallen_back.state()[name], tensor)


def test_cpu_vectorizes_sequences_of_common_layers_by_default():
    assert StackedNetworks(small_mlp, SEEDS, CPU).vectorized
    assert not StackedNetworks(small_cnn, SEEDS, CPU).vectorized
    assert not StackedNetworks(small_mlp, SEEDS, CPU, vectorize=False).vectorized
    assert StackedNetworks(small_cnn, SEEDS, CPU, vectorize=True).vectorized


def test_memory_format_does_not_matter(train_data):
    def in_format(memory_format):
        def factory():
            return nn.Sequential(nn.Unflatten(1, (3, 1, 2)), nn.Conv2d(3, 4, (1, 2)), nn.Flatten(), nn.Linear(4, 4)).to(
                memory_format=memory_format
            )

        return factory

    plain, channels_last = (
        train_population(task(train_data, Standard(), network=in_format(memory_format)), [member(seed=1)])
        for memory_format in (torch.contiguous_format, torch.channels_last)
    )
    for name, tensor in plain.state.items():
        torch.testing.assert_close(channels_last.state[name], tensor, rtol=1e-4, atol=1e-5)


# Best epochs


def updated(networks, best, scores_of_epochs):
    """Change all weights before each update; return the states."""
    states = []
    for scores in scores_of_epochs:
        for tensor in networks.tensors().values():
            tensor.data += 1
        states.append(networks.state())
        best.update(np.array(scores))
    return states


def test_best_epochs_keep_the_networks_of_a_member_together():
    networks = StackedNetworks(with_batch_norm, [0, 1, 2], CPU)
    best, nan = BestEpochs(networks, [2, 1]), float("nan")
    scores = [[0.5, 0.1], [0.4, 0.3], [0.5, 0.2], [0.7, 0.3], [nan, nan], [0.6, 0.31]]
    states = updated(networks, best, scores)
    for name, tensor in best.state().items():
        assert torch.equal(tensor[:2], states[3][name][:2]), name
        assert torch.equal(tensor[2], states[5][name][2]), name


def test_best_epoch_of_equal_scores_is_the_first():
    networks = StackedNetworks(small_mlp, [0], CPU)
    best = BestEpochs(networks, [1])
    first, _ = updated(networks, best, [[0.0], [0.0]])  # a score of 0 is better than none
    for name, tensor in best.state().items():
        assert torch.equal(tensor, first[name]), name
