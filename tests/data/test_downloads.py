"""Downloads from a local HTTP server: complete and verified files or none, and no leftovers."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import logging
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from published_files import (
    FINE_NAMES,
    TRAIN_LABELS,
    cifar10_files,
    cifar_records,
    compressed,
    mnist_files,
    write,
)
from s2e.data.catalogue import CATALOGUE, DatasetInfo, RemoteFile
from s2e.data.loading import load, load_published
from s2e.errors import UnreadableData


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """Return a folder, and the address at which it is served over HTTP."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path_factory.mktemp("served")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def at(name: str, files: dict[str, bytes], address: str) -> DatasetInfo:
    """Return the entry of the catalogue with its downloads at another address."""
    downloads = tuple(
        RemoteFile(f"{address}/{file}", hashlib.md5(content).hexdigest()) for file, content in files.items()
    )
    return dataclasses.replace(CATALOGUE[name], downloads=downloads)


def tar_gz(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_idx_files_are_downloaded_once(served, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    folder, address = served
    files = compressed(mnist_files())
    write(folder, files)
    caplog.set_level(logging.INFO, logger="s2e.data.downloads")
    root = tmp_path / "new" / "root"
    mnist = load_published(at("mnist", files, address), root, download=True)
    np.testing.assert_array_equal(mnist.train.labels, TRAIN_LABELS)
    assert sorted(file.name for file in (root / "mnist").iterdir()) == sorted(files)
    assert [file.name for file in root.iterdir()] == ["mnist"]
    assert f"downloading {address}/train-images-idx3-ubyte.gz" in caplog.text
    caplog.clear()
    load("mnist", root)
    assert "downloading" not in caplog.text


def test_only_expected_files_are_extracted(served, tmp_path: Path):
    folder, address = served
    members = {f"cifar-10-batches-bin/{name}": content for name, content in cifar10_files().items()}
    members["cifar-10-batches-bin/batches.meta.txt"] = "\n".join(FINE_NAMES[:10]).encode()
    others = {"../outside": b"x", "/tmp/s2e-outside": b"x", "cifar-10-batches-bin/readme.html": b"x"}
    files = {"cifar-10-binary.tar.gz": tar_gz(members | others)}
    write(folder, files)
    root = tmp_path / "root"
    cifar = load_published(at("cifar10", files, address), root, download=True)
    assert len(cifar.train) == 15
    assert cifar.train.class_names == tuple(FINE_NAMES[:10])
    kept = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert kept == set(members)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_links_in_an_archive_are_ignored(served, tmp_path: Path):
    folder, address = served
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("train.bin", "test.bin"):
            link = tarfile.TarInfo(f"cifar-100-binary/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
            archive.addfile(link)
    files = {"cifar-100-binary.tar.gz": buffer.getvalue()}
    write(folder, files)
    with pytest.raises(UnreadableData, match=r"downloading failed: train\.bin, test\.bin is missing in the download"):
        load_published(at("cifar100", files, address), tmp_path, download=True)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_checksum_leaves_no_files(served, tmp_path: Path):
    folder, address = served
    files = compressed(mnist_files())
    write(folder, files | {"t10k-labels-idx1-ubyte.gz": b"other content"})
    with pytest.raises(UnreadableData, match=r"t10k-labels-idx1-ubyte\.gz must have the MD5 \w{32}, but got \w{32}"):
        load_published(at("mnist", files, address), tmp_path, download=True)
    write(folder, {"cifar-100-binary.tar.gz": b"not an archive"})
    with pytest.raises(UnreadableData, match="must have the MD5"):  # before the archive is opened
        load_published(at("cifar100", {"cifar-100-binary.tar.gz": b"other"}, address), tmp_path, download=True)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_archive_leaves_no_files(served, tmp_path: Path):
    folder, address = served
    whole = tar_gz({"cifar-100-binary/train.bin": cifar_records(3, 1, 42)})
    for content in (whole[: len(whole) // 2], b"not an archive"):
        files = {"cifar-100-binary.tar.gz": content}
        write(folder, files)
        with pytest.raises(UnreadableData, match="downloading failed"):
            load_published(at("cifar100", files, address), tmp_path, download=True)
        assert list(tmp_path.iterdir()) == []


def test_a_file_missing_on_the_server_is_reported_in_one_line(served, tmp_path: Path):
    _, address = served
    with pytest.raises(UnreadableData) as caught:
        load_published(at("mnist", compressed(mnist_files()), address), tmp_path, download=True)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert f"{address}/train-images-idx3-ubyte.gz: HTTP Error 404" in message
    assert "put train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte" in message
    assert str(tmp_path / "MNIST" / "raw") in message
    assert list(tmp_path.iterdir()) == []


def test_a_refused_connection_and_an_unwritable_root_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler) as closed:
        address = f"http://127.0.0.1:{closed.server_port}"
    info = at("mnist", compressed(mnist_files()), address)
    with pytest.raises(UnreadableData, match=r"downloading failed: http://127.*refused") as caught:
        load_published(info, tmp_path, download=True)
    assert str(tmp_path / "mnist") in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreadableData, match="downloading failed"):
        load_published(info, tmp_path / "file", download=True)


# Interrupted downloads

TIMEOUT_S = 60
DOWNLOAD_FROM = """
import dataclasses, sys
from s2e.data.catalogue import CATALOGUE, RemoteFile
from s2e.__main__ import main

address = sys.argv.pop(1)
mnist = CATALOGUE["mnist"]
downloads = tuple(RemoteFile(f"{address}/{remote.name}", remote.md5) for remote in mnist.downloads)
CATALOGUE["mnist"] = dataclasses.replace(mnist, downloads=downloads)
main()
"""


@pytest.fixture
def stalling(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of a server that stops in the middle of a file."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    finished = threading.Event()

    class StallingHandler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 22))
            self.end_headers()
            self.wfile.write(bytes(3 << 20))
            self.wfile.flush()
            finished.wait(TIMEOUT_S)

    with ThreadingHTTPServer(("127.0.0.1", 0), StallingHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        finished.set()
        server.shutdown()
        thread.join()


@contextmanager
def downloading(address: str, root: Path) -> Iterator[subprocess.Popen[str]]:
    """Start s2e in another process, and continue when a part of a file has arrived."""
    before = set(root.glob(".download-*/*"))
    options = ["train", "mnist", "--method", "standard", "--data-root", str(root), "--out", str(root.parent / "run")]
    with subprocess.Popen(
        [sys.executable, "-c", DOWNLOAD_FROM, address, *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not any(part.stat().st_size for part in set(root.glob(".download-*/*")) - before):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.005)
            yield process
        finally:
            process.kill()


def stopped(process: subprocess.Popen[str], by: signal.Signals) -> tuple[int, str]:
    process.send_signal(by)
    stderr = process.communicate(timeout=TIMEOUT_S)[1]
    return process.returncode, stderr


@pytest.mark.slow
def test_ctrl_c_removes_the_download(stalling: str, tmp_path: Path):
    with downloading(stalling, tmp_path / "data") as process:
        assert stopped(process, signal.SIGINT) == (130, "s2e: interrupted\n")
    assert list((tmp_path / "data").iterdir()) == []
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_only_leftovers_of_killed_downloads_are_removed(stalling: str, served, tmp_path: Path):
    root = tmp_path / "data"
    with downloading(stalling, root) as killed:
        stopped(killed, signal.SIGKILL)
    (left_over,) = root.iterdir()
    with downloading(stalling, root) as working:
        (in_use,) = root.iterdir()
        assert in_use != left_over
        folder, address = served
        files = compressed(mnist_files())
        write(folder, files)
        load_published(at("mnist", files, address), root, download=True)
        assert {path.name for path in root.iterdir()} == {"mnist", in_use.name}
        assert any(part.stat().st_size for part in in_use.iterdir())
        assert stopped(working, signal.SIGINT)[0] == 130
    assert [path.name for path in root.iterdir()] == ["mnist"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError])
def test_any_failure_removes_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
):
    def fail(remote: RemoteFile, target: Path) -> None:
        target.write_bytes(b"a part")
        raise failure

    monkeypatch.setattr("s2e.data.downloads._fetch", fail)
    with pytest.raises(failure):
        load("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_downloads_work_without_file_locks(served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_locks(*_: object) -> None:
        raise OSError("No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    (tmp_path / ".download-of-another").mkdir()
    folder, address = served
    files = compressed(mnist_files())
    write(folder, files)
    load_published(at("mnist", files, address), tmp_path, download=True)
    assert {path.name for path in tmp_path.iterdir()} == {"mnist", ".download-of-another"}
