"""."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from s2e.engine.batches import scaled
from s2e.engine.stacked_networks import Population
from s2e.engine.task import Task
from s2e.errors import InvalidInput

PREDICTED_ROWS = 1 << 16
"""Samples times networks in one batch of predictions."""


@torch.no_grad()
def predictions(
    task: Task, state: Mapping[str, torch.Tensor], inputs: NDArray[Any] | None = None
) -> NDArray[np.float32]:
    """Return the class probabilities of trained networks, {name: (R, ...)}, for inputs (N, ...), (R, N, C).

    Without inputs, for those that are trained on.
    """
    count = len(next(iter(state.values())))
    population = Population(task.network, [0] * count, task.device, vectorize=task.vectorize)
    population.load(state)
    given = torch.from_numpy(task.train.inputs if inputs is None else inputs)
    parts = [
        population.forward(scaled(part.to(task.device)), training=False).softmax(dim=-1).cpu()
        for part in given.split(max(1, PREDICTED_ROWS // count))
    ]
    return torch.cat(parts, dim=1).numpy()


ROWS_AT_ONCE = 4096
"""Samples in one batch of predictions."""


@dataclass(frozen=True, eq=False)
class Classifier:
    """The networks of one trained member, which predict together.

    Attributes:
        networks: M modules in evaluation mode.
        class_names: C names, in the order of the outputs.
        sample_shape: of one input.
    """

    networks: tuple[nn.Module, ...]
    class_names: tuple[str, ...]
    sample_shape: tuple[int, ...]

    @torch.no_grad()
    def probabilities(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return every network's class probabilities, (M, N, C), of inputs as `LabelledData` holds them."""
        if tuple(inputs.shape[1:]) != self.sample_shape:
            raise InvalidInput(
                f"`inputs` must be samples of shape {self.sample_shape}, as in training, but got {inputs.shape[1:]}."
            )
        parts = [
            torch.stack([network(scaled(part)).softmax(dim=-1) for network in self.networks])
            for part in torch.from_numpy(np.ascontiguousarray(inputs)).split(ROWS_AT_ONCE)
        ]
        together: NDArray[np.float32] = torch.cat(parts, dim=1)[..., : len(self.class_names)].numpy()
        return together
