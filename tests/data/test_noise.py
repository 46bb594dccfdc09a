"""Claims about noisy labels: the matrices, the rates, instance dependence, and what is read from text and files."""

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
    """Samples of unequal classes with random bytes for inputs."""
    generator = rng(seed)
    shares = np.arange(1, classes + 1) / (classes * (classes + 1) / 2)
    return LabelledData(
        inputs=generator.integers(0, 256, (count, 3, 4), dtype=np.uint8),
        labels=generator.choice(classes, count, p=shares),
        class_names=tuple(f"class {i}" for i in range(classes)),
    )


def test_matrices_match_three_classes_worked_by_hand() -> None:
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


def test_the_two_symmetric_conventions_differ_by_the_share_of_the_true_class() -> None:
    labels = np.arange(10)
    assert noise.expected_rate(noise.NoiseSpec("symmetric", 0.5), labels, 10) == pytest.approx(0.5)
    assert noise.expected_rate(noise.NoiseSpec("uniform", 0.5), labels, 10) == pytest.approx(0.5 * 9 / 10)
    np.testing.assert_allclose(noise.uniform(10, 0.5), noise.symmetric(10, 0.45))


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, math.nan])
def test_bad_rates_and_sizes_are_refused(rate: float) -> None:
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
        ([[math.nan, 1], [0, 1]], "negative or non-finite"),
        ([[0.5, 0.5], [0.5, 0.4]], "row 1 sums to 0.9"),
        ([[0.5, 0.5], [0.5]], "C rows of C numbers"),
        ([["a", "b"], ["c", "d"]], "C rows of C numbers"),
        ([[10**400, 0], [0, 1]], "C rows of C numbers"),
    ],
)
def test_asymmetric_refuses_what_is_no_transition_matrix(matrix: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        noise.asymmetric(matrix)  # type: ignore[arg-type]


def test_asymmetric_evens_out_rounding_and_copies() -> None:
    given_matrix = np.array([[0.3333, 0.3333, 0.3333], [0, 1, 0], [0, 0, 1]])
    checked = noise.asymmetric(given_matrix)
    np.testing.assert_allclose(checked.sum(axis=1), 1, rtol=1e-15)
    checked[0, 0] = 0
    assert given_matrix[0, 0] == 0.3333


@pytest.mark.parametrize(
    "spec",
    [
        noise.NoiseSpec("symmetric", 0.5),
        noise.NoiseSpec("uniform", 0.5),
        noise.NoiseSpec("pair", 0.45),
        noise.NoiseSpec("instance", 0.05),
        noise.NoiseSpec("instance", 0.95),
        noise.NoiseSpec("asymmetric", source="made up", matrix=tuple(map(tuple, noise.pair(10, 0.3).tolist()))),
    ],
    ids=str,
)
def test_the_achieved_rate_lies_within_four_standard_errors_of_the_expected(spec: noise.NoiseSpec) -> None:
    data = some_data()
    noisy = noise.apply(spec, data, rng(1))
    expected = noise.expected_rate(spec, data.labels, data.classes)
    achieved = noise.achieved_rate(noisy)
    assert achieved is not None
    assert abs(achieved - expected) < 4 * math.sqrt(expected * (1 - expected) / len(data))


def test_the_expected_rate_weighs_classes_by_their_samples() -> None:
    spec = noise.NoiseSpec("asymmetric", source="made up", matrix=tuple(map(tuple, LOPSIDED)))
    labels = np.array([0, 0, 1, 2])  # rates 0.3, 0.3, 0, 0.5
    assert noise.expected_rate(spec, labels, 3) == pytest.approx((0.3 + 0.3 + 0.0 + 0.5) / 4)
    assert noise.expected_rate(noise.NoiseSpec("none"), labels, 3) == 0.0


@pytest.mark.parametrize("matrix", [noise.symmetric(5, 0.4), noise.uniform(5, 0.7), np.full((5, 5), 0.2)])
def test_corrupted_labels_follow_their_row(matrix: NDArray[np.float64]) -> None:
    labels = np.repeat(np.arange(5), 8000)
    noisy = noise.corrupt(labels, matrix, rng(2))
    for label in range(5):
        counts = np.bincount(noisy[labels == label], minlength=5)
        assert stats.chisquare(counts, matrix[label] * 8000).pvalue > 1e-3


def test_labels_never_go_where_the_matrix_says_zero_and_pairs_only_to_the_next() -> None:
    labels = np.repeat(np.arange(3), 20_000)
    assert set((noise.corrupt(labels, noise.pair(3, 0.45), rng(4)) - labels) % 3) == {0, 1}
    noisy = noise.corrupt(labels, LOPSIDED, rng(3))
    assert set(noisy[labels == 0]) == {0, 1}
    assert set(noisy[labels == 1]) == {1}
    assert set(noisy[labels == 2]) == {0, 1, 2}


def test_a_permutation_matrix_leaves_nothing_to_chance() -> None:
    labels = np.array([0, 1, 2, 2, 0])
    np.testing.assert_array_equal(noise.corrupt(labels, np.eye(3)[[2, 0, 1]], rng()), [2, 0, 1, 1, 2])
    smallest = Mock(random=np.zeros)  # even a draw of exactly 0 must not choose an impossible first class
    np.testing.assert_array_equal(noise.corrupt(labels, np.eye(3), smallest), labels)


@pytest.mark.parametrize("text", ["symmetric:0.3", "uniform:0.3", "pair:0.3", "instance:0.3"])
def test_the_same_seed_gives_the_same_labels_and_another_seed_others(text: str) -> None:
    data, spec = some_data(2000), noise.parse_noise(text)
    first, again, other = (noise.apply(spec, data, rng(seed)).labels for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert first.dtype == np.int64


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([0, 3]), r"`labels` must lie in 0\.\.2, but got 0\.\.3"),
        (np.array([0.0, 1.0]), "integers"),
        (np.zeros((2, 2), dtype=np.int64), "integers"),
    ],
)
def test_labels_that_are_not_classes_are_refused(labels: Labels, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        noise.corrupt(labels, noise.pair(3, 0.2), rng())
    with pytest.raises(InvalidInput, match=words):
        noise.expected_rate(noise.NoiseSpec("pair", 0.2), labels, 3)


def test_apply_remembers_the_clean_labels_and_leaves_the_data_alone() -> None:
    data = some_data(500)
    before = data.labels.copy()
    noisy = noise.apply(noise.NoiseSpec("symmetric", 0.5), data, rng())
    np.testing.assert_array_equal(noisy.clean_labels, before)
    np.testing.assert_array_equal(data.labels, before)
    assert noise.achieved_rate(data) is None
    assert noise.apply(noise.NoiseSpec("none"), data, rng()) is data


def test_noise_on_noisy_data_starts_from_the_true_labels() -> None:
    data = some_data()
    once = noise.apply(noise.NoiseSpec("pair", 0.4), data, rng(1))
    twice = noise.apply(noise.NoiseSpec("pair", 0.4), once, rng(2))
    assert set((twice.labels - data.labels) % 10) == {0, 1}
    assert noise.achieved_rate(twice) == pytest.approx(0.4, abs=0.02)


def test_human_labels_must_come_from_the_caller_and_a_matrix_must_fit_the_data() -> None:
    spec = noise.parse_noise("human:worst")
    with pytest.raises(InvalidInput, match="human:worst; pass the human labels"):
        noise.apply(spec, some_data(50), rng())
    with pytest.raises(InvalidInput, match="achieved_rate"):
        noise.expected_rate(spec, np.array([0, 1]), 2)
    with pytest.raises(InvalidInput, match="transition matrix"):
        noise.transition_matrix(spec, 2)
    spec = noise.NoiseSpec("asymmetric", source="m.npy", matrix=tuple(map(tuple, LOPSIDED)))
    with pytest.raises(InvalidInput, match=r"must be 10 × 10 for these data, but asymmetric:m.npy is 3 × 3"):
        noise.apply(spec, some_data(50), rng())


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1, 0.3, 0.45, 0.5])
def test_the_truncated_normal_has_exactly_the_asked_mean(rate: float) -> None:
    centre = noise.truncated_centre(rate)
    oracle = stats.truncnorm(-centre / 0.1, (1 - centre) / 0.1, loc=centre, scale=0.1)
    assert oracle.mean() == pytest.approx(rate, rel=1e-4 if rate == 0.001 else 1e-8)  # scipy is rough in the far tail
    x = np.linspace(0, 1, 200_001)
    weight = np.exp(-x * (x - 2 * centre) / 0.02)  # the density up to a factor, which also drops exp(−5000)
    assert integrate.simpson(x * weight, x=x) / integrate.simpson(weight, x=x) == pytest.approx(rate, rel=1e-8)


