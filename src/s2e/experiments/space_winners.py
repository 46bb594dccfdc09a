"""The winner of a search: of all trainings in a space the one with the best validation accuracy, itself.

A search trains every schedule it draws once. The paper's Table 2 has the test accuracy of the best of these trainings
by validation. It was recorded as the training went, beside its validation accuracy; the choice knows validation only.

Letters: T epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna

from s2e.engine.curves import LAST_EPOCHS
from s2e.studies.loop import TRAINED, attribute_of, winner
from s2e.workflows.bench import TEST

LAST, BEST = f"last_{LAST_EPOCHS}_epochs", "best_epoch"
"""Names of the two figures: test accuracy as a mean over the last epochs, and at the best epoch."""


@dataclass(frozen=True)
class Winner:
    """The training with the best validation accuracy of a search.

    Attributes:
        space: the space it was drawn in.
        trial: its number in the study.
        validation_accuracy: mean over the last epochs and the member's networks, which it was chosen by.
        test_accuracy: test accuracy by the names of the two figures; None where it was not recorded.
    """

    space: str
    trial: int
    validation_accuracy: float
    test_accuracy: Mapping[str, float | None]

    def row(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        chosen = {"trial": self.trial, "validation_accuracy": self.validation_accuracy}
        return {"drawn_in": self.space, **chosen, **self.test_accuracy}


Winners = Mapping[tuple[str, str], Winner]
"""The winners of one set, by noise setting and space."""


def winner_of(study: optuna.Study, space: str) -> Winner:
    """Choose the winner of a study by validation, then look up its test accuracy.

    A study begun before test accuracies were recorded may have none; what another training reached is no substitute.
    """
    trial = winner(study)
    figures: dict[str, float | None] = {LAST: None, BEST: None}
    if attribute_of(TEST) in trial.user_attrs:
        accuracy = np.array(trial.user_attrs[attribute_of(TEST)])  # (T,)
        # Scored worst in spite of its accuracies: it diverged, and its last epochs count as 0.
        diverged = trial.values[0] == 1.0 and any(trial.user_attrs[TRAINED][-LAST_EPOCHS:])
        figures = {LAST: 0.0 if diverged else float(accuracy[-LAST_EPOCHS:].mean()), BEST: float(accuracy.max())}
    return Winner(space, trial.number, 1.0 - trial.values[0], figures)
