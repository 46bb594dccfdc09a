"""From a name or a file to training, validation and test: who gets noise, who is held out, what is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from s2e.data import loading
from s2e.data.preparing import DataOptions, Prepared, corrupt_and_split, prepare
from s2e.data.samples import LabelledData, fingerprint
from s2e.errors import InvalidInput, UnreadableData
from small_tasks import blobs

RATE = 0.45
NOISY_DIGITS = DataOptions("digits", noise=f"pair:{RATE}")


def share_wrong(data: LabelledData) -> float:
    assert data.clean_labels is not None
    return float(np.mean(data.labels != data.clean_labels))


def save(path: Path, **arrays: object) -> str:
    np.savez(path, **arrays)
    return str(path)


def named(data: LabelledData, labels: np.ndarray | None = None) -> np.ndarray:
    """Labels as the names of their classes."""
    return np.array(data.class_names)[data.labels if labels is None else labels]


def true_digits(data: LabelledData) -> np.ndarray:
    """Labels that scikit-learn gives to the digits at these rows."""
    return load_digits().target[data.rows]


def print_of(made: Prepared) -> str:
    return fingerprint(made.splits.train, made.splits.valid)


def prepared(options: DataOptions) -> Prepared:
    return prepare(options, Path("data"))


@pytest.fixture
def own(tmp_path: Path) -> dict[str, object]:
    """A file's training samples, noisy, without the truth."""
    data = blobs()
    return {"x_train": data.inputs, "y_train": named(data)}


@pytest.fixture
def own_file(tmp_path: Path, own: dict[str, object]) -> str:
    return save(tmp_path / "own.npz", **own)


# Clean and noisy validation


def test_clean_validation_is_held_out_before_noise_is_added() -> None:
    result = prepared(replace(NOISY_DIGITS, validation="clean"))
    train, valid = result.splits.train, result.splits.valid
    assert result.validation == "clean"
    np.testing.assert_array_equal(valid.labels, true_digits(valid))
    np.testing.assert_array_equal(train.clean_labels, true_digits(train))
    assert share_wrong(train) == pytest.approx(RATE, abs=0.04)


def test_noisy_validation_is_held_out_of_the_noisy_samples() -> None:
    result = prepared(replace(NOISY_DIGITS, validation="noisy"))
    assert result.validation == "noisy"
    assert share_wrong(result.splits.valid) == pytest.approx(RATE, abs=0.09)
    assert share_wrong(result.splits.train) == pytest.approx(RATE, abs=0.04)


@pytest.mark.parametrize("validation", ["clean", "noisy"])
def test_training_and_validation_part_the_samples_between_them(validation: str) -> None:
    splits = prepared(replace(NOISY_DIGITS, validation=validation)).splits
    rows = np.concatenate([splits.train.rows, splits.valid.rows])
    np.testing.assert_array_equal(np.sort(rows), loading.load("digits").train.rows)


@pytest.mark.parametrize("noise", ["symmetric:0.3", "uniform:0.3", "pair:0.3", "instance:0.3"])
def test_every_kind_of_noise_leaves_clean_validation_right_and_the_inputs_alone(noise: str) -> None:
    splits = prepared(DataOptions("digits", noise=noise)).splits
    np.testing.assert_array_equal(splits.valid.labels, true_digits(splits.valid))
    np.testing.assert_array_equal(splits.train.inputs[:, 0], load_digits().images[splits.train.rows] / 16)
    assert share_wrong(splits.train) > 0.2


def test_without_noise_labels_stay_as_they_are() -> None:
    splits = prepared(DataOptions("digits", validation="noisy")).splits
    np.testing.assert_array_equal(splits.train.labels, true_digits(splits.train))
    assert splits.train.clean_labels is None


# What "auto" chooses


def test_auto_is_clean_where_noise_is_added() -> None:
    assert prepared(NOISY_DIGITS).validation == "clean"


def test_auto_is_noisy_where_nobody_knows_the_truth(own_file: str) -> None:
    result = prepared(DataOptions(own_file))
    assert result.validation == "noisy"
    assert result.noise_rate is None
    assert prepared(DataOptions("digits")).validation == "noisy"


