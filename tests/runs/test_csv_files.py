"""Comma-separated text: executed by no spreadsheet, read back to the same texts."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2e.runs.csv_files import csv_text, plain_text


def cells(text: str) -> list[str]:
    return next(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-", "+-1"])
def test_a_text_that_a_spreadsheet_executes_begins_with_an_apostrophe(text: str) -> None:
    written = csv_text([{"id": text}]).partition("\n")[2]
    assert cells(written) == [f"'{text}"]
    assert plain_text(cells(written)[0]) == text


@pytest.mark.parametrize("text", ["-5", "+1.5", "-1e-3", "cat", "'", "a=b", "0012", "'quoted'", ""])
def test_numbers_and_other_texts_stay(text: str) -> None:
    assert cells(csv_text([{"id": text, "p": -0.5}]).partition("\n")[2]) == [text, "-0.5"]


@given(st.text(alphabet="'=+-@\t\r\n1ea,\"", max_size=6))
def test_every_text_is_read_back(text: str) -> None:
    header, row = csv.reader(io.StringIO(csv_text([{"id": text, text + "!": 1}]), newline=""))
    assert plain_text(row[0]) == text
    assert plain_text(header[1]) == text + "!"


def test_missing_values_are_empty_and_numbers_have_six_decimals() -> None:
    assert csv_text([{"a": None, "b": float("nan"), "c": 1 / 3, "d": 7}]) == "a,b,c,d\n,,0.333333,7\n"
    assert csv_text([]) == ""
