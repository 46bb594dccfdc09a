"""True classes from the beliefs of networks and the labels of several annotators. Pure: arrays in, arrays out.

Notation and shapes are those of `s2e.data.dawid_skene` and `label_model`. The networks' belief about a sample and the
labels of its annotators are independent evidence, given its class:

    r_ij ∝ b_ij^(1/τ) Π over labels (a, k) of sample i of θ_ajk

This replaces the given label, which is the consensus of the same annotators, and the transition matrix of the label
model. θ is estimated again, with the beliefs instead of class shares; this is also possible where no sample has two
labels. τ maximises the likelihood of the labels. Where networks were trained on the consensus, their belief contains a
part of this evidence, which then counts twice; leaving it out there, as the label model does for a single given label,
also loses what the other labels say, and was no better wherever it was measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from s2e.data.dawid_skene import dawid_skene

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

_TEMPERATURES = (1 / 32, 8.0)
"""Bounds of τ, those of the label model."""

_ROUGH_TOLERANCE, _ROUGH_ITERATIONS = 1e-2, 20
"""Of the iterations by which temperatures are compared."""

_ROUGH_SIZE = 2**17
"""Numbers of the (N, C) beliefs by which temperatures are compared."""


def annotated_posterior(
    belief: Floats, candidates: Labels, annotations: Labels, classes: int, temperature: float | None = None
) -> tuple[Floats, float]:
    """Return the posterior r of the candidates, (N, K), and τ.

    Args:
        belief: (N, K) b of the candidates, rows sum to 1; other classes have none.
        candidates: (N, K) classes, all different in a row.
        annotations: (L, 3) sample, annotator and label of every label.
        classes: C.
        temperature: τ; the most likely one when None.
    """
    items, numbers, labels = annotations.T
    known, annotators = np.unique(numbers, return_inverse=True)
    shape = (len(belief), len(known), classes)
    full = np.zeros(shape[::2])  # (N, C)
    np.put_along_axis(full, candidates, belief, axis=1)
    with np.errstate(divide="ignore"):
        log_belief = np.log(full)

    step = max(1, full.size // _ROUGH_SIZE)  # every step-th sample is enough for one number
    some = items % step == 0
    some_beliefs = log_belief[::step]

    def negative_log_likelihood(log_temperature: float) -> float:
        rough = dawid_skene(
            items[some] // step,
            annotators[some],
            labels[some],
            (len(some_beliefs), *shape[1:]),
            belief=_tempered(some_beliefs, log_temperature),
            tolerance=_ROUGH_TOLERANCE,
            max_iterations=_ROUGH_ITERATIONS,
        )
        return -rough.log_likelihood

    if temperature is None:
        bounds = np.log(_TEMPERATURES)
        found = minimize_scalar(negative_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 0.05})
        temperature = float(np.exp(found.x))
    belief = _tempered(log_belief, float(np.log(temperature)))
    posterior = dawid_skene(items, annotators, labels, shape, belief=belief).posterior
    return np.take_along_axis(posterior, candidates, axis=1), temperature


def _tempered(log_belief: Floats, log_temperature: float) -> Floats:
    """Return b^(1/τ), (N, C), rows normalised."""
    return np.asarray(softmax(log_belief / np.exp(log_temperature), axis=1))
