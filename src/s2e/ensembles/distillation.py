"""Networks trained on probabilities: of a label audit, or of an ensemble (distillation, Hinton et al., 2015).

Letters: P members, M networks in a member, B batch, N samples, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e import schedules
from s2e.engine import EpochFinished, Member, Task, train_population
from s2e.ensembles.ensemble import Ensemble, single_member
from s2e.methods import Batch, Need, Objective
from s2e.seeds import derive


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """One network, trained on all samples with probabilities instead of labels.

    Attributes:
        probabilities: (N, C); a member's label of a sample is its row.
    """

    probabilities: Tensor

    name: ClassVar[str] = "soft-labels"
    networks: ClassVar[int] = 1
    needs: ClassVar[frozenset[Need]] = frozenset()
    may_select_nothing: ClassVar[bool] = False

    def objective(self, batch: Batch) -> Objective:
        """Average the cross-entropy −Σ_c p_c ln q_c over the batch."""
        targets = self.probabilities[batch.labels].unsqueeze(1)  # (P, 1, B, C)
        losses = -(targets * batch.logits[..., : targets.shape[-1]].log_softmax(dim=-1)).sum(dim=-1)  # (P, 1, B)
        return Objective(losses.mean(dim=-1), losses.detach(), torch.ones_like(losses, dtype=torch.bool))


def distilled(
    task: Task,
    ensemble: Ensemble,
    *,
    learning_rate: float,
    seed: int,
    on_epoch: Callable[[EpochFinished], None] | None = None,
) -> Ensemble:
    """Return one network trained on the ensemble's probabilities of the training samples; see `soft_trained`."""
    soft = ensemble.probabilities(task, task.train.inputs)
    return soft_trained(task, soft, learning_rate=learning_rate, seed=seed, on_epoch=on_epoch)


def soft_trained(
    task: Task,
    probabilities: NDArray[np.float64],
    *,
    networks: int = 1,
    learning_rate: float,
    seed: int,
    on_epoch: Callable[[EpochFinished], None] | None = None,
) -> Ensemble:
    """Return networks trained on probabilities of the classes of the training samples.

    Args:
        task: data and network.
        probabilities: (N, C) of the training samples.
        networks: number of networks, which differ in their initial weights.
        learning_rate: initial learning rate.
        seed: seed of the initial weights and of the order of the batches.
        on_epoch: called after every epoch.
    """
    method = SoftLabels(torch.from_numpy(probabilities.astype(np.float32)).to(task.device))
    rows, keep_all = np.arange(len(task.train), dtype=np.int64), schedules.constant(1.0, task.epochs)
    seeds = [seed, *(derive(seed, "network", index) for index in range(1, networks))]
    members = [Member(keep_all, each, learning_rate, rows, method) for each in seeds]
    # The training labels play no part, and a checkpoint does not know the probabilities.
    train = replace(task.train, clean_labels=None)
    plain = replace(task, seed=seed, checkpoints=None, executor=None, evaluate={}, train=train)
    trained = train_population(plain, members, on_epoch=on_epoch)
    return single_member(trained.state)
