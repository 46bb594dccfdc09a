"""The outcomes of the trainings of a comparison, their summaries, and their rows for a spreadsheet.

Letters: A outcomes, T epochs. Epochs are counted from 0, like t in R(t).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.engine import LAST_EPOCHS, VALIDATION, Curves
from s2e.errors import InvalidInput
from s2e.methods import METHODS, Need
from s2e.workflows.entrants import is_oracle

Floats = NDArray[np.float64]

TEST = "test"
"""Name of the part that trainings are evaluated on."""
TEST_PART = "test-part"
"""Name of a part of the test samples that trainings are evaluated on too."""
UNUSED = "unused"
"""Name of the half of the clean validation samples that methods which train with such samples do not use."""
HELD_OUT = "held-out"
"""Its name where its labels are as noisy as those of the training part."""

_TEXTS = ("noise", "method", "evaluated_on")
_CURVES = ("accuracy", "part_accuracy", "valid_accuracy", "train_accuracy", "label_precision", "kept", "loss")

PART = "part_"
"""Prefix of the accuracies on a part of the test samples, among the names of results."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """One training in a comparison.

    Attributes:
        noise: the noise setting as given, e.g. `pair:0.45`.
        method: name on the command line, e.g. `coteaching+` or `s2e`.
        seed: index of the seed.
        evaluated_on: part of the data that `accuracy` is measured on, `test` or `held-out`, or `valid` of a single
            training.
        accuracy: (T,) accuracy on that part after every epoch.
        part_accuracy: (T,) accuracy on a part of the test samples; NaN if no part is evaluated on its own.
        valid_accuracy: (T,) accuracy on the validation samples that it is not trained on; NaN if it has none, like an
            entrant with noisy validation.
        train_accuracy: (T,) accuracy on the given (noisy) training labels.
        label_precision: (T,) share of correctly labelled samples among those trained on; NaN where true labels are
            unknown or nothing was selected.
        kept: (T,) share of the samples trained on.
        loss: (T,) minimised loss.
        keep_rates: (T,) R(t), or None for methods without a keep rate.
        diverged: whether the loss stopped being finite.
    """

    noise: str
    method: str
    seed: int
    evaluated_on: str
    accuracy: Floats
    part_accuracy: Floats
    valid_accuracy: Floats
    train_accuracy: Floats
    label_precision: Floats
    kept: Floats
    loss: Floats
    keep_rates: Floats | None
    diverged: bool

    @classmethod
    def of(
        cls,
        curves: Curves,
        member: int,
        *,
        noise: str,
        method: str,
        seed: int,
        evaluated_on: str,
        keep_rates: Floats | None,
        chosen_on: str | None = VALIDATION,
    ) -> Outcome:
        """Return the outcome of one member of a trained population.

        Args:
            curves: of the population.
            member: its index.
            noise: noise setting.
            method: name of the entrant.
            seed: index of the seed.
            evaluated_on: the part that its accuracy is measured on.
            keep_rates: R(t), (T,), or None.
            chosen_on: the part with the validation samples that it is not trained on; None if it has none.
        """
        unknown = np.full_like(curves.loss[member], np.nan)
        part = curves.accuracy.get(TEST_PART)
        return cls(
            noise,
            method,
            seed,
            evaluated_on,
            accuracy=curves.accuracy[evaluated_on][member],
            part_accuracy=unknown if part is None else part[member],
            valid_accuracy=unknown if chosen_on is None else curves.accuracy[chosen_on][member],
            train_accuracy=curves.train_accuracy[member],
            label_precision=curves.label_precision[member],
            kept=curves.kept[member],
            loss=curves.loss[member],
            keep_rates=keep_rates,
            diverged=bool(curves.diverged[member]),
        )

    @property
    def last(self) -> float:
        """Return the mean accuracy over the last epochs; 0 for a training that diverged."""
        return 0.0 if self.diverged else float(self.accuracy[-LAST_EPOCHS:].mean())

    @property
    def best(self) -> float:
        """Return the accuracy of the best epoch, also of a training that diverged later."""
        return float(self.accuracy[self.best_epoch])

    @property
    def best_epoch(self) -> int:
        """Return the first epoch with the best accuracy."""
        return int(np.where(np.isnan(self.accuracy), -np.inf, self.accuracy).argmax())

    @property
    def chosen_epoch(self) -> int | None:
        """Return the first epoch with the best accuracy on the validation part, where a user would have stopped.

        None if that says nothing: without another part to evaluate on, or if no accuracy is known.
        """
        if self.evaluated_on == VALIDATION or np.isnan(self.valid_accuracy).all():
            return None
        return int(np.nanargmax(self.valid_accuracy))

    @property
    def chosen(self) -> float:
        """Return the accuracy of the epoch chosen on the validation part; NaN if none can be chosen."""
        return math.nan if self.chosen_epoch is None else float(self.accuracy[self.chosen_epoch])

    @property
    def on_part(self) -> Outcome | None:
        """The same training evaluated on a part of the test samples; None if no part is evaluated on its own."""
        if np.isnan(self.part_accuracy).all():
            return None
        return replace(self, accuracy=self.part_accuracy)

    @property
    def last_precision(self) -> float:
        """Return the mean label precision over the last epochs, without unknown ones; NaN if all are unknown."""
        return _known_mean(self.label_precision[-LAST_EPOCHS:])


def summarise(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return means and standard deviations over the seeds of each noise setting and method.

    Rows are in order of first appearance and ready for JSON: `noise`, `method`, `seeds` and `diverged` (counts), and
    `last_10_epochs`, `chosen_epoch`, `best_epoch` and `label_precision` as `{"mean": …, "std": …}`. Unknown values are
    None, and so is the standard deviation of a single value. Where a part of the test samples is evaluated on its own,
    `part_last_10_epochs`, … are the accuracies on it.
    """
    return [
        {
            "noise": noise,
            "method": method,
            "seeds": len(group),
            "diverged": sum(outcome.diverged for outcome in group),
            **_accuracies(group),
            "label_precision": _mean_and_std(outcome.last_precision for outcome in group),
            **_accuracies([part for outcome in group if (part := outcome.on_part) is not None], PART),
        }
        for (noise, method), group in grouped(outcomes).items()
    ]


