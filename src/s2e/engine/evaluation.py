"""Accuracy, or another score, of networks on data sets, measured after every epoch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s2e.data import LabelledData
from s2e.engine.batches import scaled
from s2e.engine.cuda_graphs import CapturedFunction
from s2e.engine.scores import ACCURACY, score_of
from s2e.engine.stacked_networks import StackedNetworks

ROWS_PER_BATCH = 1 << 16
"""Samples times networks in one forward pass without gradients, on an accelerator."""
SAMPLES_PER_CPU_BATCH = 1024
"""Samples in one forward pass without gradients, on a CPU."""


def samples_per_batch(networks: int, device: torch.device) -> int:
    """Return the samples in one forward pass of G networks that are not trained.

    On a CPU the number is fixed: how a product is rounded depends on it, and must not depend on the other networks.
    """
    return SAMPLES_PER_CPU_BATCH if device.type == "cpu" else max(1, ROWS_PER_BATCH // networks)


def predicted_classes(logits: Tensor, *, samples_last: bool) -> Tensor:
    """Return the class with the largest logit, the first of several: (..., C) -> (...).

    Args:
        logits: (..., B, C).
        samples_last: whether they are stored as (..., C, B): `argmax` over another axis than the last in memory is
            several times slower than `max`.
    """
    return logits.max(dim=-1).indices if samples_last else logits.argmax(dim=-1)


@dataclass(frozen=True)
class EvaluationSet:
    """A data set on the device.

    Attributes:
        inputs: (N, ...).
        labels: (N,) with which predictions are compared.
        classes: C.
    """

    inputs: Tensor
    labels: Tensor
    classes: int

    @classmethod
    def on_device(cls, data: LabelledData, device: torch.device) -> EvaluationSet:
        """Copy a data set to a device."""
        return cls(torch.from_numpy(data.inputs).to(device), torch.from_numpy(data.labels).to(device), data.classes)


class Evaluation:
    """The score of G networks on a data set.

    Args:
        networks: G networks.
        data: the data set.
        score: name of the score in `SCORES`.
        use_graph: replay the measurement of accuracy as a CUDA graph if the data set is on a CUDA device.
    """

    def __init__(
        self, networks: StackedNetworks, data: EvaluationSet, score: str = ACCURACY, *, use_graph: bool
    ) -> None:
        self._networks, self._data, self._score = networks, data, score
        self._correct = torch.zeros(len(networks), dtype=torch.float64, device=data.labels.device)
        captured = use_graph and data.labels.is_cuda
        self._measure = CapturedFunction(self._count_correct) if captured else self._count_correct

    def score(self) -> Tensor:
        """Return the current score of every network, (G,), on the device."""
        if self._score != ACCURACY:
            return score_of(self._score)(self._probabilities(), self._data.labels)
        self._measure()
        return self._correct / len(self._data.labels)

    @torch.no_grad()
    def _probabilities(self) -> Tensor:
        """Return the probabilities of all samples, (G, N, C)."""
        size = samples_per_batch(len(self._networks), self._data.labels.device)
        batches = [self._networks.forward(scaled(each), training=False) for each in self._data.inputs.split(size)]
        return torch.cat(batches, dim=1)[..., : self._data.classes].softmax(dim=-1)

    @torch.no_grad()
    def _count_correct(self) -> None:
        self._correct.zero_()
        size = samples_per_batch(len(self._networks), self._data.labels.device)
        for inputs, labels in zip(self._data.inputs.split(size), self._data.labels.split(size), strict=True):
            logits = self._networks.forward(scaled(inputs), training=False)
            predicted = predicted_classes(logits, samples_last=self._networks.layered)  # (G, B)
            self._correct += (predicted == labels).sum(dim=-1)
