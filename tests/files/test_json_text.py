"""JSON of any content is read, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2e.errors import UnreadableData
from s2e.files import json_text
from s2e.files.json_text import MAX_DEPTH, parse_json, read_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(VALUES)
def test_values_are_read_as_they_were_written(value: object) -> None:
    assert parse_json(json.dumps(value), "x") == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode(), "x") == value


@given(st.text() | st.binary())
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    message = ""
    try:
        parse_json(text, "x")
    except UnreadableData as problem:
        message = str(problem)
    assert not message or message.startswith("'x' could not be read: it ")
    assert message.isprintable()


@pytest.mark.parametrize("depth", [MAX_DEPTH, 900, 10**6])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused(depth: int, opening: str, closing: str) -> None:
    for text in (opening * depth, opening * depth + "1" + closing * depth):
        with pytest.raises(UnreadableData, match=r"nested more than 64 times|is not JSON"):
            parse_json(text, "x")
    allowed = MAX_DEPTH - 1
    parse_json(opening * allowed + "1" + closing * allowed, "x")


def test_large_texts_integers_and_surrogates_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, reason in (
        ("1" + "0" * 400, "more than 308 digits"),
        ("1" * 10**4, "is not JSON"),
        ('"\\ud800"', r"not Unicode, '\\ud800'"),
        ('{"\\udfff": 1}', "not Unicode"),
        (b'"\xff"', "is not JSON"),
    ):
        with pytest.raises(UnreadableData, match=reason):
            parse_json(text, "x")
    assert parse_json('"\\ud83d\\ude00"', "x") == "😀"
    monkeypatch.setattr(json_text, "MAX_BYTES", 10)
    (tmp_path / "x.json").write_text("[" + " " * 20 + "]")
    with pytest.raises(UnreadableData, match="must hold at most 10 bytes, but holds 22 bytes"):
        read_json(tmp_path / "x.json")


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'\xef\xbb\xbf{"a": [1]}')
    assert read_json(tmp_path / "x.json") == {"a": [1]}
