"""G stacked networks are G networks: each as if it were alone, vectorised or not."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch.nn import functional

from s2e.engine.stacked_networks import Population
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import Standard
from s2e.seeds import derive
from small_tasks import member, small_mlp, task

CPU = torch.device("cpu")
SEEDS = (5, 2**62 + 1, 7)
BOTH = pytest.mark.parametrize("vectorize", [True, False], ids=["vmapped", "looped"])


def with_batch_norm():
    return nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 4))


def small_cnn():
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(6, 4)
    )


class Tied(nn.Module):
    """Decodes with the weight it encodes with."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 6)
        self.decoder = nn.Linear(6, 6)
        self.decoder.weight = self.encoder.weight

    def forward(self, inputs):
        return self.decoder(torch.tanh(self.encoder(inputs)))


class Counting(nn.Module):
    """Has buffers of several kinds, one of them not part of its saved state, and a frozen weight."""

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


class Peeking(nn.Module):
    """Updates its running statistics and only then looks at its data in Python, which vmap does not allow."""

    def __init__(self):
        super().__init__()
        self.layers = with_batch_norm()

    def forward(self, inputs):
        logits = self.layers(inputs)
        return logits * 1.0 if logits.sum().item() > 0 else logits


def alone(factory, seed):
    """The network as anyone would build it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory()


def drawn_inputs(samples=12, seed=0):
    return torch.randn(samples, 6, generator=torch.Generator().manual_seed(seed))


def test_initial_weights_depend_on_the_own_seed_alone():
    together, reversed_order = (Population(with_batch_norm, seeds, CPU) for seeds in (SEEDS, SEEDS[::-1]))
    for row, seed in enumerate(SEEDS):
        single = Population(with_batch_norm, [seed], CPU)
        for name, parameter in alone(with_batch_norm, seed).named_parameters():
            assert torch.equal(together.parameters[name][row], parameter)
            assert torch.equal(reversed_order.parameters[name][len(SEEDS) - 1 - row], parameter)
            assert torch.equal(single.parameters[name][0], parameter)
    assert len(together) == 3
    assert not torch.equal(together.parameters["0.weight"][0], together.parameters["0.weight"][1])


@BOTH
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("factory", [small_mlp, with_batch_norm, small_cnn, Tied, Counting])
def test_forward_equals_each_network_called_alone(factory, training, vectorize):
    population = Population(factory, SEEDS, CPU, vectorize=vectorize)
    modules = [alone(factory, seed).train(training) for seed in SEEDS]
    for step in range(3):
        inputs = drawn_inputs(seed=step)
        logits = population.forward(inputs, training=training)
        expected = torch.stack([module(inputs) for module in modules])
        torch.testing.assert_close(logits, expected)
    state = population.state()
    for row, module in enumerate(modules):  # running statistics and counters too
        for name, buffer in module.named_buffers():
            torch.testing.assert_close(state[name][row], buffer)


@BOTH
def test_the_gradient_of_the_sum_is_everyones_own_gradient(vectorize):
    population = Population(Tied, SEEDS, CPU, vectorize=vectorize)
    inputs = drawn_inputs()
    labels = torch.arange(12) % 6
    losses = torch.stack([functional.cross_entropy(x, labels) for x in population.forward(inputs, training=True)])
    gradients = population.gradients(losses.sum())
    for row, seed in enumerate(SEEDS):
        module = alone(Tied, seed)
        functional.cross_entropy(module(inputs), labels).backward()
        for (name, parameter), gradient in zip(module.named_parameters(), gradients, strict=True):
            torch.testing.assert_close(gradient[row], parameter.grad, msg=name)


@BOTH
def test_batch_norm_keeps_running_statistics_for_each_network(vectorize):
    population = Population(with_batch_norm, SEEDS, CPU, vectorize=vectorize)
    fresh = population.state()
    population.forward(drawn_inputs(), training=False)
    assert torch.equal(population.state()["1.running_mean"], fresh["1.running_mean"])  # evaluation changes nothing
    population.forward(drawn_inputs(), training=True)
    means = population.state()["1.running_mean"]
    assert not torch.equal(means, fresh["1.running_mean"])
    assert not torch.allclose(means[0], means[1])
    assert population.state()["1.num_batches_tracked"].tolist() == [1, 1, 1]


def test_buffers_and_frozen_parameters_are_stacked_but_not_trained():
    population = Population(Counting, SEEDS, CPU)
    assert set(population.parameters) == {"layer.weight", "layer.bias"}
    assert set(population.buffers) == {"frozen", "offset", "calls"}
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in population.parameters.values())
    assert not any(buffer.requires_grad for buffer in population.buffers.values())


def test_training_leaves_frozen_parameters_as_they_were(train_data):
    trained = train_population(task(train_data, Standard(), network=Counting), [member(seed=3), member(seed=4)])
    for row, seed in enumerate((3, 4)):
        module = alone(Counting, derive(seed, "network", 0))
        assert torch.equal(trained.state["frozen"][row], module.frozen)
        assert torch.equal(trained.state["offset"][row], module.offset)
        assert not torch.equal(trained.state["layer.weight"][row], module.layer.weight)
    assert trained.state["calls"].flatten().tolist() == [4 * 6, 4 * 6]  # epochs times batches


def test_tied_weights_are_one_parameter():
    assert set(Population(Tied, SEEDS, CPU).parameters) == {"encoder.weight", "encoder.bias", "decoder.bias"}


def test_state_is_a_detached_copy():
    population = Population(with_batch_norm, SEEDS, CPU)
    state = population.state()
    assert set(state) == {*population.parameters, *population.buffers}
    assert not any(tensor.requires_grad for tensor in state.values())
    for tensor in state.values():
        tensor.fill_(9)
    assert not any((tensor == 9).all() for tensor in population.state().values())


def test_a_state_loads_into_an_ordinary_network():
    population = Population(with_batch_norm, SEEDS, CPU)
    population.forward(drawn_inputs(), training=True)
    logits = population.forward(drawn_inputs(seed=1), training=False)
    module = with_batch_norm().eval()
    module.load_state_dict({name: tensor[1] for name, tensor in population.state().items()})
    torch.testing.assert_close(module(drawn_inputs(seed=1)), logits[1])


@pytest.mark.parametrize("factory", [nn.Identity, lambda: nn.Linear(6, 4).requires_grad_(False)])
def test_a_network_without_trainable_parameters_is_refused(factory):
    with pytest.raises(InvalidInput, match="`network` must have trainable parameters"):
        Population(factory, SEEDS, CPU)


def test_building_leaves_the_callers_random_state_alone():
    before = torch.random.get_rng_state()
    Population(with_batch_norm, SEEDS, CPU)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_dropout_draws_belong_to_the_network_and_the_step():
    def factory():
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 4))

    def drawn(seeds):
        population = Population(factory, seeds, CPU, vectorize=False)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            return [population.forward(torch.ones(8, 6), training=True) for _ in range(2)]

    first, second = drawn(SEEDS)
    assert not torch.equal(first, second)
    for row, seed in enumerate(SEEDS):
        lone_first, lone_second = drawn([seed])
        assert torch.equal(lone_first[0], first[row])
        assert torch.equal(lone_second[0], second[row])


def test_falling_back_to_the_loop_counts_the_first_batch_once(caplog):
    fallen_back, looped = (Population(Peeking, SEEDS, CPU, vectorize=vectorize) for vectorize in (True, False))
    with caplog.at_level(logging.WARNING):
        logits = fallen_back.forward(drawn_inputs(), training=True)
    assert "cannot be vectorised" in caplog.text
    assert not fallen_back.vectorized
    assert torch.equal(logits, looped.forward(drawn_inputs(), training=True))
    for name, tensor in looped.state().items():
        assert torch.equal(fallen_back.state()[name], tensor)


def test_a_cpu_loops_unless_told_otherwise():
    assert not Population(small_mlp, SEEDS, CPU).vectorized
    assert Population(small_mlp, SEEDS, CPU, vectorize=True).vectorized


def test_networks_in_another_memory_format_train_the_same(train_data):
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
