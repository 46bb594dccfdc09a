"""The finished trainings of a comparison, stored after every population, so that a killed run can be resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.errors import InvalidInput, UnreadableData, listed
from s2e.files.fields import shown
from s2e.runs import Run
from s2e.workflows.entrants import Entrant, Setting
from s2e.workflows.outcomes import Outcome, arrays, from_arrays

OUTCOMES = "outcomes.npz"
MATRIX = "transition/"
"""Prefix of transition matrices in `OUTCOMES`."""

DEVICES, SECONDS = "devices", "seconds"
"""Names in `OUTCOMES` of the devices that trained, and of the seconds of all sessions up to their last training."""


@dataclass(eq=False)
class FinishedTrainings:
    """The finished trainings of a comparison.

    Attributes:
        run: stores them.
        outcomes: one for each.
        transitions: estimated matrices, by training; also of trainings that are not finished.
        devices: names of the devices that trained them.
        seconds: of all sessions, up to the last training of each.
    """

    run: Run
    outcomes: list[Outcome] = field(default_factory=list)
    transitions: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    seconds: float = 0.0
    _seconds_before: float = 0.0

    @classmethod
    def of(cls, run: Run) -> FinishedTrainings:
        """Read the trainings that earlier sessions stored."""
        stored = run.read_arrays(OUTCOMES)
        if not stored:
            return cls(run)
        transitions = {name.removeprefix(MATRIX): array for name, array in stored.items() if name.startswith(MATRIX)}
        rest = {name: array for name, array in stored.items() if not name.startswith(MATRIX)}
        devices, seconds = rest.pop(DEVICES, np.array([], dtype=np.str_)), rest.pop(SECONDS, np.array(0.0))
        try:
            for name, matrix in transitions.items():
                _check_matrix(name, matrix)
            if (
                devices.dtype.kind != "U"
                or devices.ndim != 1
                or seconds.dtype.kind != "f"
                or seconds.ndim
                or not np.isfinite(seconds)
            ):
                raise InvalidInput(f"`{DEVICES}` must be names, and `{SECONDS}` a number, but they are not.")
            before = float(seconds)
            return cls(run, from_arrays(rest), transitions, devices.tolist(), before, before)
        except InvalidInput as problem:
            raise UnreadableData(f"{str(run.path / OUTCOMES)!r} could not be read: {problem}") from problem

    def lacks(self, setting: Setting, entrant: Entrant) -> bool:
        """Return whether a training is not finished."""
        return (setting.noise, entrant.name, setting.draw) not in map(_key, self.outcomes)

    def add(
        self,
        outcomes: Sequence[Outcome],
        transitions: Mapping[str, NDArray[np.float64]],
        made_on: Mapping[str, Any] | None = None,
    ) -> None:
        """Store more finished trainings; those already stored are kept.

        Args:
            outcomes: the trainings.
            transitions: estimated matrices, by training.
            made_on: name of the `device`, and `seconds` since the session began; see `Session.made_on`.
        """
        done = set(map(_key, self.outcomes))
        self.outcomes += [outcome for outcome in outcomes if _key(outcome) not in done]
        self.transitions |= transitions
        if made_on is not None:
            self.devices = list(dict.fromkeys([*self.devices, made_on["device"]]))
            self.seconds = self._seconds_before + made_on["seconds"]
        matrices = {f"{MATRIX}{name}": matrix for name, matrix in self.transitions.items()}
        about = {DEVICES: np.array(self.devices, dtype=np.str_), SECONDS: np.array(self.seconds)}
        self.run.write_arrays(OUTCOMES, {**arrays(self.outcomes), **matrices, **about})

    def made_on(self) -> dict[str, Any]:
        """Return the devices that trained and the seconds that it took; nothing if an earlier version stored none."""
        return {"device": listed(self.devices), "seconds": round(self.seconds, 1)} if self.devices else {}

    def in_order(self, entrants: Sequence[Entrant], noises: Sequence[str]) -> list[Outcome]:
        """Return the outcomes by noise setting, method and seed, in the order in which they were requested.

        Methods that only an earlier session requested come last.
        """
        if unknown := {one.noise for one in self.outcomes} - set(noises):
            raise UnreadableData(
                f"{str(self.run.path / OUTCOMES)!r} must hold trainings under {', '.join(noises)}, but got others: "
                f"{listed(map(ascii, sorted(unknown)))}."
            )
        names = list(dict.fromkeys([*(entrant.name for entrant in entrants), *(one.method for one in self.outcomes)]))
        return sorted(self.outcomes, key=lambda one: (noises.index(one.noise), names.index(one.method), one.seed))


def _key(outcome: Outcome) -> tuple[str, str, int]:
    return outcome.noise, outcome.method, outcome.seed


def _check_matrix(name: str, matrix: NDArray[np.float64]) -> None:
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] >= 2
    if matrix.dtype.kind != "f" or not square:  # numbers are NaN where the training diverged
        raise InvalidInput(f"the matrix {shown(name)} must be square, but got {matrix.dtype} of shape {matrix.shape}.")
