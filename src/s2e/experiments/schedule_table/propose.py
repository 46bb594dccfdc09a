"""Proposed points: where a model of the trained points predicts schedules better than those of uniform draws.

Few uniform draws are good, and a search soon samples only good points; a table that replaces trainings needs more.

Letters: n trained points, D dimensions of the space, F epochs at which schedules are compared.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from s2e.samplers import landmarks, neighbours
from s2e.samplers.gaussian_process import GaussianProcess, Prior, fit_hyperparameters
from s2e.schedules import Space

Floats = NDArray[np.float64]

CANDIDATES = 20_000
"""Candidates of each kind: uniform draws, and neighbours of the best points."""
SHORTLIST = 4000
"""Candidates with the lowest means, for which standard deviations are computed: these cost more than means."""
CENTRES = 50
"""Best points whose neighbours are candidates."""
FIT_POINTS = 512
"""Points that the hyperparameters are fitted to; the model is conditioned on all points."""
MIN_DISTANCE = 0.01
"""Smallest distance between two chosen curves, root mean square over the F epochs."""
PRIOR = Prior(noise=(-3.0, 1.5))


def propose_points(
    points: Floats, errors: Floats, space: Space, epochs: int, count: int, generator: np.random.Generator
) -> Floats:
    """Return `count` points (count, D) with the smallest lower confidence bound of the error, mean − deviation.

    Args:
        points: (n, D) trained points.
        errors: (n,) their errors.
        space: decodes points.
        epochs: T.
        count: number of points to return.
        generator: draws the candidates.
    """
    at = landmarks(epochs)
    curves = space.decode(points, epochs, at=at)  # (n, F)
    spread = errors.std()
    # The mean of equal errors may differ from them by rounding, which must not be scaled up to a difference.
    scaled = (errors - errors.mean()) / (spread if spread > 1e-12 * np.abs(errors).max() else 1.0)
    fitted = generator.permutation(len(points))[:FIT_POINTS]
    model = GaussianProcess(curves, scaled, fit_hyperparameters(curves[fitted], scaled[fitted], PRIOR))
    best = points[np.argsort(model.mean(curves))[:CENTRES]]
    uniform = generator.random((CANDIDATES, space.dimension))
    candidates = np.concatenate([uniform, neighbours(best, CANDIDATES, generator, share=0.4)])
    candidate_curves = space.decode(candidates, epochs, at=at)
    shortlist = np.argsort(model.mean(candidate_curves))[: max(SHORTLIST, count)]
    candidates, candidate_curves = candidates[shortlist], candidate_curves[shortlist]
    mean, deviation = model.predict(candidate_curves)
    order = np.argsort(mean - deviation)
    chosen: list[int] = []
    for index in order:
        distances = np.sqrt(((candidate_curves[chosen] - candidate_curves[index]) ** 2).mean(axis=1))
        if not chosen or distances.min() > MIN_DISTANCE:
            chosen.append(int(index))
        if len(chosen) == count:
            break
    rest = order[~np.isin(order, chosen)]  # used if too few curves are far enough apart
    return candidates[[*chosen, *rest[: count - len(chosen)]]]
