"""Predictions of trained networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from s2e.engine.batches import scaled
from s2e.engine.evaluation import samples_per_batch
from s2e.engine.stacked_networks import StackedNetworks
from s2e.engine.task import Task
from s2e.engine.threads import one_thread_for_operations
from s2e.errors import InvalidInput

SAMPLES_PER_BATCH = 4096
"""Samples in one forward pass of a classifier."""

MOST_PROBABILITIES = 2**24
"""Numbers of an (M, N, C) array of the networks' probabilities of which the mean is computed at a time."""


def parts_of(inputs: NDArray[Any], numbers: int) -> Iterator[NDArray[Any]]:
    """Yield consecutive samples, at least one part, for which not too many probabilities are computed at a time.

    Args:
        inputs: (N, ...).
        numbers: M · C, the probabilities of one sample.
    """
    size = max(1, MOST_PROBABILITIES // numbers)
    if size > SAMPLES_PER_BATCH:  # whole batches: how a product is rounded depends on their size
        size -= size % SAMPLES_PER_BATCH
    for first in range(0, max(1, len(inputs)), size):
        yield inputs[first : first + size]


@torch.no_grad()
def predictions(
    task: Task,
    state: Mapping[str, torch.Tensor],
    inputs: NDArray[Any] | None = None,
    *,
    out: NDArray[np.floating[Any]] | None = None,
) -> NDArray[np.floating[Any]]:
    """Return the class probabilities of R trained networks, (R, N, C), computed on the task's device.

    Args:
        task: its network and device are used.
        state: weights and buffers, {name: (R, ...)}.
        inputs: (N, ...); None for the training inputs of the task.
        out: (R, N, C), array to fill, of any precision; None for a new one of float32. It may have fewer classes than
            the networks, whose last ones are then left out.
    """
    count = len(next(iter(state.values())))
    networks = StackedNetworks(
        task.network, [0] * count, task.device, vectorize=task.vectorize, precision=task.precision
    )
    networks.load(state)
    samples = torch.from_numpy(task.train.inputs if inputs is None else inputs)
    with one_thread_for_operations() if networks.layered else nullcontext():
        first = 0
        for batch in samples.split(samples_per_batch(count, task.device)):
            outputs = networks.forward(scaled(batch.to(task.device)), training=False)
            probabilities = outputs.softmax(dim=-1).cpu().numpy()  # (R, b, C)
            if out is None:
                out = np.empty((count, len(samples), probabilities.shape[2]), dtype=np.float32)
            out[:, first : first + len(batch)] = probabilities[..., : out.shape[2]]
            first += len(batch)
    return np.empty((count, 0, 0), dtype=np.float32) if out is None else out


@dataclass(frozen=True, eq=False)
class Classifier:
    """Trained networks that vote together.

    Attributes:
        networks: M modules in evaluation mode, on the CPU.
        class_names: C names, in the order of the outputs.
        sample_shape: shape of one input.
        weights: M weights of the networks in the vote, which sum to 1; equal ones when None.
    """

    networks: tuple[nn.Module, ...]
    class_names: tuple[str, ...]
    sample_shape: tuple[int, ...]
    weights: tuple[float, ...] | None = None

    def vote(self, inputs: NDArray[Any]) -> NDArray[np.float64]:
        """Return the weighted mean of the class probabilities, (N, C), for inputs (N, ...) uint8 or float32."""
        parts = parts_of(inputs, len(self.networks) * len(self.class_names))
        return np.concatenate([self._mean(self.probabilities(part)) for part in parts])

    def _mean(self, each: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the weighted mean, (N, C), of the probabilities of each network, (M, N, C)."""
        if self.weights is None:
            return np.asarray(each.mean(axis=0, dtype=np.float64))
        return np.asarray(np.tensordot(np.array(self.weights), each, axes=1))

    @torch.no_grad()
    def probabilities(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the class probabilities of each network, (M, N, C), for inputs (N, ...) uint8 or float32."""
        if tuple(inputs.shape[1:]) != self.sample_shape:
            raise InvalidInput(
                f"`inputs` must be samples of shape {self.sample_shape}, as in training, but got {inputs.shape[1:]}."
            )
        batches = [
            torch.stack([network(scaled(batch)).softmax(dim=-1) for network in self.networks])
            for batch in torch.from_numpy(np.ascontiguousarray(inputs)).split(SAMPLES_PER_BATCH)
        ]
        probabilities: NDArray[np.float32] = torch.cat(batches, dim=1)[..., : len(self.class_names)].numpy()
        return probabilities
