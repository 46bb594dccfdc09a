"""The networks of a classifier, chosen among the members of a search and of the final trainings.

Letters: K candidates, M networks in a member, G networks in all, N samples, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e.data import LabelledData
from s2e.engine import Classifier, Score, Task, modules_of, parts_of, predictions
from s2e.ensembles.kept_members import state_bytes
from s2e.ensembles.selection import bagged_selection

MOST_NUMBERS = 2**27
"""Numbers of a (K, N, C) array by which candidates are compared, 512 MiB: every n-th sample of more."""

State = Mapping[str, Tensor]
"""Weights and buffers of the networks of a member, {name: (M, ...)}."""


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Networks that vote together.

    Attributes:
        state: weights and buffers of all networks, {name: (G, ...)}.
        weights: (G,) weight of each network's probabilities; they sum to 1.
        members: number of members that the networks come from.
    """

    state: dict[str, Tensor]
    weights: NDArray[np.float64]
    members: int

    @property
    def networks(self) -> int:
        """G."""
        return len(self.weights)

    @property
    def bytes(self) -> int:
        """Bytes of all weights and buffers."""
        return state_bytes(self.state)

    def probabilities(self, task: Task, inputs: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return the probabilities of the vote, (N, C), computed on the task's device."""
        parts = parts_of(inputs, self.networks * task.train.classes)
        votes = [np.tensordot(self.weights, predictions(task, self.state, part), axes=1) for part in parts]
        return np.concatenate(votes)

    def classifier(self, task: Task) -> Classifier:
        """Return the networks as modules on the CPU."""
        train = task.train
        weights = tuple(self.weights.tolist())
        return Classifier(modules_of(task.network, self.state), train.class_names, train.sample_shape, weights)


def single_member(state: State) -> Ensemble:
    """Return the networks of one member, with equal weights."""
    count = len(next(iter(state.values())))
    return Ensemble(dict(state), np.full(count, 1 / count), 1)


def choose_ensemble(
    task: Task, candidates: Sequence[State], valid: LabelledData, score: Score, *, most: int, seed: int
) -> Ensemble:
    """Choose the candidates that vote together by their score on validation.

    Args:
        task: its network and device are used.
        candidates: K trained members.
        valid: the validation part; every n-th sample is used where there are too many for so many classes.
        score: what the vote maximises.
        most: members of the ensemble; 1 takes the first candidate, unseen.
        seed: seed of the bags.
    """
    if most == 1 or len(candidates) == 1:
        return single_member(candidates[0])
    step = max(1, math.ceil(len(candidates) * len(valid) * valid.classes / MOST_NUMBERS))
    inputs, labels = valid.inputs[::step], valid.labels[::step]
    votes = np.stack([predictions(task, state, inputs).mean(axis=0) for state in candidates])  # (K, N, C)
    finite = np.flatnonzero(np.isfinite(votes).all(axis=(1, 2)))
    if not len(finite):
        return single_member(candidates[0])
    weights = np.zeros(len(candidates))
    generator = np.random.default_rng(seed)
    weights[finite] = bagged_selection(votes[finite], labels, score, generator=generator, most=most)
    chosen = np.flatnonzero(weights).tolist()
    sizes = [len(next(iter(candidates[index].values()))) for index in chosen]
    return Ensemble(
        {name: torch.cat([candidates[index][name] for index in chosen]) for name in candidates[0]},
        np.repeat(weights[chosen] / sizes, sizes),
        len(chosen),
    )