def test_auto_takes_the_validation_part_of_a_file(tmp_path: Path, own: dict[str, object]) -> None:
    valid = blobs(96, wrong=0.0, seed=1)
    file = save(tmp_path / "own.npz", **own, x_valid=valid.inputs, y_valid=named(valid))
    result = prepared(DataOptions(file))
    assert result.validation == "clean"
    np.testing.assert_array_equal(result.splits.valid.inputs, valid.inputs)
    np.testing.assert_array_equal(result.splits.valid.labels, valid.labels)
    assert len(result.splits.train) == 192


def test_auto_is_clean_where_a_file_brings_clean_labels(tmp_path: Path, own: dict[str, object]) -> None:
    truth = blobs()
    file = save(tmp_path / "own.npz", **own, y_train_clean=named(truth, truth.clean_labels))
    result = prepared(DataOptions(file))
    splits = result.splits
    assert result.validation == "clean"
    np.testing.assert_array_equal(splits.valid.labels, truth.clean_labels[splits.valid.rows])
    np.testing.assert_array_equal(splits.train.labels, truth.labels[splits.train.rows])
    assert result.noise_rate == share_wrong(splits.train) == pytest.approx(0.3, abs=0.1)


def test_noise_on_a_file_with_a_validation_part_spoils_only_training(tmp_path: Path, own: dict[str, object]) -> None:
    valid = blobs(96, wrong=0.0, seed=1)
    file = save(tmp_path / "own.npz", **own, x_valid=valid.inputs, y_valid=named(valid))
    result = prepared(DataOptions(file, noise="symmetric:0.4"))
    assert result.noise_rate == pytest.approx(0.4, abs=0.1)
    np.testing.assert_array_equal(result.splits.valid.labels, valid.labels)


def test_noisy_validation_of_a_file_with_clean_labels_holds_the_given_ones(
    tmp_path: Path, own: dict[str, object]
) -> None:
    truth = blobs()
    file = save(tmp_path / "own.npz", **own, y_train_clean=named(truth, truth.clean_labels))
    valid = prepared(DataOptions(file, validation="noisy")).splits.valid
    np.testing.assert_array_equal(valid.labels, truth.labels[valid.rows])


def test_clean_without_clean_labels_is_refused_with_a_hint(own_file: str) -> None:
    with pytest.raises(InvalidInput, match=r"needs clean labels.*give a \.npz file of clean samples instead, or use"):
        prepared(DataOptions(own_file, validation="clean"))


# Validation from a file


def test_validation_from_a_file_maps_its_classes_onto_those_of_training(tmp_path: Path, own_file: str) -> None:
    valid = blobs(96, wrong=0.0, seed=1)
    shown = valid.take(np.flatnonzero(np.isin(valid.labels, [1, 3])))  # b and d alone: 0 and 1 in their own file
    given = save(tmp_path / "valid.npz", X=shown.inputs, y=named(shown))
    result = prepared(DataOptions(own_file, validation=given))
    assert result.validation == "clean"
    assert result.splits.valid.class_names == ("a", "b", "c", "d")
    np.testing.assert_array_equal(result.splits.valid.labels, shown.labels)
    assert len(result.splits.train) == 192


def test_validation_from_a_file_keeps_the_order_of_class_names_straight(tmp_path: Path, own: dict[str, object]) -> None:
    data, valid = blobs(), blobs(96, wrong=0.0, seed=1)
    train = save(tmp_path / "own.npz", x_train=data.inputs, y_train=data.labels, class_names=["d", "b", "a", "c"])
    given = save(tmp_path / "valid.npz", X=valid.inputs, y=np.array(["d", "b", "a", "c"])[valid.labels])
    np.testing.assert_array_equal(
        prepared(DataOptions(train, validation=given)).splits.valid.labels, valid.labels
    )  # whose file sorts its classes a, b, c, d


def test_validation_from_a_file_of_another_shape_is_refused(tmp_path: Path, own_file: str) -> None:
    other = blobs(96, features=5)
    given = save(tmp_path / "valid.npz", X=other.inputs, y=named(other))
    with pytest.raises(InvalidInput, match=r"`validation` must hold samples of float32 of shape \(6,\).*\(5,\)"):
        prepared(DataOptions(own_file, validation=given))


