"""What the engine asks of a method, and the selection every small-loss method shares.

Letters: P members, M networks in a member, B batch, C classes.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

PAIRS_UP_TO = 256
"""Batches of at most so many samples are ranked by comparing every pair of them, on a GPU."""


class Need(Enum):
    """What a method cannot do without, in plain words."""

    SCHEDULE = "a schedule of keep rates (or a noise rate to make one from)"
    CLEAN_SAMPLES = "clean validation samples to train with"
    TRANSITION = "a transition matrix (estimated beforehand where none is given)"


class Networks(Protocol):
    """The networks behind the logits of a batch, and a batch of clean samples, for methods that need more than logits.

    Nothing here changes a network: batch norm, for instance, keeps its running statistics.
    """

    @property
    def clean_labels(self) -> Tensor:
        """Return the labels of V clean samples, drawn anew for every step, (V,)."""

    def clean_logits(self) -> Tensor:
        """Return every network's logits of the clean samples, differentiable, (P, M, V, C)."""

    def change_along_gradient(self, loss: Tensor) -> Tensor:
        """Differentiate the logits of the training batch along the gradient of a scalar of the clean logits.

        One Jacobian-vector product, (P, M, B, C); networks that do not touch each other have each their own gradient.
        """


class Batch(NamedTuple):
    """One training step as a method sees it, for all members at once."""

    logits: Tensor  # (P, M, B, C) of every network, differentiable
    labels: Tensor  # (P, B) given labels, possibly wrong
    keep: Tensor  # (P,) int64, samples of this batch to keep, in 1..B
    keep_rate: Tensor  # (P,) float64, the share to keep, for methods that keep a share of a part of the batch
    epoch: Tensor  # () int64, from 0
    transition: Tensor | None = None  # (P, C, C), row = true class, for methods that need it
    networks: Networks | None = None  # for methods that need clean samples


class Objective(NamedTuple):
    """What a method makes of a batch."""

    loss: Tensor  # (P, M) minimised by each network
    sample_losses: Tensor  # (P, M, B) loss of every sample under each network, detached
    selected: Tensor  # (P, M, B) bool, the samples each network is trained on


class Method(Protocol):
    """How samples are weighted in a step.

    A method sees members as a leading axis and must treat them independently; it never slices by a member's count, so
    that members with different keep counts ride in one tensor. Two methods with equal settings are equal.
    """

    @property
    def name(self) -> str:
        """Return the name on the command line."""

    @property
    def networks(self) -> int:
        """Return M, the networks of one member."""

    @property
    def needs(self) -> frozenset[Need]:
        """Return what must be there for this method; one that needs a schedule can have it searched."""

    @property
    def may_select_nothing(self) -> bool:
        """Tell whether a network can be left without a sample; it then takes no step, its optimizer included."""

    def objective(self, batch: Batch) -> Objective:
        """Weigh the batch."""


def sample_cross_entropy(batch: Batch) -> Tensor:
    """Cross-entropy of every sample under each network against the given labels, (P, M, B)."""
    p, m, b, c = batch.logits.shape
    labels = batch.labels.unsqueeze(1).expand(p, m, b)
    return functional.cross_entropy(batch.logits.reshape(-1, c), labels.reshape(-1), reduction="none").view(p, m, b)


def smallest(losses: Tensor, keep: Tensor) -> Tensor:
    """Mark the `keep` smallest losses of each row, ties to the lower index: (..., B), (...) -> (..., B) bool.

    NaN ranks last, so a broken sample is the first to go.
    """
    ranks = _ranks_by_pairs if losses.is_cuda and losses.shape[-1] <= PAIRS_UP_TO else _ranks_by_sorting
    return ranks(losses) < keep.unsqueeze(-1)


def _ranks_by_sorting(losses: Tensor) -> Tensor:
    order = losses.argsort(dim=-1, stable=True)
    return torch.empty_like(order).scatter_(-1, order, _positions(order))


def _ranks_by_pairs(losses: Tensor) -> Tensor:
    """Count for each sample those that come before it: on a GPU much faster than sorting short rows."""
    one, other = losses.unsqueeze(-1), losses.unsqueeze(-2)  # (..., B, 1), (..., 1, B)
    broken, other_broken = one.isnan(), other.isnan()
    smaller = (other < one) | (broken & ~other_broken)
    equal = (other == one) | (broken & other_broken)
    place = torch.arange(losses.shape[-1], device=losses.device)
    return (smaller | (equal & (place < place.unsqueeze(-1)))).sum(dim=-1)


def selected_mean(losses: Tensor, selected: Tensor, count: Tensor) -> Tensor:
    """Sum of the selected losses over a count, (..., B), (..., B), (...) -> (...); the others may even be infinite."""
    return torch.where(selected, losses, 0.0).sum(dim=-1) / count


def _positions(order: Tensor) -> Tensor:
    return torch.arange(order.shape[-1], device=order.device).expand_as(order)
