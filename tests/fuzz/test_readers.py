"""Damaged files: every reader reads them or raises one line of this package, without a hang.

`make soak` tries thousands for each reader. A failure is repeated with its seed:
`try_damaged(READERS[name], folder, range(seed, seed + 1))`.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile_files import CHECKPOINTS, DATA, ESTIMATORS, READERS, RUNS, Reader, Tried, try_damaged

pytestmark = pytest.mark.filterwarnings("ignore::s2e.errors.S2EWarning")  # a file that is read may need one

REPORTS = [reader for reader in RUNS if reader.name.startswith("report")]
"""Readers that build a page for every file: 0.1 s each."""

OTHERS = [reader for reader in [*DATA, *RUNS, *ESTIMATORS, *CHECKPOINTS] if reader not in REPORTS]
FIRST_OF_SOAK = 1000


def failures(tried: Tried) -> str:
    """Return all failures with their seeds, and the place of the first one."""
    if not tried.failures:
        return ""
    lines = [f"seed {seed}: {type(problem).__name__}: {str(problem)[:200]!a}" for seed, problem in tried.failures]
    return "\n".join([str(dict(tried.outcomes)), *lines, *traceback.format_exception(tried.failures[0][1])])


def name_of(reader: Reader) -> str:
    return reader.name


@pytest.mark.parametrize("reader", OTHERS, ids=name_of)
def test_damaged_files_are_read_or_refused_in_one_line(reader: Reader, tmp_path: Path) -> None:
    assert not failures(try_damaged(reader, tmp_path / "files", range(15)))


@pytest.mark.slow
@pytest.mark.parametrize("reader", REPORTS, ids=name_of)
def test_reports_on_damaged_runs_are_built_or_refused_in_one_line(reader: Reader, tmp_path: Path) -> None:
    assert not failures(try_damaged(reader, tmp_path / "files", range(8)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("reader", READERS.values(), ids=name_of)
def test_thousands_of_damaged_files_are_read_or_refused_in_one_line(
    reader: Reader, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    count = 500 if reader in REPORTS else 2000
    tried = try_damaged(reader, tmp_path / "files", range(FIRST_OF_SOAK, FIRST_OF_SOAK + count))
    assert not failures(tried)
    record_property(f"damaged files, {reader.name}", f"{tried.outcomes['refused']} of {count} refused, the others read")


@pytest.mark.parametrize("name", ["data .npz", "schedule", "saved estimator, table", "study, study.db of images"])
def test_mutations_of_one_seed_are_equal_and_change_the_file(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    whole = reader.prepare(tmp_path).read_bytes()
    for seed in range(5):
        made = [reader.mutate(whole, random.Random(seed)) for _ in range(2)]
        assert made[0] == made[1]
    assert len({reader.mutate(whole, random.Random(seed)) for seed in range(9)} - {whole}) > 5
