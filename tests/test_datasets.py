"""Loading by name and from files, on small files made here and a real HTTP server on this machine."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import logging
import pickle
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from s2e.datasets import CATALOGUE, DatasetInfo, RemoteFile, available, human_labels, load, load_published
from s2e.errors import InvalidInput, UnreadableData

TRAIN_LABELS = np.array([5, 0, 4, 1, 9])
TEST_LABELS = np.array([7, 2])
FINE_NAMES = [f"class {label}" for label in range(100)]


def random_bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def mnist_files() -> dict[str, bytes]:
    return {
        "train-images-idx3-ubyte": idx(random_bytes(5, 28, 28)),
        "train-labels-idx1-ubyte": idx(TRAIN_LABELS),
        "t10k-images-idx3-ubyte": idx(random_bytes(2, 28, 28)),
        "t10k-labels-idx1-ubyte": idx(TEST_LABELS),
    }


def cifar_records(count: int, *labels: int) -> bytes:
    head = np.tile(np.array(labels, dtype=np.uint8), (count, 1))
    return np.concatenate([head, random_bytes(count, 3072)], axis=1).tobytes()


def cifar10_binary_files() -> dict[str, bytes]:
    train = {f"data_batch_{k}.bin": cifar_records(k, k) for k in range(1, 6)}
    return train | {"test_batch.bin": cifar_records(2, 9)}


def cifar10_python_files() -> dict[str, bytes]:
    train = {f"data_batch_{k}": {"data": random_bytes(k, 3072), "labels": [k] * k} for k in range(1, 6)}
    contents = train | {"test_batch": {"data": random_bytes(2, 3072), "labels": [9, 9]}}
    return {name: pickle.dumps(content, 2) for name, content in contents.items()}


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def compressed(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}


class TestDigits:
    def test_digits_need_no_file_and_no_network(self, tmp_path: Path):
        digits = load("digits", tmp_path / "nowhere", download=False)
        assert digits.train.inputs.shape[1:] == (1, 8, 8)
        assert digits.train.inputs.dtype == np.float32
        assert (digits.train.inputs.min(), digits.train.inputs.max()) == (0, 1)
        assert len(digits.train) + len(digits.test) == 1797
        assert digits.train.class_names == tuple("0123456789")
        assert digits.train.clean_labels is None
        assert not list(tmp_path.iterdir())

    def test_the_test_part_is_a_fifth_of_every_class_and_always_the_same(self):
        first, second = load("digits"), load("digits")
        np.testing.assert_array_equal(first.test.rows, second.test.rows)
        assert not set(first.test.rows) & set(first.train.rows)
        held, kept = np.bincount(first.test.labels), np.bincount(first.train.labels)
        np.testing.assert_allclose(held / (held + kept), 0.2, atol=0.003)


class TestLayouts:
    @pytest.mark.parametrize("pack", [dict, compressed])
    @pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
    def test_mnist_is_read_from_every_layout_plain_or_compressed(self, tmp_path: Path, folder: str, pack):
        write(tmp_path / folder, pack(mnist_files()))
        mnist = load("mnist", tmp_path, download=False)
        assert mnist.name == "mnist"
        np.testing.assert_array_equal(mnist.train.inputs, random_bytes(5, 28, 28)[:, None])
        np.testing.assert_array_equal(mnist.test.inputs, random_bytes(2, 28, 28)[:, None])
        assert mnist.train.inputs.dtype == np.uint8
        np.testing.assert_array_equal(mnist.train.labels, TRAIN_LABELS)
        np.testing.assert_array_equal(mnist.test.labels, TEST_LABELS)
        assert mnist.valid is None

    @pytest.mark.parametrize("folder", ["fashion-mnist", "FashionMNIST/raw"])
    def test_fashion_mnist_has_its_own_folders_and_names(self, tmp_path: Path, folder: str):
        write(tmp_path / folder, mnist_files())
        assert load("fashion-mnist", str(tmp_path), download=False).train.class_names[9] == "Ankle boot"
        with pytest.raises(UnreadableData):
            load("mnist", tmp_path, download=False)

    def test_both_forms_of_cifar10_hold_the_same(self, tmp_path: Path):
        write(tmp_path / "binary" / "cifar-10-batches-bin", cifar10_binary_files())
        write(tmp_path / "python" / "cifar-10-batches-py", cifar10_python_files())
        binary = load("cifar10", tmp_path / "binary", download=False)
        python = load("cifar10", tmp_path / "python", download=False)
        assert binary.train.inputs.shape == (15, 3, 32, 32)
        assert binary.train.labels.tolist() == [k for k in range(1, 6) for _ in range(k)]
        for part in ("train", "test"):
            np.testing.assert_array_equal(getattr(binary, part).inputs, getattr(python, part).inputs)
            np.testing.assert_array_equal(getattr(binary, part).labels, getattr(python, part).labels)
        assert binary.train.class_names == python.train.class_names == CATALOGUE["cifar10"].class_names

    def test_both_forms_of_cifar100_give_fine_labels(self, tmp_path: Path):
        write(
            tmp_path / "cifar-100-binary", {"train.bin": cifar_records(3, 1, 42), "test.bin": cifar_records(2, 19, 99)}
        )
        binary = load("cifar100", tmp_path, download=False)
        assert (binary.train.labels.tolist(), binary.test.labels.tolist()) == ([42] * 3, [99] * 2)
        assert binary.train.class_names == tuple(map(str, range(100)))

        train = {"data": random_bytes(3, 3072), "fine_labels": [42] * 3, "coarse_labels": [1] * 3}
        test = {"data": random_bytes(2, 3072), "fine_labels": [99] * 2, "coarse_labels": [19] * 2}
        write(tmp_path / "p" / "cifar-100-python", {"train": pickle.dumps(train, 2), "test": pickle.dumps(test, 2)})
        python = load("cifar100", tmp_path / "p", download=False)
        np.testing.assert_array_equal(binary.train.inputs, python.train.inputs)
        np.testing.assert_array_equal(binary.test.labels, python.test.labels)

    def test_class_names_beside_the_files_are_used(self, tmp_path: Path):
        files = {"train.bin": cifar_records(3, 1, 42), "test.bin": cifar_records(2, 19, 99)}
        write(tmp_path / "cifar-100-binary", files | {"fine_label_names.txt": "\n".join(FINE_NAMES).encode() + b"\n\n"})
        assert load("cifar100", tmp_path).train.class_names == tuple(FINE_NAMES)

        names = pickle.dumps({"label_names": FINE_NAMES[:10]}, 2)
        write(tmp_path / "cifar-10-batches-py", cifar10_python_files() | {"batches.meta": names})
        assert load("cifar10", tmp_path).test.class_names == tuple(FINE_NAMES[:10])

    def test_a_wrong_number_of_class_names_is_an_error(self, tmp_path: Path):
        write(tmp_path / "cifar-10-batches-bin", cifar10_binary_files() | {"batches.meta.txt": b"cat\ndog\n"})
        with pytest.raises(InvalidInput, match=r"batches\.meta\.txt must name 10 classes, but got 2"):
            load("cifar10", tmp_path)

    def test_an_incomplete_layout_gives_way_to_a_complete_one(self, tmp_path: Path):
        write(tmp_path / "cifar-10-batches-bin", {"test_batch.bin": cifar_records(2, 9)})
        write(tmp_path / "cifar-10-batches-py", cifar10_python_files())
        assert len(load("cifar10", tmp_path, download=False).train) == 15

    def test_missing_files_are_named_with_the_folders_looked_in(self, tmp_path: Path):
        files = mnist_files()
        del files["t10k-labels-idx1-ubyte"]
        write(tmp_path / "MNIST" / "raw", files)
        with pytest.raises(UnreadableData) as caught:
            load("mnist", tmp_path, download=False)
        message = str(caught.value)
        assert len(message.splitlines()) == 1
        assert f"one of {tmp_path / 'mnist'}, {tmp_path / 'MNIST' / 'raw'}, {tmp_path}, but" in message
        assert f"put t10k-labels-idx1-ubyte into {tmp_path / 'MNIST' / 'raw'}" in message
        assert "switched off" in message


class TestDamagedFiles:
    def test_a_truncated_idx_file_is_named_in_the_error(self, tmp_path: Path):
        files = mnist_files()
        files["train-images-idx3-ubyte"] = files["train-images-idx3-ubyte"][:-100]
        write(tmp_path / "mnist", files)
        with pytest.raises(UnreadableData, match=str(tmp_path / "mnist" / "train-images-idx3-ubyte")):
            load("mnist", tmp_path)

    @pytest.mark.parametrize(
        "damage", [lambda gz: gz[:-100], lambda gz: b"no gzip" + gz, lambda gz: gz[:-8] + b"12345678"]
    )
    def test_a_damaged_gz_file_is_named_in_the_error(self, tmp_path: Path, damage):
        files = compressed(mnist_files())
        files["train-images-idx3-ubyte.gz"] = damage(files["train-images-idx3-ubyte.gz"])
        write(tmp_path / "mnist", files)
        with pytest.raises(UnreadableData, match=r"train-images-idx3-ubyte\.gz could not be read"):
            load("mnist", tmp_path)

    def test_a_truncated_cifar_file_is_named_in_the_error(self, tmp_path: Path):
        files = cifar10_binary_files()
        files["data_batch_4.bin"] = files["data_batch_4.bin"][:-1]
        write(tmp_path / "cifar-10-batches-bin", files)
        with pytest.raises(UnreadableData, match=r"data_batch_4\.bin must hold records of 3073 bytes"):
            load("cifar10", tmp_path)

    def test_test_images_of_another_size_are_refused(self, tmp_path: Path):
        write(tmp_path / "mnist", mnist_files() | {"t10k-images-idx3-ubyte": idx(random_bytes(2, 8, 8))})
        with pytest.raises(InvalidInput, match=r"shape \(1, 28, 28\) of the training images, but got \(1, 8, 8\)"):
            load("mnist", tmp_path)


class TestNpzFiles:
    def test_an_npz_file_is_loaded_from_a_path_of_either_type(self, tmp_path: Path):
        path = tmp_path / "mine.npz"
        images = random_bytes(4, 8, 8, 3)
        np.savez(
            path,
            x_train=images,
            y_train=["b", "a", "a", "b"],
            x_test=images[:1],
            y_test=["b"],
            note=np.array([None]),  # what is not needed is not read
        )
        for name_or_path in (path, str(path)):
            mine = load(name_or_path)
            assert mine.name == "mine"
            np.testing.assert_array_equal(mine.train.inputs, images.transpose(0, 3, 1, 2))
            assert mine.train.class_names == ("a", "b")
            assert mine.test.labels.tolist() == [1]
            assert mine.valid is None

    def test_a_compressed_npz_file_in_the_short_form_is_all_training_data(self, tmp_path: Path):
        np.savez_compressed(tmp_path / "mine.npz", X=np.eye(3), y=[0, 1, 2])
        mine = load(tmp_path / "mine.npz")
        assert len(mine.train) == 3
        assert mine.test is None

    def test_object_arrays_are_refused_without_being_unpickled(self, tmp_path: Path):
        np.savez(tmp_path / "mine.npz", x=np.eye(2), y=np.array(["a", 1], dtype=object))
        with pytest.raises(InvalidInput, match=r"mine\.npz: `y` must hold numbers or strings, but got Python objects"):
            load(tmp_path / "mine.npz")

    def test_a_member_that_is_no_array_is_refused(self, tmp_path: Path):
        with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
            archive.writestr("x", "some text")
            archive.writestr("y", "some text")
        with pytest.raises(InvalidInput, match="`x` must hold real numbers"):
            load(tmp_path / "mine.npz")

    def test_missing_keys_are_named_with_the_keys_found(self, tmp_path: Path):
        np.savez(tmp_path / "mine.npz", images=np.eye(2), x=np.eye(2))
        with pytest.raises(InvalidInput, match=r"mine\.npz must hold .* but lacks y_train; it holds images, x"):
            load(tmp_path / "mine.npz")

    @pytest.mark.parametrize("content", [b"", b"no zip", b"\x93NUMPY"])
    def test_what_is_no_npz_file_is_named_in_the_error(self, tmp_path: Path, content: bytes):
        (tmp_path / "mine.npz").write_bytes(content)
        with pytest.raises(UnreadableData, match=r"mine\.npz must be an \.npz file"):
            load(tmp_path / "mine.npz")

    def test_a_truncated_npz_file_is_named_in_the_error(self, tmp_path: Path):
        np.savez(tmp_path / "mine.npz", x=np.eye(50), y=np.arange(50))
        content = (tmp_path / "mine.npz").read_bytes()
        (tmp_path / "mine.npz").write_bytes(content[: len(content) // 2])
        with pytest.raises(UnreadableData, match=r"mine\.npz must be an \.npz file, but is truncated"):
            load(tmp_path / "mine.npz")

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_an_npz_file_with_flipped_bytes_is_named_in_the_error(self, tmp_path: Path, save):
        save(tmp_path / "mine.npz", x=random_bytes(50, 50), y=np.arange(50))
        content = bytearray((tmp_path / "mine.npz").read_bytes())
        content[600:700] = bytes(255 - byte for byte in content[600:700])
        (tmp_path / "mine.npz").write_bytes(content)
        with pytest.raises(UnreadableData, match=r"mine\.npz could not be read"):
            load(tmp_path / "mine.npz")

    def test_a_damaged_array_header_is_not_taken_for_an_object_array(self, tmp_path: Path):
        np.savez(tmp_path / "mine.npz", x=np.eye(2), y=[0, 1])
        content = (tmp_path / "mine.npz").read_bytes().replace(b"{'descr'", b"{'dexxx'")
        (tmp_path / "mine.npz").write_bytes(content)
        with pytest.raises(UnreadableData, match=r"mine\.npz could not be read"):
            load(tmp_path / "mine.npz")

    def test_a_missing_npz_file_is_named(self, tmp_path: Path):
        with pytest.raises(UnreadableData, match=r"gone\.npz does not exist"):
            load(tmp_path / "gone.npz")


class TestNames:
    def test_an_unknown_name_lists_the_known_ones_nearest_first(self):
        with pytest.raises(
            InvalidInput, match=r"one of cifar10, cifar100, .*'cifar1'\. A path to an \.npz file is acc"
        ):
            load("cifar1")

    @pytest.mark.parametrize("name", ["table.csv", "table.parquet", "hf:some/data", "."])
    def test_what_is_not_supported_yet_is_said_plainly(self, name: str):
        with pytest.raises(
            InvalidInput, match=r"is not supported yet; convert it to an \.npz file with keys `x_train`"
        ):
            load(name)

    def test_an_existing_file_of_another_kind_is_not_called_an_unknown_name(self, tmp_path: Path):
        (tmp_path / "notes.txt").write_text("some text")
        with pytest.raises(InvalidInput, match=r"notes\.txt must be an \.npz file, but is none"):
            load(tmp_path / "notes.txt")

    def test_what_is_available_says_where_it_is_and_how_many_classes_it_has(self):
        infos = {info.name: info for info in available()}
        assert list(infos) == ["digits", "mnist", "fashion-mnist", "cifar10", "cifar100"]
        assert [info.classes for info in infos.values()] == [10, 10, 10, 10, 100]
        assert infos["mnist"].folders == ("mnist", "MNIST/raw", ".")
        assert infos["cifar100"].urls == ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",)
        assert (infos["digits"].folders, infos["digits"].urls) == ((), ())
        assert all(len(remote.md5) == 32 for info in infos.values() for remote in info.downloads)

    def test_torch_and_scikit_learn_are_not_imported_with_the_module(self):
        code = "import s2e.datasets, sys; assert not {'torch', 'sklearn'} & set(sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True)


class TestHumanLabels:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "cifar-n").mkdir()
        clean = np.array([3, 1, 2], dtype=np.uint8)
        kinds = {"worse_label": clean + 1, "aggre_label": clean, "random_label1": clean[::-1]}
        np.savez_compressed(tmp_path / "cifar-n" / "cifar10n.npz", clean_label=clean, **kinds)
        np.savez_compressed(tmp_path / "cifar-n" / "cifar100n.npz", noisy_label=clean + 97)
        return tmp_path

    def test_kinds_are_read_in_their_order(self, root: Path):
        assert human_labels("cifar10", "worst", root).tolist() == [4, 2, 3]
        assert human_labels("cifar10", "aggre", str(root)).tolist() == [3, 1, 2]
        assert human_labels("cifar10", "random1", root).tolist() == [2, 1, 3]
        assert human_labels("cifar10", "random1", root).dtype == np.int64

    def test_an_unknown_kind_lists_the_known_ones_nearest_first(self, root: Path):
        with pytest.raises(InvalidInput, match=r"of cifar10` must be one of random2, .*worst.*'rand2'"):
            human_labels("cifar10", "rand2", root)

    def test_other_data_sets_have_no_human_labels(self, root: Path):
        with pytest.raises(
            InvalidInput, match=r"one of cifar10, cifar100, but got 'cifar'\. Human labels exist for no"
        ):
            human_labels("cifar", "worst", root)

    def test_a_missing_file_and_a_missing_kind_are_named(self, root: Path, tmp_path: Path):
        with pytest.raises(
            InvalidInput, match=r"cifar10n\.npz must hold the key `random_label2`, but holds clean_label"
        ):
            human_labels("cifar10", "random2", root)
        with pytest.raises(UnreadableData, match=r"nowhere.cifar-n.cifar10n\.npz does not exist; put .* `worse_label`"):
            human_labels("cifar10", "worst", tmp_path / "nowhere")

    def test_labels_must_be_classes_of_the_data_set(self, root: Path):
        with pytest.raises(InvalidInput, match=r"cifar100n\.npz: labels must lie in 0\.\.99, but got 100"):
            human_labels("cifar100", "noisy", root)
        np.savez(root / "cifar-n" / "cifar10n.npz", worse_label=np.eye(2))
        with pytest.raises(InvalidInput, match=r"`worse_label` must hold integers \(N,\), but got float64 \(2, 2\)"):
            human_labels("cifar10", "worst", root)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """Return a folder, and the address under which it is served over HTTP."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path_factory.mktemp("served")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def at(name: str, files: dict[str, bytes], address: str) -> DatasetInfo:
    """Return the catalogue's entry with its downloads pointed at this address."""
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


