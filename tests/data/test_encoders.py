"""Encoders: each against an oracle, and restored."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from s2e.data.encoders import encode_array, fit_array, read_encoder, write_encoder
from s2e.data.image_encoding import ImageEncoder
from s2e.data.sparse_projection import SparseEncoder
from s2e.data.table_encoding import TableEncoder
from s2e.errors import InvalidInput, UnreadableData
from s2e.files.fields import Fields


@pytest.fixture
def numbers():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(50, 4)) * [1, 100, 1e-3, 1] + [0, 5, 0, -2]
    X[::6, 3] = np.nan
    X[0, 0] = 1e6
    return X


def test_columns_of_arrays_and_tables_are_encoded_alike(numbers):
    frame = pd.DataFrame(numbers, columns=list("abcd"))
    expected = TableEncoder.fit(frame).encode(frame)
    np.testing.assert_array_equal(encode_array(fit_array(numbers), numbers), expected)


def test_columns_of_an_array_are_identified_by_position(numbers):
    frame = pd.DataFrame(numbers, columns=list("abcd"))
    encoder = TableEncoder.fit(frame)
    np.testing.assert_array_equal(encode_array(encoder, numbers), encoder.encode(frame))
    with pytest.raises(InvalidInput, match="rows must have 4 columns, as in training, but got 3"):
        encode_array(encoder, numbers[:, :3])


@pytest.fixture
def counts():
    return sparse.random(60, 20, density=0.2, format="csr", random_state=0)


def test_few_sparse_columns_are_scaled(counts):
    inputs = SparseEncoder.fit(counts, 20, 0).encode(counts)
    dense = counts.toarray()
    np.testing.assert_allclose(inputs, dense / np.sqrt(np.mean(dense[dense != 0] ** 2)), rtol=1e-5)


def test_many_sparse_columns_are_projected_on_singular_vectors(counts):
    encoder = SparseEncoder.fit(counts, 5, 0)
    inputs = encoder.encode(counts)
    assert inputs.shape == (60, 5)
    np.testing.assert_allclose(np.mean(inputs**2), 1, rtol=1e-5)
    _, singular_values, _ = np.linalg.svd(counts.toarray())
    norms = np.sort(np.linalg.norm(inputs, axis=0) * encoder.scale)[::-1]
    np.testing.assert_allclose(norms, singular_values[:5], rtol=0.02)


def test_all_columns_can_be_kept_and_empty_matrices_are_zero(counts):
    assert SparseEncoder.fit(counts, None, 0).encode(counts).shape == (60, 20)
    empty = sparse.csr_matrix((6, 20))
    assert (SparseEncoder.fit(empty, 5, 0).encode(empty) == 0).all()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((6, 8), (1, 6, 8)),
        ((6, 8, 3), (3, 6, 8)),
        ((3, 8, 3), (3, 8, 3)),
        ((8, 8, 2), (8, 8, 2)),
        ((2, 3, 4, 5), (2, 3, 4, 5)),
    ],
)
def test_images_become_channels_first(shape, expected):
    pixels = np.random.default_rng(0).integers(0, 256, size=(4, *shape), dtype=np.uint8)
    encoder = ImageEncoder.fit(pixels)
    inputs = encoder.encode(pixels)
    assert inputs.shape == (4, *expected)
    assert inputs.dtype == np.uint8
    assert inputs.sum() == pixels.sum()
    with pytest.raises(InvalidInput, match="as in training"):
        encoder.encode(pixels[:, :-1])
    with pytest.raises(InvalidInput, match="as in training"):
        encoder.encode(pixels.astype(float))


def test_images_of_floats_are_standardised():
    images = np.random.default_rng(0).normal(5, 3, size=(40, 6, 6))
    inputs = ImageEncoder.fit(images).encode(images)
    np.testing.assert_allclose([inputs.mean(), inputs.std()], [0, 1], atol=1e-6)
    assert inputs.dtype == np.float32
    assert (ImageEncoder.fit(np.full((4, 3, 3), 7)).encode(np.full((4, 3, 3), 7)) == 0).all()


def test_images_in_the_unit_interval_are_unchanged():
    images = np.random.default_rng(0).random((4, 6, 6))
    np.testing.assert_array_equal(ImageEncoder.fit(images).encode(images), images[:, None].astype(np.float32))


def test_a_restored_encoder_gives_the_same_inputs(numbers, counts):
    frame = pd.DataFrame({"a": numbers[:, 0], "kind": np.where(numbers[:, 1] > 5, "x", "y")})
    images = numbers[:, None, :3].repeat(3, axis=1)
    for encoder, samples in (
        (SparseEncoder.fit(counts, 5, 0), counts),
        (SparseEncoder.fit(counts, None, 0), counts),
        (TableEncoder.fit(frame), frame),
        (ImageEncoder.fit(images), images),
    ):
        about, arrays = write_encoder(encoder)
        restored = read_encoder(Fields(json.loads(json.dumps(about)), "saved"), arrays)
        np.testing.assert_array_equal(restored.encode(samples), encoder.encode(samples))


def test_other_json_is_refused():
    for about in ({}, {"kind": "sounds"}, {"kind": "numbers"}, {"kind": "images", "shape": 3}):
        with pytest.raises((InvalidInput, UnreadableData)):
            read_encoder(Fields(about, "saved"), {})