@pytest.mark.parametrize("rate", [0.002, 0.1, 0.5, 0.8, 0.97])
def test_flip_probabilities_follow_the_truncated_normal(rate: float) -> None:
    draws = noise.flip_probabilities(20_000, rate, rng(6))
    centre = noise.truncated_centre(min(rate, 1 - rate))
    oracle = stats.truncnorm(-centre / 0.1, (1 - centre) / 0.1, loc=centre, scale=0.1)
    assert stats.kstest(draws if rate <= 0.5 else 1 - draws, oracle.cdf).pvalue > 1e-3
    assert ((draws >= 0) & (draws <= 1)).all()
    assert abs(draws.mean() - rate) < 4 * oracle.std() / math.sqrt(20_000)


@pytest.mark.parametrize("rate", [0.0, 1e-9, 9e-4, 1 - 1e-6])
def test_extreme_rates_leave_the_flip_probabilities_no_spread(rate: float) -> None:
    np.testing.assert_allclose(noise.flip_probabilities(5, rate, rng()), rate, rtol=1e-9)
    noisy = noise.corrupt_by_instance(rng().standard_normal((400, 4)), np.zeros(400, dtype=np.int64), 3, rate, rng(16))
    assert (noisy != 0).sum() == round(400 * rate)


def two_clusters(count: int, scale: float = 1.0, shift: float = 0.0) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Inputs (count, 20) around two far points, and which of the two each belongs to."""
    generator = rng(9)
    centres, second = generator.standard_normal((2, 20)), np.arange(count) % 2 == 1
    inputs = centres[second.astype(int)] + 0.1 * generator.standard_normal((count, 20))
    return (scale * inputs + shift).astype(np.float32), second


def test_two_clusters_of_one_class_are_mistaken_for_different_classes() -> None:
    inputs, second = two_clusters(8000)
    labels = np.zeros(8000, dtype=np.int64)
    noisy = noise.corrupt_by_instance(inputs, labels, 6, 0.5, rng(10))
    blind = noise.corrupt(labels, noise.symmetric(6, 0.5), rng(10))
    by_instance, by_class = (
        np.array([np.bincount(drawn[part & (drawn > 0)], minlength=6)[1:] for part in (second, ~second)])
        for drawn in (noisy, blind)
    )
    assert stats.chi2_contingency(by_instance).pvalue < 1e-12
    assert stats.chi2_contingency(by_class).pvalue > 1e-3  # the same test does not see what is not there


def test_one_input_is_mistaken_differently_under_different_true_classes() -> None:
    labels = np.repeat([0, 1], 4000)
    noisy = noise.corrupt_by_instance(two_clusters(8000)[0], labels, 8, 0.5, rng(11))
    table = [np.bincount(noisy[(labels == label) & (noisy > 1)], minlength=8)[2:] for label in (0, 1)]
    assert stats.chi2_contingency(np.array(table)).pvalue < 1e-12


@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (255.0, 0.0), (1e6, 3e6)])
def test_units_of_the_inputs_do_not_change_instance_noise(scale: float, shift: float) -> None:
    labels = np.zeros(4000, dtype=np.int64)
    plain, rescaled = (
        noise.corrupt_by_instance(two_clusters(4000, *units)[0], labels, 6, 0.4, rng(12))
        for units in ((1.0, 0.0), (scale, shift))
    )
    assert (plain != rescaled).mean() < 0.001  # float32 rounding may tip a tie


@pytest.mark.parametrize("size", [1, 20, 3000])
def test_the_choice_of_the_wrong_class_is_neither_uniform_nor_one_hot(size: int) -> None:
    inputs = np.broadcast_to(rng(13).standard_normal((1, size)), (6000, size)).astype(np.float32).copy()
    inputs[3000:] *= -1  # two points, so that each one's distribution can be counted
    labels = np.zeros(6000, dtype=np.int64)
    favourites = []
    for seed in range(10):
        noisy = noise.corrupt_by_instance(inputs, labels, 10, 0.5, rng(seed))
        counts = np.bincount(noisy[:3000], minlength=10)[1:]
        favourites.append(counts.max() / counts.sum())
    assert 0.35 < np.mean(favourites) < 0.75  # uniform would be 1/9; 0.55 is expected


def test_constant_features_and_samples_at_the_mean_are_harmless() -> None:
    inputs = np.full((6000, 5), 0.1, dtype=np.float32)
    labels = np.zeros(6000, dtype=np.int64)
    noisy = noise.corrupt_by_instance(inputs, labels, 4, 0.6, rng(14))
    counts = np.bincount(noisy, minlength=4)[1:]
    assert stats.chisquare(counts).pvalue > 1e-3  # no direction: the uniform choice
    varied, _ = two_clusters(6000)
    mean, deviation = noise._feature_moments(np.hstack([varied, np.full((6000, 5), 0.1)]))
    np.testing.assert_allclose(mean[:20], varied.mean(axis=0, dtype=np.float64))
    np.testing.assert_allclose(deviation, [*varied.std(axis=0, dtype=np.float64), *[np.inf] * 5])


def test_work_in_chunks_gives_the_same_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    data = some_data(3000)
    whole = noise.corrupt_by_instance(data.inputs, data.labels, 10, 0.4, rng(15))
    monkeypatch.setattr(noise, "_CHUNK_NUMBERS", 12 * 7)  # seven samples at a time
    parts = noise.corrupt_by_instance(data.inputs, data.labels, 10, 0.4, rng(15))
    assert (whole != parts).mean() < 0.001


@pytest.mark.parametrize(
    ("text", "kind", "rate", "source"),
    [
        ("none", "none", None, None),
        ("symmetric:0.4", "symmetric", 0.4, None),
        (" uniform:.4 ", "uniform", 0.4, None),
        ("instance:1e-05", "instance", 1e-5, None),
        ("human:worst", "human", None, "worst"),
    ],
)
def test_specs_are_read_and_written_back(text: str, kind: str, rate: float | None, source: str | None) -> None:
    spec = noise.parse_noise(text)
    assert (spec.kind, spec.rate, spec.source) == (kind, rate, source)
    assert noise.parse_noise(str(spec)) == spec
    assert hash(noise.parse_noise(str(spec))) == hash(spec)


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".json"])
def test_a_matrix_file_is_read_and_the_spec_written_back(tmp_path: Path, suffix: str) -> None:
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
def test_a_damaged_matrix_file_is_unreadable_data(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableData, match="noise matrix") as caught:
        noise.parse_noise(f"asymmetric:{tmp_path / name}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_pickle_and_an_unknown_suffix_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.npy"
    with pytest.raises(UnreadableData, match="No such file"):
        noise.parse_noise(f"asymmetric:{file}")
    np.save(file, np.array([[{}, {}], [{}, {}]], dtype=object), allow_pickle=True)
    with pytest.raises(UnreadableData, match="noise matrix"):
        noise.parse_noise(f"asymmetric:{file}")
    with pytest.raises(InvalidInput, match=r"\.npy, \.csv or \.json"):
        noise.parse_noise("asymmetric:matrix.txt")


def test_a_readable_file_without_a_transition_matrix_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("1,0\n1,1\n")
    with pytest.raises(InvalidInput, match="row 1 sums to 2"):
        noise.parse_noise(f"asymmetric:{tmp_path / 'm.csv'}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "`noise` must be one of"),
        ("symetric:0.4", "`noise` must be one of symmetric:RATE.*but got 'symetric'"),
        ("symmetric", "must be written as symmetric:RATE, but got 'symmetric'"),
        ("symmetric:40%", "must be written as symmetric:RATE, as in symmetric:0.4, but got"),
        ("pair:45", r"`rate` must lie in \[0, 1\), but got 45"),
        ("pair:nan", "`rate` must lie in"),
        ("none:0.3", "must be written as none, but got"),
        ("human", "must be written as human:KIND"),
    ],
)
def test_bad_text_gives_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        noise.parse_noise(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "rate"), [("cosmic", 0.1), ("none", 0.1), ("symmetric", None), ("symmetric", 1.0), ("asymmetric", None)]
)
def test_a_spec_that_makes_no_sense_cannot_be_built(kind: str, rate: float | None) -> None:
    with pytest.raises(InvalidInput, match="must"):
        noise.NoiseSpec(kind, rate)
