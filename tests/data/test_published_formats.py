"""What files mean, on contents made by hand: IDX, CIFAR's two forms, and the arrays of .npz files."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from s2e.data.published_formats import (
    npz_keys,
    parse_cifar_binary_part,
    parse_cifar_pickle_part,
    parse_idx,
    parse_idx_part,
    parse_name_lines,
    parse_pickled_names,
    source_from_arrays,
)
from s2e.errors import InvalidInput, UnreadableData


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def pixels(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def python_2_pickle(data: np.ndarray, labels: list[int]) -> bytes:
    """Write {"data": array, "labels": list} as Python 2 and its NumPy wrote the published files."""

    def text(content: bytes) -> bytes:
        return b"T" + struct.pack("<I", len(content)) + content

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = (
        b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + integer(-1) * 2 + b"K\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    shape = integer(data.shape[0]) + integer(data.shape[1]) + b"\x86"
    state = b"(K\x01" + shape + dtype + b"\x89" + text(data.tobytes()) + b"tb"
    items = text(b"data") + array + state + text(b"labels") + b"](" + b"".join(map(integer, labels)) + b"e"
    return b"\x80\x02}(" + items + b"u."


class TestIdx:
    def test_images_and_labels_come_back_as_they_were_written(self):
        images = np.arange(2 * 5 * 4).reshape(2, 5, 4)
        inputs, labels = parse_idx_part({"images": idx(images), "labels": idx(np.array([3, 1]))}, 10)
        np.testing.assert_array_equal(inputs[:, 0], images)
        assert inputs.dtype == np.uint8
        assert inputs.flags.writeable
        assert labels.tolist() == [3, 1]
        assert labels.dtype == np.int64

    def test_a_wrong_magic_number_is_named_in_the_error(self):
        with pytest.raises(UnreadableData, match=r"some-file must be an IDX file .* 00 00 08 03, but .* 00 00 08 01"):
            parse_idx(idx(np.zeros(4)), 3, "some-file")

    def test_an_empty_file_is_no_idx_file(self):
        with pytest.raises(UnreadableData, match="begins with nothing"):
            parse_idx(b"", 1, "some-file")

    def test_a_file_that_ends_within_its_header_is_truncated(self):
        with pytest.raises(UnreadableData, match="some-file is truncated"):
            parse_idx(idx(np.zeros((1, 2, 2)))[:10], 3, "some-file")

    @pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content + b"\0"])
    def test_a_size_that_differs_from_the_header_is_an_error(self, change):
        with pytest.raises(UnreadableData, match=r"some-file must hold 12 bytes .* \(3, 2, 2\) .* but got 1[13]"):
            parse_idx(change(idx(np.zeros((3, 2, 2)))), 3, "some-file")

    def test_as_many_labels_as_images_are_wanted(self):
        files = {"images": idx(np.zeros((3, 2, 2))), "labels": idx(np.zeros(2))}
        with pytest.raises(InvalidInput, match="labels must hold 3 labels, one for each image of images, but got 2"):
            parse_idx_part(files, 10)

    def test_a_label_outside_the_classes_names_the_file_and_the_label(self):
        files = {"images": idx(np.zeros((3, 2, 2))), "labels": idx(np.array([0, 10, 77]))}
        with pytest.raises(InvalidInput, match=r"labels: labels must lie in 0\.\.9, but got 10, 77"):
            parse_idx_part(files, 10)


class TestCifarBinary:
    def test_records_of_ten_classes_are_a_label_and_pixels_joined_over_files(self):
        data = pixels(3)
        records = np.concatenate([np.array([[9], [0], [4]], dtype=np.uint8), data], axis=1)
        files = {"a": records[:2].tobytes(), "b": records[2:].tobytes()}
        images, labels = parse_cifar_binary_part(files, 10)
        np.testing.assert_array_equal(images, data.reshape(3, 3, 32, 32))
        assert images.flags.writeable
        assert labels.tolist() == [9, 0, 4]

    def test_records_of_a_hundred_classes_give_the_fine_label(self):
        data = pixels(2)
        records = np.concatenate([np.array([[19, 99], [3, 42]], dtype=np.uint8), data], axis=1)
        images, labels = parse_cifar_binary_part({"a": records.tobytes()}, 100)
        np.testing.assert_array_equal(images.reshape(2, -1), data)
        assert labels.tolist() == [99, 42]

    @pytest.mark.parametrize("content", [b"", bytes(3072), bytes(2 * 3073 - 1)])
    def test_a_size_that_is_no_multiple_of_the_record_is_an_error(self, content):
        with pytest.raises(
            UnreadableData, match=f"b must hold records of 3073 bytes each, but got {len(content)} bytes"
        ):
            parse_cifar_binary_part({"a": bytes(3073), "b": content}, 10)

    def test_a_label_byte_out_of_range_names_its_file(self):
        with pytest.raises(InvalidInput, match=r"b: labels must lie in 0\.\.9, but got 10"):
            parse_cifar_binary_part({"a": bytes(3073), "b": bytes([10]) + bytes(3072)}, 10)


class TestCifarPickle:
    def test_a_batch_written_by_python_2_is_read(self):
        images, labels = parse_cifar_pickle_part({"a": python_2_pickle(pixels(2), [7, 1])}, 10)
        np.testing.assert_array_equal(images, pixels(2).reshape(2, 3, 32, 32))
        assert labels.tolist() == [7, 1]
        assert labels.dtype == np.int64

    @pytest.mark.parametrize("protocol", [2, 3, 4])
    def test_a_batch_written_by_python_3_is_read_and_files_are_joined(self, protocol):
        first = pickle.dumps({"data": pixels(2, 1), "labels": [1, 2]}, protocol)
        second = pickle.dumps({"data": pixels(1, 2), "labels": [3]}, protocol)
        images, labels = parse_cifar_pickle_part({"a": first, "b": second}, 10)
        np.testing.assert_array_equal(images.reshape(3, -1), np.concatenate([pixels(2, 1), pixels(1, 2)]))
        assert labels.tolist() == [1, 2, 3]

    def test_a_hundred_classes_give_the_fine_labels(self):
        content = pickle.dumps({"data": pixels(1), "coarse_labels": [3], "fine_labels": [71]}, 2)
        assert parse_cifar_pickle_part({"a": content}, 100)[1].tolist() == [71]

    def test_a_malicious_pickle_executes_nothing(self, tmp_path: Path):
        witness = tmp_path / "executed"

        class Malicious:
            def __reduce__(self):
                return os.system, (f"touch {witness}",)

        content = pickle.dumps({"data": Malicious(), "labels": [0]}, 2)
        pickle.loads(content)
        assert witness.exists(), "the pickle must be one that does harm"
        witness.unlink()
        with pytest.raises(UnreadableData, match=r"a\.pickle holds something a CIFAR file never does .*system"):
            parse_cifar_pickle_part({"a.pickle": content}, 10)
        with pytest.raises(UnreadableData, match="never does"):
            parse_pickled_names(content, "a.pickle")
        assert not witness.exists()

    @pytest.mark.parametrize(
        "content",
        [
            b"\x80\x02cbuiltins\neval\nU\x011\x85R.",
            b"\x80\x04\x8c\x05numpy\x8c\x15ctypeslib.ctypes.CDLL\x93.",
            b"\x80\x02cnumpy\nload\n.",
            b"\x80\x02c_codecs\ndecode\n.",
        ],
    )
    def test_nothing_but_array_reconstruction_is_resolved(self, content):
        with pytest.raises(UnreadableData, match="never does"):
            parse_cifar_pickle_part({"a": content}, 10)

    def test_codecs_other_than_latin1_are_refused(self):
        with pytest.raises(UnreadableData, match="unexpected encoding 'rot13'"):
            parse_cifar_pickle_part({"a": b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0rot13\x86R."}, 10)

    @pytest.mark.parametrize("length", [0, 1, 40, 3000, -1])
    def test_a_truncated_pickle_is_named_in_the_error(self, length):
        with pytest.raises(UnreadableData, match="data_batch_3 must be a CIFAR pickle, but reading it failed"):
            parse_cifar_pickle_part({"data_batch_3": python_2_pickle(pixels(2), [7, 1])[:length]}, 10)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ([1, 2], "must hold a dictionary, but got list"),
            ({"labels": [1]}, "`data` must be a uint8 array .* but got nothing"),
            ({"data": pixels(1)[:, :5], "labels": [1]}, r"`data` must .* but got uint8 \(1, 5\)"),
            ({"data": pixels(1).astype(float), "labels": [1]}, r"`data` must .* but got float64 \(1, 3072\)"),
            ({"data": pixels(1)}, "`labels` must be a list of integers, but got nothing"),
            ({"data": pixels(1), "labels": ["cat"]}, "`labels` must be a list of integers"),
            ({"data": pixels(1), "labels": [1, 2]}, "`labels` must hold 1 labels as `data`, but got 2"),
            ({"data": pixels(1), "labels": [-1]}, r"labels must lie in 0\.\.9, but got -1"),
        ],
    )
    def test_wrong_contents_are_named(self, value, message):
        with pytest.raises(InvalidInput, match=f"^a:? {message}"):
            parse_cifar_pickle_part({"a": pickle.dumps(value, 2)}, 10)


class TestClassNames:
    def test_blank_lines_name_no_class(self):
        assert parse_name_lines(b"cat\r\ndog\n\n\n", "names") == ("cat", "dog")

    def test_a_file_that_is_no_text_is_named(self):
        with pytest.raises(UnreadableData, match="names must be a text file"):
            parse_name_lines(b"\xff\xfe\x00", "names")

    def test_meta_files_of_both_cifars_are_read(self):
        assert parse_pickled_names(pickle.dumps({"label_names": ["cat", "dog"]}, 2), "meta") == ("cat", "dog")
        both = {"coarse_label_names": ["animal"], "fine_label_names": ["cat", "dog"]}
        assert parse_pickled_names(pickle.dumps(both, 2), "meta") == ("cat", "dog")

    def test_a_meta_file_without_names_is_an_error(self):
        with pytest.raises(InvalidInput, match="meta: the class names must be a list of strings, but got nothing"):
            parse_pickled_names(pickle.dumps({}, 2), "meta")


def source(**arrays):
    return source_from_arrays({key: np.asarray(value) for key, value in arrays.items()}, "mine", "mine.npz")


TABLE = np.arange(12.0).reshape(4, 3)


class TestNpzKeys:
    def test_the_short_form_is_training_data_in_either_case(self):
        assert npz_keys(["X", "y", "other"], "f") == {"x_train": "X", "y_train": "y"}
        assert npz_keys(["x", "y"], "f") == {"x_train": "x", "y_train": "y"}

    def test_the_long_form_wins_over_the_short_one(self):
        assert npz_keys(["x", "y", "x_train", "y_train"], "f") == {"x_train": "x_train", "y_train": "y_train"}

    def test_all_missing_keys_are_named_with_those_found(self):
        with pytest.raises(InvalidInput, match=r"f must hold .* but lacks x_train, y_test, y_train; .* images, x_test"):
            npz_keys(["x_test", "images"], "f")
        with pytest.raises(InvalidInput, match="but lacks y_train; it holds x"):
            npz_keys(["x"], "f")
        with pytest.raises(InvalidInput, match="it holds nothing"):
            npz_keys([], "f")

    def test_keys_that_differ_in_case_alone_are_refused(self):
        with pytest.raises(InvalidInput, match="but got X, x, y"):
            npz_keys(["x", "X", "y"], "f")


class TestNpzInputs:
    def test_the_short_form_has_no_validation_and_no_test_part(self):
        made = source(X=TABLE, y=[0, 1, 1, 0])
        assert (made.name, made.valid, made.test) == ("mine", None, None)
        assert made.train.clean_labels is None
        assert made.train.class_names == ("0", "1")
        np.testing.assert_array_equal(made.train.inputs, TABLE)

    @pytest.mark.parametrize("dtype", ["uint8", "int64", "uint16", "float16", "float64", ">f4", "bool"])
    def test_tables_of_any_number_become_float32(self, dtype):
        inputs = source(x=TABLE.astype(dtype), y=[0, 1, 1, 0]).train.inputs
        assert inputs.dtype == np.float32
        assert inputs.dtype.isnative
        np.testing.assert_array_equal(inputs, TABLE.astype(dtype))

    @pytest.mark.parametrize(
        ("shape", "wanted"),
        [
            ((2, 28, 28), (2, 1, 28, 28)),
            ((2, 32, 30, 3), (2, 3, 32, 30)),
            ((2, 8, 8, 1), (2, 1, 8, 8)),
            ((2, 8, 8, 4), (2, 4, 8, 8)),
            ((2, 3, 32, 32), (2, 3, 32, 32)),
            ((2, 3, 32, 3), (2, 3, 32, 3)),
            ((2, 8, 8, 2), (2, 8, 8, 2)),
            ((2, 3, 4, 8, 8), (2, 3, 4, 8, 8)),
        ],
    )
    def test_images_become_channels_first_and_stay_uint8(self, shape, wanted):
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        inputs = source(x=images, y=[0, 1]).train.inputs
        assert inputs.shape == wanted
        assert inputs.dtype == np.uint8
        assert inputs.flags.c_contiguous
        if wanted[1:] == (3, 32, 30):
            np.testing.assert_array_equal(inputs[1, 2], images[1, :, :, 2])
        assert source(x=images.astype(np.int32), y=[0, 1]).train.inputs.dtype == np.float32

    @pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
    def test_values_that_are_not_finite_name_their_part(self, value):
        spoiled = TABLE.copy()
        spoiled[2, 1] = value
        with pytest.raises(InvalidInput, match=r"^mine\.npz: `x_test` and `y_test` .* 1 of 4 samples"):
            source(x_train=TABLE, y_train=[0, 1, 1, 0], x_test=spoiled, y_test=[0, 1, 1, 0])

    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (["a", "b"], "`x` must hold real numbers, but got <U1"),
            ([1j, 2j], "`x` must hold real numbers, but got complex128"),
            ([1, 2], r"`x` must have the shape \(N, features\) or that of images, but got \(2,\)"),
            (5, r"`x` must have the shape .* but got \(\)"),
            (np.zeros((0, 3)), r"`x` must hold at least one sample .* shape \(0, 3\)"),
            (np.zeros((2, 0)), r"`x` must hold at least one sample .* shape \(2, 0\)"),
        ],
    )
    def test_inputs_that_no_network_takes_are_refused(self, x, message):
        with pytest.raises(InvalidInput, match=message):
            source(x=x, y=[0, 1])

    def test_parts_must_hold_samples_of_one_shape_and_type(self):
        images = np.zeros((2, 8, 8), dtype=np.uint8)
        with pytest.raises(InvalidInput) as caught:
            source(
                x_train=images,
                y_train=[0, 1],
                x_valid=images[:, :6],
                y_valid=[0, 1],
                x_test=images / 255,
                y_test=[0, 1],
            )
        assert "`x_valid` must hold samples of shape (1, 8, 8) as `x_train` does, but got (1, 6, 8)" in str(
            caught.value
        )
        assert "`x_test` must be uint8 as `x_train` is, but got float32" in str(caught.value)


class TestNpzLabels:
    def test_strings_are_mapped_to_sorted_names_alike_in_every_part(self):
        made = source(
            x_train=TABLE,
            y_train=["fox", "cat", "owl", "cat"],
            y_train_clean=["fox", "fox", "owl", "cat"],
            x_valid=TABLE[:1],
            y_valid=["owl"],
            x_test=TABLE[:2],
            y_test=np.array([b"fox", b"owl"]),
        )
        assert made.train.class_names == made.valid.class_names == made.test.class_names == ("cat", "fox", "owl")
        assert made.train.labels.tolist() == [1, 0, 2, 0]
        assert made.train.clean_labels.tolist() == [1, 1, 2, 0]
        assert made.valid.labels.tolist() == [2]
        assert made.test.labels.tolist() == [1, 2]
        assert made.valid.clean_labels is None

    @pytest.mark.parametrize("dtype", ["int8", "uint64", "float32"])
    def test_arbitrary_integers_are_mapped_in_numeric_order(self, dtype):
        train = source(x=TABLE, y=np.array([100, 20, 3, 20]).astype(dtype)).train
        assert train.class_names == ("3", "20", "100")
        assert train.labels.tolist() == [2, 1, 0, 1]
        assert train.labels.dtype == np.int64

    def test_labels_from_zero_on_stay_what_they_are(self):
        assert source(x=TABLE, y=[2, 0, 1, 2]).train.labels.tolist() == [2, 0, 1, 2]

    def test_given_names_are_kept_in_their_order(self):
        by_number = source(x=TABLE, y=[2, 0, 0, 2], class_names=["zebra", "ape", "cow"]).train
        by_name = source(x=TABLE, y=["cow", "zebra", "zebra", "cow"], class_names=["zebra", "ape", "cow"]).train
        assert by_number.class_names == by_name.class_names == ("zebra", "ape", "cow")
        assert by_number.labels.tolist() == by_name.labels.tolist() == [2, 0, 0, 2]

    def test_labels_unknown_in_training_are_named_for_every_part_at_once(self):
        with pytest.raises(InvalidInput) as caught:
            source(
                x_train=TABLE,
                y_train=["a", "b", "a", "b"],
                y_train_clean=["a", "b", "a", "c"],
                x_test=TABLE,
                y_test=["a", "z", "y", "z"],
            )
        assert "`y_train_clean` must hold only labels in `y_train`, but got 'c'" in str(caught.value)
        assert "`y_test` must hold only labels in `y_train`, but got 'y', 'z'" in str(caught.value)

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"y": [0, 1, -1, -2]}, "`y` must not hold negative numbers, but got -2, -1"),
            ({"y": [0.0, -1.0, 1.0, 1.0]}, r"`y` must not hold negative numbers, but got -1\.0"),
            ({"y": [0, 0.5, 1, 1]}, r"`y` must hold whole numbers, but got 0\.5"),
            ({"y": [0, np.nan, 1, 1]}, "`y` must hold whole numbers, but got nan"),
            ({"y": [0, np.inf, 1e300, 1]}, r"`y` must hold whole numbers, but got 1e\+300, inf"),
            ({"y": [0, 1, 0]}, "`y` must hold 4 labels, one for each sample of `x`, but got 3"),
            ({"y": np.eye(4)}, r"`y` must have the shape \(N,\), .* but got \(4, 4\)"),
            ({"y": np.array([0, 1, 1, 0], dtype="datetime64[s]")}, "`y` must hold integers or strings"),
            ({"y": [1, 1, 1, 1]}, "`class_names` must name at least two classes, but got 1"),
            ({"y": [0, 1, 2, 3], "class_names": ["a", "b"]}, r"`y` must hold only labels in 0\.\.1, .* but got 2, 3"),
            ({"y": ["a", "b", "c", "a"], "class_names": ["a", "b"]}, "only labels in `class_names`, but got 'c'"),
            ({"y": [0, 1, 1, 0], "class_names": ["a", "a"]}, "`class_names` must differ .* but got twice: 'a'"),
            (
                {"y": [0, 1, 1, 0], "class_names": "ab"},
                r"`class_names` must be a list of C names, but got <U2 of shape",
            ),
            (
                {"y": [0, 1, 1, 0], "x_test": TABLE, "y_test": ["0", "1", "1", "0"]},
                "`y_test` must hold integers as the training labels do, but got strings",
            ),
            (
                {"y": ["0", "1", "1", "0"], "x_test": TABLE, "y_test": [0, 1, 1, 0]},
                "`y_test` must hold strings as the training labels do, but got integers",
            ),
        ],
    )
    def test_labels_that_name_no_class_are_refused(self, arrays, message):
        with pytest.raises(InvalidInput, match=rf"^mine\.npz: .*{message}"):
            source(x=TABLE, **arrays)

    def test_long_lists_of_wrong_labels_are_cut(self):
        with pytest.raises(InvalidInput, match="but got -9, -8, -7, -6, -5, …;"):
            source(x=np.zeros((9, 2)), y=-np.arange(1, 10))

    def test_every_problem_of_a_file_is_reported_at_once(self):
        with pytest.raises(InvalidInput) as caught:
            source(x_train=TABLE, y_train=[0, 1], x_test=["a"], y_test=[-1], class_names=["a", "a"])
        assert len(str(caught.value).splitlines()) == 1
        for problem in (
            "`y_train` must hold 4",
            "`x_test` must hold real",
            "`y_test` must not",
            "`class_names` must differ",
        ):
            assert problem in str(caught.value)
