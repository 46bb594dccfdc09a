"""Comparisons of trained populations, networks that are hard to stack, and replacements of trainers."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from s2e.engine import population
from s2e.engine.stacked_networks import StackedNetworks
from s2e.engine.task import Trained
from s2e.engine.training import Trainer, train_population
from s2e.methods import METHODS

ALL_METHODS = list(METHODS.values())


def assert_same(one: Trained, other: Trained, *, exactly: bool = True) -> None:
    """Compare states, best states, curves and dynamics: to the bit, or the first three to a tolerance."""
    for name, tensor in _tensors(one).items():
        if exactly:
            assert torch.equal(tensor, _tensors(other)[name]), name
        else:
            torch.testing.assert_close(tensor, _tensors(other)[name], rtol=1e-4, atol=1e-5)
    assert _tensors(one).keys() == _tensors(other).keys()
    tolerance = 0 if exactly else 1e-4
    for name, array in one.curves.arrays().items():
        np.testing.assert_allclose(array, other.curves.arrays()[name], rtol=tolerance, atol=tolerance, err_msg=name)
    if exactly:
        for name in ("kept", "agreed", "loss"):
            np.testing.assert_array_equal(getattr(one.dynamics, name), getattr(other.dynamics, name), err_msg=name)


def _tensors(trained: Trained) -> dict[str, torch.Tensor]:
    return {**trained.state, **{f"best {name}": tensor for name, tensor in (trained.best_state or {}).items()}}


def with_batch_norm_and_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))


def with_batch_norm() -> nn.Module:
    # Without a bias before the norm: its gradient is 0 up to rounding, which Adam turns into full steps.
    return nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def with_convolutions() -> nn.Module:
    """A network for samples of six features, with stages like those of the CIFAR-100 network."""
    stages = [
        nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
        )
        for inputs, outputs in [(1, 20), (20, 24)]
    ]
    return nn.Sequential(nn.Linear(6, 64), nn.Unflatten(1, (1, 8, 8)), *stages, nn.Flatten(), nn.Linear(96, 4))


def with_strides() -> nn.Module:
    """A network for samples of six features, with the kinds of convolutions of a ResNet."""
    stages = [
        nn.Conv2d(1, 20, 3, padding=1, bias=False),
        nn.BatchNorm2d(20),
        nn.ReLU(),
        nn.Conv2d(20, 24, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.Conv2d(24, 32, 1, stride=2, bias=False),
    ]
    return nn.Sequential(nn.Linear(6, 64), nn.Unflatten(1, (1, 8, 8)), *stages, nn.Flatten(), nn.Linear(128, 4))


class DataDependent(nn.Module):
    """Branches in Python on its data, which neither vmap nor a CUDA graph supports, after updating buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = with_batch_norm()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(inputs)
        return logits * 1.0 if logits.sum().item() > 0 else logits


def stop_after(epochs):
    """A `stop` that stops members after a number of epochs, {index: epochs}."""

    def stop(progress):
        return [index for index in progress.indices if epochs.get(index) == progress.epoch]

    return stop


def train_with_states(task, members, monkeypatch):
    """Train members; return their outcome and the state of all networks after every epoch."""
    created, states = [], []

    class Tracked(StackedNetworks):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            created.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(population, "StackedNetworks", Tracked)
        trained = train_population(task, members, on_epoch=lambda _: states.append(created[-1].state()))
    return trained, states


def replace_trainer(module, train, monkeypatch):
    """Replace the trainers of a module by a function with the signature of `train_population`."""

    class Replaced(Trainer):
        def train(self, members, **named):
            return train(self.task, members, **named)

    monkeypatch.setattr(module, "Trainer", Replaced)


def replace_search_trainer(train, monkeypatch):
    """Replace the trainers of searches by a function with the signature of `train_population`."""
    from s2e.studies import loop  # here, since tests of the engine need no studies

    replace_trainer(loop, train, monkeypatch)


def call_before_search_training(callback, monkeypatch):
    """Call a function with the task and the members before each training of a search."""

    def train(task, members, **named):
        callback(task, members)
        return train_population(task, members, **named)

    replace_search_trainer(train, monkeypatch)
