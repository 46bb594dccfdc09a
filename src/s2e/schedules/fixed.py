"""Fixed schedules: constant, Co-teaching's, and given keep rates.

A schedule is a (T,) float64 array of keep rates, one for each of the T epochs; t = 0..T−1 is the index of an epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2e.errors import InvalidInput, raise_all

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]


def constant(rate: float, epochs: int) -> Floats:
    """Return the same keep rate in every epoch, (T,)."""
    check_epochs(epochs)
    _check_share("rate", rate)
    return np.full(epochs, float(rate))


def coteaching(noise_rate: float, epochs: int, *, ramp: float = 10, exponent: float = 1.0) -> Floats:
    """Return Co-teaching's schedule, 1 − τ·min((t/t_k)^c, 1), (T,) (paper, eq. 1).

    Args:
        noise_rate: τ in [0, 1], the assumed share of wrong labels.
        epochs: T.
        ramp: t_k > 0, the epoch at which the keep rate reaches 1 − τ.
        exponent: c ≥ 0; with 0 the keep rate is 1 − τ after the first epoch.
    """
    check_epochs(epochs)
    _check_share("noise_rate", noise_rate)
    if not (np.isfinite(ramp) and ramp > 0):
        raise InvalidInput(f"`ramp` must be a positive number of epochs, but got {ramp}.")
    if not (np.isfinite(exponent) and exponent >= 0):
        raise InvalidInput(f"`exponent` must be finite and not negative, but got {exponent}.")
    return coteaching_curve(np.arange(epochs), noise_rate, ramp, exponent)


def coteaching_curve(t: ArrayLike, noise_rate: ArrayLike, ramp: ArrayLike, exponent: ArrayLike) -> Floats:
    """Evaluate eq. (1) of the paper for arguments that broadcast; 0^0 counts as 0, so that R(0) = 1 always."""
    t = np.asarray(t, dtype=np.float64)
    dropped = np.minimum(t / ramp, 1.0) ** exponent  # min((t/t_k)^c, 1), without the overflow
    return np.asarray(1 - np.asarray(noise_rate) * np.where(t > 0, dropped, 0.0))


def check_schedule(keep_rates: ArrayLike, epochs: int) -> Floats:
    """Return given keep rates as a new (T,) float64 array, or raise one error with all problems."""
    check_epochs(epochs)
    try:
        schedule = np.array(keep_rates, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"`keep_rates` must be {epochs} numbers, one for each epoch, but got {keep_rates!r:.60}."
        ) from None
    problems = []
    if schedule.shape != (epochs,):
        found = f"{len(schedule)} numbers" if schedule.ndim == 1 else f"the shape {schedule.shape}"
        problems.append(
            f"`keep_rates` must hold one number for each of the {epochs} epochs, but got {found}; "
            f"change the schedule or the number of epochs."
        )
    raise_all(problems + _rate_problems(schedule))
    return schedule


def keep_counts(keep_rates: ArrayLike, batch_size: int) -> Counts:
    """Return the number of samples of a batch to keep, max(1, ⌊R·B⌋), in the shape of `keep_rates` (..., T).

    R·B is a rounded product: 0.29·100 is below 29. Therefore 1e-9 is added before rounding down, far more than the
    rounding error (about 1e-16·B) and far less than any difference between keep rates that matters.
    """
    if batch_size < 1:
        raise InvalidInput(f"`batch_size` must be at least 1, but got {batch_size}.")
    rates = np.asarray(keep_rates, dtype=np.float64)
    raise_all(_rate_problems(rates))
    return np.maximum(1, np.floor(rates * batch_size + 1e-9).astype(np.int64))


def check_epochs(epochs: object) -> None:
    """Raise if the number of epochs is not a positive integer."""
    if not isinstance(epochs, (int, np.integer)) or epochs < 1:
        raise InvalidInput(f"`epochs` must be a positive integer, but got {epochs!r}.")


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InvalidInput(f"`{name}` must lie in [0, 1], but got {value}.")


def _rate_problems(rates: Floats) -> list[str]:
    finite = np.isfinite(rates)
    problems = []
    if not finite.all():
        problems.append(f"`keep_rates` must be finite, but {(~finite).sum()} of {rates.size} are not.")
    outside = rates[finite & ((rates < 0) | (rates > 1))]
    if outside.size:
        problems.append(f"`keep_rates` must lie in [0, 1], but got {outside[0]:g} ({outside.size} of {rates.size}).")
    return problems
