"""Label noise: matrices, rates, instance dependence, and parsing of text and files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, stats

from s2e.data import noise
from s2e.data.samples import LabelledData
from s2e.errors import InvalidInput, UnreadableData

Labels = NDArray[np.int64]
LOPSIDED = [[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def some_data(count: int = 20_000, classes: int = 10, seed: int = 0) -> LabelledData:
    """Return samples of unequal classes with random bytes as inputs."""
    generator = rng(seed)
    shares = np.arange(1, classes + 1) / (classes * (classes + 1) / 2)
    return LabelledData(
        inputs=generator.integers(0, 256, (count, 3, 4), dtype=np.uint8),
        labels=generator.choice(classes, count, p=shares),
        class_names=tuple(f"class {i}" for i in range(classes)),
    )


def test_matrices_of_three_classes_by_hand() -> None:
    np.testing.assert_allclose(noise.symmetric(3, 0.4), [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
    np.testing.assert_allclose(noise.uniform(3, 0.6), [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
    np.testing.assert_allclose(noise.pair(3, 0.45), [[0.55, 0.45, 0], [0, 0.55, 0.45], [0.45, 0, 0.55]])
    for make in (noise.symmetric, noise.uniform, noise.pair):
        np.testing.assert_array_equal(make(5, 0.0), np.eye(5))


@settings(deadline=None, max_examples=40)
@given(kind=st.sampled_from(["symmetric", "uniform", "pair"]), classes=st.integers(2, 30), rate=st.floats(0, 0.999))
def test_matrices_are_row_stochastic(kind: str, classes: int, rate: float) -> None:
    matrix = noise.transition_matrix(noise.NoiseSpec(kind, rate), classes)
    assert matrix.shape == (classes, classes)
    assert matrix.min() >= 0
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)


def test_uniform_noise_includes_the_true_class() -> None:
    np.testing.assert_allclose(np.diagonal(noise.symmetric(10, 0.5)), 0.5)
    np.testing.assert_allclose(np.diagonal(noise.uniform(10, 0.5)), 1 - 0.5 * 9 / 10)
    np.testing.assert_allclose(noise.uniform(10, 0.5), noise.symmetric(10, 0.45))


@pytest.mark.parametrize("rate", [-0.1, 1.0, math.nan])
def test_invalid_rates_and_sizes_are_refused(rate: float) -> None:
    for make in (noise.symmetric, noise.uniform, noise.pair):
        with pytest.raises(InvalidInput, match=r"`rate` must lie in \[0, 1\), but got"):
            make(4, rate)
        with pytest.raises(InvalidInput, match="`classes` must be at least 2"):
            make(1, 0.2)
    with pytest.raises(InvalidInput, match="`rate` must lie in"):
        noise.corrupt_by_instance(np.zeros((2, 3)), np.array([0, 1]), 2, rate, rng())
    with pytest.raises(InvalidInput, match="each of the 3 inputs, but got 2"):
        noise.corrupt_by_instance(np.zeros((3, 2)), np.array([0, 1]), 2, 0.1, rng())


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[1.0]], "at least two classes"),
        ([[0.5, 0.5]], "must be square"),
        ([[1.5, -0.5], [0, 1]], "negative or non-finite"),
        ([[0.5, 0.5], [0.5, 0.4]], "row 1 sums to 0.9"),
        ([[10**400, 0], [0, 1]], "C rows of C numbers"),
        (np.eye(3), r"`matrix` must be 2 × 2 for these data, but got 3 × 3\."),
    ],
)
def test_other_matrices_are_refused(matrix: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        noise.check_transition_matrix(matrix, 2)  # type: ignore[arg-type]


def test_rows_are_rescaled_in_a_copy() -> None:
    given_matrix = np.array([[0.3333, 0.3333, 0.3333], [0, 1, 0], [0, 0, 1]])
    checked = noise.check_transition_matrix(given_matrix)
    np.testing.assert_allclose(checked.sum(axis=1), 1, rtol=1e-15)
    checked[0, 0] = 0
    assert given_matrix[0, 0] == 0.3333


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (noise.NoiseSpec("symmetric", 0.5), 0.5),
        (noise.NoiseSpec("uniform", 0.5), 0.45),
        (noise.NoiseSpec("instance", 0.05), 0.05),
        (noise.NoiseSpec("instance", 0.95), 0.95),
        (noise.NoiseSpec("asymmetric", source="made up", matrix=tuple(map(tuple, noise.pair(10, 0.3).tolist()))), 0.3),
    ],
    ids=str,
)
def test_the_achieved_rate_is_the_rate_of_the_noise(spec: noise.NoiseSpec, expected: float) -> None:
    data = some_data()
    noisy = noise.apply_noise(spec, data, rng(1))
    achieved = noise.achieved_rate(noisy)
    assert achieved is not None
    assert abs(achieved - expected) < 4 * math.sqrt(expected * (1 - expected) / len(data))


@pytest.mark.parametrize("matrix", [noise.symmetric(5, 0.4), np.full((5, 5), 0.2)])
def test_labels_follow_the_row_of_their_class(matrix: NDArray[np.float64]) -> None:
    labels = np.repeat(np.arange(5), 8000)
    noisy = noise.corrupt(labels, matrix, rng(2))
    for label in range(5):
        counts = np.bincount(noisy[labels == label], minlength=5)
        assert stats.chisquare(counts, matrix[label] * 8000).pvalue > 1e-3


def test_labels_of_probability_zero_never_occur() -> None:
    labels = np.repeat(np.arange(3), 20_000)
    assert set((noise.corrupt(labels, noise.pair(3, 0.45), rng(4)) - labels) % 3) == {0, 1}
    noisy = noise.corrupt(labels, LOPSIDED, rng(3))
    assert set(noisy[labels == 0]) == {0, 1}
    assert set(noisy[labels == 1]) == {1}
    assert set(noisy[labels == 2]) == {0, 1, 2}


def test_a_permutation_matrix_is_deterministic() -> None:
    labels = np.array([0, 1, 2, 2, 0])
    np.testing.assert_array_equal(noise.corrupt(labels, np.eye(3)[[2, 0, 1]], rng()), [2, 0, 1, 1, 2])
    smallest = Mock(random=np.zeros)  # a draw of exactly 0 must not choose an impossible first class
    np.testing.assert_array_equal(noise.corrupt(labels, np.eye(3), smallest), labels)


@pytest.mark.parametrize("text", ["symmetric:0.3", "instance:0.3"])
def test_labels_depend_on_the_seed_only(text: str) -> None:
    data, spec = some_data(2000), noise.parse_noise(text)
    first, again, other = (noise.apply_noise(spec, data, rng(seed)).labels for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert first.dtype == np.int64


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([0, 3]), r"`labels` must lie in 0\.\.2, but got 0\.\.3"),
        (np.zeros((2, 2)), "integers"),
    ],
)
def test_invalid_labels_are_refused(labels: Labels, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        noise.corrupt(labels, noise.pair(3, 0.2), rng())


def test_clean_labels_are_kept() -> None:
    data = some_data(500)
    before = data.labels.copy()
    noisy = noise.apply_noise(noise.NoiseSpec("symmetric", 0.5), data, rng())
    np.testing.assert_array_equal(noisy.clean_labels, before)
    np.testing.assert_array_equal(data.labels, before)
    assert noise.achieved_rate(data) is None
    assert noise.apply_noise(noise.NoiseSpec("none"), data, rng()) is data


def test_noise_replaces_earlier_noise() -> None:
    data = some_data()
    once = noise.apply_noise(noise.NoiseSpec("pair", 0.4), data, rng(1))
    twice = noise.apply_noise(noise.NoiseSpec("pair", 0.4), once, rng(2))
    assert set((twice.labels - data.labels) % 10) == {0, 1}
    assert noise.achieved_rate(twice) == pytest.approx(0.4, abs=0.02)


def test_human_labels_and_matrices_of_wrong_size_are_refused() -> None:
    spec = noise.parse_noise("human:worst")
    with pytest.raises(InvalidInput, match="human:worst; use `human_labels`"):
        noise.apply_noise(spec, some_data(50), rng())
    with pytest.raises(InvalidInput, match="transition matrix"):
        noise.transition_matrix(spec, 2)
    spec = noise.NoiseSpec("asymmetric", source="m.npy", matrix=tuple(map(tuple, LOPSIDED)))
    with pytest.raises(InvalidInput, match=r"must be 10 × 10 for these data, but got 3 × 3"):
        noise.apply_noise(spec, some_data(50), rng())


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5])
def test_the_mean_of_the_truncated_normal_is_the_rate(rate: float) -> None:
    centre = noise.truncated_centre(rate)
    oracle = stats.truncnorm(-centre / 0.1, (1 - centre) / 0.1, loc=centre, scale=0.1)
    assert oracle.mean() == pytest.approx(rate, rel=1e-4 if rate == 0.001 else 1e-8)  # scipy is inaccurate in the tail
    x = np.linspace(0, 1, 200_001)
    weight = np.exp(-x * (x - 2 * centre) / 0.02)  # the density without a factor of exp(−5000)
    assert integrate.simpson(x * weight, x=x) / integrate.simpson(weight, x=x) == pytest.approx(rate, rel=1e-8)


@pytest.mark.parametrize("rate", [0.002, 0.5, 0.97])
def test_flip_probabilities_follow_the_truncated_normal(rate: float) -> None:
    draws = noise.flip_probabilities(20_000, rate, rng(6))
    centre = noise.truncated_centre(min(rate, 1 - rate))
    oracle = stats.truncnorm(-centre / 0.1, (1 - centre) / 0.1, loc=centre, scale=0.1)
    assert stats.kstest(draws if rate <= 0.5 else 1 - draws, oracle.cdf).pvalue > 1e-3
    assert ((draws >= 0) & (draws <= 1)).all()
    assert abs(draws.mean() - rate) < 4 * oracle.std() / math.sqrt(20_000)


@pytest.mark.parametrize("rate", [0.0, 9e-4, 1 - 1e-6])
def test_flip_probabilities_of_extreme_rates_are_constant(rate: float) -> None:
    np.testing.assert_allclose(noise.flip_probabilities(5, rate, rng()), rate, rtol=1e-9)
    noisy = noise.corrupt_by_instance(rng().standard_normal((400, 4)), np.zeros(400, dtype=np.int64), 3, rate, rng(16))
    assert (noisy != 0).sum() == round(400 * rate)


def two_clusters(count: int, scale: float = 1.0, shift: float = 0.0) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return inputs (count, 20) around two distant points, and which are in the second cluster."""
    generator = rng(9)
    centres, second = generator.standard_normal((2, 20)), np.arange(count) % 2 == 1
    inputs = centres[second.astype(int)] + 0.1 * generator.standard_normal((count, 20))
    return (scale * inputs + shift).astype(np.float32), second


