"""Labelled data: validation of the arrays, and held-out samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from s2e.data.samples import LabelledData, check_trainable, default_share, hold_out
from s2e.errors import InvalidInput


def made(
    labels: list[int] | NDArray[np.int64], classes: int = 3, clean: NDArray[np.int64] | None = None
) -> LabelledData:
    """Return data with distinct inputs."""
    count = len(labels)
    inputs = np.arange(count * 2, dtype=np.float32).reshape(count, 2)
    return LabelledData(inputs, np.asarray(labels, dtype=np.int64), tuple("abcdefghij"[:classes]), clean)


def refusal(**changes: Any) -> str:
    """Return the error for valid data of four samples and two classes with `changes`."""
    good: dict[str, Any] = {
        "inputs": np.zeros((4, 2), dtype=np.float32),
        "labels": np.array([0, 1, 0, 1]),
        "class_names": ("cat", "dog"),
    }
    LabelledData(**good)
    with pytest.raises(InvalidInput) as caught:
        LabelledData(**{**good, **changes})
    return str(caught.value)


def test_size_shape_and_classes() -> None:
    data = LabelledData(np.zeros((5, 28, 28), dtype=np.uint8), np.zeros(5, dtype=np.int64), ("a", "b"))
    assert len(data) == 5
    assert data.classes == 2
    assert data.sample_shape == (28, 28)
    np.testing.assert_array_equal(data.rows, np.arange(5))


def test_no_samples_are_refused() -> None:
    message = refusal(inputs=np.zeros((0, 2), dtype=np.float32), labels=np.zeros(0, dtype=np.int64))
    assert message == "`inputs` must hold at least one sample, but got none."


def test_fewer_than_two_classes_are_refused() -> None:
    message = refusal(class_names=("cat",), labels=np.zeros(4, dtype=np.int64))
    assert message == "`class_names` must name at least two classes, but got 1."


def test_inputs_of_another_type_are_refused() -> None:
    message = refusal(inputs=np.zeros((4, 2)))
    assert message == "`inputs` must be uint8 or float32, but got float64."


def test_samples_with_non_finite_inputs_are_counted() -> None:
    inputs = np.zeros((4, 2, 3), dtype=np.float32)
    inputs[1] = np.nan
    inputs[3, 0, 0] = -np.inf
    assert refusal(inputs=inputs) == "`inputs` must be finite, but 2 of 4 samples hold NaN or infinite values."


@pytest.mark.parametrize(("name", "shape"), [("labels", (3,)), ("clean_labels", (4, 1)), ("rows", (5,))])
def test_labels_of_another_length_are_refused(name: str, shape: tuple[int, ...]) -> None:
    message = refusal(**{name: np.zeros(shape, dtype=np.int64)})
    assert message == f"`{name}` must have one entry for each of the 4 inputs, but got {shape}."


@pytest.mark.parametrize("name", ["labels", "clean_labels"])
def test_labels_outside_the_classes_are_refused(name: str) -> None:
    message = refusal(**{name: np.array([0, 1, 2, 0])})
    assert message == f"`{name}` must lie in 0..1 for 2 classes, but got 0..2."
    assert "got -1..1" in refusal(**{name: np.array([0, -1, 1, 0])})


def test_all_problems_are_reported_together() -> None:
    message = refusal(
        inputs=np.full((4, 2), np.nan, dtype=np.float32),
        labels=np.array([0, 9, 0, 1]),
        clean_labels=np.array([0, 1]),
        class_names=("cat",),
        rows=np.arange(7),
    )
    for name in ("`inputs` must be finite", "`class_names`", "`labels` must lie", "`clean_labels`", "`rows`"):
        assert name in message
    assert "\n" not in message


def test_take_selects_from_every_array() -> None:
    data = made([0, 1, 2, 1], clean=np.array([0, 1, 2, 2]))
    taken = data.take(np.array([3, 0]))
    np.testing.assert_array_equal(taken.inputs, data.inputs[[3, 0]])
    np.testing.assert_array_equal(taken.labels, [1, 0])
    assert taken.clean_labels is not None
    np.testing.assert_array_equal(taken.clean_labels, [2, 0])
    np.testing.assert_array_equal(taken.rows, [3, 0])
    np.testing.assert_array_equal(taken.take(np.array([1])).rows, [0])  # row in the source


def test_the_first_labels_stay_the_clean_ones() -> None:
    data = made([0, 1, 2])
    once = data.with_noisy_labels(np.array([1, 1, 2]))
    twice = once.with_noisy_labels(np.array([2, 2, 2]))
    for noisy in (once, twice):
        assert noisy.clean_labels is not None
        np.testing.assert_array_equal(noisy.clean_labels, [0, 1, 2])
    np.testing.assert_array_equal(twice.labels, [2, 2, 2])
    with pytest.raises(InvalidInput, match="`labels` must lie in"):
        data.with_noisy_labels(np.array([0, 1, 3]))


@settings(deadline=None, max_examples=40)
@given(
    counts=st.lists(st.integers(2, 40), min_size=2, max_size=6), share=st.floats(0.05, 0.95), seed=st.integers(0, 99)
)
def test_hold_out_splits_every_class(counts: list[int], share: float, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    data = made(labels, len(counts), clean=np.roll(labels, 1))
    rest, held = hold_out(data, share, np.random.default_rng(seed))
    assert sorted([*rest.rows, *held.rows]) == list(range(len(data)))
    for label, count in enumerate(counts):
        kept_out = int((held.labels == label).sum())
        assert 1 <= kept_out <= count - 1
        assert abs(kept_out - share * count) <= 1
    for split in (rest, held):
        np.testing.assert_array_equal(split.inputs, data.inputs[split.rows])
        np.testing.assert_array_equal(split.labels, data.labels[split.rows])
        assert split.clean_labels is not None
        np.testing.assert_array_equal(split.clean_labels, np.roll(labels, 1)[split.rows])


def test_the_default_share_is_larger_for_small_data() -> None:
    rest, held = hold_out(made(np.repeat(np.arange(10), 6000), 10), default_share(60_000), np.random.default_rng(0))
    assert (len(rest), len(held)) == (54_000, 6_000)
    assert (np.bincount(held.labels) == 600).all()
    assert default_share(4_000) == 500 / 4_000
    assert default_share(100) == 0.2


def test_hold_out_depends_on_the_generator_only() -> None:
    data = made(np.repeat([0, 1, 2], 50))
    first, again, other = (hold_out(data, 0.3, np.random.default_rng(seed))[1].rows for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_class_with_one_sample_is_on_one_side() -> None:
    rest, held = hold_out(made([0] * 10 + [1] * 10 + [2]), 0.2, np.random.default_rng(0))
    assert (rest.labels == 2).sum() + (held.labels == 2).sum() == 1


def test_shares_outside_0_and_1_are_refused() -> None:
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(InvalidInput, match="`share` must lie strictly between 0 and 1, but got"):
            hold_out(made([0, 1, 2] * 4), share, np.random.default_rng(0))


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"`batch_size` must not exceed .* but got 4 for 3; pass a smaller"):
        check_trainable(made([0, 1, 2]), batch_size=4)
    check_trainable(made([0, 1, 2]), batch_size=3)


def test_a_class_without_samples_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="but 1 of 3 has none: b; remove the empty classes"):
        check_trainable(made([0, 2, 2]), batch_size=1)
    with pytest.raises(InvalidInput, match="but 9 of 10 have none: b, c, d, e, f, …; remove"):
        check_trainable(made([0, 0], classes=10), batch_size=1)


def test_all_problems_of_training_data_are_reported_together() -> None:
    with pytest.raises(InvalidInput, match=r"`batch_size` must not exceed.*every class must have"):
        check_trainable(made([0, 2, 2]), batch_size=128)
