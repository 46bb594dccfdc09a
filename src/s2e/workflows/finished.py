"""What is finished of a comparison, on disk after every part of the work, so that a killed one goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from s2e.errors import UnreadableData
from s2e.runs.directory import Run
from s2e.workflows.entrants import Entrant, Setting
from s2e.workflows.outcomes import Outcome, arrays, from_arrays

OUTCOMES = "outcomes.npz"
MATRIX = "transition/"
"""What the names of transition matrices in the file begin with."""


@dataclass(eq=False)
class FinishedTrainings:
    """The trainings that are finished.

    Attributes:
        run: where it is written.
        outcomes: what came of each.
        transitions: matrices that were estimated, by training.
    """

    run: Run
    outcomes: list[Outcome] = field(default_factory=list)
    transitions: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> FinishedTrainings:
        """Open what an earlier process left."""
        stored = run.read_arrays(OUTCOMES)
        if not stored:
            return cls(run)
        transitions = {name.removeprefix(MATRIX): array for name, array in stored.items() if name.startswith(MATRIX)}
        rest = {name: array for name, array in stored.items() if not name.startswith(MATRIX)}
        try:
            return cls(run, from_arrays(rest), transitions)
        except KeyError as missing:
            where = str(run.path / OUTCOMES)
            raise UnreadableData(f"{where!r} could not be read: there is no {missing} in it.") from missing

    def lacks(self, setting: Setting, entrant: Entrant) -> bool:
        """Tell whether a training is still to be done."""
        return (setting.noise, entrant.name, setting.draw) not in map(_training, self.outcomes)

    def add(self, outcomes: Sequence[Outcome], transitions: Mapping[str, NDArray[np.float64]]) -> None:
        """Write more finished trainings; what is there already stays."""
        done = set(map(_training, self.outcomes))
        self.outcomes += [outcome for outcome in outcomes if _training(outcome) not in done]
        self.transitions |= transitions
        matrices = {f"{MATRIX}{name}": matrix for name, matrix in self.transitions.items()}
        self.run.write_arrays(OUTCOMES, {**arrays(self.outcomes), **matrices})

    def in_order(self, entrants: Sequence[Entrant], noises: Sequence[str]) -> list[Outcome]:
        """Return the outcomes by noise setting, method and seed, in the order they were asked for.

        Methods that were asked for only before the comparison was continued come last.
        """
        asked = [entrant.name for entrant in entrants]
        names = list(dict.fromkeys([*asked, *(one.method for one in self.outcomes)]))
        return sorted(self.outcomes, key=lambda one: (noises.index(one.noise), names.index(one.method), one.seed))


def _training(outcome: Outcome) -> tuple[str, str, int]:
    return outcome.noise, outcome.method, outcome.seed
