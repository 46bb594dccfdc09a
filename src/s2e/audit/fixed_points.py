"""Fixed points of slowly converging iterations, such as expectation maximisation, by Anderson acceleration.

The next point combines the last few steps such that the combination of their residuals f(x) − x is smallest. A point
whose objective is worse than the last one's is replaced by the last plain step, which never makes it worse.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fixed_point(
    step: Callable[[Floats], tuple[Floats, float]], start: Floats, *, memory: int, iterations: int, tolerance: float
) -> Floats:
    """Return an approximate fixed point x = f(x), (D,).

    Args:
        step: returns f(x) and the objective at x, which f never decreases; x may be any vector.
        start: (D,) first point.
        memory: steps that are combined; 0 for the plain iteration x ← f(x).
        iterations: largest number of steps.
        tolerance: the iteration ends when no entry of f(x) differs by more from that of x.
    """
    points: list[Floats] = []
    images: list[Floats] = []
    point, best = start, -np.inf
    for _ in range(iterations):
        image, objective = step(point)
        if memory and images and not objective >= best - abs(best) * 1e-12:  # also for NaN
            point, best = images[-1], -np.inf
            points, images = [], []
            continue
        best = objective
        if np.abs(image - point).max() < tolerance:
            return image
        points, images = [*points, point][-memory - 1 :], [*images, image][-memory - 1 :]
        point = _combined(points, images) if memory and len(points) > 1 else image
    return point


def _combined(points: list[Floats], images: list[Floats]) -> Floats:
    """Return the combination of images with the smallest combination of residuals; weights sum to 1."""
    residuals = np.array(images) - np.array(points)  # (m, D)
    differences = residuals[-1] - residuals[:-1]
    weights = np.linalg.lstsq(differences.T, residuals[-1], rcond=1e-6)[0]
    return np.asarray(images[-1] - weights @ (images[-1] - np.array(images[:-1])))
