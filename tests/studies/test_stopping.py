"""The end of a search: flat scores end it, few trials and large validation parts do not."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import create_trial

from s2e.schedules.spaces import SPACES
from s2e.studies import is_long_enough
from searches import make_study

EPOCHS = 40
SPACE = SPACES["coteaching"]


def study_of(count: int, spread: float) -> optuna.Study:
    """Trials at random points whose errors fall with the first coordinate, by `spread` over its range."""
    study = make_study()
    for point in np.random.default_rng(0).random((count, len(SPACE.names))):
        study.add_trial(
            create_trial(
                value=0.3 - spread * point[0],
                params=dict(zip(SPACE.names, point.tolist(), strict=True)),
                distributions={name: FloatDistribution(0.0, 1.0) for name in SPACE.names},
            )
        )
    return study


@pytest.mark.parametrize(
    ("trials", "spread", "samples", "enough"),
    [(18, 0.001, 200, True), (17, 0.001, 200, False), (18, 0.2, 10_000_000, False)],
)
def test_search_ends_when_improvements_are_below_noise(trials, spread, samples, enough):
    generator = np.random.default_rng(1)
    assert is_long_enough(study_of(trials, spread), SPACE, EPOCHS, samples, generator) is enough
