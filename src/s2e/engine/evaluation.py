"""How often networks are right on a data set, measured after every epoch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s2e.data.samples import LabelledData
from s2e.engine.batches import scaled
from s2e.engine.cuda_graphs import Replayed
from s2e.engine.stacked_networks import Population

ROWS_AT_ONCE = 1 << 16
"""Samples times networks in one batch."""


@dataclass(frozen=True)
class EvaluationSet:
    """A data set on the device, with the labels that predictions are judged by."""

    inputs: Tensor
    labels: Tensor

    @classmethod
    def of(cls, data: LabelledData, device: torch.device) -> EvaluationSet:
        """Put it there."""
        return cls(torch.from_numpy(data.inputs).to(device), torch.from_numpy(data.labels).to(device))


class Evaluation:
    """The accuracy of every network of a population on a data set.

    Args:
        population: G networks.
        judged: the data set.
        use_graph: replay the measurement as a CUDA graph where the device can.
    """

    def __init__(self, population: Population, judged: EvaluationSet, *, use_graph: bool) -> None:
        self._population, self._judged = population, judged
        self._right = torch.zeros(len(population), dtype=torch.float64, device=judged.labels.device)
        captured = use_graph and judged.labels.is_cuda
        self._measure = Replayed(self._measure_once) if captured else self._measure_once

    def accuracy(self) -> Tensor:
        """Measure the share of right predictions of every network as it is now, (G,), on the device."""
        self._measure()
        return self._right / len(self._judged.labels)

    @torch.no_grad()
    def _measure_once(self) -> None:
        self._right.zero_()
        size = max(1, ROWS_AT_ONCE // len(self._population))
        for inputs, labels in zip(self._judged.inputs.split(size), self._judged.labels.split(size), strict=True):
            predicted = self._population.forward(scaled(inputs), training=False).argmax(dim=-1)  # (G, B)
            self._right += (predicted == labels).sum(dim=-1)
