"""What users may bring: modules, an optimizer and an augmentation, for tests on every device."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from s2e.data.samples import LabelledData
from small_tasks import blobs

WORDS = 12
"""Size of the vocabulary of `sentences`."""


def sentences(samples: int = 192) -> LabelledData:
    """Six token numbers in a sample, as float32, the only type besides pixels that data may have."""
    points = blobs(samples)
    tokens = np.clip(np.round(points.inputs + WORDS / 2), 0, WORDS - 1)
    return LabelledData(tokens, points.labels, points.class_names, clean_labels=points.clean_labels)


class Embedded(nn.Module):
    """Looks up a vector for each token, and classifies their outcome in another module, (B, 6, 8) to (B, 6, 8)."""

    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.middle = middle
        self.last = nn.Linear(8, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outcome = self.middle(self.embedding(inputs.long()))
        logits: torch.Tensor = self.last((outcome[0] if isinstance(outcome, tuple) else outcome).mean(dim=1))
        return logits


class SelfAttention(nn.Module):
    """Attention with a learnt position of each token, written with `scaled_dot_product_attention`."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(6, 8) / math.sqrt(8))
        self.project = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(self.norm(vectors + self.position)).chunk(3, dim=-1)
        return vectors + nn.functional.scaled_dot_product_attention(query, key, value)


def bag_of_words() -> nn.Module:
    return Embedded(nn.Identity())


def attention() -> nn.Module:
    return Embedded(SelfAttention())


@dataclass(frozen=True)
class SignDescent:
    """A user's optimizer: a step of the learning rate against the sign of every gradient."""

    state_tensors = 0

    def build(self, parameters, learning_rates, device):
        return StackedSignDescent(parameters, torch.tensor(learning_rates, device=device))


class StackedSignDescent:
    def __init__(self, parameters, rates):
        self._parameters, self._rates, self._scaled = [one.detach() for one in parameters], rates, rates.clone()

    def update(self, gradients, active=None):
        for parameter, rows in zip(self._parameters, gradients, strict=True):
            gradient = rows if isinstance(rows, torch.Tensor) else torch.stack(rows)
            moving = self._scaled if active is None else torch.where(active, self._scaled, 0.0)
            parameter.sub_(moving.view(-1, *[1] * (parameter.ndim - 1)) * gradient.sign())

    def scale_learning_rates(self, factor):
        self._scaled.copy_(factor * self._rates)

    def reset(self):
        pass

    def take(self, rows, parameters):
        taken = StackedSignDescent(parameters, self._rates[list(rows)])
        taken._scaled.copy_(self._scaled[list(rows)])
        return taken


@dataclass(frozen=True)
class Rotate:
    """A user's augmentation: channels rotated by a random number of positions."""

    def draw(self, count, shape, generator):
        return torch.randint(shape[0], (count, 1), generator=generator)

    def apply(self, inputs, draws):
        channels = (torch.arange(inputs.shape[1], device=inputs.device) + draws) % inputs.shape[1]  # (B, channels)
        return inputs.gather(1, channels[:, :, None, None].expand_as(inputs))
