"""Readers of arrays and images, written and restored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from s2e.data.encoders import encode_array, fit_array
from s2e.data.image_encoding import ImageEncoder
from s2e.data.input_readers import ArrayReader, ImageReader, reader_from_json
from s2e.errors import InvalidInput, UnreadableData


def test_a_restored_reader_is_equal():
    columns = fit_array(np.random.default_rng(0).normal(size=(9, 3)))
    for reader in (ArrayReader(columns), ArrayReader(ImageEncoder((1, 8, 8), True)), ImageReader(32, 3)):
        assert reader_from_json(json.loads(json.dumps(reader.to_json()))) == reader


def test_readers_of_earlier_versions_encode_nothing():
    reader = reader_from_json({"kind": "arrays", "sample_shape": [3], "pixels": False})
    assert reader == ArrayReader(ImageEncoder((3,), False))


def test_columns_are_encoded_as_in_training(tmp_path: Path):
    rows = np.random.default_rng(0).normal(5, 3, size=(30, 3))
    rows[3, 1] = np.nan
    reader = ArrayReader(fit_array(rows))
    np.savez(tmp_path / "rows.npz", x=rows[:4])
    np.testing.assert_array_equal(reader.read(tmp_path / "rows.npz").inputs, encode_array(reader.encoder, rows)[:4])
    assert [use.name for use in reader.columns] == ["x0", "x1", "x2"]


def test_channels_of_later_images_are_found_as_in_training(tmp_path: Path):
    images = np.random.default_rng(0).integers(0, 256, size=(4, 8, 8, 3), dtype=np.uint8)
    reader = ArrayReader(fit_array(images))
    np.savez(tmp_path / "images.npz", x=images)
    np.testing.assert_array_equal(reader.read(tmp_path / "images.npz").inputs, images.transpose(0, 3, 1, 2))


def test_other_json_is_refused():
    for written in ({}, {"kind": "sound"}, {"kind": "images", "side": "x"}, {"kind": "table", "encoder": 3}):
        with pytest.raises(UnreadableData):
            reader_from_json(written)


def test_arrays_must_have_the_shape_and_type_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    reader = ArrayReader(ImageEncoder((5, 2, 3), False))
    np.savez("flat.npz", X=np.arange(60.0).reshape(2, 30))
    samples = reader.read(Path("flat.npz"))
    assert samples.inputs.shape == (2, 5, 2, 3)  # flat samples are reshaped
    assert samples.inputs.dtype == np.float32
    assert samples.ids == ["0", "1"]
    np.savez("long.npz", x=np.zeros((2, 7)))
    with pytest.raises(
        InvalidInput, match=r"shape \(5, 2, 3\) as numbers, as in training, but got float64 of shape \(7"
    ):
        reader.read(Path("long.npz"))
    with pytest.raises(InvalidInput, match="as uint8, as in training, but got float64"):
        ArrayReader(ImageEncoder((5, 2, 3), True)).read(Path("flat.npz"))
    np.savez("other.npz", images=np.zeros((2, 6)))
    with pytest.raises(InvalidInput, match=r"under the key `x`, but holds images"):
        reader.read(Path("other.npz"))
    with pytest.raises(UnreadableData, match="does not exist"):
        reader.read(Path("gone.npz"))
