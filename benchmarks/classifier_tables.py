"""Tables of `classifiers.py`: means over seeds, paired differences, and how true the figures of the audit are.

A row is the result of one training, a dictionary; a setting is a set with its noise. Everything here is a function of
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

Row = Mapping[str, Any]
Setting = tuple[str, str]

OWN = "s2e"
"""The method that the others are compared with."""

DEVELOPED = ("breast_cancer", "wine", "digits", "docstrings")
"""Sets that the method was developed with; results on the others are counted apart."""

GROUPS: dict[str, Callable[[Row], bool]] = {
    "sets developed with": lambda row: row["set"] in DEVELOPED,
    "sets not used before": lambda row: row["set"] not in DEVELOPED,
    "all": lambda _: True,
}
"""Rows that are counted together."""

VERDICTS = ("ahead", "level", "behind")


class Figure(NamedTuple):
    """A quantity with a table of its own.

    Attributes:
        name: key in a row.
        title: of the table.
        factor: from the value in a row to the one in the table.
        best: whether the largest value is marked and compared.
        sets: sets that it is shown for; all when empty.
    """

    name: str
    title: str
    factor: float = 100.0
    best: bool = True
    sets: tuple[str, ...] = ()


FIGURES = (
    Figure("accuracy", "Accuracy on the test samples, %"),
    Figure("balanced_accuracy", "Balanced accuracy on the test samples, %", sets=("rare",)),
    Figure("average_precision", "Average precision on the test samples, %", sets=("rare",)),
    Figure("f1", "F1 of the labels found to be wrong, %"),
    Figure("seconds", "Seconds of a fit", 1.0, best=False),
    Figure("cpu_seconds", "CPU seconds of a fit", 1.0, best=False),
)


def settings(rows: Sequence[Row]) -> list[Setting]:
    """Return every set and noise in the rows, in their order."""
    return list(dict.fromkeys((row["set"], row["noise"]) for row in rows))


def title(setting: Setting) -> str:
    """Return the name of a setting in tables."""
    return f"{setting[0]} {setting[1].removeprefix('symmetric:')}"


def by_seed(rows: Sequence[Row], setting: Setting, method: str, figure: Figure) -> dict[int, float]:
    """Return the values of a method by seed; those that do not exist are left out."""
    return {
        row["seed"]: figure.factor * row[figure.name]
        for row in rows
        if (row["set"], row["noise"], row["method"]) == (*setting, method) and row[figure.name] is not None
    }


def grid(rows: Sequence[Row], figure: Figure, methods: Sequence[str], bold: str = "") -> list[list[str]]:
    """Return a table of a quantity: a header and a line for each setting; the best mean of a line is in `bold`.

    Where values are compared, the last column is the difference between `OWN` and the best other method.
    """
    having = [row for row in rows if row[figure.name] is not None and (not figure.sets or row["set"] in figure.sets)]
    columns = [method for method in methods if any(row["method"] == method for row in having)]
    compared = figure.best and OWN in columns and len(columns) > 1
    lines = [["", *columns, *([f"{OWN} − best other"] if compared else [])]]
    for setting in settings(having):
        values = {method: by_seed(having, setting, method, figure) for method in columns}
        best = max(round(float(np.mean(list(each.values()))), 1) for each in values.values() if each)
        most = max(map(len, values.values()))
        line = [title(setting)]
        for each in values.values():
            numbers = list(each.values())
            marked = bold if figure.best and numbers and round(float(np.mean(numbers)), 1) == best else ""
            missing = f" ({len(numbers)})" if 0 < len(numbers) < most else ""
            line.append(f"{marked}{mean_and_spread(numbers)}{marked}{missing}")
        if compared:
            line.append(str(against_best_other(values) or ""))
        lines.append(line)
    return lines


def mean_and_spread(values: Sequence[float]) -> str:
    """Return mean ± standard deviation, or nothing without values."""
    if not values:
        return ""
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


class Difference(NamedTuple):
    """The mean difference between `OWN` and the other method with the best mean, paired over seeds that both have.

    Attributes:
        other: name of the other method.
        mean: of the differences.
        error: its standard error; None with one seed.
    """

    other: str
    mean: float
    error: float | None

    @property
    def verdict(self) -> str:
        """Whether `OWN` is ahead or behind; level if the difference is less than two standard errors."""
        if self.error is None:
            return "unknown"
        if self.mean == 0 or abs(self.mean) < 2 * self.error:
            return "level"
        return "ahead" if self.mean > 0 else "behind"

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.mean:+.1f} ({self.other})"
        return f"{self.mean:+.1f} ± {self.error:.1f}, {self.verdict} ({self.other})"


def against_best_other(values: Mapping[str, Mapping[int, float]]) -> Difference | None:
    """Return the difference to the best other method; None where there is nothing to compare.

    Args:
        values: by method and seed.
    """
    others = {name: each for name, each in values.items() if name != OWN and each}
    if not others or not values.get(OWN):
        return None
    best = max(others, key=lambda name: float(np.mean(list(others[name].values()))))
    seeds = values[OWN].keys() & others[best].keys()
    differences = np.array([values[OWN][seed] - others[best][seed] for seed in sorted(seeds)])
    if not len(differences):
        return None
    error = float(differences.std(ddof=1)) / len(differences) ** 0.5 if len(differences) > 1 else None
    return Difference(best, float(differences.mean()), error)


def standing(rows: Sequence[Row], figure: Figure, methods: Sequence[str]) -> list[list[str]]:
    """Return a table of the number of settings in which `OWN` is ahead, level and behind, a line for each group."""
    lines = [["", *VERDICTS]]
    for group, belongs in GROUPS.items():
        chosen = [row for row in rows if belongs(row) and row[figure.name] is not None]
        found = [
            against_best_other({method: by_seed(chosen, setting, method, figure) for method in methods})
            for setting in settings(chosen)
        ]
        verdicts = [each.verdict for each in found if each is not None]
        lines.append([group, *(str(verdicts.count(verdict)) for verdict in VERDICTS)])
    return lines


def truthfulness(rows: Sequence[Row]) -> list[list[str]]:
    """Return a table of what `OWN` says about itself beside the truth, a line for each setting and each group.

    Intervals are counted as holding the truth if it lies between their ends; where it does not, it is above or below.
    Intervals that were not given are not counted.
    """
    own = [row for row in rows if row["method"] == OWN]
    head = [
        "",
        "wrong, %",
        "estimated",
        "interval holds it",
        "test accuracy, %",
        "estimated",
        "interval holds it",
        "rows with P(wrong) ≥ .9",
        "of these wrong, %",
    ]
    lines = [
        [title(setting), *_truth_of([row for row in own if (row["set"], row["noise"]) == setting])]
        for setting in settings(own)
    ]
    for group, belongs in GROUPS.items():
        chosen = [row for row in own if belongs(row)]
        if chosen:
            lines.append([group, *_truth_of(chosen, means=False)])
    return [head, *lines]


def _truth_of(rows: Sequence[Row], means: bool = True) -> list[str]:
    def mean(name: str) -> str:
        known = [100 * row[name] for row in rows if row[name] is not None]
        return f"{np.mean(known):.1f}" if known and means else ""

    flagged, wrong = (sum(row[name] for row in rows) for name in ("flagged", "flagged_wrong"))
    return [
        mean("true_noise_rate"),
        mean("noise_rate"),
        _held(rows, "noise_rate", "true_noise_rate"),
        mean("accuracy"),
        mean("estimated_accuracy"),
        _held(rows, "estimated_accuracy", "accuracy"),
        str(flagged),
        f"{100 * wrong / flagged:.1f}" if flagged else "",
    ]


def _held(rows: Sequence[Row], estimate: str, truth: str) -> str:
    given = [row for row in rows if row[f"{estimate}_low"] is not None]
    above = sum(row[truth] > row[f"{estimate}_high"] for row in given)
    below = sum(row[truth] < row[f"{estimate}_low"] for row in given)
    missed = [f"{count} {side}" for count, side in ((above, "above"), (below, "below")) if count]
    where = f" ({', '.join(missed)})" if missed else ""
    return f"{len(given) - above - below} of {len(given)}{where}"


def calibrated(rows: Sequence[Row], bins: Sequence[float]) -> list[list[str]]:
    """Return a table of the stated and the observed share of wrong labels by bins of the stated probability.

    Args:
        rows: results; those of `OWN` hold number, sum of probabilities and wrong labels of each bin.
        bins: their edges.
    """
    lines = [["P(wrong), %", *(part for group in GROUPS for part in (f"labels, {group}", "stated, %", "wrong, %"))]]
    known = [row for row in rows if row["method"] == OWN and row.get("more", {}).get("calibration")]
    if not known:
        return lines
    sums = [
        np.sum([row["more"]["calibration"] for row in known if belongs(row)], axis=0) for belongs in GROUPS.values()
    ]
    for index, (low, high) in enumerate(pairwise(bins)):
        line = [f"{100 * low:g} to {100 * high:g}"]
        for each in sums:  # (bins, 3), or 0.0 without rows
            count, stated, wrong = each[index] if np.ndim(each) else (0, 0, 0)
            shares = [f"{100 * part / count:.1f}" if count else "" for part in (stated, wrong)]
            line += [str(int(count)), *shares]
        lines.append(line)
    return lines


def votes(rows: Sequence[Row]) -> list[list[str]]:
    """Return a table of who votes in the classifier of `OWN`: a line for each setting, and how often."""
    lines = [["", "votes, most first (fits)"]]
    own = [row for row in rows if row["method"] == OWN]
    for setting in settings(own):
        names = [row["votes"] for row in own if (row["set"], row["noise"]) == setting]
        counted = sorted(dict.fromkeys(names), key=names.count, reverse=True)
        lines.append([title(setting), "; ".join(f"{name} ({names.count(name)})" for name in counted)])
    return lines


def drawn(rows: Sequence[Row]) -> str:
    """Describe the shares of wrong labels; labels are drawn independently, so the share varies with few samples."""
    parts = []
    for setting in settings(rows):
        shares = [100 * row["true_noise_rate"] for row in rows if (row["set"], row["noise"]) == setting]
        parts.append(f"{title(setting)}: {min(shares):.1f} to {max(shares):.1f}")
    return f"Wrong labels as drawn, %, minimum and maximum: {'; '.join(parts)}."


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Format a table for the terminal."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines
    )


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Format a table as Markdown."""
    head, *rest = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([head, "|---" + "|---:" * (len(lines[0]) - 1) + "|", *rest])


