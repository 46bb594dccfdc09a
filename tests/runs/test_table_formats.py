"""Tables as files: the ending decides the format, values survive, other endings are refused."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from s2e.errors import InvalidInput
from s2e.runs.csv_files import plain_text
from s2e.runs.table_formats import SUFFIXES, encoded_table, table_suffix

TABLE = pd.DataFrame(
    {
        "id": ["a", "=b", None],
        "size": [0.1234567891, 2.0, np.nan],
        "count": [3.0, np.nan, -5.0],  # integers, as they are read where one is missing
        "label": pd.array([1, None, 2], dtype="Int64"),
        "large": [True, False, True],
        "when": pd.to_datetime(["2024-01-02", None, "2024-01-03"]),
    }
)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("a.csv", ".csv"),
        ("a.CSV", ".csv"),
        ("a.parquet", ".parquet"),
        ("b.c.jsonl", ".jsonl"),
        ("-", ".csv"),
        ("/dev/null", ".csv"),
    ],
)
def test_ending_decides_the_format(name: str, suffix: str) -> None:
    assert table_suffix("output", Path(name)) == suffix


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.csv.gz", "csv", ".", "--"])
def test_other_endings_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"`output` must end with \.csv, \.parquet or \.jsonl, or be - for"):
        table_suffix("output", Path(name))


def test_parquet_needs_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"without pyarrow, but got 'a.parquet'; run `pip install 's2e\[parquet\]'`"):
        table_suffix("output", Path("a.parquet"))


def test_comma_separated_text_has_all_digits_and_nothing_that_a_spreadsheet_executes() -> None:
    lines = encoded_table(TABLE, ".csv").decode().splitlines()
    assert lines[0] == "id,size,count,label,large,when"
    assert lines[1] == "a,0.1234567891,3,1,True,2024-01-02 00:00:00"
    assert lines[2] == "'=b,2.0,,,False,"
    assert plain_text(lines[2].partition(",")[0]) == "=b"


def test_text_for_programs_has_no_apostrophes_and_may_have_tabs() -> None:
    assert encoded_table(TABLE, ".tsv", safe=False).decode().splitlines()[2] == "=b\t2.0\t\t\tFalse\t"


def test_parquet_takes_values_of_several_types_as_text() -> None:
    mixed = pd.DataFrame({"any": [1, "a", None, True], "number": pd.Series([1, 2.5, None, 3], dtype=object)})
    read = pd.read_parquet(io.BytesIO(encoded_table(mixed, ".parquet")))
    assert read["any"].fillna("").tolist() == ["1", "a", "", "True"]
    assert read["number"].dtype == np.float64


def test_parquet_and_json_lines_have_the_types() -> None:
    read = pd.read_parquet(io.BytesIO(encoded_table(TABLE, ".parquet")))
    assert read["label"].tolist()[0] == 1
    assert read["size"].dtype == np.float64
    assert read["large"].dtype == bool
    rows = [json.loads(line) for line in encoded_table(TABLE, ".jsonl").decode().splitlines()]
    assert rows[1] == {"id": "=b", "size": 2.0, "count": None, "label": None, "large": False, "when": None}
    assert (rows[0]["count"], rows[0]["label"]) == (3, 1)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_names_that_are_not_utf_8_and_empty_tables_can_be_written(suffix: str) -> None:
    names = pd.DataFrame({"id": pd.Series(["caf\udce9"], dtype=object)})
    assert b"udce9" in encoded_table(names, suffix)
    assert isinstance(encoded_table(names.iloc[:0], suffix), bytes)
