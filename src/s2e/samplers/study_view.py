"""Reading studies and drawing independent parameters, for the samplers of this package."""

from __future__ import annotations

import hashlib
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from s2e.errors import InvalidInput

VALIDATION_ACCURACY = "validation_accuracy"
"""User attribute of a trial: its validation accuracy after every epoch trained."""


def check_single_objective(study: Study) -> None:
    """Raise `InvalidInput` if a study has several objectives."""
    if len(study.directions) > 1:
        raise InvalidInput(
            f"`study` must have one objective, but got {len(study.directions)}: combine them or choose one."
        )


def complete_trials(study: Study) -> list[FrozenTrial]:
    """Return the complete trials, by number."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(trials, key=lambda trial: trial.number)


@dataclass(frozen=True, eq=False)
class Trials:
    """Finished trials as a key of a cache: equal if they are the same objects, which Optuna never changes."""

    trials: tuple[FrozenTrial, ...]

    def __eq__(self, other: object) -> bool:
        """Compare by identity: comparing parameters would take as long as what is cached."""
        if not isinstance(other, Trials) or len(other.trials) != len(self.trials):
            return False
        return all(map(operator.is_, self.trials, other.trials))

    def __hash__(self) -> int:
        """Hash by identity."""
        return hash(tuple(map(id, self.trials)))


def parameter_seed(seed: int, trial: FrozenTrial, name: str) -> np.random.SeedSequence:
    """Return the seed of the random stream of one parameter of one trial."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()  # `hash` differs between processes
    return np.random.SeedSequence([seed, trial.number, int.from_bytes(digest, "little")])


def sample_uniformly(seed: int, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution) -> Any:
    """Draw one parameter uniformly from its own random stream."""
    own_seed = int(parameter_seed(seed, trial, name).generate_state(1)[0])
    return RandomSampler(seed=own_seed).sample_independent(study, trial, name, distribution)
