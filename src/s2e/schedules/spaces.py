"""Spaces, the searched families of schedules: maps from points of the unit cube to keep rates.

Notation (paper, section 3.2 and Table 1) and shapes:
    P points, D coordinates of a space, T epochs, M epochs at which a curve is evaluated (all T by default)
    u       (P, D)  points of the unit cube
    t       (M,)    epoch indices in 0..T−1
    R       (P, M)  keep rates
    α       (P, 4)  weights of the basis functions, on the simplex
    a1..a4  (P, 1)  parameters of one basis function
    x       (M,)    t/T, the input of a network that defines a curve
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from s2e.errors import InvalidInput, InvalidType, unknown_name
from s2e.schedules.fixed import check_epochs, coteaching_curve

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

_LARGEST_BELOW_1 = float(np.nextafter(1.0, 0.0))


class Space(ABC):
    """A family of schedules. Subclasses set `name` and `names`, and implement `unclipped`.

    Every point of the cube must be valid, corners included, and a point's curve must not depend on the other points.
    `tests/conformance/test_spaces.py` checks this.

    Attributes:
        name: name of the space on the command line and in records.
        names: names of the D coordinates, in the order of a point's entries; also the names of Optuna's parameters.
        simplex: names of the coordinates that `simplex_weights` maps to weights on the simplex: none, or at least two.
            The relaxation sampler draws their weights from a Dirichlet distribution.

    Example:
        >>> class LinearSpace(Space):
        ...     name = "linear"
        ...     names = ("start", "end")
        ...
        ...     def unclipped(self, points, t, epochs):
        ...         start, end = points[:, :1], points[:, 1:]  # (P, 1) each
        ...         return start + (end - start) * t / epochs  # (P, M)
    """

    name: str
    names: tuple[str, ...]
    simplex: tuple[str, ...] = ()

    @property
    def dimension(self) -> int:
        """Return D, the number of coordinates."""
        return len(self.names)

    def decode(self, points: ArrayLike, epochs: int, *, at: ArrayLike | None = None) -> Floats:
        """Return the keep rates of points.

        Args:
            points: (P, D), in [0, 1].
            epochs: T.
            at: (M,) epoch indices in 0..T−1; all of them by default.

        Returns:
            (P, T), or (P, M) with `at`, clipped to [0, 1].
        """
        check_epochs(epochs)
        t = np.arange(epochs) if at is None else np.asarray(at)
        if t.ndim != 1 or not ((t >= 0) & (t < epochs)).all():
            raise InvalidInput(f"`at` must be (M,) epoch indices in 0..{epochs - 1}, but got {t.tolist()}.")
        return np.clip(self.unclipped(self._valid(points), t.astype(np.float64), epochs), 0.0, 1.0)

    def features(self, points: ArrayLike, epochs: int, *, at: ArrayLike) -> Floats:
        """Return the numbers by which a model of the score compares points, (P, F): the keep rates at some epochs.

        A space with coordinates that the schedule does not depend on adds features of them.
        """
        return self.decode(points, epochs, at=at)

    def in_turn(self, point: Floats, number: int) -> Floats:  # noqa: ARG002
        """Return the point (D,) of the trial with this number at the start of a search, with the same schedule.

        A space with coordinates that the schedule does not depend on lets them take their values in turn.
        """
        return point

    @abstractmethod
    def unclipped(self, points: Floats, t: Floats, epochs: int) -> Floats:
        """Return the curves (P, M) of valid points (P, D) at the epochs t (M,), before they are clipped to [0, 1]."""

    def _valid(self, points: ArrayLike) -> Floats:
        try:
            valid = np.asarray(points, dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"`points` must be numbers of shape (P, {self.dimension}), but got {points!r:.60}."
            ) from None
        if valid.ndim != 2 or valid.shape[1] != self.dimension:
            raise InvalidInput(
                f"`points` must have the shape (P, {self.dimension}) in the space {self.name}, but got {valid.shape}."
            )
        inside = (valid >= 0) & (valid <= 1)  # false for NaN too
        if not inside.all():
            row, column = np.argwhere(~inside)[0]
            found = f"{valid[row, column]:g} for {self.names[column]} of point {row}"
            raise InvalidInput(f"`points` must be finite and lie in [0, 1], but got {found}.")
        return valid


def simplex_weights(u: ArrayLike) -> Floats:
    """Map cube coordinates u (..., k) to simplex weights α (..., k): g_i = −ln(1−u_i), α = g/Σg.

    Uniform u makes every g_i exponential and α ~ Dirichlet(1). A coordinate of 1 counts as the largest number below 1
    (g ≈ 36.7), and a row of zeros as equal weights.
    """
    g = -np.log1p(-np.minimum(np.asarray(u, dtype=np.float64), _LARGEST_BELOW_1))
    total = g.sum(axis=-1, keepdims=True)
    return np.where(total > 0, g / np.where(total > 0, total, 1.0), 1 / max(g.shape[-1], 1))


# --------------------------------------------------------------------------------------------------- the paper's space


def _exponential_fall(t: Floats, a1: Floats, a2: Floats) -> Floats:
    return np.exp(-a2 * t**a1)


def _hyperbolic_fall(t: Floats, a1: Floats, a2: Floats) -> Floats:
    return (1 + a2 * t) ** -a1


def _power_rise(t: Floats, epochs: int, a4: Floats) -> Floats:
    return np.asarray((t / epochs) ** a4)


def _logarithmic_rise(t: Floats, epochs: int, a4: Floats) -> Floats:
    return np.asarray(np.log1p(t**a4) / np.log1p(float(epochs) ** a4))


_Fall = Callable[["Floats", "Floats", "Floats"], "Floats"]
_Rise = Callable[["Floats", int, "Floats"], "Floats"]
_TABLE_1: tuple[tuple[_Fall, _Rise], ...] = (
    (_exponential_fall, _power_rise),  # f1
    (_exponential_fall, _logarithmic_rise),  # f2
    (_hyperbolic_fall, _power_rise),  # f3
    (_hyperbolic_fall, _logarithmic_rise),  # f4
)


def _basis_function(i: int, a: Floats, t: Floats, epochs: int) -> Floats:
    """Return f_i(t; a1..a4) for a (P, 4), i from 1: (P, M). The caller sets the value at t = 0, because of 0^0."""
    fall, rise = _TABLE_1[i - 1]
    a1, a2, a3, a4 = (a[:, j, None] for j in range(4))  # (P, 1) each
    return fall(t, a1, a2) + a3 * rise(t, epochs, a4)


class S2ESpace(Space):
    """The paper's space: R(t) = Σ α_i f_i(t; a1..a4 of i), the f_i of Table 1, α on the simplex (paper, section 3.2).

    D = 20: four coordinates for the weights, then a1..a4 of f1, of f2, of f3 and of f4. Every f starts at 1, falls,
    and rises by at most a3. R(0) = 1 exactly for every point: 0^0 counts as 0, the limit of 0^a as a falls to 0.
    """

    name = "s2e"
    simplex = ("weight_1", "weight_2", "weight_3", "weight_4")
    names = (*simplex, *(f"f{i}_a{j}" for i in (1, 2, 3, 4) for j in (1, 2, 3, 4)))

    def unclipped(self, points: Floats, t: Floats, epochs: int) -> Floats:
        """Return Σ α_i f_i(t), (P, M); the curves of about a fifth of uniform points exceed 1."""
        alpha = simplex_weights(points[:, :4])  # (P, 4)
        beta = points[:, 4:].reshape(-1, 4, 4)  # (P, basis function, a1..a4)
        curves = np.zeros((len(points), len(t)))
        for i in (1, 2, 3, 4):
            curves += alpha[:, i - 1, None] * _basis_function(i, beta[:, i - 1], t, epochs)
        curves[:, t == 0] = 1.0
        return curves


class SingleSpace(Space):
    """A single basis function of Table 1, R(t) = f_i(t; a1..a4) (paper, ablation of the search space).

    D = 4: a1..a4, named as in the S2E space. The curves are those of that space with all weight on f_i: R(0) = 1
    exactly, and R is clipped where it exceeds 1. The paper reports the best of the four spaces.

    Args:
        basis: i in 1..4.
    """

    def __init__(self, basis: int) -> None:
        if basis not in (1, 2, 3, 4):
            raise InvalidInput(f"`basis` must be 1, 2, 3 or 4, but got {basis!r}.")
        self.basis = basis
        self.name = f"single-{basis}"
        self.names = tuple(f"f{basis}_a{j}" for j in (1, 2, 3, 4))

    def unclipped(self, points: Floats, t: Floats, epochs: int) -> Floats:
        """Return f_i(t), (P, M)."""
        curves = _basis_function(self.basis, points, t, epochs)
        curves[:, t == 0] = 1.0
        return curves


# ------------------------------------------------------------------------------------------------- Co-teaching's space


class CoteachingSpace(Space):
    """Co-teaching's family, R(t) = 1 − τ·min((t/t_k)^c, 1) (paper, eq. 1), with all three parameters searched.

    D = 3, each coordinate scaled linearly: τ in [0, 1], c in [0, 2] (at 0 the curve drops to 1 − τ after the first
    epoch), and t_k in [1, T/2], a real number of epochs. Co-teaching's paper tries c = 0.5, 1, 2 and t_k = 5, 10, 15.
    """

    name = "coteaching"
    names = ("noise_rate", "exponent", "ramp")

    def unclipped(self, points: Floats, t: Floats, epochs: int) -> Floats:
        """Return eq. (1) of the paper, (P, M); in [0, 1]."""
        tau, c, ramp = (points[:, j, None] for j in range(3))  # (P, 1) each
        longest = max(epochs / 2, 1.0)
        return coteaching_curve(t, tau, 1 + ramp * (longest - 1), 2 * c)


# ------------------------------------------------------------------------------------- general function approximators

# Networks without a prior on the shape of the curve: R(0) may be any number. The paper gives their size, four hidden
# units and a sigmoid, but no ranges of the weights. With these ranges and uniform points, R at one epoch has about the
# standard deviation of a uniform number (0.29), and two kinds of curves are rare, counted at T = 200: almost constant
# ones, max R − min R < 0.05, and saturated ones, within 0.02 of 0 or 1 in over 90 % of the epochs. (In the S2E space
# they are 6 % and 5 %.)


class RBFSpace(Space):
    """A radial basis function network, R(t) = sigmoid(b + Σ w_i exp(−(x − c_i)²/(2 s_i²))), x = t/T (paper, ablation).

    D = 13: b in [−2, 2], then four of each, w_i in [−3, 3], c_i in [0, 1], all scaled linearly, and s_i in [0.05, 0.5],
    scaled logarithmically. Of uniform points 1.5 % give an almost constant curve and 0.4 % a saturated one; R has mean
    0.5 and standard deviation 0.30, 0.33 and 0.30 at t = 0, T/4 and T − 1.
    """

    name = "rbf"
    names = ("bias", *(f"{kind}_{i}" for kind in ("weight", "centre", "width") for i in (1, 2, 3, 4)))

    def unclipped(self, points: Floats, t: Floats, epochs: int) -> Floats:
        """Return the network's output, (P, M); in (0, 1)."""
        bias, weight, centre, width = _by_unit(points)
        w, c, s = _symmetric(weight, 3), centre, 0.05 * 10**width  # (P, 4, 1) each
        return _sigmoid(_symmetric(bias, 2) + (w * np.exp(-((t / epochs - c) ** 2) / (2 * s**2))).sum(axis=1))


