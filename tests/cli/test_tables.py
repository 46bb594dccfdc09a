"""The tables of a comparison: their cells, and their width on a terminal of 80 columns."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from s2e.cli.tables import comparison_tables


def figure(mean: float | None, std: float | None = None) -> dict[str, float | None]:
    return {"mean": mean, "std": std}


def a_row(method: str = "s2e", noise: str = "pair:0.45", **changes: Any) -> dict[str, Any]:
    return {
        "noise": noise,
        "method": method,
        "seeds": 5,
        "diverged": 0,
        "last_10_epochs": figure(0.84468, 0.00312),
        "chosen_epoch": figure(0.88, 0.004),
        "best_epoch": figure(0.9, 0.0105),
        "label_precision": figure(0.75, 0.125),
        **changes,
    }


def a_result(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "summary": list(rows),
        "evaluated_on": "test",
        "validation": "clean",
        "epochs": 200,
        "noise_rates": {row["noise"]: 0.4504 for row in rows},
        "seconds": 1234.4,
        "device": "cpu",
        "left_out": [],
        **changes,
    }


def printed(result: dict[str, Any], *, width: int = 160, terminal: bool = False) -> list[list[str]]:
    """The lines of every table."""
    shown = []
    for table in comparison_tables(result):
        text = io.StringIO()
        Console(file=text, width=width, force_terminal=terminal, highlight=False).print(table)
        shown.append([line.rstrip() for line in text.getvalue().splitlines()])
    return shown


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]


def body(lines: list[str]) -> list[list[str]]:
    return [cells(line) for line in lines if line.startswith("│")]


def caption(lines: list[str]) -> list[str]:
    (end,) = (position for position, line in enumerate(lines) if line.startswith("└"))
    return lines[end + 1 :]


def test_a_row_holds_means_and_deviations_in_percent() -> None:
    (lines,) = printed(a_result(a_row("coteaching+"), a_row("s2e:jocor")))
    assert lines[0].strip() == "pair noise, 45%"
    head = ["method", "test accuracy, last 10 epochs", "epoch chosen on validation", "best epoch", "label precision"]
    assert cells(lines[2]) == head
    figures = ["84.47 ± 0.31", "88.00 ± 0.40", "90.00 ± 1.05", "75.00 ± 12.50"]
    assert body(lines) == [["Co-teaching+", *figures], ["S2E (JoCoR)", *figures]]


def test_every_noise_setting_has_its_table_with_its_methods_in_their_order() -> None:
    rows = [a_row(method, noise) for noise in ("pair:0.45", "symmetric:0.2") for method in ("s2e", "standard")]
    tables = printed(a_result(rows[0], rows[2], rows[1], rows[3]))
    assert [lines[0].strip() for lines in tables] == ["pair noise, 45%", "symmetric noise, 20%"]
    assert [[row[0] for row in body(lines)] for lines in tables] == [["S2E", "Standard"]] * 2


@pytest.mark.parametrize(
    ("part", "name"), [("test", "test accuracy"), ("held-out", "agreement with noisy labels of held-out samples")]
)
def test_header_names_the_evaluated_part(part: str, name: str) -> None:
    (lines,) = printed(a_result(a_row(), evaluated_on=part, validation="noisy"))
    assert cells(lines[2])[1] == f"{name}, last 10 epochs"


def test_a_short_training_has_fewer_last_epochs() -> None:
    (lines,) = printed(a_result(a_row(), epochs=4))
    assert cells(lines[2])[1] == "test accuracy, last 4 epochs"


def test_a_single_seed_has_no_deviation() -> None:
    single = {"last_10_epochs": 0.5, "chosen_epoch": 0.6, "best_epoch": 0.625, "label_precision": 0.0}
    (lines,) = printed(a_result(a_row(seeds=1, **{name: figure(mean) for name, mean in single.items()})))
    assert body(lines) == [["S2E", "50.00", "60.00", "62.50", "0.00"]]
    assert caption(lines)[0] == "in percent, one seed"


def test_unknown_values_are_shown_as_unknown() -> None:
    (lines,) = printed(a_result(a_row(label_precision=figure(None)), noise_rates={"pair:0.45": None}))
    assert body(lines)[0][4] == "unknown"
    assert caption(lines)[1] == "share of wrong labels unknown"


def test_unknown_accuracies_are_accepted() -> None:
    unknown = a_row("standard", last_10_epochs=figure(None), best_epoch=figure(None))
    (lines,) = printed(a_result(unknown))
    assert body(lines)[0][1::2] == ["unknown", "unknown"]
    (lines,) = printed(a_result(unknown, a_row()))
    assert [row[1] for row in body(lines)] == ["unknown", "84.47 ± 0.31"]


def test_diverged_trainings_are_counted_next_to_the_method() -> None:
    (lines,) = printed(a_result(a_row("standard", diverged=2), a_row()))
    assert [row[0] for row in body(lines)] == ["Standard (2 of 5 diverged)", "S2E"]


def test_the_best_mean_of_each_table_is_bold_and_nothing_else() -> None:
    rows = [
        a_row("standard", last_10_epochs=figure(0.71), best_epoch=figure(0.99)),
        a_row("jocor", last_10_epochs=figure(0.83)),
        a_row("s2e", last_10_epochs=figure(0.82)),
        a_row("standard", "pair:0.2", last_10_epochs=figure(0.61)),
        a_row("s2e", "pair:0.2", last_10_epochs=figure(0.62)),
    ]
    bold = [
        re.findall(r"\x1b\[1m([^\x1b]*)\x1b", line)
        for lines in printed(a_result(*rows), terminal=True)
        for line in lines
        if line.startswith("│")
    ]
    assert [[cell.strip() for cell in found] for found in bold] == [[], ["83.00"], [], [], ["62.00"]]


def test_equal_best_means_are_all_bold() -> None:
    (lines,) = printed(a_result(a_row("jocor"), a_row("s2e")), terminal=True)
    assert sum("\x1b[1m" in line for line in lines if line.startswith("│")) == 2


def test_captions_describe_the_numbers_and_the_last_one_the_run() -> None:
    left = [{"method": "reweight", "reason": "needs clean validation data"}]
    rates = {"pair:0.45": 0.4504, "pair:0.2": 0.2}
    first, last = printed(a_result(a_row(), a_row(noise="pair:0.2", seeds=3), left_out=left, noise_rates=rates))
    assert caption(first) == [
        "in percent, mean ± standard deviation over 5 seeds",
        "45.04% of the training labels are wrong",
    ]
    assert caption(last) == [
        "in percent, mean ± standard deviation over 3 seeds",
        "20.00% of the training labels are wrong",
        "left out: Reweight, needs clean validation data",
        "1234 s on cpu",
    ]


def test_different_numbers_of_seeds_are_shown_as_a_range() -> None:
    (lines,) = printed(a_result(a_row("standard"), a_row(seeds=3)))
    assert caption(lines)[0] == "in percent, mean ± standard deviation over 3 to 5 seeds"


def test_brackets_are_shown_as_they_are() -> None:
    left = [{"method": "[bold]x", "reason": "[red]why"}]
    rows = [a_row("[bold]mine", "asymmetric:[bold].csv")]
    (lines,) = printed(a_result(*rows, left_out=left, device="[cpu]"))
    assert lines[0].strip() == "asymmetric noise, [bold].csv"
    assert body(lines)[0][0] == "[bold]mine"
    assert caption(lines)[2:] == ["left out: [bold]x, [red]why", "1234 s on [cpu]"]


def test_no_rows_make_no_table() -> None:
    assert comparison_tables(a_result()) == []


def test_a_table_where_no_epoch_can_be_chosen_has_no_column_for_it() -> None:
    rows = [a_row(chosen_epoch=figure(None)), a_row("reweight", chosen_epoch=figure(None))]
    (lines,) = printed(a_result(*rows))
    assert cells(lines[2])[2] == "best epoch"
    (lines,) = printed(a_result(a_row(), rows[1]))
    assert [row[2] for row in body(lines)] == ["88.00 ± 0.40", "unknown"]


@pytest.mark.parametrize("evaluated_on", ["test", "held-out"])
def test_a_table_fits_80_columns_without_breaking_a_figure(evaluated_on: str) -> None:
    chosen = figure(0.5, 0.0707) if evaluated_on == "test" else figure(None)
    wide = {
        "last_10_epochs": figure(0.5, 0.0707),
        "chosen_epoch": chosen,
        "best_epoch": figure(0.9, 0.01),
        "label_precision": figure(0.9, 0.01),
    }
    methods = ["standard", "f-correction", "coteaching+", "s2e:coteaching+"]
    left = [
        {"method": "reweight", "reason": "it needs clean validation data and there are none in this comparison, " * 2}
    ]
    rows = [a_row(method, diverged=4, **wide) for method in methods]
    result = a_result(*rows, evaluated_on=evaluated_on, validation="noisy", left_out=left, device="NVIDIA H200" * 4)
    (lines,) = printed(result, width=80)
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    figures = [row[1:] for row in body(lines) if row[1]]
    own = ["50.00 ± 7.07"] * (2 if evaluated_on == "test" else 1)
    assert figures == [[*own, "90.00 ± 1.00", "90.00 ± 1.00"]] * 4
