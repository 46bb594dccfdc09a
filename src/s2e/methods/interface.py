"""The interface between the engine and a method, and the small-loss selection that methods share.

Letters: P members, M networks in a member, B batch, C classes.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

MAX_PAIRWISE_BATCH = 256
"""Largest batch whose losses are ranked on a GPU by comparing every pair."""


class Need(Enum):
    """Requirements of methods; the values are descriptions for messages."""

    SCHEDULE = "a schedule of keep rates (or a noise rate to make one from)"
    CLEAN_SAMPLES = "clean validation samples to train with"
    TRANSITION = "a transition matrix (estimated beforehand where none is given)"


class Networks(Protocol):
    """The networks of a batch and a batch of clean samples, for methods that need more than logits.

    No call changes a network: batch norm, for instance, keeps its running statistics.
    """

    @property
    def clean_labels(self) -> Tensor:
        """Return the labels of V clean samples, drawn for this step, (V,)."""

    def clean_logits(self) -> Tensor:
        """Return the differentiable logits of the clean samples under every network, (P, M, V, C)."""

    def change_along_gradient(self, loss: Tensor) -> Tensor:
        """Differentiate the logits of the training batch along the gradient of a scalar of the clean logits.

        One Jacobian-vector product, (P, M, B, C); every network is differentiated along its own gradient.
        """


class Batch(NamedTuple):
    """The inputs of a method in one training step, for all members."""

    logits: Tensor  # (P, M, B, C) of every network, differentiable
    labels: Tensor  # (P, B) given labels, possibly wrong
    keep: Tensor  # (P,) int64, samples of this batch to keep, in 1..B
    keep_rate: Tensor  # (P,) float64, the share to keep, for methods that keep a share of a subset of the batch
    epoch: Tensor  # () int64, from 0
    transition: Tensor | None = None  # (P, C, C), row = true class, for methods that need it
    networks: Networks | None = None  # for methods that need clean samples
    samples_last: bool = False  # whether logits are stored as (P, M, C, B), as those of small networks on a CPU
    eligible: Tensor | None = None  # (P, B) bool, False for samples that a member holds out; None if there are none


class Objective(NamedTuple):
    """The output of a method for one batch."""

    loss: Tensor  # (P, M) minimised by each network
    sample_losses: Tensor  # (P, M, B) loss of every sample under each network, detached
    selected: Tensor  # (P, M, B) bool, the samples each network is trained on


class Method(Protocol):
    """How samples are weighted in a step.

    Any object with these attributes can be passed as a method; a frozen dataclass is the simplest way to write one.

    - Members are the leading axis, and are independent of each other.
    - Members keep different numbers of samples: mask by rank (`smallest`), never slice by a count.
    - No shape and no branch depends on values, so that a step can be captured as a CUDA graph.
    - Methods are hashable, and methods with equal settings are equal: their members are trained together.

    A method whose members may hold samples out has an attribute `may_hold_out` that is True. It selects none of the
    samples that are not `eligible`, and its loss does not depend on them.

    `tests/conformance/test_methods.py` checks all of this.
    """

    @property
    def name(self) -> str:
        """Return the name on the command line."""

    @property
    def networks(self) -> int:
        """Return M, the networks of one member."""

    @property
    def needs(self) -> frozenset[Need]:
        """Return the requirements; the schedule of a method that needs one can be searched."""

    @property
    def may_select_nothing(self) -> bool:
        """Return whether a network may get no samples; its parameters and optimizer state then stay the same."""

    def objective(self, batch: Batch) -> Objective:
        """Return the loss of every network, and the samples it is trained on."""


def sample_cross_entropy(batch: Batch) -> Tensor:
    """Return the cross-entropy of every sample under each network with the given labels, (P, M, B)."""
    p, m, b, c = batch.logits.shape
    labels = batch.labels.unsqueeze(1).expand(p, m, b)
    if batch.samples_last:  # the softmax over few classes is then vectorised over samples
        logits = batch.logits.flatten(0, 1).mT  # (P * M, C, B)
        losses = functional.cross_entropy(logits, labels.flatten(0, 1), reduction="none")
    else:
        losses = functional.cross_entropy(batch.logits.reshape(-1, c), labels.reshape(-1), reduction="none")
    return losses.view(p, m, b)


def may_hold_out(method: Method) -> bool:
    """Return whether members of a method may hold samples out."""
    return bool(getattr(method, "may_hold_out", False))


def keep_count(keep_rate: Tensor, size: Tensor) -> Tensor:
    """Return max(1, ⌊R·n⌋), the number of samples in a share of n: (P,) float64, (P,) int64 -> (P,) int64.

    R·n is a rounded product: 0.29·100 is below 29. As for a whole batch (`schedules.keep_counts`), 1e-9 is added before
    rounding down, far more than the rounding error and far less than any difference that matters.
    """
    return torch.floor(keep_rate * size + 1e-9).to(torch.int64).clamp(min=1)


def smallest(losses: Tensor, keep: Tensor, eligible: Tensor | None = None) -> Tensor:
    """Mark the `keep` smallest losses of each row, ties to the lower index: (..., B), (...) -> (..., B) bool.

    NaN ranks last, so that a sample without a finite loss is the first to be dropped. With `eligible`, bool of a shape
    that broadcasts to that of the losses, only these samples are ranked and marked.
    """
    if eligible is not None:
        losses = _only(losses, eligible)
    ranks = _ranks_by_pairs if losses.is_cuda and losses.shape[-1] <= MAX_PAIRWISE_BATCH else _ranks_by_sorting
    marked = ranks(losses) < keep.unsqueeze(-1)
    return marked if eligible is None else marked & eligible


def small_losses(losses: Tensor, keep: Tensor, batch: Batch, *, by_class: bool) -> Tensor:
    """Mark the samples with the `keep` smallest losses: (P, M, B), (P, 1) -> (P, M, B) bool.

    Args:
        losses: of every sample under each network, or one for all networks, M = 1.
        keep: number of samples to mark.
        batch: only its eligible samples are ranked and marked.
        by_class: rank losses among samples with the same label; see `within_classes`.
    """
    eligible = None if batch.eligible is None else batch.eligible.unsqueeze(1)  # (P, 1, B)
    if by_class:
        losses = within_classes(losses if eligible is None else _only(losses, eligible), batch.labels)
    return smallest(losses, keep, eligible)


def within_classes(losses: Tensor, labels: Tensor) -> Tensor:
    """Replace losses by their relative ranks among the samples with the same label: (P, M, B), (P, B) -> (P, M, B).

    The r-th smallest of n losses of a label becomes (r + 1/2)/n. The smallest of all are then the same share of every
    label, and a rare class is not left out because its losses are large. NaN stays NaN and is not counted.
    """
    by_loss = losses.argsort(dim=-1, stable=True)  # NaN last
    grouped = labels.unsqueeze(1).expand_as(losses).gather(-1, by_loss).argsort(dim=-1, stable=True)
    order = by_loss.gather(-1, grouped)  # by label, then by loss
    sorted_labels = labels.unsqueeze(1).expand_as(losses).gather(-1, order).contiguous()
    first = torch.searchsorted(sorted_labels, sorted_labels)  # position of the first sample with the label
    end = torch.searchsorted(sorted_labels, sorted_labels, right=True)
    counted = functional.pad(losses.isnan().logical_not().gather(-1, order).cumsum(dim=-1), (1, 0))  # (P, M, B + 1)
    counts = (counted.gather(-1, end) - counted.gather(-1, first)).clamp(min=1)
    position = torch.arange(losses.shape[-1], device=losses.device)
    # Equal shares of different labels must stay equal: compiled kernels round quotients of float32 inexactly.
    ranks = (((position - first).double() + 0.5) / counts).to(losses.dtype)
    return torch.where(losses.isnan(), losses, torch.empty_like(losses).scatter_(-1, order, ranks))


def _ranks_by_sorting(losses: Tensor) -> Tensor:
    order = losses.argsort(dim=-1, stable=True)
    ranks = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, ranks)


def _ranks_by_pairs(losses: Tensor) -> Tensor:
    """Count the samples that rank before each sample: on a GPU much faster than sorting short rows."""
    one, other = losses.unsqueeze(-1), losses.unsqueeze(-2)  # (..., B, 1), (..., 1, B)
    nan, other_nan = one.isnan(), other.isnan()
    smaller = (other < one) | (nan & ~other_nan)
    equal = (other == one) | (nan & other_nan)
    index = torch.arange(losses.shape[-1], device=losses.device)
    return (smaller | (equal & (index < index.unsqueeze(-1)))).sum(dim=-1)


def _only(losses: Tensor, eligible: Tensor) -> Tensor:
    """Return losses of which those that are not eligible rank last: (..., B), (..., B) -> (..., B).

    They become NaN. Before them, infinity becomes the largest number, and NaN becomes infinity.
    """
    return torch.where(eligible, losses.nan_to_num(nan=math.inf), math.nan)


def selected_mean(losses: Tensor, selected: Tensor, count: Tensor) -> Tensor:
    """Divide the sum of the selected losses by a count, (..., B), (..., B), (...) -> (...); others may be infinite."""
    return torch.where(selected, losses, 0.0).sum(dim=-1) / count
