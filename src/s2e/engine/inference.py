"""Predictions of trained networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from s2e.engine.batches import scaled
from s2e.engine.evaluation import ROWS_PER_BATCH
from s2e.engine.stacked_networks import StackedNetworks
from s2e.engine.task import Task
from s2e.errors import InvalidInput

SAMPLES_PER_BATCH = 4096
"""Samples in one forward pass of a classifier."""


@torch.no_grad()
def predictions(
    task: Task, state: Mapping[str, torch.Tensor], inputs: NDArray[Any] | None = None
) -> NDArray[np.float32]:
    """Return the class probabilities of R trained networks, (R, N, C), computed on the task's device.

    Args:
        task: its network and device are used.
        state: weights and buffers, {name: (R, ...)}.
        inputs: (N, ...); None for the training inputs of the task.
    """
    count = len(next(iter(state.values())))
    networks = StackedNetworks(task.network, [0] * count, task.device, vectorize=task.vectorize)
    networks.load(state)
    samples = torch.from_numpy(task.train.inputs if inputs is None else inputs)
    probabilities = [
        networks.forward(scaled(batch.to(task.device)), training=False).softmax(dim=-1).cpu()
        for batch in samples.split(max(1, ROWS_PER_BATCH // count))
    ]
    return torch.cat(probabilities, dim=1).numpy()


@dataclass(frozen=True, eq=False)
class Classifier:
    """The networks of one trained member.

    Attributes:
        networks: M modules in evaluation mode, on the CPU.
        class_names: C names, in the order of the outputs.
        sample_shape: shape of one input.
    """

    networks: tuple[nn.Module, ...]
    class_names: tuple[str, ...]
    sample_shape: tuple[int, ...]

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