def test_validation_from_a_file_with_unknown_classes_is_refused(tmp_path: Path, own_file: str) -> None:
    other = blobs(96, classes=5)
    given = save(tmp_path / "valid.npz", X=other.inputs, y=named(other))
    with pytest.raises(InvalidInput, match=r"classes of the training data.*a, b, c, d, e"):
        prepared(DataOptions(own_file, validation=given))


def test_a_missing_validation_file_is_refused(own_file: str) -> None:
    with pytest.raises(UnreadableData, match=r"nowhere\.npz"):
        prepared(DataOptions(own_file, validation="nowhere.npz"))


def test_an_unknown_kind_of_validation_is_refused(own_file: str) -> None:
    with pytest.raises(InvalidInput, match=r"auto, clean, noisy, a \.npz file"):
        prepared(DataOptions(own_file, validation="cleanish"))


# What is recorded


def test_the_achieved_noise_rate_is_recorded_and_not_the_one_asked_for() -> None:
    result = prepared(NOISY_DIGITS)
    assert result.noise_rate == share_wrong(result.splits.train)
    assert result.noise_rate != RATE


def test_the_same_seed_gives_the_same_data_and_another_seed_others() -> None:
    prints = [print_of(prepared(replace(NOISY_DIGITS, seed=seed))) for seed in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]


def test_the_fingerprint_tells_noise_and_split_apart() -> None:
    several = [
        NOISY_DIGITS,
        replace(NOISY_DIGITS, noise="pair:0.44"),
        replace(NOISY_DIGITS, validation="noisy"),
        replace(NOISY_DIGITS, validation_share=0.1),
    ]
    assert len({print_of(prepared(options)) for options in several}) == len(several)


def test_the_noise_does_not_depend_on_how_much_is_held_out_of_noisy_data() -> None:
    """Noise and split are drawn from streams of their own."""
    labels = []
    for share in (0.1, 0.3):
        splits = prepared(replace(NOISY_DIGITS, validation="noisy", validation_share=share)).splits
        labels.append(
            {
                row: label
                for part in (splits.train, splits.valid)
                for row, label in zip(part.rows, part.labels, strict=True)
            }
        )
    assert labels[0] == labels[1]


@pytest.mark.parametrize("validation", ["clean", "noisy"])
def test_the_test_part_is_left_untouched(validation: str) -> None:
    test = prepared(replace(NOISY_DIGITS, validation=validation)).splits.test
    truth = loading.load("digits").test
    assert test is not None
    assert truth is not None
    np.testing.assert_array_equal(test.inputs, truth.inputs)
    np.testing.assert_array_equal(test.labels, truth.labels)


def test_a_file_without_a_test_part_has_none(own_file: str) -> None:
    assert prepared(DataOptions(own_file)).splits.test is None


# Several draws of the same noise


def drawn(options: DataOptions, draw: int) -> Prepared:
    return corrupt_and_split(loading.load(options.data), options, Path("data"), draw=draw)


@pytest.mark.parametrize("validation", ["clean", "noisy"])
@pytest.mark.parametrize("noise", ["symmetric:0.3", "pair:0.45", "instance:0.3"])
def test_the_first_draw_is_the_noise_of_a_single_run(noise: str, validation: str) -> None:
    options = DataOptions("digits", noise, validation)
    first, single = drawn(options, 0), prepared(options)
    assert print_of(first) == print_of(single)
    assert first.noise_rate == single.noise_rate


@pytest.mark.parametrize("noise", ["symmetric:0.3", "pair:0.45", "instance:0.3"])
def test_draws_differ_in_their_noise_and_in_nothing_else_where_validation_is_clean(noise: str) -> None:
    draws = [drawn(DataOptions("digits", noise), draw) for draw in range(4)]
    assert len({made.splits.train.labels.tobytes() for made in draws}) == 4
    for made in draws:
        assert made.validation == "clean"
        for name in ("rows", "inputs", "clean_labels"):
            np.testing.assert_array_equal(getattr(made.splits.train, name), getattr(draws[0].splits.train, name))
        for name in ("rows", "inputs", "labels"):
            np.testing.assert_array_equal(getattr(made.splits.valid, name), getattr(draws[0].splits.valid, name))
        assert made.noise_rate == share_wrong(made.splits.train)


