"""Tables of `s2e reproduce spaces`: the winners of the search, and the schedules found, trained from fresh seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from s2e.cli.tables import FIGURE_WIDTH, mean_and_std
from s2e.engine import LAST_EPOCHS
from s2e.experiments.space_results import BEST, LAST, SINGLE, TITLES
from s2e.plots import data_title, noise_title

Rows = Mapping[tuple[str, str], Mapping[str, Any]]
"""Rows of a result by noise setting and space."""


def space_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return all tables of a comparison of spaces, those of several data sets one after the other."""
    if "by_data" not in result:
        return [*winner_tables(result), *fresh_tables(result)]
    found = []
    for data, own in result["by_data"].items():
        tables = space_tables(own)
        tables[0].title = Text(f"{data_title(data)}\n{tables[0].title}")
        found += tables
    return found


def winner_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return tables of the winners, spaces by noise settings: best epoch, last epochs, and S2E's difference to each."""
    last, sets = min(LAST_EPOCHS, result["epochs"]), result["sets"]
    winners = {key: row["winner"] for key, row in _rows(result, "summary").items()}
    differences = {key: row["winner"][LAST] for key, row in _rows(result, "s2e_minus").items()}
    over = f"mean ± standard deviation over {sets} sets of draws" if sets > 1 else "one training each"
    caption = [
        f"in percent, {over}: the one with the best validation accuracy of {result['draws']} in each space",
        f"Single is the best of four spaces by its winner's validation: {_single(result['single_winners'])}",
    ]
    return [
        _accuracy_table(
            result,
            _named(winners, BEST),
            "winners: test accuracy, best epoch",
            "as in the paper; the epoch is chosen on the test data",
        ),
        _accuracy_table(
            result, _named(winners, LAST), f"winners: test accuracy, last {last} epochs", "\n".join(caption)
        ),
        _difference_table(result, differences, f"winners: S2E minus the other space, last {last} epochs"),
    ]


def fresh_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return tables of the fresh trainings, spaces by noise settings: last epochs, S2E's difference, best epoch."""
    last, draws = min(LAST_EPOCHS, result["epochs"]), result["draws"]
    rows, differences = _rows(result, "summary"), _rows(result, "s2e_minus")
    caption = [
        "the epoch is chosen on the test data",
        f"in percent, {_averaged_over(result)}; schedules chosen by validation, of {draws} drawn in each space",
        f"Single is the best of four spaces by validation ({draws} drawn in each): {_single(result['single'])}",
        *_divergence(result),
        f"{result['seconds']:.0f} s on {result['device']}",
    ]
    return [
        _accuracy_table(result, _named(rows, LAST), f"fresh seeds: test accuracy, last {last} epochs", "in percent"),
        _difference_table(result, differences, f"fresh seeds: S2E minus the other space, last {last} epochs"),
        _accuracy_table(result, _named(rows, BEST), "fresh seeds: test accuracy, best epoch", "\n".join(caption)),
    ]


def _rows(result: Mapping[str, Any], name: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(row["noise"], row["space"]): row for row in result[name]}


def _named(rows: Rows, name: str) -> Rows:
    return {key: row[name] for key, row in rows.items()}


def _accuracy_table(result: Mapping[str, Any], accuracies: Rows, title: str, caption: str) -> Table:
    """Return a table with one row for each space; the best accuracy of each column is bold."""
    table = _empty_table(result, title, caption)
    noises = list(result["single"])
    best = {noise: max(accuracies[noise, space]["mean"] for space in TITLES) for noise in noises}
    for space, name in TITLES.items():
        cells = [accuracies[noise, space] for noise in noises]
        styles = ["bold" if cell["mean"] == best[noise] else "" for noise, cell in zip(noises, cells, strict=True)]
        table.add_row(name, *(Text(mean_and_std(cell), style) for cell, style in zip(cells, styles, strict=True)))
    return table


def _difference_table(result: Mapping[str, Any], differences: Rows, title: str) -> Table:
    """Return a table with one row for each space other than S2E's: S2E's accuracy minus that of the space."""
    errors = f"mean ± standard error over {result['sets']} sets" if result["sets"] > 1 else "one set: no standard error"
    table = _empty_table(result, title, f"in percentage points, from the same numbers drawn in both spaces; {errors}")
    for space in dict.fromkeys(space for _, space in differences):
        table.add_row(TITLES[space], *(_difference(differences[noise, space]) for noise in result["single"]))
    return table


def _difference(row: Mapping[str, Any]) -> str:
    """Format a difference and its standard error in percentage points, as +0.35 ± 0.12."""
    mean, error = row["mean"], row["standard_error"]
    return f"{100 * mean:+.2f}" if error is None else f"{100 * mean:+.2f} ± {100 * error:.2f}"


def _empty_table(result: Mapping[str, Any], title: str, caption: str) -> Table:
    table = Table(title=Text(title), caption=Text(caption), caption_justify="left")  # Text: brackets are no markup
    table.add_column("space")
    for noise in result["single"]:
        table.add_column(Text(noise_title(noise)), justify="right", min_width=FIGURE_WIDTH)
    return table


def _averaged_over(result: Mapping[str, Any]) -> str:
    """Describe the trainings that a mean and its deviation are taken over."""
    sets, seeds = result["sets"], result["seeds"]
    if sets * seeds == 1:
        return "one seed"
    each = "one seed" if seeds == 1 else f"{seeds} seeds"
    return f"mean ± standard deviation over {each if sets == 1 else f'{sets} sets of draws with {each} each'}"


def _single(spaces_of: Mapping[str, Sequence[str]]) -> str:
    """Name the spaces behind Single by noise setting: `single-3`, or `single-3 (4 of 6 sets) or single-1 (2)`."""
    return ", ".join(_counts(spaces) for spaces in spaces_of.values())


def _counts(spaces: Sequence[str]) -> str:
    if len(spaces) == 1:
        return spaces[0]
    (first, count), *others = Counter(spaces).most_common()
    return " or ".join([f"{first} ({count} of {len(spaces)} sets)", *(f"{space} ({count})" for space, count in others)])


def _divergence(result: Mapping[str, Any]) -> list[str]:
    """Name the trainings that diverged; those of Single are listed under the selected space."""
    diverged = [
        f"{row['space']} {row['diverged']} of {row['sets'] * row['seeds']} ({row['noise']})"
        for row in result["summary"]
        if row["diverged"] and row["space"] != SINGLE
    ]
    return [f"diverged, counted as 0 over the last epochs: {'; '.join(diverged)}"] if diverged else []
