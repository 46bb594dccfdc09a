"""What samplers read from a study, and how they draw from it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from s2e.errors import InvalidInput


def check_single_objective(study: Study) -> None:
    """Refuse a study with several objectives."""
    if len(study.directions) > 1:
        raise InvalidInput(f"`study` must have one objective, but got {len(study.directions)}: average or choose.")


def seeds(seed: int, trial: FrozenTrial, name: str) -> np.random.SeedSequence:
    """Seed a stream of its own for one parameter of one trial."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()  # `hash` differs between processes
    return np.random.SeedSequence([seed, trial.number, int.from_bytes(digest, "little")])


def uniform(seed: int, study: Study, trial: FrozenTrial, name: str, given: BaseDistribution) -> Any:
    """Draw one parameter uniformly, from a stream of its own."""
    own = int(seeds(seed, trial, name).generate_state(1)[0])
    return RandomSampler(seed=own).sample_independent(study, trial, name, given)


def complete(study: Study) -> list[FrozenTrial]:
    """Return the complete trials, by number."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return sorted(trials, key=lambda trial: trial.number)
