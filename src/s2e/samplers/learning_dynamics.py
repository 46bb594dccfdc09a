"""A small dynamic model of training with a keep rate: how validation errors by epoch follow from the schedule.

A network learns the clean patterns of its data, and memorises wrong labels that are among the selected samples. Two
states stand for that, p for the learnt share of the patterns and m for the memorised share of the wrong labels. A
dozen numbers determine both for every schedule. They are fitted to the errors after every epoch of all trainings, so a
few trainings tell much about other schedules: what they show is far more than their last errors.

| name | shape | what |
|---|---|---|
| θ | (Q, 13) | parameters, unbounded; see `NAMES` |
| R | (n, M) | keep rates, averaged over the epochs of each of M steps of equal length |
| errors | (Q, n, M) | after every step |
| observed | (n, W) | logarithms of mean errors in W windows of steps; NaN where unknown |

A step, with learning-rate factor λ, shares ε of wrong labels and R of selected samples, d = p (1 − c m):

    wrong labels selected    q = min((1 − d) ε R + d s ln(1 + e^{(R − (1 − ε)) / s}), ε, R)
    memorised                m ← m + (1 − m)(1 − e^{−λκ q/ε}) − m (1 − e^{−λδ (1 − q/ε)})
    learnt                   p ← p + (1 − v (1 − ε − (R − q))₊ − p)(1 − e^{−λα (R − q)}) − λβ q p
    error                    e_0 + e_p (1 − p) + e_m m^γ

Of samples that the network tells apart, those with right labels are selected first; of the others, the same share. What
is selected is memorised, and forgotten while it is not. Samples that are never selected limit what can be learnt.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import expit

Floats = NDArray[np.float64]

NAMES = ("ε", "s", "κ", "δ", "α", "β", "v", "e_0", "e_p", "e_m", "γ", "p at first", "c")
"""Parameters in the order of θ: logits of ε / `MOST_WRONG`, of p at first / `FIRST_LEARNT` and of c, else logarithms.

Rates are those of 1 / `STEPS` of a training.
"""
MEANS = np.array([0.0, *np.log([0.03, 1.0, 0.5, 2.0, 0.02, 0.3, 0.02, 0.5, 0.5, 1.0]), 0.0, 1.0])
DEVIATIONS = np.array([1.5, 0.7, 1.0, 1.0, 1.0, 1.0, 1.0, 0.7, 0.7, 0.7, 0.3, 1.0, 1.0])
"""Of the normal priors on θ: wide, and the same for all data."""
MOST_WRONG, FIRST_LEARNT = 0.6, 0.9
STEPS = 40
"""Largest number of steps M into which the epochs of a training are grouped."""
DECAY_START = 0.4
"""Share of a training after which the learning rate is assumed to fall linearly to 0, as in the papers."""

WINDOWS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Ends of the windows in which errors are averaged, as shares of the training; the last window is that of the score."""
WEIGHTS = np.array([0.5, 0.5, 0.7, 0.7, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0])
"""Weights of the windows: early errors matter least for the score, which matters most."""
IMPORTANCE = 0.5
"""Power of a training's error with which its weight falls: the schedules that matter are those with small errors."""
DEVIATION = 0.15
"""Standard deviation of logarithms of errors from those of the model."""
STARTS = (0.0, -1.0, 1.0)
"""Logits of ε / `MOST_WRONG` from which a fit starts; the best end is kept."""
EVALUATIONS, TOLERANCE, DIFFERENCE = 25, 1e-3, 1e-4
LEAST_ERROR = 1e-4
"""Errors below it count as equal: logarithms would tell differences that validation cannot."""


def group_epochs(by_epoch: Floats) -> Floats:
    """Return means (n, M) of numbers by epoch (n, T) over M = min(T, `STEPS`) steps of nearly equal length."""
    epochs = by_epoch.shape[1]
    bounds = np.linspace(0, epochs, min(epochs, STEPS) + 1).round().astype(np.int64)
    return np.add.reduceat(by_epoch, bounds[:-1], axis=1) / np.diff(bounds)


