"""The table of `s2e reproduce searchers`."""

from __future__ import annotations

from typing import Any

from s2e.cli.sampler_table import sampler_table


def row(sampler: str, trainings: int, noise: str, error: float) -> dict[str, Any]:
    band = {"low": error - 0.001, "high": error + 0.001}
    return {"sampler": sampler, "trainings": trainings, "noise": noise, "error": error, **band}


def needed(noise: str, trainings: int | None) -> dict[str, Any]:
    return {"noise": noise, "default": "curve", "than": "random", "trainings": 60, "default_trainings": trainings}


def test_table_has_samplers_as_rows_and_noise_settings_as_columns() -> None:
    result = {
        "summary": [
            row("curve", 12, "pair:0.4", 0.03),
            row("curve", 30, "pair:0.4", 0.02),
            row("curve", 12, "none", 0.01),
            row("curve", 30, "none", 0.005),
        ],
        "needed": [needed("pair:0.4", 21), needed("none", None)],
        "surrogate": {"none": {"correlation": 0.91, "ceiling": 0.95}},
        "repeats": 7,
        "seconds": 9.4,
        "device": "cpu",
    }
    table = sampler_table(result)
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    assert columns[:2] == [["curve", "curve"], ["12", "30"]]
    assert columns[2:] == [["3.000 ± 0.100", "2.000 ± 0.100"], ["1.000 ± 0.100", "0.500 ± 0.100"]]
    assert str(table.columns[2].header) == "pair noise, 40%"
    assert str(table.caption).splitlines() == [
        "validation error in percent, mean over 7 repeats and its 95% confidence band",
        "pair:0.4: curve needs 21 trainings for the error of random with 60",
        "none: curve needs more trainings than it had for the error of random with 60",
        "none: held-out correlation of the table's surrogate 0.910, of a perfect one 0.950",
        "9 s on cpu",
    ]
