"""Tables of `s2e reproduce spaces`: their cells, their captions, their width."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from s2e.cli.space_tables import fresh_tables, winner_tables
from s2e.schedules import SPACES
from space_runs import TWO_NOISES, result

NAMES = ["Co-teaching", "Single", "RBF", "MLP", "S2E"]


def cells(table: Table, column: int) -> list[str]:
    return [str(cell) for cell in table.columns[column].cells]


def styles(table: Table, column: int) -> list[Any]:
    return [getattr(cell, "style", "") for cell in table.columns[column].cells]


def test_fresh_tables_have_spaces_as_rows_and_noise_settings_as_columns() -> None:
    last, _, best = fresh_tables(result())
    assert str(last.title) == "fresh seeds: test accuracy, last 10 epochs"
    assert str(best.title) == "fresh seeds: test accuracy, best epoch"
    assert [str(column.header) for column in last.columns] == ["space", "pair noise, 40%", "symmetric noise, 30%"]
    assert cells(last, 0) == NAMES
    assert cells(last, 1) == [f"{mean}.00 ± 0.10" for mean in (1, 4, 6, 7, 0)]
    assert cells(last, 2) == [f"{mean}.00 ± 0.10" for mean in (11, 12, 16, 17, 10)]
    assert cells(best, 1) == ["51.00", "54.00", "56.00", "57.00", "50.00"]
    assert styles(last, 1) == ["", "", "", "bold", ""]
    assert str(fresh_tables(result(epochs=4))[0].title).endswith("last 4 epochs")


def test_caption_of_fresh_tables_describes_one_set() -> None:
    caption = str(fresh_tables(result())[2].caption)
    assert "the epoch is chosen on the test data" in caption
    assert "mean ± standard deviation over 2 seeds; schedules chosen by validation, of 50 drawn in each" in caption
    assert "four spaces by validation (50 drawn in each): single-3, single-1" in caption
    assert "diverged" not in caption
    assert "one seed;" in str(fresh_tables(result(seeds=1))[2].caption)


def test_caption_of_fresh_tables_describes_several_sets() -> None:
    single = {"pair:0.4": ["single-3", "single-1", "single-3"], "symmetric:0.3": ["single-4"] * 3}
    caption = str(fresh_tables(result(sets=3, single=single))[2].caption)
    assert "mean ± standard deviation over 3 sets of draws with 2 seeds each;" in caption
    assert ": single-3 (2 of 3 sets) or single-1 (1), single-4 (3 of 3 sets)\n" in caption
    assert "over 3 sets of draws with one seed each" in str(fresh_tables(result(sets=3, seeds=1))[2].caption)


def test_caption_names_diverged_trainings_by_space() -> None:
    summary = [
        {**row, "sets": 3, "diverged": int(row["space"] in ("single-3", "single") and row["noise"] == "pair:0.4")}
        for row in result()["summary"]
    ]
    caption = str(fresh_tables(result(sets=3, summary=summary))[2].caption)
    assert "diverged, counted as 0 over the last epochs: single-3 1 of 6 (pair:0.4)\n" in caption


def test_differences_have_a_sign_and_an_error_over_several_sets() -> None:
    one = fresh_tables(result())[1]
    assert str(one.title) == "fresh seeds: S2E minus the other space, last 10 epochs"
    assert cells(one, 0) == NAMES[:-1]
    assert cells(one, 1) == ["+0.00", "+1.00", "+2.00", "+3.00"]
    assert cells(one, 2) == ["-0.00", "-1.00", "-2.00", "-3.00"]
    assert "one set: no standard error" in str(one.caption)
    rows = [{**row, "standard_error": 0.0012} for row in result()["s2e_minus"]]
    several = fresh_tables(result(s2e_minus=rows, sets=4))[1]
    assert cells(several, 1)[1] == "+1.00 ± 0.12"
    assert "mean ± standard error over 4 sets" in str(several.caption)


def test_winner_tables_have_the_accuracies_of_winners() -> None:
    best, last, difference = winner_tables(result())
    assert [str(table.title) for table in (best, last, difference)] == [
        "winners: test accuracy, best epoch",
        "winners: test accuracy, last 10 epochs",
        "winners: S2E minus the other space, last 10 epochs",
    ]
    rows = {space: row for row, space in enumerate(SPACES)} | {"single": 2 * len(SPACES)}  # of the summary
    order = [rows[space] for space in ("coteaching", "single", "rbf", "mlp", "s2e")]
    assert cells(last, 1) == [f"{30 + row:.2f}" for row in order]
    assert cells(best, 1) == [f"{60 + row:.2f}" for row in order]
    assert styles(last, 1) == ["", "bold", "", "", ""]
    assert cells(difference, 1) == ["-0.20", "-0.10", "+0.00", "+0.10"]
    assert "as in the paper; the epoch is chosen on the test data" in str(best.caption)
    assert "one training each: the one with the best validation accuracy of 50 in each space" in str(last.caption)
    assert str(last.caption).endswith("by its winner's validation: single-2, single-4")
    assert "over 3 sets of draws" in str(winner_tables(result(sets=3))[1].caption)


def test_three_noise_settings_fit_into_80_columns() -> None:
    third, content = "symmetric:0.5", result(sets=12)
    accuracy = {"mean": 0.98634, "std": 0.10121, "standard_error": 0.10121}
    both = {"last_10_epochs": accuracy, "best_epoch": accuracy}
    for name in ("summary", "s2e_minus"):
        added = [{**row, "noise": third} for row in content[name] if row["noise"] == TWO_NOISES[0]]
        content[name] = [{**row, **accuracy, **both, "winner": both} for row in [*content[name], *added]]
    for name in ("single", "single_winners"):
        content[name] = {**content[name], third: ["single-1"]}
    console = Console(width=80, record=True, file=io.StringIO())
    for table in [*winner_tables(content), *fresh_tables(content)]:
        console.print(table)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.count("98.63 ± 10.12") for line in lines) == (4 * 5 + 2 * 4) * 3  # no number is wrapped
