"""Classifiers fitted in a moment."""

from __future__ import annotations

import numpy as np
from torch import nn

from s2e import S2EClassifier

QUICK = {"n_trials": 2, "epochs": 2, "batch_size": 64, "learning_rate": 1e-2, "restarts": 1, "random_state": 0}
QUICK |= {"final_estimator": None}  # a pool takes ten times as long as these trainings
POOL = {"final_estimator": "auto"}
"""The default: models of scikit-learn vote beside the networks."""


def three_blobs(samples: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = np.arange(samples) % 3
    return generator.normal(size=(samples, 4)) + 3.0 * np.eye(3, 4)[labels], labels


def fitted(X, y, **changes) -> S2EClassifier:
    return S2EClassifier(**{**QUICK, **changes}).fit(X, y)


class Narrow(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def of_any_shape(sample_shape, classes) -> nn.Module:
    return nn.Linear(sample_shape[0], classes)