def test_wrong_labels_depend_on_the_cluster() -> None:
    inputs, second = two_clusters(8000)
    labels = np.zeros(8000, dtype=np.int64)
    noisy = noise.corrupt_by_instance(inputs, labels, 6, 0.5, rng(10))
    by_matrix = noise.corrupt(labels, noise.symmetric(6, 0.5), rng(10))
    by_instance, by_class = (
        np.array([np.bincount(drawn[cluster & (drawn > 0)], minlength=6)[1:] for cluster in (second, ~second)])
        for drawn in (noisy, by_matrix)
    )
    assert stats.chi2_contingency(by_instance).pvalue < 1e-12
    assert stats.chi2_contingency(by_class).pvalue > 1e-3  # no dependence, no detection


def test_wrong_labels_depend_on_the_true_class() -> None:
    labels = np.repeat([0, 1], 4000)
    noisy = noise.corrupt_by_instance(two_clusters(8000)[0], labels, 8, 0.5, rng(11))
    table = [np.bincount(noisy[(labels == label) & (noisy > 1)], minlength=8)[2:] for label in (0, 1)]
    assert stats.chi2_contingency(np.array(table)).pvalue < 1e-12


@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1e6, 3e6)])
def test_instance_noise_ignores_the_units_of_inputs(scale: float, shift: float) -> None:
    labels = np.zeros(4000, dtype=np.int64)
    plain, rescaled = (
        noise.corrupt_by_instance(two_clusters(4000, *units)[0], labels, 6, 0.4, rng(12))
        for units in ((1.0, 0.0), (scale, shift))
    )
    assert (plain != rescaled).mean() < 0.001  # float32 rounding may break a tie


