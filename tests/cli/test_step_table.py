"""The tables of `s2e reproduce steps`."""

from __future__ import annotations

from typing import Any

from s2e.cli.step_table import step_tables


def row(step: str, size: int, measure: str, error: float, better_low: float, trainings: int = 96) -> dict[str, Any]:
    own = {"error": error, "low": error - 0.001, "high": error + 0.001, "better_low": better_low}
    random = {"random": 0.05, "random_low": 0.049, "random_high": 0.051}
    return {
        "noise": "pair:0.4",
        "step": step,
        "size": size,
        "trainings": trainings,
        "measure": measure,
        **own,
        **random,
    }


def test_steps_and_sizes_are_rows_and_better_ones_are_marked() -> None:
    rows = [
        row("newton", size, measure, 0.01 * size + shift, better_low)
        for size, better_low in ((6, -0.1), (12, 0.1))
        for measure, shift in (("best", 0.0), ("centre", 0.001), ("mean", 0.002))
    ]
    rows.append(row("newton", 6, "best", 0.9, 0.1, trainings=48))
    (table,) = step_tables({"rows": rows, "trainings": 96, "repeats": 7})
    columns = [[str(cell).strip() for cell in column.cells] for column in table.columns]
    assert columns[:2] == [["newton", "newton", "random"], ["6", "12", ""]]
    assert columns[2] == ["6.000 ± 0.100", "12.000 ± 0.100 *", "5.000 ± 0.100"]
    assert columns[4] == ["6.200 ± 0.100", "12.200 ± 0.100 *", "5.000 ± 0.100"]
    assert str(table.caption).startswith("pair noise, 40%: validation error in percent after 96 trainings, mean over 7")
