"""Only regular files are read, and only as much as memory holds."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hostile_files import time_limit
from s2e.data import load, parse_noise
from s2e.data.image_decoding import read_images
from s2e.engine.checkpoints import SUFFIX, Checkpoints
from s2e.errors import UnreadableData
from s2e.estimator import S2EClassifier
from s2e.files import regular
from s2e.files.regular import read_content, read_decompressed
from s2e.runs import Run
from s2e.schedules import parse_schedule

READERS: dict[str, Callable[[Path], object]] = {
    "data.csv": lambda path: load(path, label="kind"),
    "data.csv.gz": lambda path: load(path, label="kind"),
    "data.parquet": lambda path: load(path, label="kind"),
    "data.npz": load,
    "matrix.npy": lambda path: parse_noise(f"asymmetric:{path}"),
    "matrix.csv": lambda path: parse_noise(f"asymmetric:{path}"),
    "matrix.json": lambda path: parse_noise(f"asymmetric:{path}"),
    "schedule.json": lambda path: parse_schedule(str(path), 3),
    "result.json": lambda path: Run(path.parent).read_json(path.name),
    "curves.npz": lambda path: Run(path.parent).read_arrays(path.name),
    "model.safetensors": lambda path: Run(path.parent).read_weights(path.name),
    "image.png": lambda path: read_images([path], 8, 1),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("linked", [False, True], ids=["a pipe", "a link to a pipe"])
def test_pipes_are_refused_at_once(name: str, linked: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    pipe = tmp_path / "pipe" if linked else path
    os.mkfifo(pipe)
    if linked:
        path.symlink_to(pipe)
    with time_limit(5), pytest.raises(UnreadableData, match="regular file"):
        READERS[name](path)


@pytest.mark.parametrize("name", READERS)
def test_devices_without_end_are_refused_at_once(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.symlink_to("/dev/zero")
    with time_limit(5), pytest.raises(UnreadableData, match="regular file"):
        READERS[name](path)


def test_saved_classifiers_are_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "saved")
    with time_limit(5), pytest.raises(UnreadableData, match="must be a file written by `save`"):
        S2EClassifier.load(tmp_path / "saved")


def test_a_pipe_instead_of_a_checkpoint_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / f"one{SUFFIX}")
    with time_limit(5):
        assert Checkpoints(tmp_path).read("one") is None
    assert "training from the beginning" in caplog.text


def test_a_pipe_in_an_image_folder_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from image_files import GREY, save

    for name in ("a/1.png", "a/2.png", "b/1.png"):
        save(tmp_path / name, GREY)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "b/2.png").symlink_to(tmp_path / "pipe")
    with time_limit(5):
        assert len(load(tmp_path).train) == 3
    assert "1 of 4 images" in caplog.text
    assert "b/2.png: not a regular file" in caplog.text


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_content(tmp_path / "link") == b"content"


def test_missing_files_and_impossible_names_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path / ("x" * 5000), Path("a\0b")):
        with pytest.raises(UnreadableData, match=r"could not be read|does not exist"):
            read_content(path)


def test_contents_beyond_the_bound_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "sparse.csv").open("wb") as file:
        file.truncate(2**42)
    with pytest.raises(UnreadableData, match=r"must hold at most .* GiB, but holds 4,096 GiB or more"):
        read_content(tmp_path / "sparse.csv")


def test_compressed_files_of_several_members_are_read_to_the_end(tmp_path: Path) -> None:
    parts = [np.random.default_rng(seed).bytes(3 * regular.CHUNK // 2) for seed in range(2)]
    path = tmp_path / "x.gz"
    path.write_bytes(b"".join(map(gzip.compress, parts)) + bytes(512))
    assert read_decompressed(path) == b"".join(parts)
    whole = gzip.compress(parts[0])
    for damaged in (whole[:-1], whole[:1000], whole + b"more", whole[:-5] + b"\0\0\0\0\0", b"\x1f\x8b"):
        path.write_bytes(damaged)
        with pytest.raises(UnreadableData, match=r"truncated|corrupted"):
            read_decompressed(path)


def test_a_small_file_cannot_decompress_to_more_than_memory_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regular, "available_memory", lambda: 2**23)
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(bytes(2**26)))
    assert path.stat().st_size < 2**17
    with pytest.raises(UnreadableData, match=r"must hold at most 4,194,304 bytes, but holds 5,242,880 bytes or more"):
        read_decompressed(path)
