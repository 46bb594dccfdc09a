"""Results of a comparison of spaces: set by set, over all sets, and as paired differences between spaces.

A set is one random search of every space under every noise setting. Sets differ in their draws and in the initial
weights; they share the noisy labels, the split and the order of the batches.

Two kinds of accuracies are reported. Those of the final trainings belong to the schedule found in a space, trained from
fresh seeds. Those of the winners belong to the training itself that had the best validation accuracy in the search.

Letters: M sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import optuna

from s2e.engine import LAST_EPOCHS
from s2e.schedules import SPACES
from s2e.studies import DIVERGED, BestTrial, accuracy_attribute, lowest_error_trial
from s2e.workflows import PART, TEST, TEST_PART, Outcome, result_rows, summarise

SINGLE = "single"
"""Name of the best of the spaces with one basis function."""

TITLES = {"coteaching": "Co-teaching", SINGLE: "Single", "rbf": "RBF", "mlp": "MLP", "s2e": "S2E"}
"""Display names of the spaces in the paper's table, in its order."""

OWN = "s2e"
"""The space that the others are compared with."""

LAST, BEST = f"last_{LAST_EPOCHS}_epochs", "best_epoch"
"""Names of two test accuracies: the mean over the last epochs, and that of the best epoch."""


# -------------------------------------------------------------------------------------------------------------- one set


