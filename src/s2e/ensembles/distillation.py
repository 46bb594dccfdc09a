"""Distillation (Hinton et al., 2015): one network trained on the probabilities of an ensemble.

Letters: P members, M networks in a member, B batch, N samples, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from s2e import schedules
from s2e.engine import EpochFinished, Member, Task, train_population
from s2e.ensembles.ensemble import Ensemble, single_member
from s2e.methods import Batch, Need, Objective


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
    """Return one network trained on the ensemble's probabilities of the training samples.

    Args:
        task: data and network.
        ensemble: the networks whose probabilities are learnt.
        learning_rate: initial learning rate.
        seed: seed of the initial weights and of the order of the batches.
        on_epoch: called after every epoch.
    """
    soft = ensemble.probabilities(task, task.train.inputs).astype(np.float32)
    method = SoftLabels(torch.from_numpy(soft).to(task.device))
    rows = np.arange(len(task.train), dtype=np.int64)
    member = Member(schedules.constant(1.0, task.epochs), seed, learning_rate, rows, method)
    # The training labels play no part, and a checkpoint does not know the probabilities.
    train = replace(task.train, clean_labels=None)
    plain = replace(task, seed=seed, checkpoints=None, executor=None, evaluate={}, train=train)
    trained = train_population(plain, [member], on_epoch=on_epoch)
    return single_member(trained.state)
