"""Schedule tables: what they hold, how they are kept on disk, and the one that comes with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from s2e.errors import InvalidInput, UnreadableData
from s2e.experiments.schedule_table.build import NOISES
from s2e.experiments.schedule_table.table import FINEST, ScheduleTable, drawn, published, rounded, score
from s2e.schedules.spaces import space
from s2e.seeds import derive

MADE = ("data", "network", "method", "epochs", "batch_size", "learning_rate", "seed", "samples", "judged", "device")
"""What must be known to train the same table again."""


def table(judged: int = 11998, seed: int = 0) -> ScheduleTable:
    """Two settings, 7 draws of 3 coordinates, 12 epochs, the first 4 draws 2 times more, 5 more points."""
    generator = np.random.default_rng(seed)

    def accuracies(*shape: int) -> NDArray[np.float64]:
        counts = generator.integers(0, judged, size=shape, endpoint=True)
        counts.flat[:2] = 0, judged  # what is easily lost
        return np.asarray(counts / judged)

    return ScheduleTable(
        "coteaching",
        ("pair:0.45", "symmetric:0.2"),
        drawn(7, 3, 1),
        accuracies(2, 7, 12),
        accuracies(2, 4, 2, 12),
        rounded(generator.random((2, 5, 3))),
        accuracies(2, 5, 12),
        {"data": "made up", "judged": judged, "versions": {"s2e": "0"}},
    )


def written(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def as_bytes(about: object) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)


def assert_same(first: ScheduleTable, second: ScheduleTable) -> None:
    for name in ("points", "accuracy", "again", "found", "found_accuracy"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    assert (first.space, first.noises, first.about) == (second.space, second.noises, second.about)


# ------------------------------------------------------------------------------------------------------------ on disk


@pytest.mark.parametrize("judged", [1, 7, 11998, 65535, 65536, 100_000])
def test_a_table_survives_its_file_exactly(tmp_path: Path, judged: int) -> None:
    given = table(judged)
    assert_same(ScheduleTable.read(written(tmp_path / "table.npz", given.arrays())), given)


def test_every_coordinate_and_every_count_survives_its_file(tmp_path: Path) -> None:
    every = np.arange(FINEST + 1).reshape(-1, 1) / FINEST
    counts = np.broadcast_to(np.arange(11999).reshape(1, -1, 1) / 11998, (1, 11999, 1))
    given = table()
    given = replace(
        given,
        noises=("pair:0.45",),
        points=every[:11999],
        accuracy=counts,
        again=np.zeros((1, 0, 1, 1)),
        found=every[None],
        found_accuracy=np.zeros((1, len(every), 1)),
    )
    assert_same(ScheduleTable.read(written(tmp_path / "table.npz", given.arrays())), given)


def test_points_and_counts_take_sixteen_bits() -> None:
    arrays = table().arrays()
    assert {name for name, array in arrays.items() if array.dtype == np.uint16} == arrays.keys() - {"about"}


def test_reading_and_writing_change_nothing_about_a_table(tmp_path: Path) -> None:
    first = written(tmp_path / "first.npz", table().arrays())
    second = written(tmp_path / "second.npz", ScheduleTable.read(first).arrays())
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("kept", [0, 1, 100, 0.5, -1])
def test_a_truncated_file_is_unreadable(tmp_path: Path, kept: float) -> None:
    path = written(tmp_path / "table.npz", table().arrays())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    with pytest.raises(UnreadableData, match=r"table\.npz"):
        ScheduleTable.read(path)


def test_a_damaged_byte_is_noticed_or_does_no_harm(tmp_path: Path) -> None:
    path = written(tmp_path / "table.npz", table().arrays())
    whole, noticed = path.read_bytes(), 0
    for place in range(0, len(whole), 13):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            assert_same(ScheduleTable.read(path), table())
        except UnreadableData:
            noticed += 1
    assert noticed > len(whole) / 13 / 2


def test_a_file_that_is_not_there_or_is_a_folder_is_unreadable(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.npz", tmp_path):
        with pytest.raises(UnreadableData, match="is not a table of schedules"):
            ScheduleTable.read(path)


def test_files_of_other_kinds_are_unreadable(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("points,accuracy\n1,2\n")
    np.save(tmp_path / "plain.npy", np.zeros(3))
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    for name in ("text.npz", "plain.npy", "other.npz"):
        with pytest.raises(UnreadableData, match=name):
            ScheduleTable.read(tmp_path / name)


@pytest.mark.parametrize("name", ["points", "accuracy", "again", "found", "found_accuracy", "about"])
def test_a_file_that_lacks_an_array_is_unreadable_and_says_which(tmp_path: Path, name: str) -> None:
    arrays = {key: array for key, array in table().arrays().items() if key != name}
    with pytest.raises(UnreadableData, match=name):
        ScheduleTable.read(written(tmp_path / "table.npz", arrays))


@pytest.mark.parametrize("name", ["points", "accuracy", "again", "found", "found_accuracy"])
def test_arrays_that_do_not_belong_together_are_unreadable(tmp_path: Path, name: str) -> None:
    arrays = table().arrays()
    for changed in (arrays[name][:-1], arrays[name][..., :-1], arrays[name][0]):
        with pytest.raises(UnreadableData, match="is not a table of schedules"):
            ScheduleTable.read(written(tmp_path / "table.npz", {**arrays, name: changed}))


@pytest.mark.parametrize(
    "changes", [{"judged": 0}, {"judged": -3}, {"judged": None}, {"judged": "many"}, {"noises": 3}]
)
def test_a_file_that_says_nonsense_about_itself_is_unreadable(tmp_path: Path, changes: dict[str, Any]) -> None:
    arrays = table().arrays()
    about = {**json.loads(arrays["about"].tobytes()), **changes}
    with pytest.raises(UnreadableData, match="is not a table of schedules"):
        ScheduleTable.read(written(tmp_path / "table.npz", {**arrays, "about": as_bytes(about)}))


@pytest.mark.parametrize("about", [[1], "words", {}, {"judged": 5}])
def test_a_file_that_says_too_little_about_itself_is_unreadable(tmp_path: Path, about: object) -> None:
    arrays = {**table().arrays(), "about": as_bytes(about)}
    with pytest.raises(UnreadableData, match="is not a table of schedules"):
        ScheduleTable.read(written(tmp_path / "table.npz", arrays))


# ---------------------------------------------------------------------------------------------------- what it answers


def test_an_unknown_noise_is_named_with_those_there_are() -> None:
    for asked in (ScheduleTable.errors, ScheduleTable.errors_again, ScheduleTable.trained):
        with pytest.raises(InvalidInput, match=r"pair:0\.45, symmetric:0\.2, but got 'pair:0\.4'"):
            asked(table(), "pair:0.4")


def test_a_score_is_the_error_over_the_last_ten_epochs() -> None:
    accuracy = np.array([0.0] * 5 + [0.5] * 4 + [0.9] * 6)
    assert score(accuracy) == pytest.approx(1 - (4 * 0.5 + 6 * 0.9) / 10)
    assert score(np.array([0.2, 0.4])) == pytest.approx(0.7)  # fewer than ten: all of them
    assert score(np.zeros((2, 3, 12))).shape == (2, 3)


def test_errors_are_those_worked_out_by_hand() -> None:
    given = table()
    for place, noise in enumerate(given.noises):
        by_hand = [1 - sum(given.accuracy[place, draw, 2:].tolist()) / 10 for draw in range(7)]
        assert given.errors(noise).tolist() == pytest.approx(by_hand)


def test_repeated_errors_begin_with_the_first_training_of_the_same_draw() -> None:
    given = table()
    for place, noise in enumerate(given.noises):
        repeated = given.errors_again(noise)
        assert repeated.shape == (4, 3)
        np.testing.assert_allclose(repeated[:, 0], given.errors(noise)[:4])
        for draw in range(4):
            by_hand = [1 - sum(given.again[place, draw, time, 2:].tolist()) / 10 for time in range(2)]
            assert repeated[draw, 1:].tolist() == pytest.approx(by_hand)


def test_what_was_trained_is_the_draws_and_then_what_was_found_under_that_noise() -> None:
    given = table()
    for place, noise in enumerate(given.noises):
        points, accuracy = given.trained(noise)
        assert points.tolist() == given.points.tolist() + given.found[place].tolist()
        assert accuracy.tolist() == given.accuracy[place].tolist() + given.found_accuracy[place].tolist()


def test_draws_are_uniform_follow_their_seed_and_are_held_exactly() -> None:
    points = drawn(20_000, 2, 5)
    np.testing.assert_array_equal(points, drawn(20_000, 2, 5))
    assert (points != drawn(20_000, 2, 6)).any()
    np.testing.assert_array_equal(points, rounded(points))
    assert points.min() >= 0
    assert points.max() <= 1
    np.testing.assert_allclose(np.quantile(points, [0.1, 0.5, 0.9], axis=0)[:, 0], [0.1, 0.5, 0.9], atol=0.015)


def test_rounding_moves_a_point_by_half_a_step_at_most() -> None:
    points = np.random.default_rng(0).random((100, 3))
    assert np.abs(rounded(points) - points).max() <= 0.5 / FINEST + 1e-15
    assert rounded(np.array([0.0, 1.0, 0.4 / FINEST, 0.6 / FINEST])).tolist() == [0.0, 1.0, 0.0, 1 / FINEST]


# ------------------------------------------------------------------------------------------------- the published table


@pytest.fixture(scope="module")
def of_the_package() -> ScheduleTable:
    return ScheduleTable.read(published())


def test_the_published_table_holds_two_thousand_draws_under_the_papers_noise(of_the_package: ScheduleTable) -> None:
    draws, dimension = of_the_package.points.shape
    assert draws >= 2000
    assert of_the_package.noises == NOISES == ("symmetric:0.2", "symmetric:0.5", "pair:0.45")
    assert of_the_package.space == "s2e"
    assert dimension == space("s2e").dimension
    assert of_the_package.accuracy.shape == (3, draws, of_the_package.epochs)
    assert of_the_package.again.shape[0] == 3
    assert of_the_package.again.shape[1] >= 32
    assert of_the_package.again.shape[2] >= 2


def test_the_published_table_is_smaller_than_three_megabytes() -> None:
    assert published().stat().st_size < 3_000_000


def test_published_draws_are_the_uniform_ones_of_their_seed(of_the_package: ScheduleTable) -> None:
    points = of_the_package.points
    count = len(points)
    np.testing.assert_array_equal(points, drawn(count, points.shape[1], derive(of_the_package.about["seed"], "draws")))
    # Five standard errors: the mean of n uniform draws has 1/√(12 n), their variance 1/√(180 n), a correlation 1/√n.
    np.testing.assert_allclose(points.mean(axis=0), 1 / 2, atol=5 / np.sqrt(12 * count))
    np.testing.assert_allclose(points.var(axis=0), 1 / 12, atol=5 / np.sqrt(180 * count))
    np.testing.assert_allclose(np.corrcoef(points.T), np.eye(points.shape[1]), atol=5 / np.sqrt(count))


def test_published_points_decode_to_schedules(of_the_package: ScheduleTable) -> None:
    for noise in of_the_package.noises:
        points, accuracy = of_the_package.trained(noise)
        schedules = space(of_the_package.space).decode(points, of_the_package.epochs)
        assert schedules.shape == accuracy.shape
        assert (schedules[:, 0] == 1).all()
        assert schedules.min() >= 0
        assert schedules.max() <= 1
        assert len(np.unique(points, axis=0)) == len(points)


def test_published_accuracies_are_those_of_classifiers_that_learned(of_the_package: ScheduleTable) -> None:
    for noise in of_the_package.noises:
        errors = of_the_package.errors(noise)
        assert 0 < errors.min() < 0.06
        assert errors.max() < 0.5
        assert of_the_package.trained(noise)[1].min() > 0.1


def test_half_the_points_that_were_looked_for_are_better_than_nine_in_ten_draws(of_the_package: ScheduleTable) -> None:
    for place, noise in enumerate(of_the_package.noises):
        found = score(of_the_package.found_accuracy[place])
        assert np.median(found) < np.quantile(of_the_package.errors(noise), 0.1)


def test_the_published_table_says_what_made_it(of_the_package: ScheduleTable) -> None:
    about = of_the_package.about
    assert set(MADE) <= about.keys()
    assert (about["data"], about["network"], about["method"]) == ("mnist", "mlp", "coteaching")
    assert {"s2e", "python", "torch", "numpy"} <= about["versions"].keys()
    assert about["draws"] == len(of_the_package.points)
    assert (about["again"], about["times"]) == of_the_package.again.shape[1:3]
    assert about["epochs"] == of_the_package.epochs
    assert of_the_package.found.shape[1] == about["rounds"] * (about["together"] // len(of_the_package.noises))
