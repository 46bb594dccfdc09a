"""Preparing data: which labels receive noise, which samples are held out, what is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from s2e.data.loading import load
from s2e.data.preparing import Prepared, check_preparation, corrupt_and_split, prepare
from s2e.data.samples import LabelledData, fingerprint
from s2e.data.table_encoding import TableEncoder
from s2e.errors import InvalidInput
from s2e.specs import DataSpec
from small_tasks import blobs

RATE = 0.45
NOISE = f"pair:{RATE}"
DIGITS = DataSpec("digits")
CLEAN, NOISY = replace(DIGITS, validation="clean"), replace(DIGITS, validation="noisy")


def share_wrong(data: LabelledData) -> float:
    assert data.clean_labels is not None
    return float(np.mean(data.labels != data.clean_labels))


def save(path: Path, **arrays: object) -> str:
    np.savez(path, **arrays)
    return str(path)


def named(data: LabelledData, labels: np.ndarray | None = None) -> np.ndarray:
    """Return labels as class names."""
    return np.array(data.class_names)[data.labels if labels is None else labels]


def true_digits(data: LabelledData) -> np.ndarray:
    """Return the labels in scikit-learn of these rows."""
    return load_digits().target[data.rows]


def fingerprint_of(data: Prepared) -> str:
    return fingerprint(data.splits.train, data.splits.valid)


def prepared(spec: DataSpec, noise: str = "none", seed: int = 0) -> Prepared:
    return prepare(spec, noise, seed, Path("data"))


def drawn(spec: DataSpec, noise: str, draw: int, seed: int = 0) -> Prepared:
    return corrupt_and_split(load(spec.data), spec, noise, seed, Path("data"), draw=draw)


@pytest.fixture
def arrays(tmp_path: Path) -> dict[str, object]:
    """Return noisy training samples without true labels."""
    data = blobs()
    return {"x_train": data.inputs, "y_train": named(data)}


@pytest.fixture
def noisy_file(tmp_path: Path, arrays: dict[str, object]) -> str:
    return save(tmp_path / "noisy.npz", **arrays)


# Clean and noisy validation


@pytest.mark.parametrize("noise", [NOISE, "symmetric:0.45", "instance:0.45"])
def test_clean_validation_is_held_out_before_noise_is_added(noise: str) -> None:
    result = prepared(CLEAN, noise)
    train, valid = result.splits.train, result.splits.valid
    assert result.validation == "clean"
    np.testing.assert_array_equal(valid.labels, true_digits(valid))
    np.testing.assert_array_equal(train.clean_labels, true_digits(train))
    np.testing.assert_array_equal(train.inputs[:, 0], load_digits().images[train.rows] / 16)
    assert share_wrong(train) == pytest.approx(RATE, abs=0.05)


def test_noisy_validation_is_held_out_of_the_noisy_samples() -> None:
    result = prepared(NOISY, NOISE)
    assert result.validation == "noisy"
    assert share_wrong(result.splits.valid) == pytest.approx(RATE, abs=0.09)
    assert share_wrong(result.splits.train) == pytest.approx(RATE, abs=0.04)


@pytest.mark.parametrize("spec", [CLEAN, NOISY], ids=["clean", "noisy"])
def test_the_split_is_a_partition_and_test_samples_are_unchanged(spec: DataSpec) -> None:
    splits, source = prepared(spec, NOISE).splits, load("digits")
    rows = np.concatenate([splits.train.rows, splits.valid.rows])
    np.testing.assert_array_equal(np.sort(rows), source.train.rows)
    assert splits.test is not None
    assert source.test is not None
    np.testing.assert_array_equal(splits.test.inputs, source.test.inputs)
    np.testing.assert_array_equal(splits.test.labels, source.test.labels)


def test_without_noise_labels_are_unchanged() -> None:
    splits = prepared(NOISY).splits
    np.testing.assert_array_equal(splits.train.labels, true_digits(splits.train))
    assert splits.train.clean_labels is None


# Automatic choice of validation


def test_auto_is_clean_if_noise_is_added_and_noisy_if_clean_labels_are_unknown(noisy_file: str) -> None:
    assert prepared(DIGITS, NOISE).validation == "clean"
    result = prepared(DataSpec(noisy_file))
    assert (result.validation, result.noise_rate, result.splits.test) == ("noisy", None, None)


@pytest.mark.parametrize("noise", ["none", "symmetric:0.4"])
def test_auto_uses_the_validation_samples_of_a_file(tmp_path: Path, arrays: dict[str, object], noise: str) -> None:
    valid = blobs(96, wrong=0.0, seed=1)
    file = save(tmp_path / "noisy.npz", **arrays, x_valid=valid.inputs, y_valid=named(valid))
    result = prepared(DataSpec(file), noise)
    assert result.validation == "clean"
    expected = TableEncoder.fit(TableEncoder.frame(arrays["x_train"])).encode(TableEncoder.frame(valid.inputs))
    np.testing.assert_array_equal(result.splits.valid.inputs, expected)
    np.testing.assert_array_equal(result.splits.valid.labels, valid.labels)
    assert len(result.splits.train) == 192
    assert result.noise_rate == (None if noise == "none" else pytest.approx(0.4, abs=0.1))


def test_clean_labels_of_a_file_are_used_for_clean_validation_only(tmp_path: Path, arrays: dict[str, object]) -> None:
    truth = blobs()
    file = save(tmp_path / "noisy.npz", **arrays, y_train_clean=named(truth, truth.clean_labels))
    result = prepared(DataSpec(file))
    splits = result.splits
    assert result.validation == "clean"
    np.testing.assert_array_equal(splits.valid.labels, truth.clean_labels[splits.valid.rows])
    np.testing.assert_array_equal(splits.train.labels, truth.labels[splits.train.rows])
    assert result.noise_rate == share_wrong(splits.train) == pytest.approx(0.3, abs=0.1)
    valid = prepared(DataSpec(file, validation="noisy")).splits.valid
    np.testing.assert_array_equal(valid.labels, truth.labels[valid.rows])


def test_clean_validation_needs_clean_labels(noisy_file: str) -> None:
    with pytest.raises(InvalidInput, match=r"needs clean labels.*pass an \.npz file of clean samples, or noisy"):
        prepared(DataSpec(noisy_file, validation="clean"))


# Validation from a file


def test_classes_of_a_validation_file_are_matched_by_name(tmp_path: Path) -> None:
    data, valid = blobs(), blobs(96, wrong=0.0, seed=1)
    names = np.array(["d", "b", "a", "c"])
    train = save(tmp_path / "noisy.npz", x_train=data.inputs, y_train=data.labels, class_names=names)
    shown = valid.take(np.flatnonzero(np.isin(valid.labels, [1, 3])))  # b and c, labels 0 and 1 in their file
    for samples in (valid, shown):
        given = save(tmp_path / "valid.npz", X=samples.inputs, y=names[samples.labels])
        result = prepared(DataSpec(train, validation=given))
        assert result.validation == "clean"
        assert result.splits.valid.class_names == tuple(names)
        np.testing.assert_array_equal(result.splits.valid.labels, samples.labels)
        assert len(result.splits.train) == 192


def test_validation_files_of_other_data_are_refused(tmp_path: Path, noisy_file: str) -> None:
    for other, message in (
        (blobs(96, features=5), "rows must have 6 columns, as in training, but got 5"),
        (blobs(96, classes=5), r"classes of the training data.*a, b, c, d, e"),
    ):
        given = save(tmp_path / "valid.npz", X=other.inputs, y=named(other))
        with pytest.raises(InvalidInput, match=message):
            prepared(DataSpec(noisy_file, validation=given))


def test_validation_of_a_table_may_be_another_table(tmp_path: Path) -> None:
    rows = [f"{row % 7},{'red' if row % 2 else 'blue'},{'ab'[row % 2]}" for row in range(40)]
    (tmp_path / "noisy.csv").write_text("\n".join(["size,colour,kind", *rows]))
    (tmp_path / "trusted.csv").write_text("kind,colour,size\nb,red,3\na,blue,2\n")
    spec = DataSpec(str(tmp_path / "noisy.csv"), validation=str(tmp_path / "trusted.csv"), label="kind")
    result = prepared(spec)
    assert result.validation == "clean"
    assert result.splits.valid.labels.tolist() == [1, 0]
    assert len(result.splits.train) == 40
    np.testing.assert_array_equal(result.splits.valid.inputs, result.splits.train.inputs[[3, 2]])
    (tmp_path / "trusted.csv").write_text("kind,colour,size\nc,red,3\n")
    with pytest.raises(InvalidInput, match="only classes of the training data"):
        prepared(spec)


# Refused before loading


@pytest.mark.parametrize(
    ("spec", "noises", "message"),
    [
        (DataSpec(""), ["none"], "`data` must be given"),
        (DIGITS, [], "`noise` must name each noise setting once, but got none"),
        (DIGITS, ["pair:0.4", "pair:0.40"], "`noise` must name each noise setting once"),
        (DIGITS, ["pair:1"], "`rate` must lie in"),
        (replace(DIGITS, validation="nowhere.npz"), ["none"], r"or a file that exists, but got 'nowhere\.npz'"),
    ],
)
def test_invalid_preparations_are_refused_without_data(spec: DataSpec, noises: list[str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_preparation(spec, noises)


def test_other_validations_and_missing_human_labels_are_refused(noisy_file: str) -> None:
    with pytest.raises(InvalidInput, match=r"auto, clean, noisy, an \.npz file"):
        prepared(DataSpec(noisy_file, validation="cleanish"))
    with pytest.raises(InvalidInput, match="No other data set has human labels"):
        prepared(DIGITS, "human:worst")


# Seeds, shares and draws


def test_the_achieved_noise_rate_is_recorded() -> None:
    result = prepared(DIGITS, NOISE)
    assert result.noise_rate == share_wrong(result.splits.train) != RATE


def test_the_fingerprint_depends_on_seed_noise_and_split() -> None:
    base = fingerprint_of(prepared(DIGITS, NOISE))
    assert fingerprint_of(prepared(DIGITS, NOISE)) == base
    others = [
        prepared(DIGITS, NOISE, seed=1),
        prepared(DIGITS, "pair:0.44"),
        prepared(NOISY, NOISE),
        prepared(replace(DIGITS, validation_share=0.1), NOISE),
    ]
    assert len({base, *map(fingerprint_of, others)}) == 1 + len(others)


def test_the_share_held_out_is_a_fifth_of_small_data_or_as_given() -> None:
    samples = len(load("digits").train)
    assert len(prepared(DIGITS, NOISE).splits.valid) == pytest.approx(0.2 * samples, abs=10)
    valid = prepared(replace(DIGITS, validation_share=0.3), NOISE).splits.valid
    assert len(valid) == pytest.approx(0.3 * samples, abs=10)


def test_noise_is_independent_of_the_split() -> None:
    labels = []
    for share in (0.1, 0.3):
        splits = prepared(replace(NOISY, validation_share=share), NOISE).splits
        both = (splits.train, splits.valid)
        labels.append({row: label for data in both for row, label in zip(data.rows, data.labels, strict=True)})
    assert labels[0] == labels[1]


@pytest.mark.parametrize("noise", [NOISE, "instance:0.3"])
def test_draws_differ_in_noise_only_if_validation_is_clean(noise: str) -> None:
    draws = [drawn(DIGITS, noise, draw) for draw in range(3)]
    assert fingerprint_of(draws[0]) == fingerprint_of(prepared(DIGITS, noise))
    assert len({result.splits.train.labels.tobytes() for result in draws}) == 3
    for result in draws:
        assert result.validation == "clean"
        for name in ("rows", "inputs", "clean_labels"):
            np.testing.assert_array_equal(getattr(result.splits.train, name), getattr(draws[0].splits.train, name))
        for name in ("rows", "inputs", "labels"):
            np.testing.assert_array_equal(getattr(result.splits.valid, name), getattr(draws[0].splits.valid, name))
        assert result.noise_rate == share_wrong(result.splits.train)


def test_draws_and_seeds_are_independent() -> None:
    wrong = []
    for seed in (0, 1):
        for draw in range(3):
            splits = drawn(NOISY, NOISE, draw, seed).splits
            flipped = np.full(len(load_digits().target), np.nan)
            for data in (splits.train, splits.valid):
                flipped[data.rows] = data.labels != data.clean_labels
            wrong.append(flipped[~np.isnan(flipped)])
    correlation = np.corrcoef(wrong) - np.eye(len(wrong))
    assert np.abs(correlation).max() < 0.12  # 1 for equal draws, about 0.03 for independent ones


def test_draws_without_noise_are_equal(noisy_file: str) -> None:
    assert len({fingerprint_of(drawn(DataSpec(noisy_file), "none", draw)) for draw in range(2)}) == 1
