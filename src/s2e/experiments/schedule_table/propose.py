"""Points worth a training that uniform draws missed: a model of the draws says where schedules may be still better.

Few uniform draws are good, and a search soon looks at good ones alone; a table that is to answer for them needs more.

Letters: n points trained, D dimensions of the space, F epochs a schedule is looked at.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from s2e.samplers.curve_model import landmarks
from s2e.samplers.curve_sampler import neighbours
from s2e.samplers.gaussian_process import GaussianProcess, Prior, fit_hyperparameters
from s2e.schedules.spaces import Space

Floats = NDArray[np.float64]

CANDIDATES = 20_000
"""Points of each kind, uniform and near the best, among which promising ones are looked for."""
LIKELY = 4000
"""How many of them, the best by what is expected, are looked at more closely."""
NEAR = 50
"""How many of the best points are looked around."""
FITTED_ON = 512
"""Points that the model's length scales come from; it knows all of them in the end."""
APART = 0.01
"""Chosen curves differ by more than this, root mean square over the epochs looked at."""
PRIOR = Prior(noise=(-3.0, 1.5))


def promising(
    points: Floats, errors: Floats, space: Space, epochs: int, count: int, generator: np.random.Generator
) -> Floats:
    """Return `count` points (count, D) with the lowest error that is believable, one deviation below what is expected.

    Args:
        points: (n, D) trained before.
        errors: (n,) their scores.
        space: decodes points.
        epochs: T.
        count: how many.
        generator: draws the candidates.
    """
    at = landmarks(epochs)
    curves = space.decode(points, epochs, at=at)  # (n, F)
    spread = errors.std()
    # The mean of equal errors need not be that error: what is left is rounding, not a difference between curves.
    scaled = (errors - errors.mean()) / (spread if spread > 1e-12 * np.abs(errors).max() else 1.0)
    some = generator.permutation(len(points))[:FITTED_ON]
    model = GaussianProcess(curves, scaled, fit_hyperparameters(curves[some], scaled[some], PRIOR))
    best = points[np.argsort(model.mean(curves))[:NEAR]]
    uniform_draws = generator.random((CANDIDATES, space.dimension))
    candidates = np.concatenate([uniform_draws, neighbours(best, CANDIDATES, generator, share=0.4)])
    looked_at = space.decode(candidates, epochs, at=at)
    likely = np.argsort(model.mean(looked_at))[: max(LIKELY, count)]  # deviations cost more than means
    candidates, looked_at = candidates[likely], looked_at[likely]
    mean, deviation = model.predict(looked_at)
    chosen: list[int] = []
    order = np.argsort(mean - deviation)
    for candidate in order:
        taken = looked_at[chosen]
        if not chosen or np.sqrt(((taken - looked_at[candidate]) ** 2).mean(axis=1)).min() > APART:
            chosen.append(int(candidate))
        if len(chosen) == count:
            break
    rest = order[~np.isin(order, chosen)]  # for when too few curves differ so much
    return candidates[[*chosen, *rest[: count - len(chosen)]]]