class MLPSpace(Space):
    """A perceptron with one hidden layer, R(t) = sigmoid(b + Σ v_i max(0, w_i x + b_i)), x = t/T (paper, ablation).

    D = 13: b in [−2, 2], then four of each, v_i in [−6, 6], w_i in [−1, 1] and b_i in [−1/4, 1/4], all scaled linearly.
    A curve stays the same when w_i and b_i are multiplied and v_i is divided by one positive number, so w_i needs no
    wider range; b_i has a narrower one because a unit bends the curve at x = −b_i/w_i, which only matters within
    [0, 1]. Of uniform points 11 % give an almost constant curve and 0.2 % a saturated one; R has mean 0.5 and standard
    deviation 0.26, 0.28 and 0.36 at t = 0, T/4 and T − 1.
    """

    name = "mlp"
    names = ("bias", *(f"{kind}_{i}" for kind in ("weight", "slope", "offset") for i in (1, 2, 3, 4)))

    def unclipped(self, points: Floats, t: Floats, epochs: int) -> Floats:
        """Return the network's output, (P, M); in (0, 1)."""
        bias, weight, slope, offset = _by_unit(points)
        v, w, b = _symmetric(weight, 6), _symmetric(slope, 1), _symmetric(offset, 0.25)  # (P, 4, 1) each
        return _sigmoid(_symmetric(bias, 2) + (v * np.maximum(0.0, w * (t / epochs) + b)).sum(axis=1))


def _by_unit(points: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Split points (P, 13) into the output unit's bias (P, 1) and three coordinates (P, 4, 1) of the hidden units."""
    return points[:, :1], points[:, 1:5, None], points[:, 5:9, None], points[:, 9:13, None]


def _symmetric(u: Floats, bound: float) -> Floats:
    """Scale u in [0, 1] to [−bound, bound]."""
    return bound * (2 * u - 1)


def _sigmoid(z: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-z)))  # |z| ≤ 2 + 4·6·(1 + 1/4) = 32 in these spaces: no overflow


SPACES: dict[str, Space] = {
    each.name: each
    for each in (S2ESpace(), CoteachingSpace(), *(SingleSpace(i) for i in (1, 2, 3, 4)), RBFSpace(), MLPSpace())
}
"""Every space by its name."""


def space(space: str | Space) -> Space:
    """Return the space of a name in `SPACES`, or a `Space` as it is."""
    if isinstance(space, Space):
        return space
    if not isinstance(space, str):
        raise InvalidType(
            f"`space` must be one of {', '.join(SPACES)}, or an instance of a subclass of `Space`, but got {space!r}."
        )
    if space not in SPACES:
        raise unknown_name("space", space, SPACES)
    return SPACES[space]
