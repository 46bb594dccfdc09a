"""IDX and CIFAR's binary format, on contents written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from published_files import idx
from s2e.data.published_formats import parse_cifar_split, parse_class_names, parse_idx, parse_idx_split
from s2e.errors import InvalidInput, UnreadableData


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 3072), dtype=np.uint8)


def test_idx_images_and_labels_are_read():
    images = np.arange(2 * 5 * 4).reshape(2, 5, 4)
    inputs, labels = parse_idx_split({"images": idx(images), "labels": idx(np.array([3, 1]))}, 10)
    np.testing.assert_array_equal(inputs[:, 0], images)
    assert inputs.dtype == np.uint8
    assert inputs.flags.writeable
    assert labels.tolist() == [3, 1]
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with nothing"),
        (idx(np.zeros(4)), r"some-file must be an IDX file .* 00 00 08 03, but .* 00 00 08 01"),
        (idx(np.zeros((1, 2, 2)))[:10], "some-file is truncated"),
        (idx(np.zeros((3, 2, 2)))[:-1], r"some-file must hold 12 bytes .* \(3, 2, 2\) .* but got 11"),
        (idx(np.zeros((3, 2, 2))) + b"\0", "but got 13"),
    ],
)
def test_damaged_idx_files_are_refused(content, message):
    with pytest.raises(UnreadableData, match=message):
        parse_idx(content, 3, "some-file")


def test_idx_labels_must_match_images_and_classes():
    images = idx(np.zeros((3, 2, 2)))
    with pytest.raises(InvalidInput, match="labels must hold 3 labels, one for each image of images, but got 2"):
        parse_idx_split({"images": images, "labels": idx(np.zeros(2))}, 10)
    with pytest.raises(InvalidInput, match=r"labels: labels must lie in 0\.\.9, but got 10, 77"):
        parse_idx_split({"images": images, "labels": idx(np.array([0, 10, 77]))}, 10)


def test_cifar10_records_are_joined_over_files():
    data = pixels(3)
    records = np.concatenate([np.array([[9], [0], [4]], dtype=np.uint8), data], axis=1)
    images, labels = parse_cifar_split({"a": records[:2].tobytes(), "b": records[2:].tobytes()}, 10)
    np.testing.assert_array_equal(images, data.reshape(3, 3, 32, 32))
    assert images.flags.writeable
    assert labels.tolist() == [9, 0, 4]


def test_cifar100_records_give_the_fine_label():
    data = pixels(2)
    records = np.concatenate([np.array([[19, 99], [3, 42]], dtype=np.uint8), data], axis=1)
    images, labels = parse_cifar_split({"a": records.tobytes()}, 100)
    np.testing.assert_array_equal(images.reshape(2, -1), data)
    assert labels.tolist() == [99, 42]


def test_damaged_cifar_files_are_refused():
    for content in (b"", bytes(2 * 3073 - 1)):
        with pytest.raises(UnreadableData, match=f"b must hold records of 3073 bytes each, but got {len(content)}"):
            parse_cifar_split({"a": bytes(3073), "b": content}, 10)
    with pytest.raises(InvalidInput, match=r"b: labels must lie in 0\.\.9, but got 10"):
        parse_cifar_split({"a": bytes(3073), "b": bytes([10]) + bytes(3072)}, 10)


def test_class_names_are_lines_that_are_not_blank():
    assert parse_class_names(b"cat\r\ndog\n\n\n", "names") == ("cat", "dog")
    with pytest.raises(UnreadableData, match="names must be a text file"):
        parse_class_names(b"\xff\xfe\x00", "names")
