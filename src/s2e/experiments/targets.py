"""Accuracies that S2E should reach in a comparison, and what was found beside them.

They were declared before the comparison was run, and nothing is chosen by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from s2e.engine import LAST_EPOCHS
from s2e.experiments.pages import Section, percent, table
from s2e.experiments.published import SPACES_TABLE
from s2e.plots import data_title, noise_title
from s2e.workflows import PART

LAST = f"last_{LAST_EPOCHS}_epochs"


@dataclass(frozen=True)
class Targets:
    """Targets on a data set, in percent: mean test accuracy of S2E over the last epochs.

    Attributes:
        data: the data set.
        least: by noise setting.
        on_part: whether they are of the part of the test samples that the paper's code tests on.
        as_in_paper: whether the paper's numbers are of the same test samples.
    """

    data: str
    least: Mapping[str, float]
    on_part: bool = False
    as_in_paper: bool = True

    @property
    def column(self) -> str:
        """The name of the accuracy in a summary."""
        return f"{PART}{LAST}" if self.on_part else LAST


def _of(symmetric_20: float, symmetric_50: float, pair_45: float) -> dict[str, float]:
    return {"symmetric:0.2": symmetric_20, "symmetric:0.5": symmetric_50, "pair:0.45": pair_45}


TARGETS = (
    Targets("mnist", _of(97.9, 96.8, 95.7), as_in_paper=False),
    Targets("mnist", _of(98.5, 97.7, 96.7), on_part=True),
    Targets("cifar10", _of(59.5, 53.4, 52.9)),
    Targets("cifar100", _of(47.5, 41.0, 35.0)),
)
"""The targets of this package. The paper's own numbers are in `SPACES_TABLE`."""


@dataclass(frozen=True)
class Reached:
    """A target and what was found.

    Attributes:
        data: the data set.
        part: the part of the test samples, such as `5000-9999`; None for all.
        noise: noise setting.
        paper: the paper's number on these test samples, in percent; None if it has none.
        target: in percent.
        found: mean over the seeds, in percent.
        deviation: standard deviation over the seeds, in percent points; None for a single seed.
    """

    data: str
    part: str | None
    noise: str
    paper: float | None
    target: float
    found: float
    deviation: float | None

    @property
    def difference(self) -> float:
        """What was found minus the target, in percent points."""
        return self.found - self.target

    def row(self) -> dict[str, Any]:
        """Return everything, ready for JSON and CSV."""
        names = ("data", "part", "noise", "paper", "target", "found", "deviation", "difference")
        return {name: getattr(self, name) for name in names}


def reached(data: str, own: Mapping[str, Mapping[str, Any]], part: str | None) -> list[Reached]:
    """Return the targets on a data set beside what was found.

    Args:
        data: the data set.
        own: summaries of S2E by noise setting.
        part: the part of the test samples that is evaluated on its own; None if there is none.
    """
    return [
        Reached(
            data,
            part if targets.on_part else None,
            noise,
            SPACES_TABLE.get(data, {}).get(noise, {}).get("s2e") if targets.as_in_paper else None,
            targets.least[noise],
            100 * row[targets.column]["mean"],
            None if row[targets.column]["std"] is None else 100 * row[targets.column]["std"],
        )
        for targets in TARGETS
        if targets.data == data
        for noise, row in own.items()
        if noise in targets.least and (row.get(targets.column) or {}).get("mean") is not None
    ]


def targets_section(found: Iterable[Reached]) -> Section | None:
    """Return a section with each target, what was found and the difference; None without targets."""
    rows = list(found)
    if not rows:
        return None
    met = [each for each in rows if each.difference >= 0]
    missed = [_missed(each) for each in rows if each.difference < 0]
    about = f"Test accuracy of S2E over the last epochs, in percent: {len(met)} of {len(rows)} targets are reached."
    return Section("Targets", [about, *([f"Missed: {'; '.join(missed)}."] if missed else []), _table(rows)])


def _samples(each: Reached) -> str:
    return data_title(each.data) + ("" if each.part is None else f", test images {each.part}")


def _missed(each: Reached) -> str:
    return f"{_samples(each)}, {noise_title(each.noise)}, by {-each.difference:.2f} points"


def _table(rows: Sequence[Reached]) -> str:
    header = ["test samples", "noise", "paper, best epoch", "target", "found", "found minus target"]
    lines = [
        [
            _samples(each),
            noise_title(each.noise),
            "—" if each.paper is None else f"{each.paper:.2f}",
            f"{each.target:.1f}",
            percent(each.found / 100, None if each.deviation is None else each.deviation / 100),
            f"{each.difference:+.2f}",
        ]
        for each in rows
    ]
    return table(header, lines)
