"""Readers of arrays and images, written and restored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from s2e.data.input_readers import ArrayReader, ImageReader, reader_from_json
from s2e.errors import InvalidInput, UnreadableData


def test_a_restored_reader_is_equal():
    for reader in (ArrayReader((3, 4), pixels=False), ArrayReader((1, 8, 8), pixels=True), ImageReader(32, 3)):
        assert reader_from_json(reader.to_json()) == reader


def test_other_json_is_refused():
    for written in ({}, {"kind": "sound"}, {"kind": "images", "side": "x"}, {"kind": "table", "encoder": 3}):
        with pytest.raises(UnreadableData):
            reader_from_json(written)


def test_arrays_must_have_the_shape_and_type_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    reader = ArrayReader((2, 3), pixels=False)
    np.savez("flat.npz", X=np.arange(12.0).reshape(2, 6))
    samples = reader.read(Path("flat.npz"))
    assert samples.inputs.shape == (2, 2, 3)  # flat samples are reshaped
    assert samples.inputs.dtype == np.float32
    assert samples.ids == ["0", "1"]
    np.savez("long.npz", x=np.zeros((2, 7)))
    with pytest.raises(InvalidInput, match=r"shape \(2, 3\) as float32, as in training, but got float64 of shape \(7"):
        reader.read(Path("long.npz"))
    with pytest.raises(InvalidInput, match="as uint8, as in training, but got float64"):
        ArrayReader((2, 3), pixels=True).read(Path("flat.npz"))
    np.savez("other.npz", images=np.zeros((2, 6)))
    with pytest.raises(InvalidInput, match=r"under the key `x`, but holds images"):
        reader.read(Path("other.npz"))
    with pytest.raises(UnreadableData, match="does not exist"):
        reader.read(Path("gone.npz"))