@pytest.mark.parametrize("size", [1, 500])
def test_wrong_classes_are_neither_uniform_nor_one_hot(size: int) -> None:
    inputs = np.broadcast_to(rng(13).standard_normal((1, size)), (6000, size)).astype(np.float32).copy()
    inputs[3000:] *= -1  # two points
    labels = np.zeros(6000, dtype=np.int64)
    largest = []
    for seed in range(10):
        noisy = noise.corrupt_by_instance(inputs, labels, 10, 0.5, rng(seed))
        counts = np.bincount(noisy[:3000], minlength=10)[1:]
        largest.append(counts.max() / counts.sum())
    assert 0.35 < np.mean(largest) < 0.75  # uniform would be 1/9; 0.55 is expected


def test_constant_features_are_ignored() -> None:
    inputs = np.full((6000, 5), 0.1, dtype=np.float32)
    labels = np.zeros(6000, dtype=np.int64)
    noisy = noise.corrupt_by_instance(inputs, labels, 4, 0.6, rng(14))
    counts = np.bincount(noisy, minlength=4)[1:]
    assert stats.chisquare(counts).pvalue > 1e-3  # uniform: a sample at the mean has no direction
    varied, _ = two_clusters(6000)
    mean, deviation = noise._feature_moments(np.hstack([varied, np.full((6000, 5), 0.1)]))
    np.testing.assert_allclose(mean[:20], varied.mean(axis=0, dtype=np.float64))
    np.testing.assert_allclose(deviation, [*varied.std(axis=0, dtype=np.float64), *[np.inf] * 5])