def test_each_draw_has_the_share_of_wrong_labels_that_was_asked_for_and_its_own() -> None:
    rates = [drawn(NOISY_DIGITS, draw).noise_rate for draw in range(4)]
    assert rates == [pytest.approx(RATE, abs=0.05)] * 4
    assert len(set(rates)) == 4


def test_draws_are_independent_of_each_other_and_of_those_of_other_seeds() -> None:
    wrong = []
    for seed in (0, 1):
        for draw in range(3):
            splits = drawn(replace(NOISY_DIGITS, seed=seed, validation="noisy"), draw).splits
            flipped = np.full(len(load_digits().target), np.nan)
            for part in (splits.train, splits.valid):
                flipped[part.rows] = part.labels != part.clean_labels
            wrong.append(flipped[~np.isnan(flipped)])
    agreement = np.corrcoef(wrong) - np.eye(len(wrong))
    assert np.abs(agreement).max() < 0.12  # for the same draw it is 1, for independent ones about 0.03


def test_draws_of_a_validation_file_or_part_share_it(tmp_path: Path, own: dict[str, object]) -> None:
    valid = blobs(96, wrong=0.0, seed=1)
    file = save(tmp_path / "own.npz", **own, x_valid=valid.inputs, y_valid=named(valid))
    one, other = (drawn(DataOptions(file, "pair:0.4"), draw).splits for draw in (0, 1))
    np.testing.assert_array_equal(one.valid.labels, other.valid.labels)
    assert (one.train.labels != other.train.labels).any()


def test_draws_of_labels_as_they_are_given_are_all_the_same(own_file: str) -> None:
    assert len({print_of(drawn(DataOptions(own_file), draw)) for draw in range(3)}) == 1


# The share held out


def test_the_share_held_out_is_a_fifth_of_small_data_and_what_is_asked_for_otherwise() -> None:
    samples = len(loading.load("digits").train)
    assert len(prepared(NOISY_DIGITS).splits.valid) == pytest.approx(0.2 * samples, abs=10)
    assert len(prepared(replace(NOISY_DIGITS, validation_share=0.3)).splits.valid) == pytest.approx(
        0.3 * samples, abs=10
    )


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan")])
@pytest.mark.parametrize("validation", ["clean", "noisy"])
def test_a_share_out_of_range_is_refused(share: float, validation: str) -> None:
    with pytest.raises(InvalidInput, match="strictly between 0 and 1"):
        prepared(replace(NOISY_DIGITS, validation=validation, validation_share=share))


@pytest.mark.parametrize("noise", ["human:worst", "pair:1", "pair:-0.1", "pair:x", "pear:0.4", "pair", "none:0.1"])
def test_noise_that_cannot_be_made_is_refused(noise: str) -> None:
    with pytest.raises(InvalidInput):
        prepared(DataOptions("digits", noise=noise))


def test_validation_of_a_table_may_come_from_another_table(tmp_path: Path) -> None:
    rows = ["size,colour,kind"] + [
        f"{place % 7},{'red' if place % 2 else 'blue'},{'ab'[place % 2]}" for place in range(40)
    ]
    (tmp_path / "doubtful.csv").write_text("\n".join(rows))
    (tmp_path / "trusted.csv").write_text("kind,colour,size\nb,red,3\na,blue,2\n")
    options = DataOptions(str(tmp_path / "doubtful.csv"), validation=str(tmp_path / "trusted.csv"), label="kind")
    made = prepare(options, tmp_path)
    assert made.validation == "clean"
    assert made.splits.valid.labels.tolist() == [1, 0]
    assert len(made.splits.train) == 40, "nothing has to be held out"
    np.testing.assert_array_equal(made.splits.valid.inputs, made.splits.train.inputs[[3, 2]])
    (tmp_path / "trusted.csv").write_text("kind,colour,size\nc,red,3\n")
    with pytest.raises(InvalidInput, match="only classes known from training"):
        prepare(options, tmp_path)