def simulate(parameters: Floats, rates: Floats) -> Floats:
    """Return the errors after every step (Q, n, M) of trainings with keep rates (n, M), for parameters (Q, 13)."""
    columns = parameters.T[:, :, None]  # (13, Q, 1)
    wrong, first, confusion = MOST_WRONG * expit(columns[0]), FIRST_LEARNT * expit(columns[11]), expit(columns[12])
    softness, memorising, forgetting, learning, harm, coverage, least, by_learnt, by_memorised, power = np.exp(
        columns[1:11]
    )
    steps = rates.shape[1]
    learnt = first * np.ones(len(rates))  # (Q, n)
    memorised = np.zeros_like(learnt)
    errors = np.empty((*learnt.shape, steps))
    for step in range(steps):
        pace = _learning_rate(step / steps) * STEPS / steps
        rate = rates[:, step]
        apart = learnt * (1 - confusion * memorised)
        overflow = softness * np.logaddexp(0.0, (rate - (1 - wrong)) / softness)
        selected = np.minimum((1 - apart) * wrong * rate + apart * overflow, np.minimum(wrong, rate))
        clean = rate - selected
        gained = (1 - memorised) * -np.expm1(-pace * memorising * selected / wrong)
        lost = memorised * -np.expm1(-pace * forgetting * (1 - selected / wrong))
        memorised = np.clip(memorised + gained - lost, 0.0, 1.0)
        limit = 1 - coverage * np.maximum(1 - wrong - clean, 0.0)
        towards = (limit - learnt) * -np.expm1(-pace * learning * clean)
        learnt = np.clip(learnt + towards - pace * harm * selected * learnt, 0.0, 1.0)
        errors[..., step] = least + by_learnt * (1 - learnt) + by_memorised * np.maximum(memorised, 1e-6) ** power
    return errors


def _learning_rate(share: float) -> float:
    return 1.0 if share < DECAY_START else (1 - share) / (1 - DECAY_START)


def observe(errors: Floats, scored: float) -> Floats:
    """Return the logarithms (..., W) of mean errors in windows, from errors by step (..., M), NaN where not trained.

    Args:
        errors: after every step.
        scored: share of the training at its end in which the errors are the score.
    """
    steps = errors.shape[-1]
    bounds = np.round(np.array(WINDOWS) * steps).astype(np.int64)
    windows = [*pairwise(bounds), (min(steps - 1, round((1 - scored) * steps)), steps)]
    unknown = np.full(errors.shape[:-1], np.nan)
    means = [errors[..., first:end].mean(axis=-1) if end > first else unknown for first, end in windows]
    return np.asarray(np.log(np.clip(np.stack(means, axis=-1), LEAST_ERROR, 1.0)))


def predict(parameters: Floats, rates: Floats, scored: float) -> Floats:
    """Return the logarithms of scored errors, (n,), of trainings with keep rates (n, M), for parameters (13,)."""
    return np.asarray(observe(simulate(parameters[None], rates), scored)[0, :, -1])


def fit(rates: Floats, observed: Floats, scored: float) -> Floats:
    """Return the parameters (13,) of trainings with keep rates (n, M): the most probable ones of several local optima.

    Args:
        rates: keep rates by step.
        observed: (n, W) logarithms of errors, as `observe` returns them.
        scored: share of the training at its end in which the errors are the score.
    """
    rates, observed = np.ascontiguousarray(rates, dtype=np.float64), np.ascontiguousarray(observed, dtype=np.float64)
    return _fit(rates.tobytes(), observed.tobytes(), len(rates), scored)


def _importance(observed: Floats) -> Floats:
    """Return the weights of trainings, (n,), by the last known of their errors; 1 for the smallest."""
    known = ~np.isnan(observed)
    last = observed.shape[1] - 1 - known[:, ::-1].argmax(axis=1)  # (n,)
    errors = np.where(known.any(axis=1), observed[np.arange(len(observed)), last], np.inf)  # logarithms
    return np.asarray(np.exp(IMPORTANCE * (errors.min() - errors))) if known.any() else np.ones(len(observed))


@lru_cache(maxsize=32)
def _fit(rate_bytes: bytes, observed_bytes: bytes, trainings: int, scored: float) -> Floats:
    """Fit once for all points of a generation, which are asked with the same trainings."""
    rates = np.frombuffer(rate_bytes).reshape(trainings, -1)
    observed = np.frombuffer(observed_bytes).reshape(trainings, -1)
    weights = np.where(np.isnan(observed), 0.0, WEIGHTS / DEVIATION) * _importance(observed)[:, None]
    target = np.nan_to_num(observed)

    def residuals(parameters: Floats) -> Floats:  # (Q, 13) to (Q, n W + 13)
        predicted = np.nan_to_num(observe(simulate(parameters, rates), scored))
        misfit = ((predicted - target) * weights).reshape(len(parameters), -1)
        return np.concatenate([misfit, (parameters - MEANS) / DEVIATIONS], axis=1)

    def jacobian(parameters: Floats) -> Floats:
        moved = np.concatenate([parameters[None], parameters + DIFFERENCE * np.eye(len(parameters))])
        values = residuals(moved)
        return np.asarray((values[1:] - values[0]).T / DIFFERENCE)

    ends = []
    for start in STARTS:
        first = np.array([start, *MEANS[1:]])
        ends.append(
            least_squares(
                lambda parameters: residuals(parameters[None])[0],
                first,
                jac=jacobian,
                loss="soft_l1",  # a training may fail, and lie far from every model
                max_nfev=EVALUATIONS,
                ftol=TOLERANCE,
                xtol=TOLERANCE,
                gtol=TOLERANCE,
            )
        )
    return np.asarray(min(ends, key=lambda end: end.cost).x)