def test_chunks_give_the_same_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    data = some_data(3000)
    whole = noise.corrupt_by_instance(data.inputs, data.labels, 10, 0.4, rng(15))
    monkeypatch.setattr(noise, "_CHUNK_NUMBERS", 12 * 7)  # seven samples at a time
    chunked = noise.corrupt_by_instance(data.inputs, data.labels, 10, 0.4, rng(15))
    assert (whole != chunked).mean() < 0.001


@pytest.mark.parametrize(
    ("text", "kind", "rate", "source"),
    [
        ("none", "none", None, None),
        (" uniform:.4 ", "uniform", 0.4, None),
        ("instance:1e-05", "instance", 1e-5, None),
        ("human:worst", "human", None, "worst"),
    ],
)
def test_specs_round_trip(text: str, kind: str, rate: float | None, source: str | None) -> None:
    spec = noise.parse_noise(text)
    assert (spec.kind, spec.rate, spec.source) == (kind, rate, source)
    assert noise.parse_noise(str(spec)) == spec
    assert hash(noise.parse_noise(str(spec))) == hash(spec)


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".json"])
def test_matrix_files_round_trip(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"matrix{suffix}"
    file.write_text(json.dumps(LOPSIDED))
    if suffix == ".npy":
        np.save(file, np.array(LOPSIDED))
    if suffix == ".csv":
        file.write_text("\n".join(", ".join(map(str, row)) for row in LOPSIDED) + "\n\n", encoding="utf-8-sig")
    spec = noise.parse_noise(f"asymmetric:{file}")
    assert spec.rate is None
    np.testing.assert_allclose(noise.transition_matrix(spec, 3), LOPSIDED)
    assert str(spec) == f"asymmetric:{file}"
    assert noise.parse_noise(str(spec)) == spec


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.npy", b""),
        ("m.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8', "),
        ("m.npy", b"\x93NUMPY\x01\x00\x0e\x00{'descr': '<f8"),
        ("m.csv", b"a,b\n1,0\n"),
        ("m.json", b"[[1, 0], [0"),
    ],
)
def test_damaged_matrix_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableData, match="noise matrix") as caught:
        noise.parse_noise(f"asymmetric:{tmp_path / name}")
    assert "\n" not in str(caught.value)


def test_missing_files_pickles_and_other_suffixes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.npy"
    with pytest.raises(UnreadableData, match="does not exist"):
        noise.parse_noise(f"asymmetric:{file}")
    np.save(file, np.array([[{}, {}], [{}, {}]], dtype=object), allow_pickle=True)
    with pytest.raises(UnreadableData, match="noise matrix"):
        noise.parse_noise(f"asymmetric:{file}")
    with pytest.raises(InvalidInput, match=r"\.npy, \.csv or \.json"):
        noise.parse_noise("asymmetric:matrix.txt")


def test_files_of_other_matrices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("1,0\n1,1\n")
    with pytest.raises(InvalidInput, match="row 1 sums to 2"):
        noise.parse_noise(f"asymmetric:{tmp_path / 'm.csv'}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("symetric:0.4", "`noise` must be one of symmetric:RATE.*but got 'symetric'"),
        ("symmetric", "must be written as symmetric:RATE, but got 'symmetric'"),
        ("symmetric:40%", "must be written as symmetric:RATE, as in symmetric:0.4, but got"),
        ("pair:45", r"`rate` must lie in \[0, 1\), but got 45"),
        ("human", "must be written as human:KIND"),
    ],
)
def test_invalid_text_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        noise.parse_noise(text)
    assert "\n" not in str(caught.value)


def test_invalid_specs_are_refused() -> None:
    for kind, rate in (("cosmic", 0.1), ("none", 0.1), ("symmetric", None), ("symmetric", 1.0), ("asymmetric", None)):
        with pytest.raises(InvalidInput, match="must"):
            noise.NoiseSpec(kind, rate)
