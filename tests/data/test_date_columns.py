"""Dates and times as inputs: against the calendar of Python, in every form, and restored."""

from __future__ import annotations

import datetime
import json
import math

import numpy as np
import pandas as pd
import pytest

from s2e.data.date_columns import DateColumn, fit_dates, moments_of
from s2e.data.table_columns import CategoryColumn, LeftOut, column_from_json, fit_column
from s2e.errors import UnreadableData
from s2e.files.fields import Fields

DAYS = [
    datetime.datetime(2019, 12, 31) + datetime.timedelta(days=41 * number, hours=5 * number) for number in range(40)
]


def fitted(values):
    column = fit_column("born", pd.Series(values))
    assert isinstance(column, DateColumn)
    return column


def test_inputs_are_those_of_the_calendar():
    column = fitted(DAYS)
    assert column.parts == ("day", "year", "month", "weekday", "hour")
    inputs = dict(zip(column.feature_names, column.encode(pd.Series(DAYS)).T, strict=True))
    months = [2 * math.pi * (day.month - 1) / 12 for day in DAYS]
    weekdays = [2 * math.pi * day.weekday() / 7 for day in DAYS]
    np.testing.assert_allclose(inputs["born: month (sine)"], np.sin(months), atol=1e-12)
    np.testing.assert_allclose(inputs["born: weekday (cosine)"], np.cos(weekdays), atol=1e-12)
    np.testing.assert_allclose(
        inputs["born: hour (sine)"], [math.sin(2 * math.pi * d.hour / 24) for d in DAYS], atol=1e-12
    )
    assert (np.diff(inputs["born: day"]) > 0).all()
    assert len(np.unique(inputs["born: year"])) == len({day.year for day in DAYS})


@pytest.mark.parametrize(
    "form",
    [
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%dT%H:%M:%SZ",
        "%Y/%m/%d %H:%M",
        "%d.%m.%Y %H:%M",
        "%d/%m/%Y %H:%M",
        "%m/%d/%Y %I:%M %p",
        "%m-%d-%y %H:%M",
        "%d %b %Y %H:%M",
        "%B %d, %Y %H:%M",
        "%a, %d %b %Y %H:%M:%S",
    ],
)
def test_texts_in_common_forms_are_dates(form):
    expected, texts = pd.Series(DAYS), pd.Series([day.strftime(form) for day in DAYS])
    column = fitted(texts)
    np.testing.assert_allclose(column.encode(texts), fitted(expected).encode(expected), atol=1e-9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-01-31T10:00:00.125+01:00", "2020-01-31T09:00:00.125"),
        ("2020-01-31 10:00-0230", "2020-01-31T12:30"),
        ("2019-12", "2019-12-01"),
        ("3/4/99", "1999-04-03"),
        ("3rd March 2024", "2024-03-03"),
        ("12:30 am", "1970-01-01T00:30"),
    ],
)
def test_moments_by_hand(text, expected):
    (seconds,), wrong = moments_of(pd.Series([text]), "x", "day first")
    assert seconds == np.datetime64(expected, "us").astype(np.int64) / 1e6
    assert not wrong


@pytest.mark.parametrize("text", ["2020-13-01", "30.2.2020", "25:00", "3 Foo 2020", "1.2.3", "10:3", "2020", "x" * 99])
def test_other_texts_are_no_moments(text):
    for order in ("year first", "day first", "month first"):
        assert moments_of(pd.Series([text]), "x", order)[1] == [text]


def test_one_day_above_twelve_decides_the_order():
    assert fitted(["3/4/2020", "13/4/2020", "1/2/2021"]).order == "day first"
    assert fitted(["3/4/2020", "4/13/2020", "1/2/2021"]).order == "month first"
    assert fitted(["3/4/2020", "1/2/2021"]).order == "month first"
    assert fitted(["3.4.2020", "1.2.2021"]).order == "day first"
    assert fitted(["2020-04-03", "2021-02-01"]).order == "year first"


def test_pandas_types_are_equivalent_to_text():
    zoned = pd.Series(pd.to_datetime(DAYS)).dt.tz_localize("Europe/Rome")
    periods = pd.Series(pd.period_range("2020-01", periods=9, freq="M"))
    for values in (zoned, periods, pd.Series([day.date() for day in DAYS]), pd.Series([day.time() for day in DAYS])):
        column = fit_column("born", values)
        np.testing.assert_array_equal(
            fit_column("born", values.astype(str)).encode(values.astype(str)), column.encode(values)
        )


def test_times_of_day_have_only_an_hour():
    assert fitted(["10:30", "9:15 pm", "23:59:59"]).parts == ("hour",)


def test_a_column_holds_dates_if_nearly_all_values_do(caplog):
    texts = [day.date().isoformat() for day in DAYS]
    column = fitted([*texts, "unknown", "n/a"])
    assert column.missing
    assert "texts that are no dates are treated as missing: unknown" in caplog.text
    inputs = column.encode(pd.Series(["unknown", None, texts[0]]))
    assert (inputs[:2, :-1] == 0).all()
    assert inputs[:, -1].tolist() == [1, 1, 0]
    assert not isinstance(fit_column("born", pd.Series([*texts, *["soon"] * 4])), DateColumn)


def test_equal_dates_are_left_out():
    assert fit_dates("born", pd.Series(["2020-01-01"] * 3)) is None
    assert isinstance(fit_column("born", pd.Series(["2020-01-01"] * 3)), LeftOut)
    assert isinstance(fit_column("born", pd.Series(["2020-01-01", None])), CategoryColumn)


def test_a_restored_column_is_equal():
    column = fitted([*DAYS, None])
    written = {"kind": column.kind, **json.loads(json.dumps(vars(column)))}
    assert column_from_json(Fields(written, "encoding.json")) == column
    for change in ({"parts": ["century"]}, {"order": "any"}, {"day": [0.0, 0.0]}, {"year": [1.0]}, {"missing": 3}):
        with pytest.raises(UnreadableData):
            column_from_json(Fields({**written, **change}, "encoding.json"))
