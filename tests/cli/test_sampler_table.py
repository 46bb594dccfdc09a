"""The tables of `s2e reproduce searchers`."""

from __future__ import annotations

from typing import Any

import pytest

from s2e.cli.sampler_table import sampler_tables


def row(sampler: str, trainings: int, noise: str, error: float | None) -> dict[str, Any]:
    bands: dict[str, Any] = {}
    for prefix, own in (("", error), ("returned_", None if error is None else error + 0.01)):
        low, high = (None, None) if own is None else (own - 0.001, own + 0.001)
        bands |= {f"{prefix}error": own, f"{prefix}low": low, f"{prefix}high": high}
    return {"sampler": sampler, "trainings": trainings, "noise": noise, **bands}


def needed(sampler: str, noise: str, low: int | None, count: int | None, high: int | None) -> dict[str, Any]:
    goal = {"noise": noise, "than": "random", "trainings": 300, "error": 0.02, "sampler": sampler, "budget": 60}
    return {
        **goal,
        "needed": count,
        "low": low,
        "high": high,
        "never": 0.25,
        "never_low": 0.101,
        "never_high": 0.399,
    }


RESULT = {
    "summary": [
        row("curve", 12, "pair:0.4", 0.03),
        row("curve", 30, "pair:0.4", 0.02),
        row("curve", 12, "none", None),
        row("curve", 30, "none", 0.005),
    ],
    "needed": [
        needed("curve", "pair:0.4", 18, 21, 30),
        needed("tpe", "pair:0.4", 50, None, None),
        needed("curve", "none", 55, None, None),
    ],
    "surrogate": {"none": {"correlation": 0.91, "ceiling": 0.95, "rmse_among_good": 0.0021}},
    "repeats": 7,
    "seconds": 9.4,
    "device": "cpu",
}
HOW = [
    "none: held-out correlation of the table's surrogate 0.910, of a perfect one 0.950; its error among good schedules "
    "0.210 points",
    "9 s on cpu",
]


def cells(table: Any) -> list[list[str]]:
    return [[str(cell) for cell in column.cells] for column in table.columns]


def test_errors_seen_and_returned_have_samplers_as_rows_and_noise_settings_as_columns() -> None:
    seen, returned, _ = sampler_tables(RESULT)
    assert cells(seen) == [["curve", "curve"], ["12", "30"], ["3.000 ± 0.100", "2.000 ± 0.100"], ["—", "0.500 ± 0.100"]]
    assert cells(returned)[2:] == [["4.000 ± 0.100", "3.000 ± 0.100"], ["—", "1.500 ± 0.100"]]
    assert str(seen.columns[2].header) == "pair noise, 40%"
    assert "mean over 7 repeats" in str(seen.caption)
    assert "would return" in str(returned.caption)


def test_trainings_needed_by_the_default_sampler_have_intervals() -> None:
    *_, shown = sampler_tables(RESULT)
    assert cells(shown) == [
        ["pair:0.4", "none"],
        ["random with 300"] * 2,
        ["curve"] * 2,
        ["21 (18 to 30)", ">60 (55 to >60)"],
        ["25% (10 to 40)"] * 2,
    ]
    assert str(shown.caption).splitlines()[1:] == HOW


def test_without_the_default_sampler_all_are_shown() -> None:
    *_, shown = sampler_tables({**RESULT, "needed": [needed("tpe", "pair:0.4", 50, None, None)]})
    assert cells(shown)[2:4] == [["tpe"], [">60 (50 to >60)"]]


@pytest.mark.parametrize("surrogate", [True, False])
def test_without_a_reference_the_surrogate_is_described_below_the_errors(surrogate: bool) -> None:
    result = {**RESULT, "needed": []}
    if not surrogate:
        del result["surrogate"]
    _, returned = sampler_tables(result)
    assert str(returned.caption).splitlines()[1:] == (HOW if surrogate else HOW[1:])