def _accuracies(group: Sequence[Outcome], prefix: str = "") -> dict[str, dict[str, float | None]]:
    """Return mean and deviation of the three accuracies of trainings, by name; nothing without trainings."""
    if not group:
        return {}
    return {
        f"{prefix}last_{LAST_EPOCHS}_epochs": _mean_and_std(outcome.last for outcome in group),
        f"{prefix}chosen_epoch": _mean_and_std(outcome.chosen for outcome in group),
        f"{prefix}best_epoch": _mean_and_std(outcome.best for outcome in group),
    }


def best_of_competitors(rows: Iterable[Mapping[str, Any]], quantity: str) -> float | None:
    """Return the largest mean of a quantity in rows of `summarise` without oracles; None if all are unknown."""
    means = [row[quantity]["mean"] for row in rows if not is_oracle(row["method"])]
    return max((mean for mean in means if mean is not None), default=None)


def grouped(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """Group outcomes that differ in their seed only, by (noise, method) in order of first appearance."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.noise, outcome.method), []).append(outcome)
    return groups


def _mean_and_std(values: Iterable[float]) -> dict[str, float | None]:
    """Return mean and std = sqrt(Σ (x − mean)² / (n − 1)) of the known values."""
    known = np.array([value for value in values if not math.isnan(value)])
    return {
        "mean": float(known.mean()) if len(known) > 0 else None,
        "std": float(known.std(ddof=1)) if len(known) > 1 else None,
    }


def _known_mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


# ---------------------------------------------------------------------------------------------- rows for a spreadsheet


def result_rows(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return one row for each training."""
    return [
        {
            "noise": outcome.noise,
            "method": outcome.method,
            "seed": outcome.seed,
            "evaluated_on": outcome.evaluated_on,
            f"last_{LAST_EPOCHS}_epochs": outcome.last,
            "chosen_epoch": None if outcome.chosen_epoch is None else outcome.chosen,
            "at_chosen_epoch": outcome.chosen_epoch,
            "best_epoch": outcome.best,
            "at_epoch": outcome.best_epoch,
            "label_precision": None if math.isnan(outcome.last_precision) else outcome.last_precision,
            "diverged": outcome.diverged,
            **_part_cells(outcome.on_part),
        }
        for outcome in outcomes
    ]


def _part_cells(part: Outcome | None) -> dict[str, float | None]:
    """Return the accuracies on a part of the test samples; nothing if no part is evaluated on its own."""
    if part is None:
        return {}
    return {
        f"{PART}last_{LAST_EPOCHS}_epochs": part.last,
        f"{PART}chosen_epoch": None if part.chosen_epoch is None else part.chosen,
        f"{PART}best_epoch": part.best,
    }


def curve_rows(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return one row for each epoch of each training."""
    return [
        {
            "noise": outcome.noise,
            "method": outcome.method,
            "seed": outcome.seed,
            "epoch": epoch,
            **{name: float(getattr(outcome, name)[epoch]) for name in _CURVES},
        }
        for outcome in outcomes
        for epoch in range(len(outcome.accuracy))
    ]


# ------------------------------------------------------------------------------------------- as arrays of one .npz file


def arrays(outcomes: Sequence[Outcome]) -> dict[str, NDArray[Any]]:
    """Return the outcomes as named arrays without Python objects, ready for `np.savez`.

    Curves are (A, T), all others (A,). A method without a keep rate has a row of NaN. All outcomes must have the same
    number of epochs.
    """
    lengths = sorted({len(outcome.accuracy) for outcome in outcomes})
    if len(lengths) > 1:
        raise InvalidInput(
            f"`outcomes` must have the same number of epochs, but got {' and '.join(map(str, lengths))}."
        )
    rates = [np.full(lengths[0], np.nan) if one.keep_rates is None else one.keep_rates for one in outcomes]
    return {
        **{name: np.array([getattr(one, name) for one in outcomes], dtype=np.str_) for name in _TEXTS},
        "seed": np.array([one.seed for one in outcomes], dtype=np.int64),
        "diverged": np.array([one.diverged for one in outcomes], dtype=np.bool_),
        **{name: np.array([getattr(one, name) for one in outcomes], dtype=np.float64) for name in _CURVES},
        "keep_rates": np.array(rates, dtype=np.float64),
    }


def from_arrays(stored: Mapping[str, NDArray[Any]]) -> list[Outcome]:
    """Invert `arrays`; raise for arrays that are missing, or have other types, shapes or ranges."""
    if "seed" in stored and not stored["seed"].size:
        return []
    columns = _checked_columns(_of_this_version(stored))
    outcomes = []
    for row in range(len(columns["seed"])):
        noise, method, evaluated_on = (str(columns[name][row]) for name in _TEXTS)
        curves = {name: columns[name][row] for name in _CURVES}
        rates = columns["keep_rates"][row]
        outcomes.append(
            Outcome(
                noise,
                method,
                int(columns["seed"][row]),
                evaluated_on,
                **curves,
                keep_rates=None if np.isnan(rates).all() else rates,
                diverged=bool(columns["diverged"][row]),
            )
        )
    return outcomes


def _of_this_version(stored: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """Return arrays of an earlier version, without a part of the test samples, with all names.

    Methods with clean samples trained on the whole validation part then, so their accuracies on it say nothing.
    """
    if "part_accuracy" in stored or not {"accuracy", "valid_accuracy", "method"} <= stored.keys():
        return stored
    accuracy, valid = stored["accuracy"], stored["valid_accuracy"]
    if accuracy.ndim != 2 or valid.shape != accuracy.shape or accuracy.dtype.kind != "f" or valid.dtype.kind != "f":
        return stored  # damaged, which the checks of this version report
    trains_on_it = [
        Need.CLEAN_SAMPLES in METHODS[name].needs if name in METHODS else False for name in stored["method"]
    ]
    if len(trains_on_it) != len(valid):
        return stored
    known = np.where(np.array(trains_on_it)[:, None], np.nan, valid)
    return {**stored, "part_accuracy": np.full_like(accuracy, np.nan), "valid_accuracy": known}


def _checked_columns(stored: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    kinds = {**dict.fromkeys(_TEXTS, "U"), "seed": "i", "diverged": "b", **dict.fromkeys([*_CURVES, "keep_rates"], "f")}
    missing = [name for name in kinds if name not in stored]
    if missing:
        raise InvalidInput(f"{', '.join(map(repr, missing))} is missing in it.")
    shape = stored["accuracy"].shape  # (A, T)
    for name, kind in kinds.items():
        array, expected = stored[name], shape if kind == "f" else shape[:1]
        if len(shape) != 2 or min(shape) < 1 or array.shape != expected or array.dtype.kind != kind:
            raise InvalidInput(
                f"`{name}` must have the shape {expected} of all trainings, but got {array.dtype} of shape "
                f"{array.shape}."
            )
        if kind == "f" and name != "loss" and not (np.isnan(array) | ((array >= 0) & (array <= 1))).all():
            raise InvalidInput(f"`{name}` must lie in 0..1, but does not.")
    if (stored["seed"] < 0).any() or not np.isin(stored["evaluated_on"], (TEST, HELD_OUT, VALIDATION)).all():
        raise InvalidInput(
            f"`seed` must not be negative and `evaluated_on` must be {TEST}, {HELD_OUT} or {VALIDATION}, but some are "
            "not."
        )
    return {name: stored[name] for name in kinds}
