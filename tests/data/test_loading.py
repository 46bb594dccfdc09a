"""Loading by name and from files, on small files made here."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from published_files import (
    FINE_NAMES,
    TEST_LABELS,
    TRAIN_LABELS,
    cifar10_binary_files,
    cifar10_python_files,
    cifar_records,
    compressed,
    idx,
    mnist_files,
    random_bytes,
    write,
)
from s2e.data.loading import CATALOGUE, available, human_labels, load
from s2e.errors import InvalidInput, UnreadableData


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
            InvalidInput, match=r"one of cifar10, cifar100, .*'cifar1'\. A path is accepted too: a table"
        ):
            load("cifar1")

    def test_an_existing_file_of_another_kind_is_not_called_an_unknown_name(self, tmp_path: Path):
        (tmp_path / "notes.txt").write_text("some text")
        with pytest.raises(InvalidInput, match=r"notes\.txt must be a table .*, but is none of these"):
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
        code = "import s2e.data.loading, sys; assert not {'torch', 'sklearn'} & set(sys.modules)"
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
