"""Files that are replaced atomically."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from s2e.atomic_write import replace_output, replacing


@pytest.fixture(params=[0o077, 0o022, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_files_have_the_permissions_of_the_umask(tmp_path: Path, umask: int) -> None:
    with replacing(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert mode(tmp_path / "file") == 0o666 & ~umask


@pytest.mark.parametrize("name", ["x" * 255, "ü" * 127])
def test_the_longest_names_can_be_replaced(tmp_path: Path, name: str) -> None:
    with replacing(tmp_path / name) as temporary:
        temporary.write_text("new")
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_an_output_keeps_its_permissions_and_its_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    replace_output(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert ((tmp_path / "file").read_text(), mode(tmp_path / "file")) == ("new", 0o640)


def test_a_device_is_written_to_and_stays() -> None:
    replace_output(Path("/dev/null"), b"new")
    assert Path("/dev/null").is_char_device()
