"""The table of a search or a training: its columns, and how missing values are shown."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from s2e.cli.tables import result_table


def a_row(name: str, *parts: str, precision: float | None = 0.75, diverged: bool = False) -> dict[str, Any]:
    accuracy = {"last_10_epochs": 0.5, "best_epoch": 0.625, "at_epoch": 3}
    shown = dict.fromkeys(("valid", *parts), accuracy)
    return {"name": name, "method": "coteaching", **shown, "label_precision": precision, "diverged": diverged}


def printed(*rows: dict[str, Any], test: bool, **changes: Any) -> list[str]:
    result = {
        "methods": list(rows),
        "epochs": 20,
        "noise_rate": 0.4396,
        "validation": "clean",
        "samples": {"train": 80, "valid": 20} | ({"test": 30} if test else {}),
        "device": "cpu",
        "seconds": 2.6,
        **changes,
    }
    text = io.StringIO()
    Console(file=text, width=200, highlight=False).print(result_table(result))
    return text.getvalue().splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]


def test_table_shows_the_test_part() -> None:
    lines = printed(a_row("Standard", "test", diverged=True), a_row("S2E", "test"), test=True, search={"trials": 8})
    assert cells(lines[1]) == ["method", "test accuracy, last 10 epochs", "best epoch", "label precision"]
    assert cells(lines[3]) == ["Standard (diverged)", "50.00%", "62.50%", "75.00%"]
    assert cells(lines[4]) == ["S2E", "50.00%", "62.50%", "75.00%"]
    assert lines[-1].strip() == "43.96% of the training labels are wrong, 8 schedules searched, 3 s on cpu"


@pytest.mark.parametrize(
    ("validation", "name"),
    [("clean", "accuracy on clean validation data"), ("relabelled", "agreement with relabelled validation labels")],
)
def test_table_names_the_validation_part_if_there_is_no_test_part(validation: str, name: str) -> None:
    lines = printed(a_row("S2E"), test=False, validation=validation)
    assert cells(lines[1])[1] == f"{name}, last 10 epochs"


def test_an_estimated_accuracy_is_not_printed() -> None:
    """Its interval holds the truth too rarely."""
    estimated = {"accuracy": 0.8125, "accuracy_interval": [0.75, 0.875]}
    assert not any("81.25%" in each for each in printed(a_row("S2E"), test=False, estimated=estimated))


def test_unknown_values_are_shown_as_such() -> None:
    lines = printed(a_row("S2E", precision=None), test=False, noise_rate=None)
    assert cells(lines[3])[3] == "unknown"
    assert lines[-1].strip() == "share of wrong labels unknown, 3 s on cpu"
    assert cells(printed(a_row("S2E", precision=0.0), test=False)[3])[3] == "0.00%"
