"""Loading by name and path, on small files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from published_files import (
    FINE_NAMES,
    TEST_LABELS,
    TRAIN_LABELS,
    cifar10_files,
    cifar_records,
    compressed,
    idx,
    mnist_files,
    random_bytes,
    write,
)
from s2e.data.loading import CATALOGUE, available, human_labels, load
from s2e.errors import InvalidInput, UnreadableData

# Published data sets


def test_digits_need_no_file(tmp_path: Path):
    digits = load("digits", tmp_path / "nowhere", download=False)
    assert digits.train.inputs.shape[1:] == (1, 8, 8)
    assert digits.train.inputs.dtype == np.float32
    assert (digits.train.inputs.min(), digits.train.inputs.max()) == (0, 1)
    assert len(digits.train) + len(digits.test) == 1797
    assert digits.train.class_names == tuple("0123456789")
    assert digits.train.clean_labels is None
    assert not list(tmp_path.iterdir())


def test_a_fixed_fifth_of_each_class_of_digits_is_test():
    first, second = load("digits"), load("digits")
    np.testing.assert_array_equal(first.test.rows, second.test.rows)
    assert not set(first.test.rows) & set(first.train.rows)
    test, train = np.bincount(first.test.labels), np.bincount(first.train.labels)
    np.testing.assert_allclose(test / (test + train), 0.2, atol=0.003)


@pytest.mark.parametrize(("folder", "pack"), [("mnist", dict), ("MNIST/raw", compressed), (".", dict)])
def test_mnist_is_read_from_every_layout(tmp_path: Path, folder: str, pack):
    write(tmp_path / folder, pack(mnist_files()))
    mnist = load("mnist", tmp_path, download=False)
    assert mnist.name == "mnist"
    np.testing.assert_array_equal(mnist.train.inputs, random_bytes(5, 28, 28)[:, None])
    np.testing.assert_array_equal(mnist.test.inputs, random_bytes(2, 28, 28)[:, None])
    np.testing.assert_array_equal(mnist.train.labels, TRAIN_LABELS)
    np.testing.assert_array_equal(mnist.test.labels, TEST_LABELS)
    assert mnist.valid is None


def test_fashion_mnist_has_its_own_folders_and_names(tmp_path: Path):
    write(tmp_path / "FashionMNIST/raw", mnist_files())
    assert load("fashion-mnist", str(tmp_path), download=False).train.class_names[9] == "Ankle boot"
    with pytest.raises(UnreadableData):
        load("mnist", tmp_path, download=False)


def test_cifar10_batches_are_joined(tmp_path: Path):
    write(tmp_path / "cifar-10-batches-bin", cifar10_files())
    data = load("cifar10", tmp_path, download=False)
    assert data.train.inputs.shape == (15, 3, 32, 32)
    assert data.train.labels.tolist() == [k for k in range(1, 6) for _ in range(k)]
    assert data.test.labels.tolist() == [9, 9]
    assert data.train.class_names == CATALOGUE["cifar10"].class_names


def test_cifar100_has_fine_labels_and_names(tmp_path: Path):
    files = {"train.bin": cifar_records(3, 1, 42), "test.bin": cifar_records(2, 19, 99)}
    write(tmp_path / "cifar-100-binary", files)
    data = load("cifar100", tmp_path, download=False)
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([42] * 3, [99] * 2)
    assert data.train.class_names == tuple(map(str, range(100)))
    write(tmp_path / "cifar-100-binary", {"fine_label_names.txt": "\n".join(FINE_NAMES).encode() + b"\n\n"})
    assert load("cifar100", tmp_path).train.class_names == tuple(FINE_NAMES)


def test_a_wrong_number_of_class_names_is_refused(tmp_path: Path):
    write(tmp_path / "cifar-10-batches-bin", cifar10_files() | {"batches.meta.txt": b"cat\ndog\n"})
    with pytest.raises(InvalidInput, match=r"batches\.meta\.txt must name 10 classes, but got 2"):
        load("cifar10", tmp_path)


def test_missing_files_of_the_most_complete_layout_are_named(tmp_path: Path):
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


@pytest.mark.parametrize("damage", [lambda gz: gz[:-100], lambda gz: b"no gzip" + gz, lambda gz: gz[:-8] + b"12345678"])
def test_damaged_gz_files_are_named(tmp_path: Path, damage):
    files = compressed(mnist_files())
    files["train-images-idx3-ubyte.gz"] = damage(files["train-images-idx3-ubyte.gz"])
    write(tmp_path / "mnist", files)
    with pytest.raises(UnreadableData, match=r"train-images-idx3-ubyte\.gz'? (could not be read|must be an IDX file)"):
        load("mnist", tmp_path)


def test_damaged_files_are_named_by_path(tmp_path: Path):
    files = cifar10_files()
    files["data_batch_4.bin"] = files["data_batch_4.bin"][:-1]
    write(tmp_path / "cifar-10-batches-bin", files)
    with pytest.raises(UnreadableData, match=str(tmp_path / "cifar-10-batches-bin" / "data_batch_4.bin")):
        load("cifar10", tmp_path)


def test_test_images_of_another_size_are_refused(tmp_path: Path):
    write(tmp_path / "mnist", mnist_files() | {"t10k-images-idx3-ubyte": idx(random_bytes(2, 8, 8))})
    with pytest.raises(InvalidInput, match=r"shape \(1, 28, 28\) of the training images, but got \(1, 8, 8\)"):
        load("mnist", tmp_path)


# Names and paths


def test_paths_may_be_objects_or_text(tmp_path: Path):
    np.savez(tmp_path / "mine.npz", x=np.eye(3), y=[0, 1, 2])
    for path in (tmp_path / "mine.npz", str(tmp_path / "mine.npz")):
        assert len(load(path).train) == 3


def test_unknown_names_and_formats_are_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match=r"one of cifar10, cifar100, .*'cifar1'\. Or pass the path of a table"):
        load("cifar1")
    (tmp_path / "notes.txt").write_text("some text")
    with pytest.raises(InvalidInput, match=r"notes\.txt must be a table .*, but has another format"):
        load(tmp_path / "notes.txt")


def test_columns_are_given_for_tables_only(tmp_path: Path):
    (tmp_path / "own.csv").write_text("a,kind\n1,x\n2,y\n3,x\n4,y\n")
    with pytest.raises(InvalidInput, match=r"`label` must be the label column of .*own\.csv, one of a, kind"):
        load(tmp_path / "own.csv")
    data = load(tmp_path / "own.csv", label="kind")
    assert (data.train.labels.tolist(), data.ids) == ([0, 1, 0, 1], ("1", "2", "3", "4"))
    with pytest.raises(InvalidInput, match="`label` must be given for tables only, but got 'kind' for digits"):
        load("digits", label="kind")


def test_the_catalogue_names_folders_classes_and_addresses():
    infos = {info.name: info for info in available()}
    assert list(infos) == ["digits", "mnist", "fashion-mnist", "cifar10", "cifar100"]
    assert [info.classes for info in infos.values()] == [10, 10, 10, 10, 100]
    assert infos["mnist"].folders == ("mnist", "MNIST/raw", ".")
    assert infos["cifar100"].urls == ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",)
    assert (infos["digits"].folders, infos["digits"].urls) == ((), ())
    assert all(len(remote.md5) == 32 for info in infos.values() for remote in info.downloads)


def test_the_package_imports_no_heavy_library():
    code = "import s2e.data, sys; assert not {'torch', 'sklearn', 'pandas', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# Human labels


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cifar-n").mkdir()
    clean = np.array([3, 1, 2], dtype=np.uint8)
    kinds = {"worse_label": clean + 1, "aggre_label": clean, "random_label1": clean[::-1]}
    np.savez_compressed(tmp_path / "cifar-n" / "cifar10n.npz", clean_label=clean, **kinds)
    np.savez_compressed(tmp_path / "cifar-n" / "cifar100n.npz", noisy_label=clean + 97)
    return tmp_path


def test_human_labels_are_read_by_kind(root: Path):
    assert human_labels("cifar10", "worst", root).tolist() == [4, 2, 3]
    assert human_labels("cifar10", "aggre", str(root)).tolist() == [3, 1, 2]
    assert human_labels("cifar10", "random1", root).tolist() == [2, 1, 3]
    assert human_labels("cifar10", "random1", root).dtype == np.int64


def test_unknown_human_labels_are_refused(root: Path, tmp_path: Path):
    with pytest.raises(InvalidInput, match=r"of cifar10` must be one of random2, .*worst.*'rand2'"):
        human_labels("cifar10", "rand2", root)
    with pytest.raises(InvalidInput, match=r"one of cifar10, cifar100, but got 'cifar'\. No other data set has human"):
        human_labels("cifar", "worst", root)
    with pytest.raises(InvalidInput, match=r"cifar10n\.npz must hold the key `random_label2`, but holds clean_label"):
        human_labels("cifar10", "random2", root)
    with pytest.raises(UnreadableData, match=r"nowhere.cifar-n.cifar10n\.npz does not exist; put .* `worse_label`"):
        human_labels("cifar10", "worst", tmp_path / "nowhere")


def test_human_labels_must_be_classes(root: Path):
    with pytest.raises(InvalidInput, match=r"cifar100n\.npz: labels must lie in 0\.\.99, but got 100"):
        human_labels("cifar100", "noisy", root)
    np.savez(root / "cifar-n" / "cifar10n.npz", worse_label=np.eye(2))
    with pytest.raises(InvalidInput, match=r"`worse_label` must hold integers \(N,\), but got float64 \(2, 2\)"):
        human_labels("cifar10", "worst", root)
