"""Label noise for benchmarks: drawn from a transition matrix, or dependent on the instance.

Letters: N samples, C classes, S numbers in one flattened input. A transition matrix is (C, C) and row-stochastic:
row = true class, column = given label. All draws come from the `generator` argument. `read_matrix`, and `parse_noise`
for `asymmetric:FILE`, read a file; everything else is pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtri_exp

from s2e.data.samples import LabelledData
from s2e.errors import InvalidInput, S2EError, UnreadableData, unknown_name
from s2e.files.arrays import read_npy
from s2e.files.json_text import read_json
from s2e.files.regular import read_content

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[Any]
    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

_FORMS = {
    "none": "none",
    "symmetric": "symmetric:RATE",
    "uniform": "uniform:RATE",
    "pair": "pair:RATE",
    "instance": "instance:RATE",
    "asymmetric": "asymmetric:FILE",
    "human": "human:KIND",
}
_KINDS_WITH_RATE = ("symmetric", "uniform", "pair", "instance")

_FLIP_SPREAD = 0.1
"""Standard deviation of the flip probabilities of instance-dependent noise before truncation (Xia et al. 2020)."""

_LOGIT_SPREAD = 2.0
"""Standard deviation of the logits of the wrong classes: of ten classes, the most probable one gets about 1/2."""

_NARROW = 1e-3
"""Distance of the rate from 0 or 1 below which all flip probabilities equal the rate."""

_ROUNDING = 1e-3
"""Tolerance of the row sums: matrices are published with three or four decimals."""

MAX_MATRIX_BYTES = 2**25
"""Largest matrix file of numbers as text."""

_CHUNK_NUMBERS = 2**22
"""Number of input values converted to float32 at a time (16 MiB)."""


# Specification


@dataclass(frozen=True)
class NoiseSpec:
    """Kind and rate of the noise, as written on the command line; `parse_noise(str(spec)) == spec`.

    Attributes:
        kind: none, symmetric, uniform, pair, instance, asymmetric or human.
        rate: the kind's rate in [0, 1); None for none, asymmetric and human.
        source: file of the matrix (asymmetric) or kind of human labels (human), else None.
        matrix: (C, C) transition matrix (asymmetric) as tuples, which are hashable, else None.
    """

    kind: str
    rate: float | None = None
    source: str | None = None
    matrix: tuple[tuple[float, ...], ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in _FORMS:
            raise unknown_name("noise", self.kind, _FORMS.values())
        if (self.rate is not None) != (self.kind in _KINDS_WITH_RATE):
            raise InvalidInput(f"`noise` must be written as {_FORMS[self.kind]}, but got the rate {self.rate}.")
        if self.rate is not None:
            _check_rate(self.rate)
        if (self.matrix is not None) != (self.kind == "asymmetric"):
            raise InvalidInput(f"`matrix` must be given for asymmetric noise only, but got {self.kind}.")

    def __str__(self) -> str:
        value = self.source if self.rate is None else self.rate
        return self.kind if value is None else f"{self.kind}:{value}"


def parse_noise(text: str) -> NoiseSpec:
    """Parse `none`, `symmetric:0.4`, `uniform:0.4`, `pair:0.45`, `instance:0.3`, `asymmetric:FILE` or `human:KIND`.

    The matrix of `asymmetric:FILE` (.npy, .csv without a header, or .json as a list of rows) is read here, so that an
    unreadable file is reported early.
    """
    kind, _, value = text.strip().partition(":")
    if kind not in _FORMS:
        raise unknown_name("noise", kind, _FORMS.values())
    if (value == "") != (kind == "none"):
        raise InvalidInput(f"`noise` must be written as {_FORMS[kind]}, but got {text!r}.")
    if kind in _KINDS_WITH_RATE:
        try:
            rate = float(value)
        except ValueError:
            example = f"{kind}:0.4"
            raise InvalidInput(
                f"`noise` must be written as {_FORMS[kind]}, as in {example}, but got {text!r}."
            ) from None
        return NoiseSpec(kind, rate=rate)
    if kind == "asymmetric":
        matrix = check_transition_matrix(read_matrix(value))
        return NoiseSpec(kind, source=value, matrix=tuple(map(tuple, matrix.tolist())))
    return NoiseSpec(kind, source=value or None)


def read_matrix(file: str) -> ArrayLike:
    """Read the numbers of a matrix file; `check_transition_matrix` checks that they are a transition matrix."""
    path = Path(file)
    if path.suffix not in (".npy", ".csv", ".json"):
        raise InvalidInput(f"the noise matrix must be a .npy, .csv or .json file, but got {file!r}.")
    try:
        if path.suffix == ".npy":
            return read_npy(path)
        if path.suffix == ".json":
            rows: ArrayLike = read_json(path)
            return rows
        text = read_content(path, MAX_MATRIX_BYTES).decode("utf-8-sig")
        return [[float(entry) for entry in line.split(",")] for line in text.splitlines() if line.strip()]
    except S2EError as error:
        raise UnreadableData(f"the noise matrix {error}") from error
    except ValueError as error:
        raise UnreadableData(f"the noise matrix {file!r} is not a valid {path.suffix} file.") from error


# Transition matrices


def symmetric(classes: int, rate: float) -> Floats:
    """Return (C, C): a label is wrong with probability `rate`, rate/(C−1) for each other class."""
    _check_classes(classes)
    _check_rate(rate)
    matrix = np.full((classes, classes), rate / (classes - 1))
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


def uniform(classes: int, rate: float) -> Floats:
    """Return (C, C): with probability `rate` a label is drawn from *all* C classes, including the true one.

    This is another convention for symmetric noise: rate·(C−1)/C of the labels are expected to be wrong.
    """
    _check_classes(classes)
    _check_rate(rate)
    return (1 - rate) * np.eye(classes) + rate / classes


def pair(classes: int, rate: float) -> Floats:
    """Return (C, C): class i is labelled i+1 (mod C) with probability `rate`."""
    _check_classes(classes)
    _check_rate(rate)
    identity = np.eye(classes)
    return (1 - rate) * identity + rate * np.roll(identity, 1, axis=1)


def check_transition_matrix(matrix: ArrayLike, classes: int | None = None) -> Floats:
    """Return a valid transition matrix (C, C) with rows rescaled to sum to 1, or raise; `classes` is C, if known."""
    try:
        if np.iscomplexobj(matrix):
            raise TypeError("complex numbers")
        checked = np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("`matrix` must be C rows of C numbers, but got other values.") from None
    if checked.ndim != 2 or checked.shape[0] != checked.shape[1] or len(checked) < 2:
        raise InvalidInput(f"`matrix` must be square with at least two classes, but got the shape {checked.shape}.")
    if not np.isfinite(checked).all() or checked.min() < 0:
        raise InvalidInput("`matrix` must hold probabilities, but got negative or non-finite entries.")
    sums = checked.sum(axis=1)  # (C,)
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > _ROUNDING:
        raise InvalidInput(
            f"`matrix` must have rows that sum to 1, one for each true class, but row {worst} sums to "
            f"{sums[worst]:.6g}; divide each row by its sum."
        )
    if classes is not None and len(checked) != classes:
        size = len(checked)
        raise InvalidInput(f"`matrix` must be {classes} × {classes} for these data, but got {size} × {size}.")
    return np.asarray(checked / sums[:, None])


def transition_matrix(spec: NoiseSpec, classes: int) -> Floats:
    """Return the matrix (C, C) of a kind of noise that has one; the identity for `none`."""
    if spec.kind == "none":
        _check_classes(classes)
        return np.eye(classes)
    if spec.matrix is not None:
        return check_transition_matrix(spec.matrix, classes)
    makers = {"symmetric": symmetric, "uniform": uniform, "pair": pair}
    if spec.rate is None or spec.kind not in makers:
        raise InvalidInput(f"`noise` must be of a kind with a transition matrix, but got {spec}.")
    return makers[spec.kind](classes, spec.rate)


# Drawing labels


def apply_noise(spec: NoiseSpec, data: LabelledData, generator: np.random.Generator) -> LabelledData:
    """Return the same samples with noisy labels; the true labels become (or stay) `clean_labels`.

    Noise is drawn from the true labels where they are known, so it replaces earlier noise. `none` returns the data
    unchanged, without clean labels if they have none.
    """
    if spec.kind == "none":
        return data
    if spec.kind == "human":
        raise InvalidInput(f"`noise` must be a kind that can be drawn, but got {spec}; use `human_labels`.")
    labels = data.labels if data.clean_labels is None else data.clean_labels
    if spec.kind == "instance" and spec.rate is not None:
        return data.with_noisy_labels(corrupt_by_instance(data.inputs, labels, data.classes, spec.rate, generator))
    return data.with_noisy_labels(corrupt(labels, transition_matrix(spec, data.classes), generator))


def achieved_rate(data: LabelledData) -> float | None:
    """Return the share of labels that differ from the true labels, or None if these are unknown."""
    return None if data.clean_labels is None else float(np.mean(data.labels != data.clean_labels))


def corrupt(labels: Labels, matrix: ArrayLike, generator: np.random.Generator) -> Labels:
    """Draw every label (N,) independently from the row of `matrix` (C, C) of its true class."""
    checked = check_transition_matrix(matrix)
    _check_labels(labels, len(checked))
    cumulative = np.cumsum(checked, axis=1)  # (C, C)
    cumulative /= cumulative[:, -1:]  # the last is exactly 1, above any uniform draw
    draws = generator.random(len(labels))  # (N,)
    noisy = np.empty(len(labels), dtype=np.int64)
    for label, row in enumerate(cumulative):
        of_class = labels == label
        noisy[of_class] = np.searchsorted(row, draws[of_class], side="right")  # the first column beyond the draw
    return noisy


def corrupt_by_instance(
    inputs: Array, labels: Labels, classes: int, rate: float, generator: np.random.Generator
) -> Labels:
    """Draw labels with instance-dependent noise, after Xia et al. 2020, "Part-dependent label noise".

    A sample x of class y is flipped with probability q ~ Normal(μ, 0.1²) truncated to [0, 1]; it then becomes class
    j ≠ y with probability softmax_j(x̂ᵀ W_y), W_y standard normal (S, C). Two differences from the published method:

    - μ is solved for E[q] = `rate`; with μ = `rate` the truncation shifts the mean for low and high rates.
    - x̂ is x with every feature standardised over the data, then scaled to length 2, so that the logits are
      Normal(0, 2²) for any unit and number of features. Raw pixels would give logits in the tens and a one-hot
      softmax, small inputs a uniform one. (A sample equal to the mean of the data has a uniform softmax.)

    Args:
        inputs: (N, ...), any numeric type; processed in chunks.
        labels: (N,) true labels in [0, C).
        classes: C.
        rate: expected share of wrong labels, in [0, 1).
        generator: source of all draws.

    Returns:
        Noisy labels (N,).
    """
    _check_classes(classes)
    _check_labels(labels, classes)
    _check_rate(rate)
    if len(inputs) != len(labels):
        raise InvalidInput(f"`labels` must have one entry for each of the {len(inputs)} inputs, but got {len(labels)}.")
    flipped = generator.random(len(labels)) < flip_probabilities(len(labels), rate, generator)  # (N,)
    flat = inputs.reshape(len(inputs), int(np.prod(inputs.shape[1:])))  # (N, S)
    mean, scale = _feature_moments(flat)
    noisy = labels.astype(np.int64)
    for label in range(classes):
        weights = generator.standard_normal((flat.shape[1], classes), dtype=np.float32)  # W_y: (S, C)
        for rows in _chunks(np.flatnonzero(flipped & (labels == label)), flat.shape[1]):
            standard = ((flat[rows] - mean) / scale).astype(np.float32)  # (n, S)
            length = np.linalg.norm(standard, axis=1, keepdims=True)
            logits = _LOGIT_SPREAD * (standard / np.where(length > 0, length, 1)) @ weights  # (n, C)
            logits[:, label] = -np.inf  # never the true class
            noisy[rows] = np.argmax(logits + generator.gumbel(size=logits.shape), axis=1)  # a draw from the softmax
    return noisy


def flip_probabilities(count: int, rate: float, generator: np.random.Generator) -> Floats:
    """Draw (count,) from Normal(μ, 0.1²) truncated to [0, 1], with μ such that the expectation is `rate`.

    For rates within 0.001 of 0 or 1, every probability equals the rate.
    """
    _check_rate(rate)
    if rate > 0.5:
        return 1 - _low_flip_probabilities(count, 1 - rate, generator)
    return _low_flip_probabilities(count, rate, generator)


def _low_flip_probabilities(count: int, rate: float, generator: np.random.Generator) -> Floats:
    """Draw for rates up to 1/2, by inverting the logarithm of the upper tail."""
    if rate < _NARROW:
        return np.full(count, float(rate))
    centre = truncated_centre(rate)
    tail_at_0 = log_ndtr(centre / _FLIP_SPREAD)  # log P(normal > 0)
    tail_at_1 = log_ndtr((centre - 1) / _FLIP_SPREAD)  # log P(normal > 1)
    below = generator.random(count) * -np.expm1(tail_at_1 - tail_at_0)  # P(0 < normal ≤ q) / P(normal > 0)
    drawn: Floats = centre - _FLIP_SPREAD * ndtri_exp(tail_at_0 + np.log1p(-below))
    return np.clip(drawn, 0.0, 1.0)


def truncated_centre(rate: float) -> float:
    """Return μ such that Normal(μ, 0.1²) truncated to [0, 1] has the mean `rate`, for rates in [0.001, 0.5].

    The mean increases with μ and is below 0.01/|μ| for μ < 0, which gives the lower end of the bracket.
    """
    from scipy.optimize import brentq  # slow to import

    return float(brentq(lambda centre: _truncated_mean(centre) - rate, -(_FLIP_SPREAD**2) / rate, 0.6, xtol=1e-14))


def _truncated_mean(centre: float) -> float:
    """Return the mean of the truncated normal; scaled complementary error functions are accurate in the tail."""
    a, b = -centre / _FLIP_SPREAD, (1 - centre) / _FLIP_SPREAD  # the bounds 0 and 1 in standard units
    ratio = np.exp((a - b) * (a + b) / 2)  # density at b over density at a
    root = np.sqrt(2)
    hazard = np.sqrt(2 / np.pi) * (1 - ratio) / (erfcx(a / root) - ratio * erfcx(b / root))
    return float(centre + _FLIP_SPREAD * hazard)


def _feature_moments(flat: Array) -> tuple[Floats, Floats]:
    """Return mean (S,) and standard deviation (S,) of the features in float64; infinite for a constant feature."""
    count, size = flat.shape
    total, squares, varies = np.zeros(size), np.zeros(size), np.zeros(size, dtype=bool)
    for rows in _chunks(np.arange(count), size):
        total += flat[rows].sum(axis=0, dtype=np.float64)
        varies |= (flat[rows] != flat[0]).any(axis=0)  # exact, unlike a deviation
    mean = total / max(count, 1)
    for rows in _chunks(np.arange(count), size):
        squares += ((flat[rows] - mean) ** 2).sum(axis=0)
    return mean, np.where(varies & (squares > 0), np.sqrt(squares / max(count, 1)), np.inf)


def _chunks(rows: Labels, size: int) -> Iterator[Labels]:
    """Split the rows into chunks with a bounded number of input values."""
    step = max(1, _CHUNK_NUMBERS // max(size, 1))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


# Checks


def _check_rate(rate: float) -> None:
    if not 0 <= rate < 1:
        raise InvalidInput(f"`rate` must lie in [0, 1), but got {rate}; write 40 % as 0.4.")


def _check_classes(classes: int) -> None:
    if classes < 2:
        raise InvalidInput(f"`classes` must be at least 2, but got {classes}.")


def _check_labels(labels: Labels, classes: int) -> None:
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise InvalidInput(f"`labels` must be (N,) integers, but got {labels.dtype} of shape {labels.shape}.")
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        raise InvalidInput(f"`labels` must lie in 0..{classes - 1}, but got {labels.min()}..{labels.max()}.")
