"""What a comparison of spaces came to: set by set, over all sets, and as paired differences between spaces.

A set is one random search of every space under every noise setting. Sets differ in their draws and in the initial
weights; they share the noisy labels, the split and the order of the batches.

There are two kinds of figures. Those of the final trainings are of the schedule found in a space, trained from fresh
seeds. Those of the winners are of the very training that had the best validation accuracy in the search.

Letters: M sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import optuna

from s2e.engine.curves import LAST_EPOCHS
from s2e.schedules.spaces import SPACES
from s2e.studies import VALIDATION_ACCURACY, BestTrial, accuracy_attribute, lowest_error_trial
from s2e.workflows.outcomes import Outcome, result_rows, summarise
from s2e.workflows.pipeline import TEST

SINGLE = "single"
"""Stands for the best of the spaces with one basis function."""

TITLES = {"coteaching": "Co-teaching", SINGLE: "Single", "rbf": "RBF", "mlp": "MLP", "s2e": "S2E"}
"""The spaces of the paper's table, in its order, as they are written for readers."""

OWN = "s2e"
"""The space that the others are compared with."""

Chosen = Mapping[tuple[str, str], BestTrial]
"""What was found in one set, by noise setting and space."""


def best_single(found: Mapping[tuple[str, str], BestTrial | Winner], noise: str) -> str:
    """Return which of the spaces with one basis function has the best validation accuracy, the first of equals."""
    singles = [space for space in SPACES if space.startswith(SINGLE)]
    return max(singles, key=lambda space: found[noise, space].validation_accuracy)


def single_spaces(found: Mapping[tuple[str, str], BestTrial | Winner]) -> dict[str, str]:
    """Return which space is Single in this set, by noise setting."""
    return {noise: best_single(found, noise) for noise, _ in found}


@dataclass(frozen=True, eq=False)
class SearchedSet:
    """One set of draws, searched and tested.

    Attributes:
        found: what was found in each space.
        outcomes: the final trainings of what was found; their method is the space, their seeds count from 0.
        winners: the best trainings of the search in each space.
    """

    found: Chosen
    outcomes: Sequence[Outcome]
    winners: Winners

    @cached_property
    def single(self) -> dict[str, str]:
        """Which space is Single, by noise setting: chosen in this set alone."""
        return single_spaces(self.found)

    @cached_property
    def single_winners(self) -> dict[str, str]:
        """Which space is Single among the winners, by noise setting: that of the winner with the best validation."""
        return single_spaces(self.winners)

    @cached_property
    def with_single(self) -> list[Outcome]:
        """The final trainings of all spaces, and those of Single once more under its name."""
        chosen = [one for one in self.outcomes if one.method == self.single[one.noise]]
        return [*self.outcomes, *(replace(one, method=SINGLE) for one in chosen)]

    def found_in(self, noise: str, space: str) -> BestTrial:
        """Return what was found in a space, or in the one that Single stands for."""
        return self.found[noise, self.single[noise] if space == SINGLE else space]

    def winner_in(self, noise: str, space: str) -> Winner:
        """Return the winner in a space, or in the one that Single stands for among the winners."""
        return self.winners[noise, self.single_winners[noise] if space == SINGLE else space]

    def last(self, noise: str, space: str) -> float:
        """Mean test accuracy over the last epochs and the seeds."""
        return float(np.mean([one.last for one in self.with_single if (one.noise, one.method) == (noise, space)]))


def training_rows(sets: Sequence[SearchedSet]) -> list[dict[str, Any]]:
    """One row for each final training, the sets of a space below each other."""
    rows = [_by_space(row, {"set": which}) for which, one in enumerate(sets) for row in result_rows(one.outcomes)]
    groups = list(dict.fromkeys((row["noise"], row["space"]) for row in rows))
    return sorted(rows, key=lambda row: groups.index((row["noise"], row["space"])))


def winner_rows(sets: Sequence[SearchedSet]) -> list[dict[str, Any]]:
    """One row for each winner, the sets of a space below each other; `drawn_in` says which space Single is."""
    return [
        {"noise": noise, "space": space, "set": which, **one.winner_in(noise, space).row()}
        for noise in sets[0].single
        for space in (*SPACES, SINGLE)
        for which, one in enumerate(sets)
    ]


def rows_by_set(sets: Sequence[SearchedSet]) -> list[dict[str, Any]]:
    """Mean and deviation over the seeds for each set, noise setting and space, with what was known when choosing.

    `winner` is the best training of the search itself.
    """
    return [
        {**row, "best_trial": found.trial, "validation_accuracy": found.validation_accuracy}
        | {"winner": one.winner_in(row["noise"], row["space"]).row()}
        for which, one in enumerate(sets)
        for row in (_by_space(summed, {"set": which}) for summed in summarise(one.with_single))
        for found in [one.found_in(row["noise"], row["space"])]
    ]


def summary(sets: Sequence[SearchedSet]) -> list[dict[str, Any]]:
    """Mean and deviation over all sets and seeds for each noise setting and space.

    `sets` and `seeds` say how many there are: a figure is of sets × seeds trainings. `validation_accuracy` is the mean
    over the sets. `winner` has means and deviations over the sets, of one training each.
    """
    everything = summarise(each for one in sets for each in one.with_single)
    rows = [_by_space(row, {"sets": len(sets)}) for row in everything]
    return [
        {
            **row,
            "seeds": row["seeds"] // len(sets),
            "validation_accuracy": _validation(sets, row["noise"], row["space"]),
            "winner": _winner(sets, row["noise"], row["space"]),
        }
        for row in rows
    ]