class TestDownload:
    def test_idx_files_are_downloaded_once_and_announced(
        self, served, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ):
        folder, address = served
        files = compressed(mnist_files())
        write(folder, files)
        caplog.set_level(logging.INFO, logger="s2e.datasets")
        mnist = load_published(at("mnist", files, address), tmp_path / "new" / "root", download=True)
        np.testing.assert_array_equal(mnist.train.labels, TRAIN_LABELS)
        assert sorted(file.name for file in (tmp_path / "new" / "root" / "mnist").iterdir()) == sorted(files)
        assert [file.name for file in (tmp_path / "new" / "root").iterdir()] == ["mnist"]
        assert f"downloading {address}/train-images-idx3-ubyte.gz" in caplog.text
        caplog.clear()
        load("mnist", tmp_path / "new" / "root")
        assert "downloading" not in caplog.text

    def test_an_archive_gives_the_expected_files_and_nothing_else(self, served, tmp_path: Path):
        folder, address = served
        members = {f"cifar-10-batches-bin/{name}": content for name, content in cifar10_binary_files().items()}
        members["cifar-10-batches-bin/batches.meta.txt"] = "\n".join(FINE_NAMES[:10]).encode()
        strangers = {"../outside": b"x", "/tmp/s2e-outside": b"x", "cifar-10-batches-bin/readme.html": b"x"}
        files = {"cifar-10-binary.tar.gz": tar_gz(members | strangers)}
        write(folder, files)
        root = tmp_path / "root"
        cifar = load_published(at("cifar10", files, address), root, download=True)
        assert len(cifar.train) == 15
        assert cifar.train.class_names == tuple(FINE_NAMES[:10])
        kept = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
        assert kept == set(members)
        assert [path.name for path in tmp_path.iterdir()] == ["root"]

    def test_links_in_an_archive_are_not_followed(self, served, tmp_path: Path):
        folder, address = served
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name in ("train.bin", "test.bin"):
                link = tarfile.TarInfo(f"cifar-100-binary/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
                archive.addfile(link)
        files = {"cifar-100-binary.tar.gz": buffer.getvalue()}
        write(folder, files)
        with pytest.raises(UnreadableData, match=r"downloading failed: train\.bin, test\.bin did not come with it"):
            load_published(at("cifar100", files, address), tmp_path, download=True)
        assert list(tmp_path.iterdir()) == []

    def test_a_wrong_checksum_leaves_nothing_behind(self, served, tmp_path: Path):
        folder, address = served
        files = compressed(mnist_files())
        write(folder, files | {"t10k-labels-idx1-ubyte.gz": b"something else"})
        with pytest.raises(
            UnreadableData, match=r"t10k-labels-idx1-ubyte\.gz must have the MD5 \w{32}, but got \w{32}"
        ):
            load_published(at("mnist", files, address), tmp_path, download=True)
        assert list(tmp_path.iterdir()) == []

    def test_an_archive_with_a_wrong_checksum_is_never_opened(self, served, tmp_path: Path):
        folder, address = served
        write(folder, {"cifar-100-binary.tar.gz": b"not even an archive"})
        info = at("cifar100", {"cifar-100-binary.tar.gz": b"other"}, address)
        with pytest.raises(UnreadableData, match="must have the MD5"):
            load_published(info, tmp_path, download=True)
        assert list(tmp_path.iterdir()) == []

    def test_a_damaged_archive_with_the_right_checksum_leaves_nothing_behind(self, served, tmp_path: Path):
        folder, address = served
        whole = tar_gz({"cifar-100-binary/train.bin": cifar_records(3, 1, 42)})
        for content in (whole[: len(whole) // 2], b"not even an archive"):
            files = {"cifar-100-binary.tar.gz": content}
            write(folder, files)
            with pytest.raises(UnreadableData, match="downloading failed"):
                load_published(at("cifar100", files, address), tmp_path, download=True)
            assert list(tmp_path.iterdir()) == []

    def test_a_file_the_server_does_not_have_is_one_line_that_says_what_to_put_where(self, served, tmp_path: Path):
        _, address = served
        with pytest.raises(UnreadableData) as caught:
            load_published(at("mnist", compressed(mnist_files()), address), tmp_path, download=True)
        message = str(caught.value)
        assert len(message.splitlines()) == 1
        assert f"{address}/train-images-idx3-ubyte.gz: HTTP Error 404" in message
        assert "put train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte" in message
        assert str(tmp_path / "MNIST" / "raw") in message
        assert list(tmp_path.iterdir()) == []

    def test_a_refused_connection_is_one_line_that_says_where_it_looked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler) as closed:
            address = f"http://127.0.0.1:{closed.server_port}"
        with pytest.raises(UnreadableData, match=r"downloading failed: http://127.*refused") as caught:
            load_published(at("mnist", compressed(mnist_files()), address), tmp_path, download=True)
        assert str(tmp_path / "mnist") in str(caught.value)

    def test_a_root_that_cannot_be_written_is_an_error_and_no_crash(self, served, tmp_path: Path):
        (tmp_path / "file").write_text("")
        with pytest.raises(UnreadableData, match="downloading failed"):
            load_published(at("mnist", compressed(mnist_files()), served[1]), tmp_path / "file", download=True)
