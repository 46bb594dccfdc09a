"""Fields of JSON objects have their types, or the error names the file, the field and what was got."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from mutations import HOSTILE_VALUES
from s2e.errors import UnreadableData
from s2e.files.fields import Fields, shown

VALID: dict[str, tuple[Callable[[Fields], object], Any, Any]] = {
    "text": (lambda fields: fields.text("a"), "x", "x"),
    "texts": (lambda fields: fields.texts("a"), ["x", ""], ("x", "")),
    "flag": (lambda fields: fields.flag("a"), True, True),
    "integer": (lambda fields: fields.integer("a", least=-3), -3, -3),
    "integers": (lambda fields: fields.integers("a"), [0, 7], (0, 7)),
    "shape": (lambda fields: fields.shape("a"), [3, 16, 16], (3, 16, 16)),
    "number": (lambda fields: fields.number("a"), 7, 7.0),
    "numbers": (lambda fields: fields.numbers("a"), [1, 2.5], (1.0, 2.5)),
    "share": (lambda fields: fields.share("a"), 0.25, 0.25),
    "fields": (lambda fields: fields.fields("a").values, {"b": 1}, {"b": 1}),
    "rows": (lambda fields: [row.values for row in fields.rows("a")], [{"b": 1}], [{"b": 1}]),
}


@pytest.mark.parametrize("kind", VALID)
def test_valid_fields_are_returned(kind: str) -> None:
    read, value, expected = VALID[kind]
    assert read(Fields({"a": value}, "x.json")) == expected


@pytest.mark.parametrize("kind", VALID)
def test_other_values_and_missing_fields_are_refused_in_one_line(kind: str) -> None:
    read, valid, _ = VALID[kind]
    refused = 0
    for value in HOSTILE_VALUES:
        message = ""
        try:
            read(Fields({"a": value}, "x.json"))
        except UnreadableData as problem:
            message = str(problem)
            refused += 1
        assert not message or message.startswith("'x.json' is damaged: `a")
        assert message.isprintable()
        assert len(message) < 250
    assert refused > len(HOSTILE_VALUES) / 2
    with pytest.raises(UnreadableData, match="`a` is missing"):
        read(Fields({"b": valid}, "x.json"))


@pytest.mark.parametrize("sizes", [[], [0, 3], [2**31, 2], [1, 2**31, 2**31, 2**31]])
def test_shapes_are_of_samples_that_memory_can_hold(sizes: list[int]) -> None:
    with pytest.raises(UnreadableData, match=r"`a` must be .*, but got \["):
        Fields({"a": sizes}, "x.json").shape("a")


def test_names_of_fields_are_shown_in_one_short_printable_line() -> None:
    for name in ("\U0001a48e", "\x1b[31m", "two\nlines", "\ud800", "a" * 5000):
        for outer in ({name: None}, {}):
            with pytest.raises(UnreadableData) as refused:
                Fields({"a": outer}, "x.json").fields("a").text(name)
            assert str(refused.value).isprintable()
            assert len(str(refused.value)) < 250


def test_nested_fields_are_named_by_their_path() -> None:
    fields = Fields({"a": {"b": [{"c": "x"}]}}, "x.json")
    with pytest.raises(UnreadableData, match=r"`a\.b\[0\]\.c` must be a finite number in 0\.\.1, but got 'x'"):
        fields.fields("a").rows("b")[0].share("c")
    with pytest.raises(UnreadableData, match=r"it must be an object with named fields, but got \[1\]"):
        Fields([1], "x.json")


def test_bounds_hold_and_defaults_replace_missing_fields_only() -> None:
    fields = Fields({"nan": math.nan, "none": None, "big": 2**60, "true": True}, "x.json")
    assert math.isnan(fields.number("nan", nan=True))
    assert fields.share("none") is None
    assert (fields.text("other", ""), fields.integer("other", None), fields.rows("other", [])) == ("", None, [])
    for read in (lambda: fields.number("nan"), lambda: fields.integer("big"), lambda: fields.integer("true")):
        with pytest.raises(UnreadableData):
            read()
    with pytest.raises(UnreadableData):
        fields.text("none", "")


def test_shown_values_are_short_and_printable() -> None:
    for value in (*HOSTILE_VALUES, "\x1b[31m" * 50, {"\n": "\u202e"}):
        assert len(shown(value)) <= 61
        assert shown(value).isprintable()
