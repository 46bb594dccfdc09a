"""Schedules from text and from files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from s2e.errors import InvalidInput, UnreadableData
from s2e.schedules.fixed import constant, coteaching
from s2e.schedules.parsing import parse_schedule


def test_named_forms_are_parsed() -> None:
    np.testing.assert_array_equal(parse_schedule("constant:0.6", 5), constant(0.6, 5))
    np.testing.assert_array_equal(parse_schedule(" coteaching:0.45 ", 20), coteaching(0.45, 20))


def test_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    file.write_text(json.dumps({"keep_rates": [1.0, 0.5, 0.25], "space": "s2e"}))
    np.testing.assert_array_equal(parse_schedule(str(file), 3), [1.0, 0.5, 0.25])
    with pytest.raises(InvalidInput, match="each of the 4 epochs, but got 3"):
        parse_schedule(str(file), 4)


@pytest.mark.parametrize("content", ["[1, 2]", '{"keep_rates": 0.5}', '{"keep_rates": ["x"]}'])
def test_file_with_other_content_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "schedule.json"
    file.write_text(content)
    with pytest.raises(InvalidInput, match="keep_rates"):
        parse_schedule(str(file), 1)


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableData, match="does not exist"):
        parse_schedule(str(tmp_path / "missing.json"), 3)
    broken = tmp_path / "broken.json"
    for content in (b'{"keep_rates": [1.0, ', b"\xff\xfe\x00"):
        broken.write_bytes(content)
        with pytest.raises(UnreadableData, match="could not be read"):
            parse_schedule(str(broken), 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("constant:", "must be written as constant:RATE"),
        ("coteaching:45%", "must be written as coteaching:RATE"),
        ("", "must be one of .*constant:RATE"),
        ("schedule.txt", "must be one of .*constant:RATE"),
        ("constant:60", "`rate` must lie in"),
        ("coteaching:nan", "`noise_rate` must lie in"),
    ],
)
def test_other_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        parse_schedule(text, 3)