def page(
    rows: Sequence[Row],
    methods: Sequence[str],
    formatted: Callable[[Sequence[Sequence[str]]], str],
    bold: str = "",
    *,
    bins: Sequence[float] = (),
) -> str:
    """Return all tables.

    Args:
        rows: results.
        methods: order of the columns.
        formatted: `markdown` or `aligned`.
        bold: mark of the best mean.
        bins: edges of the bins of probabilities that labels are wrong.
    """
    parts = []
    for figure in FIGURES:
        lines = grid(rows, figure, methods, bold)
        if len(lines) > 1:
            parts.append(f"{figure.title}; mean ± standard deviation over {_seeds(rows)}.\n\n{formatted(lines)}\n")
        if len(lines) > 1 and figure.best and not figure.sets:
            parts.append(f"Settings in which {OWN} is …\n\n{formatted(standing(rows, figure, methods))}\n")
    lines = truthfulness(rows)
    if len(lines) > 1:
        parts.append(f"What {OWN} says about itself, and the truth; 90% intervals.\n\n{formatted(lines)}\n")
        lines = calibrated(rows, bins)
        if len(lines) > 1:
            parts.append(f"Labels by the probability to be wrong that {OWN} states.\n\n{formatted(lines)}\n")
        parts.append(f"Who votes in the classifier of {OWN}.\n\n{formatted(votes(rows))}\n")
    return "\n".join([*parts, drawn(rows) + "\n"])


def _seeds(rows: Sequence[Row]) -> str:
    """Describe the number of seeds of the settings."""
    counts = {len({row["seed"] for row in rows if (row["set"], row["noise"]) == setting}) for setting in settings(rows)}
    least, most = min(counts), max(counts)
    return f"{least} to {most} seeds" if least < most else f"{most} seed{'s' if most > 1 else ''}"
