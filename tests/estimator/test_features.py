"""How samples become inputs: each kind against an obvious oracle, and written and read again."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from s2e.data.table_columns import fit_column
from s2e.errors import InvalidInput, UnreadableData
from s2e.estimator.features import Images, Numbers, SparseNumbers, TableRows, features_from


@pytest.fixture
def numbers():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(50, 4)) * [1, 100, 1e-3, 1] + [0, 5, 0, -2]
    X[::6, 3] = np.nan
    X[0, 0] = 1e6
    return X


def test_a_column_of_an_array_becomes_what_it_would_become_in_a_table(numbers):
    expected = np.concatenate(
        [fit_column(str(place), pd.Series(column)).encode(pd.Series(column)) for place, column in enumerate(numbers.T)],
        axis=1,
    )  # the indicator follows its column there, and the last column is the one with gaps
    np.testing.assert_allclose(Numbers.fit(numbers).encode(numbers), expected, rtol=1e-6)


def test_rows_that_were_numbered_stay_in_an_array(numbers):
    numbers[:, 1] = np.arange(50)
    assert np.ptp(Numbers.fit(numbers).encode(numbers)[:, 1]) > 1


def test_columns_without_numbers_or_without_difference_become_zero(numbers):
    numbers[:, 0], numbers[:, 1] = np.nan, 7.0
    inputs = Numbers.fit(numbers).encode(numbers)
    assert inputs.shape == (50, 4 + 2)
    assert (inputs[:, :2] == 0).all()
    assert np.isfinite(inputs).all()


def test_gaps_that_come_later_are_medians(numbers):
    learnt = Numbers.fit(numbers)
    gap = numbers[1:2].copy()
    gap[0, 1] = np.nan
    assert learnt.encode(gap)[0, 1] == 0


@pytest.fixture
def words():
    return sparse.random(60, 20, density=0.2, format="csr", random_state=0)


def test_few_sparse_columns_are_kept_at_a_scale_of_one(words):
    inputs = SparseNumbers.fit(words, 20, 0).encode(words)
    dense = words.toarray()
    np.testing.assert_allclose(inputs, dense / np.sqrt(np.mean(dense[dense != 0] ** 2)), rtol=1e-5)


def test_many_sparse_columns_become_the_directions_that_say_most(words):
    learnt = SparseNumbers.fit(words, 5, 0)
    inputs = learnt.encode(words)
    assert inputs.shape == (60, 5)
    np.testing.assert_allclose(np.mean(inputs**2), 1, rtol=1e-5)
    _, strengths, _ = np.linalg.svd(words.toarray())
    np.testing.assert_allclose(np.sort(np.linalg.norm(inputs, axis=0) * learnt.scale)[::-1], strengths[:5], rtol=0.02)


def test_all_sparse_columns_are_kept_on_demand_and_empty_rows_are_nothing(words):
    assert SparseNumbers.fit(words, None, 0).encode(words).shape == (60, 20)
    nothing = sparse.csr_matrix((6, 20))
    assert (SparseNumbers.fit(nothing, 5, 0).encode(nothing) == 0).all()


def test_a_frame_is_read_column_by_column_whatever_its_columns_are_called():
    frame = pd.DataFrame({"label": ["a", "b", "a", "b"], "label_": [1.0, 2.0, 3.0, 5.0]})
    learnt = TableRows.fit(frame, np.array([0, 1, 0, 1]))
    np.testing.assert_array_equal(learnt.encode(frame)[:, :2], [[1, 0], [0, 1], [1, 0], [0, 1]])
    assert learnt.encode(frame[["label_", "label"]]).tolist() == learnt.encode(frame).tolist()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((6, 8), (1, 6, 8)),
        ((3, 6, 8), (3, 6, 8)),
        ((6, 8, 3), (3, 6, 8)),
        ((3, 8, 3), (3, 8, 3)),
        ((5, 6, 7), (5, 6, 7)),
        ((2, 3, 4, 5), (2, 3, 4, 5)),
    ],
)
def test_images_become_channels_height_and_width(shape, expected):
    pixels = np.random.default_rng(0).integers(0, 256, size=(4, *shape), dtype=np.uint8)
    learnt = Images.fit(pixels)
    inputs = learnt.encode(pixels)
    assert inputs.shape == (4, *expected)
    assert inputs.dtype == np.uint8
    assert inputs.sum() == pixels.sum()
    with pytest.raises(InvalidInput, match="as in training"):
        learnt.encode(pixels[:, :-1])
    with pytest.raises(InvalidInput, match="as in training"):
        learnt.encode(pixels.astype(float))


def test_images_of_other_numbers_are_centred_and_scaled_as_a_whole():
    images = np.random.default_rng(0).normal(5, 3, size=(40, 6, 6))
    inputs = Images.fit(images).encode(images)
    np.testing.assert_allclose([inputs.mean(), inputs.std()], [0, 1], atol=1e-6)
    assert inputs.dtype == np.float32
    assert (Images.fit(np.ones((4, 3, 3))).encode(np.ones((4, 3, 3))) == 0).all()


def test_what_was_written_reads_the_same(numbers, words):
    frame = pd.DataFrame({"a": numbers[:, 0], "kind": np.where(numbers[:, 1] > 5, "x", "y")})
    images = numbers[:, None, :3].repeat(3, axis=1)
    for learnt, samples in (
        (Numbers.fit(numbers), numbers),
        (SparseNumbers.fit(words, 5, 0), words),
        (SparseNumbers.fit(words, None, 0), words),
        (TableRows.fit(frame, np.arange(50) % 2), frame),
        (Images.fit(images), images),
    ):
        read = features_from(*learnt.written())
        np.testing.assert_array_equal(read.encode(samples), learnt.encode(samples))


@pytest.mark.parametrize("about", [{}, {"kind": "sounds"}, {"kind": "numbers"}, {"kind": "images", "shape": 3}])
def test_other_writings_are_refused(about):
    with pytest.raises(UnreadableData):
        features_from(about, {})
