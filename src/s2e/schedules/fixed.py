"""Schedules that are not searched: constant, Co-teaching's, and those read from a file.

A schedule is a (T,) float64 array of keep rates, one for each of the T epochs; t = 0..T−1 is the epoch's index.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from s2e.errors import InvalidInput, UnreadableData, unknown_name

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]

_FORMS = ("constant:RATE", "coteaching:NOISE_RATE", "FILE.json")


def constant(rate: float, epochs: int) -> Floats:
    """(T,): the same keep rate in every epoch."""
    check_epochs(epochs)
    _check_share("rate", rate)
    return np.full(epochs, float(rate))


def coteaching(noise_rate: float, epochs: int, *, ramp: float = 10, exponent: float = 1.0) -> Floats:
    """(T,): Co-teaching's schedule, 1 − τ·min((t/t_k)^c, 1) (paper, eq. 1).

    Args:
        noise_rate: τ in [0, 1], the share of wrong labels one has been told.
        epochs: T.
        ramp: t_k > 0, the epoch at which the keep rate has come down to 1 − τ.
        exponent: c ≥ 0; 0 comes down at once, right after the first epoch.
    """
    check_epochs(epochs)
    _check_share("noise_rate", noise_rate)
    if not (np.isfinite(ramp) and ramp > 0):
        raise InvalidInput(f"`ramp` must be a positive number of epochs, but got {ramp}.")
    if not (np.isfinite(exponent) and exponent >= 0):
        raise InvalidInput(f"`exponent` must be finite and not negative, but got {exponent}.")
    return coteaching_curve(np.arange(epochs), noise_rate, ramp, exponent)


def coteaching_curve(t: ArrayLike, noise_rate: ArrayLike, ramp: ArrayLike, exponent: ArrayLike) -> Floats:
    """Eq. (1) of the paper for arguments of any shapes that broadcast; 0^0 counts as 0, so that R(0) = 1 always."""
    t = np.asarray(t, dtype=np.float64)
    dropped = np.minimum(t / ramp, 1.0) ** exponent  # min((t/t_k)^c, 1), without the overflow
    return np.asarray(1 - np.asarray(noise_rate) * np.where(t > 0, dropped, 0.0))


def check_schedule(keep_rates: ArrayLike, epochs: int) -> Floats:
    """Return a given schedule as (T,) float64, or say everything that is wrong with it."""
    check_epochs(epochs)
    try:
        schedule = np.array(keep_rates, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"`keep_rates` must be {epochs} numbers, one for each epoch, but got something else."
        ) from None
    problems = []
    if schedule.shape != (epochs,):
        found = f"{len(schedule)} of them" if schedule.ndim == 1 else f"the shape {schedule.shape}"
        problems.append(
            f"`keep_rates` must hold one number for each of the {epochs} epochs, but got {found}; "
            f"change the schedule or the number of epochs."
        )
    problems += _problems_of_rates(schedule)
    if problems:
        raise InvalidInput(" ".join(problems))
    return schedule


def keep_counts(keep_rates: ArrayLike, batch_size: int) -> Counts:
    """Return how many samples of a batch are kept, max(1, ⌊R·B⌋), in the shape of `keep_rates` (..., T).

    R·B is a rounded product: 0.29·100 comes out below 29. It is therefore lifted by 1e-9 before it is cut, far more
    than its rounding error (about 1e-16·B) and far less than any difference between keep rates that matters.
    """
    if batch_size < 1:
        raise InvalidInput(f"`batch_size` must be at least 1, but got {batch_size}.")
    rates = np.asarray(keep_rates, dtype=np.float64)
    problems = _problems_of_rates(rates)
    if problems:
        raise InvalidInput(" ".join(problems))
    return np.maximum(1, np.floor(rates * batch_size + 1e-9).astype(np.int64))


def parse_schedule(text: str, epochs: int) -> Floats:
    """Read `constant:0.6`, `coteaching:0.45`, or a JSON file {"keep_rates": [...]} into (T,) keep rates."""
    kind, colon, value = text.strip().partition(":")
    if colon and kind in ("constant", "coteaching"):
        try:
            rate = float(value)
        except ValueError:
            raise InvalidInput(
                f"`schedule` must be written as {kind}:RATE, as in {kind}:0.4, but got {text!r}."
            ) from None
        return constant(rate, epochs) if kind == "constant" else coteaching(rate, epochs)
    path = Path(text.strip())
    if path.suffix != ".json":
        raise unknown_name("schedule", text.strip(), _FORMS)
    return check_schedule(_read_keep_rates(path), epochs)


def _read_keep_rates(path: Path) -> ArrayLike:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableData(f"the schedule {str(path)!r} could not be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UnreadableData(f"the schedule {str(path)!r} is not JSON: {error}.") from error
    if not isinstance(content, dict) or not isinstance(content.get("keep_rates"), list):
        raise InvalidInput(f'a schedule file must hold {{"keep_rates": [...]}}, but {str(path)!r} does not.')
    rates: ArrayLike = content["keep_rates"]
    return rates


def check_epochs(epochs: object) -> None:
    """Refuse a number of epochs that is not a positive integer."""
    if not isinstance(epochs, (int, np.integer)) or epochs < 1:
        raise InvalidInput(f"`epochs` must be a positive integer, but got {epochs!r}.")


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InvalidInput(f"`{name}` must lie in [0, 1], but got {value}.")


def _problems_of_rates(rates: Floats) -> list[str]:
    finite = np.isfinite(rates)
    problems = []
    if not finite.all():
        problems.append(f"`keep_rates` must be finite, but {(~finite).sum()} of {rates.size} are not.")
    outside = rates[finite & ((rates < 0) | (rates > 1))]
    if outside.size:
        problems.append(f"`keep_rates` must lie in [0, 1], but got {outside[0]:g} ({outside.size} of {rates.size}).")
    return problems
