"""Tables of `s2e reproduce spaces`: of the winners of the search, and of the schedules trained from fresh seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from s2e.cli.tables import FIGURE_WIDTH, mean_and_std
from s2e.engine.curves import LAST_EPOCHS
from s2e.experiments.space_results import BEST, LAST, SINGLE, TITLES
from s2e.plots.names import noise_title

_ROWS = ("summary", "s2e_minus")
"""Keys of a result with the figures of each space, and with S2E's lead over it."""

Figures = Mapping[tuple[str, str], Mapping[str, Any]]
"""Figures by noise setting and space."""


def winner_tables(result: Mapping[str, Any]) -> list[Table]:
    """Tables of the winners, spaces by noise settings: the best epoch's accuracy, the last epochs', and S2E's lead."""

    last, drawn, sets = min(LAST_EPOCHS, result["epochs"]), result["draws"], result["sets"]
    figures, leads = ({(row["noise"], row["space"]): row["winner"] for row in result[rows]} for rows in _ROWS)
    single = ", ".join(_tally(spaces) for spaces in result["single_winners"].values())
    over = f"mean ± standard deviation over {sets} sets of draws" if sets > 1 else "one training each"
    best_about = "the paper's figure; the epoch is chosen by the test data themselves"
    last_about = [
        f"in percent, {over}: the one with the best validation accuracy of {drawn} in each space",
        f"Single is the best of four spaces by its winner's validation: {single}",
    ]
    lead = f"winners: S2E minus the other space, last {last} epochs"
    return [
        _table(result, _named(figures, BEST), "winners: test accuracy, best epoch", best_about),
        _table(result, _named(figures, LAST), f"winners: test accuracy, last {last} epochs", "\n".join(last_about)),
        _differences(result, _named(leads, LAST), lead),
    ]


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Tables of fresh trainings, spaces by noise settings: the last epochs' accuracy, S2E's lead, the best epoch's."""

    last, drawn = min(LAST_EPOCHS, result["epochs"]), result["draws"]
    figures, leads = ({(row["noise"], row["space"]): row for row in result[rows]} for rows in _ROWS)
    single = ", ".join(_tally(spaces) for spaces in result["single"].values())
    about = [
        f"in percent, {_trainings(result)}; schedules chosen by validation, of {drawn} drawn in each space",
        f"Single is the best of four spaces by validation ({drawn} drawn in each): {single}",
        *_divergence(result),
        f"{result['seconds']:.0f} s on {result['device']}",
    ]
    hindsight = "the epoch is chosen by the test data themselves"
    return [
        _table(result, _named(figures, LAST), f"fresh seeds: test accuracy, last {last} epochs", "in percent"),
        _differences(result, leads, f"fresh seeds: S2E minus the other space, last {last} epochs"),
        _table(result, _named(figures, BEST), "fresh seeds: test accuracy, best epoch", "\n".join([hindsight, *about])),
    ]


def _named(rows: Figures, name: str) -> Figures:
    return {of: row[name] for of, row in rows.items()}


def _trainings(result: Mapping[str, Any]) -> str:
    """Say what a mean and its deviation are of."""
    sets, seeds = result["sets"], result["seeds"]
    if sets * seeds == 1:
        return "one seed"
    each = "one seed" if seeds == 1 else f"{seeds} seeds"
    return f"mean ± standard deviation over {each if sets == 1 else f'{sets} sets of draws with {each} each'}"


def _tally(spaces: Sequence[str]) -> str:
    """Name the spaces that Single is in the sets, as `single-3`, or `single-3 (4 of 6 sets) or single-1 (2)`."""
    if len(spaces) == 1:
        return spaces[0]
    (first, count), *others = Counter(spaces).most_common()
    return " or ".join([f"{first} ({count} of {len(spaces)} sets)", *(f"{space} ({count})" for space, count in others)])


def _table(result: Mapping[str, Any], of: Figures, title: str, caption: str) -> Table:
    """One row for each space, one column for each noise setting, the best of a column in bold."""

    table = _empty(result, title, caption)
    rows: dict[str, list[Text]] = {space: [] for space in TITLES}
    for noise in result["single"]:
        means = {space: of[noise, space]["mean"] for space in TITLES}
        best = max((mean for mean in means.values() if mean is not None), default=None)
        for space, mean in means.items():
            rows[space].append(
                Text(mean_and_std(of[noise, space]), style="bold" if mean is not None and mean == best else "")
            )
    for space, cells in rows.items():
        table.add_row(TITLES[space], *cells)
    return table


def _differences(result: Mapping[str, Any], of: Figures, title: str) -> Table:
    """One row for each space but S2E's, one column for each noise setting: how much better S2E's is, in points."""

    errors = f"mean ± standard error over {result['sets']} sets" if result["sets"] > 1 else "one set: no standard error"
    table = _empty(result, title, f"in percentage points, from the same numbers drawn in both spaces; {errors}")
    for space in dict.fromkeys(space for _, space in of):
        table.add_row(TITLES[space], *(_difference(of[noise, space]) for noise in result["single"]))
    return table


def _difference(row: Mapping[str, Any]) -> str:
    """Write a difference with its standard error in percentage points, as +0.35 ± 0.12."""
    mean, error = row["mean"], row["standard_error"]
    return f"{100 * mean:+.2f}" if error is None else f"{100 * mean:+.2f} ± {100 * error:.2f}"


def _empty(result: Mapping[str, Any], title: str, caption: str) -> Table:
    """Return a table with a column for the spaces and one for each noise setting."""

    table = Table(title=Text(title), caption=Text(caption), caption_justify="left")  # Text: brackets are no markup
    table.add_column("space")
    for noise in result["single"]:
        table.add_column(Text(noise_title(noise)), justify="right", min_width=FIGURE_WIDTH)
    return table


def _divergence(result: Mapping[str, Any]) -> list[str]:
    """Say which trainings diverged; their last epochs count as 0."""

    gone = [
        f"{row['space']} {row['diverged']} of {row['sets'] * row['seeds']} ({row['noise']})"
        for row in result["summary"]
        if row["diverged"] and row["space"] != SINGLE  # told under the name of the space it is
    ]
    return [f"diverged, counted as 0 over the last epochs: {'; '.join(gone)}"] if gone else []
