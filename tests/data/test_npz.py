"""Samples in .npz files: keys, conversion of inputs and labels, damaged files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from published_files import random_bytes
from s2e.data.npz import load_npz, npz_keys, source_from_arrays
from s2e.data.table_encoding import TableEncoder
from s2e.errors import InvalidInput, UnreadableData

TABLE = np.arange(12.0).reshape(4, 3)


def source(**arrays):
    return source_from_arrays({key: np.asarray(value) for key, value in arrays.items()}, "mine", "mine.npz")


# Keys


def test_short_and_long_keys_in_either_case():
    assert npz_keys(["X", "y", "other"], "f") == {"x_train": "X", "y_train": "y"}
    assert npz_keys(["x", "y", "x_train", "y_train"], "f") == {"x_train": "x_train", "y_train": "y_train"}
    with pytest.raises(InvalidInput, match="but got X, x, y"):
        npz_keys(["x", "X", "y"], "f")


def test_missing_keys_are_named_with_those_found():
    with pytest.raises(
        InvalidInput, match=r"f must hold .* but x_train, y_test, y_train is missing; .* images, x_test"
    ):
        npz_keys(["x_test", "images"], "f")
    with pytest.raises(InvalidInput, match="it holds nothing"):
        npz_keys([], "f")


# Inputs


@pytest.mark.parametrize("dtype", ["uint8", ">f4"])
def test_tables_are_encoded_by_column(dtype):
    data = source(x=TABLE.astype(dtype), y=[0, 1, 1, 0])
    inputs = data.train.inputs
    assert inputs.dtype == np.float32
    assert inputs.dtype.isnative
    frame = pd.DataFrame(TABLE)
    np.testing.assert_array_equal(inputs, TableEncoder.fit(frame).encode(frame))
    assert (data.name, data.valid, data.test, data.train.clean_labels) == ("mine", None, None, None)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 28, 28), (2, 1, 28, 28)),
        ((2, 32, 30, 3), (2, 3, 32, 30)),
        ((2, 3, 32, 3), (2, 3, 32, 3)),
        ((2, 8, 8, 2), (2, 8, 8, 2)),
        ((2, 3, 4, 8, 8), (2, 3, 4, 8, 8)),
    ],
)
def test_images_become_channels_first_and_stay_uint8(shape, expected):
    images = random_bytes(*shape)
    inputs = source(x=images, y=[0, 1]).train.inputs
    assert inputs.shape == expected
    assert inputs.dtype == np.uint8
    assert inputs.flags.c_contiguous
    if expected[1:] == (3, 32, 30):
        np.testing.assert_array_equal(inputs[1, 2], images[1, :, :, 2])
    assert source(x=images.astype(np.int32), y=[0, 1]).train.inputs.dtype == np.float32


@pytest.mark.parametrize("value", [np.nan, 1e300])
def test_non_finite_images_name_their_arrays(value):
    images = np.arange(48.0).reshape(4, 3, 4)
    spoiled = images.copy()
    spoiled[2, 1] = value
    with pytest.raises(InvalidInput, match=r"^mine\.npz: `x_test` and `y_test` .* 1 of 4 samples"):
        source(x_train=images, y_train=[0, 1, 1, 0], x_test=spoiled, y_test=[0, 1, 1, 0])


def test_missing_numbers_have_an_indicator():
    rows = TABLE.copy()
    rows[2, 1] = np.nan
    inputs = source(x=rows, y=[0, 1, 1, 0]).train.inputs
    assert inputs.shape == (4, 4)
    assert inputs[:, 2].tolist() == [0, 0, 1, 0]


def test_names_of_classes_are_in_the_order_of_tables():
    assert source(x=TABLE, y=["k10", "k2", "k10", "k2"]).train.class_names == ("k2", "k10")


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (["a", "b"], "`x` must hold real numbers, but got <U1"),
        (5, r"`x` must have the shape .* but got \(\)"),
        (np.zeros((2, 0)), r"`x` must hold at least one sample .* shape \(2, 0\)"),
    ],
)
def test_other_inputs_are_refused(x, message):
    with pytest.raises(InvalidInput, match=message):
        source(x=x, y=[0, 1])


def test_all_splits_must_have_one_shape_and_type():
    images, y = np.zeros((2, 8, 8), dtype=np.uint8), [0, 1]
    with pytest.raises(InvalidInput) as caught:
        source(x_train=images, y_train=y, x_valid=images[:, :6], y_valid=y, x_test=images / 255, y_test=y)
    assert "`x_valid` must hold samples of shape (8, 8) like `x_train`, but got (6, 8)" in str(caught.value)
    assert "`x_test` must be uint8 like `x_train`, but got float64" in str(caught.value)


# Labels


def test_string_labels_are_indices_of_sorted_names_in_every_split():
    data = source(
        x_train=TABLE,
        y_train=["fox", "cat", "owl", "cat"],
        y_train_clean=["fox", "fox", "owl", "cat"],
        x_valid=TABLE[:1],
        y_valid=["owl"],
        x_test=TABLE[:2],
        y_test=np.array([b"fox", b"owl"]),
    )
    assert data.train.class_names == data.valid.class_names == data.test.class_names == ("cat", "fox", "owl")
    assert data.train.labels.tolist() == [1, 0, 2, 0]
    assert data.train.clean_labels.tolist() == [1, 1, 2, 0]
    assert data.valid.labels.tolist() == [2]
    assert data.test.labels.tolist() == [1, 2]
    assert data.valid.clean_labels is None


def test_integer_labels_are_indices_in_numeric_order():
    train = source(x=TABLE, y=np.array([100, 20, 3, 20], dtype=np.float32)).train
    assert train.class_names == ("3", "20", "100")
    assert train.labels.tolist() == [2, 1, 0, 1]
    assert source(x=TABLE, y=np.array([2, 0, 1, 2], dtype=np.uint64)).train.labels.tolist() == [2, 0, 1, 2]


def test_given_class_names_keep_their_order():
    names = ["zebra", "ape", "cow"]
    by_number = source(x=TABLE, y=[2, 0, 0, 2], class_names=names).train
    by_name = source(x=TABLE, y=["cow", "zebra", "zebra", "cow"], class_names=names).train
    assert by_number.class_names == by_name.class_names == ("zebra", "ape", "cow")
    assert by_number.labels.tolist() == by_name.labels.tolist() == [2, 0, 0, 2]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": [0, 1, -1, -2]}, "`y` must not be negative, but got -2, -1"),
        ({"y": [0, np.inf, 1e300, np.nan]}, r"`y` must hold integers or strings, but got 1e\+300, inf, nan"),
        ({"y": [0, 1, 0]}, "`y` must hold 4 labels, one for each sample of `x`, but got 3"),
        ({"y": np.eye(4)}, r"`y` must have the shape \(N,\), .* but got \(4, 4\)"),
        ({"y": np.array([0, 1, 1, 0], dtype="datetime64[s]")}, "`y` must hold integers or strings, but got datetime"),
        ({"y": [1, 1, 1, 1]}, "`class_names` must name at least two classes, but got 1"),
        ({"y": [0, 1, 2, 3], "class_names": ["a", "b"]}, r"`y` must hold only labels in 0\.\.1, .* but got 2, 3"),
        ({"y": ["a", "b", "c", "a"], "class_names": ["a", "b"]}, "only labels in `class_names`, but got 'c'"),
        ({"y": [0, 1, 1, 0], "class_names": ["a", "a"]}, "`class_names` must be unique, but got more than once: 'a'"),
        ({"y": [0, 1, 1, 0], "class_names": "ab"}, r"`class_names` must be a list of C names, but got <U2 of shape"),
        (
            {"y": [0, 1, 1, 0], "x_test": TABLE, "y_test": ["0", "1", "1", "0"]},
            "`y_test` must hold integers like the training labels, but got strings",
        ),
    ],
)
def test_other_labels_are_refused(arrays, message):
    with pytest.raises(InvalidInput, match=rf"^mine\.npz: .*{message}"):
        source(x=TABLE, **arrays)


def test_all_problems_are_reported_together():
    with pytest.raises(InvalidInput) as caught:
        source(x_train=TABLE, y_train=[0, 1], x_test=["a"], y_test=[-1], class_names=["a", "a"])
    assert len(str(caught.value).splitlines()) == 1
    problems = "`y_train` must hold 4", "`x_test` must hold real", "`y_test` must not", "`class_names` must be unique"
    assert all(problem in str(caught.value) for problem in problems)
    with pytest.raises(InvalidInput) as caught:
        source(x_train=TABLE, y_train=list("abab"), y_train_clean=list("abac"), x_test=TABLE, y_test=list("azyz"))
    assert "`y_train_clean` must hold only labels in `y_train`, but got 'c'" in str(caught.value)
    assert "`y_test` must hold only labels in `y_train`, but got 'y', 'z'" in str(caught.value)


# Files


def test_only_the_needed_arrays_of_a_file_are_read(tmp_path: Path):
    images = random_bytes(4, 8, 8, 3)
    unread = np.array([None])  # needs pickle
    np.savez_compressed(tmp_path / "mine.npz", X=images, y=["b", "a", "a", "b"], note=unread)
    data = load_npz(tmp_path / "mine.npz")
    assert data.name == "mine"
    np.testing.assert_array_equal(data.train.inputs, images.transpose(0, 3, 1, 2))
    assert data.train.labels.tolist() == [1, 0, 0, 1]


def test_arrays_are_never_unpickled(tmp_path: Path):
    np.savez(tmp_path / "mine.npz", x=np.eye(2), y=np.array(["a", 1], dtype=object))
    with pytest.raises(InvalidInput, match=r"mine\.npz': `y` must hold numbers or strings, but got Python objects"):
        load_npz(tmp_path / "mine.npz")


def damaged_header(content: bytes) -> bytes:
    return content.replace(b"{'descr'", b"{'dexxx'")


def flipped_bytes(content: bytes) -> bytes:
    return content[:600] + bytes(255 - byte for byte in content[600:700]) + content[700:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "could not be read: it is truncated or no .npz file"),
        (lambda _: b"\x93NUMPY", "could not be read: it is truncated or no .npz file"),
        (lambda content: content[: len(content) // 2], "could not be read: it is truncated"),
        (flipped_bytes, "could not be read"),
        (damaged_header, "could not be read"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, damage, message):
    np.savez(tmp_path / "mine.npz", x=random_bytes(50, 50), y=np.arange(50))
    (tmp_path / "mine.npz").write_bytes(damage((tmp_path / "mine.npz").read_bytes()))
    with pytest.raises(UnreadableData, match=rf"mine\.npz' {message}"):
        load_npz(tmp_path / "mine.npz")


def test_missing_files_and_members_that_are_no_arrays_are_named(tmp_path: Path):
    with pytest.raises(UnreadableData, match=r"gone\.npz' does not exist"):
        load_npz(tmp_path / "gone.npz")
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        archive.writestr("x", "some text")
        archive.writestr("y", "some text")
    with pytest.raises(UnreadableData, match="`x` has a damaged header"):
        load_npz(tmp_path / "mine.npz")
