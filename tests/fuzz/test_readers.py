"""Damaged files: every reader reads them or raises one line of this package, without a hang.

`make soak` tries thousands for each reader. A failure is shrunk: the report shows the changes of the smallest damaged
file, and the error that it leads to.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import find

from hostile_files import (
    CHECKPOINTS,
    DATA,
    DETERMINISTIC,
    ESTIMATORS,
    READERS,
    RUNS,
    Foreign,
    Reader,
    try_damaged,
)
from mutations import mutated_bytes, mutated_json
from s2e.errors import UnreadableData

pytestmark = [
    pytest.mark.filterwarnings("ignore::s2e.errors.S2EWarning"),  # a file that is read may need one
    pytest.mark.timeout(900),  # of a failure that is shrunk
]

REPORTS = [reader for reader in RUNS if reader.name.startswith("report")]
"""Readers that build a page for every file: 0.1 s each."""

OTHERS = [reader for reader in [*DATA, *RUNS, *ESTIMATORS, *CHECKPOINTS] if reader not in REPORTS]
IN_SOAK = 2000


def name_of(reader: Reader) -> str:
    return reader.name


@pytest.mark.parametrize("reader", OTHERS, ids=name_of)
def test_damaged_files_are_read_or_refused_in_one_line(reader: Reader, tmp_path: Path) -> None:
    try_damaged(reader, tmp_path / "files", reader.examples)


@pytest.mark.slow
@pytest.mark.parametrize("reader", REPORTS, ids=name_of)
def test_reports_on_damaged_runs_are_built_or_refused_in_one_line(reader: Reader, tmp_path: Path) -> None:
    try_damaged(reader, tmp_path / "files", reader.examples)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("reader", READERS.values(), ids=name_of)
def test_thousands_of_damaged_files_are_read_or_refused_in_one_line(
    reader: Reader, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tried = try_damaged(reader, tmp_path / "files", IN_SOAK)
    record_property(f"damaged files, {reader.name}", f"{tried['refused']} of {tried.total()} refused, the others read")


# ------------------------------------------------------------------------------------------------------ the test itself


@pytest.mark.parametrize("name", ["data .npz", "schedule", "saved estimator, table", "study, study.db of images"])
def test_damaged_files_are_the_same_in_every_run(name: str, tmp_path: Path) -> None:
    def contents(folder: Path) -> list[bytes]:
        seen = []

        def read(_: Path) -> None:
            seen.append((folder / whole).read_bytes())

        try_damaged(Reader(name, lambda _: folder / whole, READERS[name].mutate, read), folder, 20)
        return seen

    whole = READERS[name].prepare(tmp_path).relative_to(tmp_path)
    first = contents(tmp_path)
    assert contents(tmp_path) == first
    assert len(set(first) - {first[0]}) > 10


def test_failure_is_the_smallest_change() -> None:
    whole = bytes(range(200))
    assert find(mutated_bytes(whole), lambda content: content != whole, settings=DETERMINISTIC) == b"\x01" + whole[1:]
    assert find(mutated_bytes(whole), lambda content: len(content) < 150, settings=DETERMINISTIC) == b""
    text = b'{"a": [1, 2, 3], "b": "x", "c": {"d": 0.5}}'
    without_b = find(mutated_json(text), lambda content: b'"b"' not in content, settings=DETERMINISTIC)
    assert without_b == b'{"a": [1, 2, 3], "c": {"d": 0.5}}'


@pytest.mark.parametrize(
    ("problem", "reported"),
    [
        (IndexError("list index out of range"), IndexError),
        (UnreadableData("two\nlines"), Foreign),
        (UnreadableData("\x1b[31m"), Foreign),
        (UnreadableData("x" * 5000), Foreign),
    ],
)
def test_other_errors_and_longer_messages_are_failures(
    problem: Exception, reported: type[Exception], tmp_path: Path
) -> None:
    def read(folder: Path) -> None:
        if (folder / "file").read_bytes() != b"whole":
            raise problem

    def prepare(folder: Path) -> Path:
        (folder / "file").write_bytes(b"whole")
        return folder / "file"

    with pytest.raises(reported) as raised:
        try_damaged(Reader("own", prepare, mutated_bytes, read), tmp_path, 10)
    assert any("flip at byte 0 of 5" in line for line in raised.value.__notes__)