@dataclass(frozen=True)
class Winner:
    """The training with the best validation accuracy of a search.

    Attributes:
        space: the space from which it was drawn.
        trial: its number in the study.
        validation_accuracy: mean over the last epochs and the member's networks, by which it was chosen.
        test_accuracy: its test accuracies, by `LAST` and `BEST`, and with the prefix `PART` on a part of the test part.
    """

    space: str
    trial: int
    validation_accuracy: float
    test_accuracy: Mapping[str, float]

    def row(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        chosen = {"trial": self.trial, "validation_accuracy": self.validation_accuracy}
        return {"drawn_in": self.space, **chosen, **self.test_accuracy}


BestTrials = Mapping[tuple[str, str], BestTrial]
"""The best trials of one set, by noise setting and space."""

Winners = Mapping[tuple[str, str], Winner]
"""The winners of one set, by noise setting and space."""


def winner_of(study: optuna.Study, space: str) -> Winner:
    """Return the winner of a study, chosen by validation; its accuracy over the last epochs is 0 if it diverged."""
    trial = lowest_error_trial(study)
    tested: dict[str, float] = {}
    for part, prefix in ((TEST, ""), (TEST_PART, PART)):
        if (curve := trial.user_attrs.get(accuracy_attribute(part))) is not None:
            accuracy = np.array(curve)  # (T,)
            last = 0.0 if DIVERGED in trial.user_attrs else float(accuracy[-LAST_EPOCHS:].mean())
            tested |= {f"{prefix}{LAST}": last, f"{prefix}{BEST}": float(accuracy.max())}
    return Winner(space, trial.number, 1.0 - trial.values[0], tested)


def single_spaces(found: BestTrials | Winners) -> dict[str, str]:
    """Return the space chosen for Single, by noise setting: the best by validation, the first of equals."""
    singles = [space for space in SPACES if space.startswith(SINGLE)]
    return {
        noise: max(singles, key=lambda space: found[noise, space].validation_accuracy)
        for noise in dict.fromkeys(noise for noise, _ in found)
    }


@dataclass(frozen=True, eq=False)
class SearchedSet:
    """One set of draws, searched and tested.

    Attributes:
        found: the best trial in each space.
        outcomes: the final trainings with the schedules found; their method is the space, their seeds count from 0.
        winners: the winner in each space.
    """

    found: BestTrials
    outcomes: Sequence[Outcome]
    winners: Winners

    @cached_property
    def single(self) -> dict[str, str]:
        """The space chosen for Single among the best trials of this set, by noise setting."""
        return single_spaces(self.found)

    @cached_property
    def single_winners(self) -> dict[str, str]:
        """The space chosen for Single among the winners of this set, by noise setting."""
        return single_spaces(self.winners)

    @cached_property
    def with_single(self) -> list[Outcome]:
        """The final trainings of all spaces, followed by those of Single under that name."""
        chosen = [outcome for outcome in self.outcomes if outcome.method == self.single[outcome.noise]]
        return [*self.outcomes, *(replace(outcome, method=SINGLE) for outcome in chosen)]

    def found_in(self, noise: str, space: str) -> BestTrial:
        """Return the best trial in a space, or in the space chosen for Single."""
        return self.found[noise, self.single[noise] if space == SINGLE else space]

    def winner_in(self, noise: str, space: str) -> Winner:
        """Return the winner in a space, or in the space chosen for Single among the winners."""
        return self.winners[noise, self.single_winners[noise] if space == SINGLE else space]

    def last(self, noise: str, space: str) -> float:
        """Return the mean test accuracy over the last epochs and the seeds."""
        return float(np.mean([each.last for each in self.with_single if (each.noise, each.method) == (noise, space)]))


# ------------------------------------------------------------------------------------------------------- rows of tables


def training_rows(sets: Sequence[SearchedSet]) -> list[dict[str, Any]]:
    """Return one row for each final training, by noise setting and space, then set."""
    rows = [_by_space(row, {"set": index}) for index, each in enumerate(sets) for row in result_rows(each.outcomes)]
    groups = list(dict.fromkeys((row["noise"], row["space"]) for row in rows))
    return sorted(rows, key=lambda row: groups.index((row["noise"], row["space"])))


def winner_rows(sets: Sequence[SearchedSet]) -> list[dict[str, Any]]:
    """Return one row for each winner, by noise setting and space, then set; Single has its space in `drawn_in`."""
    return [
        {"noise": noise, "space": space, "set": index, **each.winner_in(noise, space).row()}
        for noise in sets[0].single
        for space in (*SPACES, SINGLE)
        for index, each in enumerate(sets)
    ]


def rows_by_set(sets: Sequence[SearchedSet]) -> list[dict[str, Any]]:
    """Return mean and standard deviation over the seeds for each set, noise setting and space, with the winner."""
    rows = []
    for index, each in enumerate(sets):
        for row in summarise(each.with_single):
            found = each.found_in(row["noise"], row["method"])
            rows.append(
                {
                    **_by_space(row, {"set": index}),
                    "best_trial": found.trial,
                    "validation_accuracy": found.validation_accuracy,
                    "winner": each.winner_in(row["noise"], row["method"]).row(),
                }
            )
    return rows


def summary(sets: Sequence[SearchedSet]) -> list[dict[str, Any]]:
    """Return mean and standard deviation over all sets and seeds for each noise setting and space.

    Each is taken over `sets` × `seeds` trainings. `validation_accuracy` is a mean over the sets. `winner` has means and
    standard deviations over the sets, with one training in each.
    """
    rows = []
    for row in summarise(outcome for each in sets for outcome in each.with_single):
        noise, space = row["noise"], row["method"]
        found = [each.found_in(noise, space).validation_accuracy for each in sets]
        winners = [each.winner_in(noise, space) for each in sets]
        rows.append(
            {
                **_by_space(row, {"sets": len(sets)}),
                "seeds": row["seeds"] // len(sets),
                "validation_accuracy": float(np.mean(found)),
                "winner": {
                    "validation_accuracy": float(np.mean([winner.validation_accuracy for winner in winners])),
                    **{
                        name: _mean_and_std([winner.test_accuracy[name] for winner in winners])
                        for name in winners[0].test_accuracy
                    },
                },
            }
        )
    return rows


def differences(sets: Sequence[SearchedSet]) -> list[dict[str, Any]]:
    """Return S2E's space minus each other space of the table, by noise setting: test accuracy over the last epochs.

    In set m both are trained with the same labels and from the same seeds, on draws of the same uniform numbers:
    d_m = S2E − other, both means over the seeds. Reported are their mean d = Σ d_m / M and its standard error
    sqrt(Σ (d_m − d)² / (M − 1) / M), or None for a single set. `winner` has the same of the winners, over the last
    epochs and at the best epoch; d_m then compares two single trainings.
    """
    rows = []
    for noise in sets[0].single:
        for space in TITLES:
            if space == OWN:
                continue
            final = [each.last(noise, OWN) - each.last(noise, space) for each in sets]
            pairs = [(each.winner_in(noise, OWN), each.winner_in(noise, space)) for each in sets]
            winners = {
                name: [own.test_accuracy[name] - other.test_accuracy[name] for own, other in pairs]
                for name in (LAST, BEST)
            }
            rows.append(
                {
                    "noise": noise,
                    "space": space,
                    **_difference(final),
                    "winner": {name: _difference(by_set) for name, by_set in winners.items()},
                }
            )
    return rows


def flat_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with a column for each number: `x` and `x_std` for a mean and its deviation, `x_y` for y in x."""
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


def _mean_and_std(values: Sequence[float]) -> dict[str, float | None]:
    """Return mean and std = sqrt(Σ (x − mean)² / (M − 1)) over the sets; std is None for a single set."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)) if len(values) > 1 else None}


def _difference(by_set: Sequence[float]) -> dict[str, Any]:
    over_sets = _mean_and_std(by_set)
    error = None if over_sets["std"] is None else over_sets["std"] / len(by_set) ** 0.5
    return {"mean": over_sets["mean"], "standard_error": error, "by_set": list(by_set)}


def _by_space(row: Mapping[str, Any], sets: Mapping[str, int]) -> dict[str, Any]:
    """Rename the column `method` to `space`, and insert the set or the number of sets after it."""
    rest = {name: value for name, value in row.items() if name not in ("noise", "method")}
    return {"noise": row["noise"], "space": row["method"], **sets, **rest}
