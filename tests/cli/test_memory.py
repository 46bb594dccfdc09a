"""`--memory`: a population beyond it is split, says so, and gives the same study."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import TINY_SEARCH, s2e, save
from s2e.engine import memory
from s2e.errors import InvalidInput
from s2e.specs import to_bytes
from stopped_searches import result, trials

pytestmark = pytest.mark.usefixtures("work")


def searched(out: str, *options: str) -> Path:
    done = s2e("search", save(), *TINY_SEARCH, "--out", out, *options)
    assert done.exit_code == 0, done.stderr
    return Path(out)


def test_a_population_beyond_the_limit_is_split_and_the_study_is_the_same(caplog: pytest.LogCaptureFixture) -> None:
    free = searched("free")
    assert caplog.records == []
    limited = searched("limited", "--memory", "100K")
    split = re.findall(r"(\d+) members do not fit the memory together; training (\d+) at a time", caplog.text)
    assert split
    assert all(int(part) < int(whole) for whole, part in split)
    assert trials(limited) == trials(free)
    assert result(limited) == result(free)


def test_little_free_memory_splits_as_well(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    free = searched("free")
    monkeypatch.setattr(memory, "free_memory", lambda _: 100_000)
    limited = searched("limited")
    assert "do not fit the memory together" in caplog.text
    assert trials(limited) == trials(free)


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("2G", 2 * 1024**3), ("1.5k", 1536), ("500MiB", 500 * 1024**2), ("3 TB", 3 * 1024**4)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert to_bytes("memory", text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "much", "2 X", "1e9", "9" * 40, "inf"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="`memory` must be a size"):
        to_bytes("memory", text)


def test_a_bad_size_is_refused_in_one_line() -> None:
    refused = s2e("search", save(), *TINY_SEARCH, "--memory", "much", "--out", "run")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