def _validation(sets: Sequence[SearchedSet], noise: str, space: str) -> float:
    return float(np.mean([one.found_in(noise, space).validation_accuracy for one in sets]))


def _winner(sets: Sequence[SearchedSet], noise: str, space: str) -> dict[str, Any]:
    winners = [one.winner_in(noise, space) for one in sets]
    accuracy = float(np.mean([one.validation_accuracy for one in winners]))
    figures = {name: _over_sets([one.test_accuracy[name] for one in winners]) for name in (LAST, BEST)}
    return {"validation_accuracy": accuracy, **figures}


def _over_sets(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean and std = sqrt(Σ (x − mean)² / (M − 1)), unknown where that of a set is: spaces are judged by the same sets.

    One set has no deviation.
    """
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return {"mean": None, "std": None}
    return {"mean": float(np.mean(known)), "std": float(np.std(known, ddof=1)) if len(known) > 1 else None}


def spreadsheet(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with a column for each number: `x` and `x_std` for a mean and its deviation, `x_y` for y in x."""
    return [_flat(row) for row in rows]


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if not isinstance(value, dict):
            flat[name] = value
        elif "mean" in value:
            flat |= {name: value["mean"], f"{name}_std": value["std"]}
        else:
            flat |= {f"{name}_{inner}": number for inner, number in _flat(value).items()}
    return flat


def differences(sets: Sequence[SearchedSet]) -> list[dict[str, Any]]:
    """S2E's space minus each other one of the table, by noise setting: test accuracy over the last epochs.

    In set m both are trained with the same labels and from the same seeds, on draws of the same uniform numbers:
    d_m = S2E − other, both means over the seeds. Reported are their mean d = Σ d_m / M and its standard error
    sqrt(Σ (d_m − d)² / (M − 1) / M), which one set does not have. `winner` has the same of the winners, where d_m is of
    two single trainings, and at their best epochs, too.
    """
    rows = []
    for noise in sets[0].single:
        for space in TITLES:
            if space == OWN:
                continue
            final = _paired([(one.last(noise, OWN), one.last(noise, space)) for one in sets])
            own, other = ([one.winner_in(noise, each).test_accuracy for one in sets] for each in (OWN, space))
            winners = {
                name: _paired([(ours[name], theirs[name]) for ours, theirs in zip(own, other, strict=True)])
                for name in (LAST, BEST)
            }
            rows.append({"noise": noise, "space": space, **final, "winner": winners})
    return rows


def _paired(figures: Sequence[tuple[float | None, float | None]]) -> dict[str, Any]:
    """Mean of the differences within pairs, one of each set, and its standard error; unknown where one of a set is."""
    each = [None if own is None or other is None else own - other for own, other in figures]
    over_all = _over_sets(each)
    error = None if over_all["std"] is None else over_all["std"] / len(each) ** 0.5
    return {"mean": over_all["mean"], "standard_error": error, "by_set": each}


def _by_space(row: Mapping[str, Any], of: Mapping[str, int]) -> dict[str, Any]:
    """Call what was trained by the name of its space, not of the method, and say of which sets a row is."""
    rest = {name: value for name, value in row.items() if name not in ("noise", "method")}
    return {"noise": row["noise"], "space": row["method"], **of, **rest}


LAST, BEST = f"last_{LAST_EPOCHS}_epochs", "best_epoch"
"""Names of the two figures: test accuracy as a mean over the last epochs, and at the best epoch."""


@dataclass(frozen=True)
class Winner:
    """The training with the best validation accuracy of a search.

    Attributes:
        space: the space it was drawn in.
        trial: its number in the study.
        validation_accuracy: mean over the last epochs and the member's networks, which it was chosen by.
        test_accuracy: test accuracy by the names of the two figures; None where it was not recorded.
    """

    space: str
    trial: int
    validation_accuracy: float
    test_accuracy: Mapping[str, float | None]

    def row(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        chosen = {"trial": self.trial, "validation_accuracy": self.validation_accuracy}
        return {"drawn_in": self.space, **chosen, **self.test_accuracy}


Winners = Mapping[tuple[str, str], Winner]
"""The winners of one set, by noise setting and space."""


def winner_of(study: optuna.Study, space: str) -> Winner:
    """Choose the winner of a study by validation, then look up its test accuracy.

    A study begun before test accuracies were recorded may have none; what another training reached is no substitute.
    """
    trial = lowest_error_trial(study)
    figures: dict[str, float | None] = {LAST: None, BEST: None}
    if accuracy_attribute(TEST) in trial.user_attrs:
        accuracy = np.array(trial.user_attrs[accuracy_attribute(TEST)])  # (T,)
        # Scored worst in spite of its accuracies: it diverged, and its last epochs count as 0.
        diverged = trial.values[0] == 1.0 and any(trial.user_attrs[VALIDATION_ACCURACY][-LAST_EPOCHS:])
        figures = {LAST: 0.0 if diverged else float(accuracy[-LAST_EPOCHS:].mean()), BEST: float(accuracy.max())}
    return Winner(space, trial.number, 1.0 - trial.values[0], figures)
