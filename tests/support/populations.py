"""Trained populations: what is the same in two of them, and networks that are hard to train together."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from s2e.engine import population
from s2e.engine.stacked_networks import Population
from s2e.engine.task import Trained
from s2e.engine.training import Trainer, train_population
from s2e.methods import METHODS
from s2e.studies import loop

ALL_METHODS = list(METHODS.values())


def assert_same(one: Trained, other: Trained, *, exactly: bool = True) -> None:
    assert one.state.keys() == other.state.keys()
    for name, tensor in one.state.items():
        if exactly:
            assert torch.equal(tensor, other.state[name]), name
        else:
            torch.testing.assert_close(tensor, other.state[name], rtol=1e-4, atol=1e-5)
    for name, array in one.curves.arrays().items():
        tolerance = 0 if exactly else 1e-4
        np.testing.assert_allclose(array, other.curves.arrays()[name], rtol=tolerance, atol=tolerance, err_msg=name)


def only(trained: Trained, position: int) -> Trained:
    """One member out of a population."""
    return trained.take([position])


def with_batch_norm_and_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))


def with_batch_norm() -> nn.Module:
    # Without a bias before the norm: its gradient is 0 but for rounding, and Adam makes whole steps of that.
    return nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def with_convolutions() -> nn.Module:
    """A network for samples of six features: stages like those of CIFAR-100's."""
    stages = [(1, 20), (20, 24)]
    layers = [
        nn.Sequential(
            nn.Conv2d(one, other, 3, padding=1, bias=False), nn.BatchNorm2d(other), nn.ReLU(), nn.MaxPool2d(2)
        )
        for one, other in stages
    ]
    return nn.Sequential(nn.Linear(6, 64), nn.Unflatten(1, (1, 8, 8)), *layers, nn.Flatten(), nn.Linear(96, 4))


class Stubborn(nn.Module):
    """A network that looks at its data in Python, which vmap does not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layer(inputs)
        return logits * 1.0 if logits.sum().item() > 0 else logits


def train_by(module, train, patched):
    """Have a function train what a module's trainers train; it takes what `train_population` takes."""

    class Replaced(Trainer):
        def train(self, members, **named):
            return train(self.task, members, **named)

    patched.setattr(module, "Trainer", Replaced)


def train_searches_by(train, patched):
    """Have a function train what searches train."""
    train_by(loop, train, patched)


def tell_before_a_search_trains(told, patched):
    """Have a function told the task and the members whenever a search is about to train some."""

    def train(task, members, **named):
        told(task, members)
        return train_population(task, members, **named)

    train_searches_by(train, patched)


def stopping(at):
    """Stop members after so many epochs, {place: epochs}."""

    def stop(progress):
        return [place for place in progress.indices if at.get(place) == progress.epoch]

    return stop


def trained_with_states(task, members, patched):
    """Train members; return with them the state of all networks after every epoch."""
    built, states = [], []

    class Kept(Population):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            built.append(self)

    patched.setattr(population, "Population", Kept)
    trained = train_population(task, members, on_epoch=lambda _: states.append(built[-1].state()))
    return trained, states
