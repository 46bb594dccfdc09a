"""Schedule tables: their files, their errors, and the published table."""

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
from s2e.experiments.schedule_table.table import (
    PUBLISHED,
    RESOLUTION,
    ScheduleTable,
    draw_points,
    last_error,
    round_points,
)
from s2e.schedules import space
from s2e.seeds import derive
from s2e.specs import PAPER_NOISES


def make_table(evaluated: int = 11998) -> ScheduleTable:
    """Two noise settings, 7 draws of 3 coordinates, 12 epochs, 4 draws trained 2 more times, 5 proposed points."""
    generator = np.random.default_rng(0)

    def accuracies(*shape: int) -> NDArray[np.float64]:
        counts = generator.integers(0, evaluated, size=shape, endpoint=True)
        counts.flat[:2] = 0, evaluated
        return np.asarray(counts / evaluated)

    return ScheduleTable(
        "coteaching",
        ("pair:0.45", "symmetric:0.2"),
        draw_points(7, 3, 1),
        accuracies(2, 7, 12),
        accuracies(2, 4, 2, 12),
        round_points(generator.random((2, 5, 3))),
        accuracies(2, 5, 12),
        {"data": "synthetic", "judged": evaluated, "versions": {"s2e": "0"}},
    )


def write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def assert_same(first: ScheduleTable, second: ScheduleTable) -> None:
    for name in ("points", "accuracy", "again", "found", "found_accuracy"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    assert (first.space, first.noises, first.about) == (second.space, second.noises, second.about)


# ---------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("evaluated", [1, 65536])
def test_file_preserves_the_table(tmp_path: Path, evaluated: int) -> None:
    table = make_table(evaluated)
    first = write(tmp_path / "first.npz", table.arrays())
    assert_same(ScheduleTable.read(first), table)
    second = write(tmp_path / "second.npz", ScheduleTable.read(first).arrays())
    assert first.read_bytes() == second.read_bytes()


def test_file_preserves_every_coordinate_and_count_in_16_bits(tmp_path: Path) -> None:
    every = np.arange(RESOLUTION + 1).reshape(-1, 1) / RESOLUTION
    counts = np.broadcast_to(np.arange(11999).reshape(1, -1, 1) / 11998, (1, 11999, 1))
    table = replace(
        make_table(),
        noises=("pair:0.45",),
        points=every[:11999],
        accuracy=counts,
        again=np.zeros((1, 0, 1, 1)),
        found=every[None],
        found_accuracy=np.zeros((1, len(every), 1)),
    )
    arrays = table.arrays()
    assert {name for name, array in arrays.items() if array.dtype == np.uint16} == arrays.keys() - {"about"}
    assert_same(ScheduleTable.read(write(tmp_path / "table.npz", arrays)), table)


def test_truncated_file_is_unreadable(tmp_path: Path) -> None:
    path = write(tmp_path / "table.npz", make_table().arrays())
    whole = path.read_bytes()
    for kept in (0, 100, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(UnreadableData, match=r"table\.npz"):
            ScheduleTable.read(path)


def test_damaged_bytes_are_detected_or_harmless(tmp_path: Path) -> None:
    path = write(tmp_path / "table.npz", make_table().arrays())
    whole, detected, tried = path.read_bytes(), 0, 0
    for index in range(0, len(whole), 41):
        damaged = bytearray(whole)
        damaged[index] ^= 0xFF
        path.write_bytes(damaged)
        tried += 1
        try:
            assert_same(ScheduleTable.read(path), make_table())
        except UnreadableData:
            detected += 1
    assert detected > tried / 2


def test_missing_and_other_files_are_unreadable(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("points,accuracy\n1,2\n")
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    for path in (tmp_path, *(tmp_path / name for name in ("missing.npz", "text.npz", "array.npy", "other.npz"))):
        with pytest.raises(UnreadableData, match=path.name):
            ScheduleTable.read(path)


def test_missing_and_contradicting_arrays_are_unreadable(tmp_path: Path) -> None:
    arrays, path = make_table().arrays(), tmp_path / "table.npz"
    for name in ("points", "accuracy", "again", "found", "found_accuracy"):
        with pytest.raises(UnreadableData, match=name):
            ScheduleTable.read(write(path, {key: array for key, array in arrays.items() if key != name}))
        for changed in (arrays[name][:-1], arrays[name][..., :-1], arrays[name][0]):
            with pytest.raises(UnreadableData, match="is not a table of schedules"):
                ScheduleTable.read(write(path, {**arrays, name: changed}))


def test_bad_metadata_are_unreadable(tmp_path: Path) -> None:
    counts = [{"space": "s2e", "noises": ["a", "b"], "judged": count} for count in (0, None, "many")]
    for about in ([1], {}, {"judged": 5}, *counts):
        stored = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
        with pytest.raises(UnreadableData, match="is not a table of schedules"):
            ScheduleTable.read(write(tmp_path / "table.npz", {**make_table().arrays(), "about": stored}))


# --------------------------------------------------------------------------------------------------------------- errors


def test_unknown_noise_is_refused_with_the_valid_names() -> None:
    for read in (ScheduleTable.errors_again, ScheduleTable.trained):
        with pytest.raises(InvalidInput, match=r"pair:0\.45, symmetric:0\.2, but got 'pair:0\.4'"):
            read(make_table(), "pair:0.4")


def test_last_error_is_over_the_last_ten_epochs() -> None:
    accuracy = np.array([0.0] * 5 + [0.5] * 4 + [0.9] * 6)
    assert last_error(accuracy) == pytest.approx(1 - (4 * 0.5 + 6 * 0.9) / 10)
    assert last_error(np.array([0.2, 0.4])) == pytest.approx(0.7)  # fewer than ten: all of them
    assert last_error(np.zeros((2, 3, 12))).shape == (2, 3)


def test_repeated_errors_belong_to_their_noise_setting_and_draw() -> None:
    table = make_table()
    for index, noise in enumerate(table.noises):
        errors = [1 - sum(table.accuracy[index, draw, 2:].tolist()) / 10 for draw in range(7)]
        again = [
            [errors[draw], *(1 - sum(table.again[index, draw, time, 2:].tolist()) / 10 for time in range(2))]
            for draw in range(4)
        ]
        np.testing.assert_allclose(table.errors_again(noise), again)


def test_trained_points_are_the_draws_followed_by_proposals() -> None:
    table = make_table()
    for index, noise in enumerate(table.noises):
        points, accuracy = table.trained(noise)
        assert points.tolist() == table.points.tolist() + table.found[index].tolist()
        assert accuracy.tolist() == table.accuracy[index].tolist() + table.found_accuracy[index].tolist()


def test_draws_are_uniform_repeatable_and_stored_exactly() -> None:
    points = draw_points(20_000, 2, 5)
    np.testing.assert_array_equal(points, draw_points(20_000, 2, 5))
    assert (points != draw_points(20_000, 2, 6)).any()
    np.testing.assert_array_equal(points, round_points(points))
    np.testing.assert_allclose(
        np.quantile(points, [0, 0.1, 0.5, 0.9, 1], axis=0)[:, 0], [0, 0.1, 0.5, 0.9, 1], atol=0.015
    )


def test_rounding_is_to_the_nearest_step() -> None:
    rounded = round_points(np.array([0.0, 1.0, 0.4 / RESOLUTION, 0.6 / RESOLUTION]))
    assert rounded.tolist() == [0.0, 1.0, 0.0, 1 / RESOLUTION]


# -------------------------------------------------------------------------------------------------- the published table


@pytest.fixture(scope="module")
def published() -> ScheduleTable:
    return ScheduleTable.read(PUBLISHED)


def test_published_table_matches_its_metadata(published: ScheduleTable) -> None:
    about, (draws, dimension) = published.about, published.points.shape
    assert published.noises == PAPER_NOISES
    assert (published.space, dimension) == ("s2e", space("s2e").dimension)
    assert (about["data"], about["network"], about["method"]) == ("mnist", "mlp", "coteaching")
    assert (about["draws"], about["epochs"]) == (draws, published.epochs)
    assert (about["again"], about["times"]) == published.again.shape[1:3]
    assert published.found.shape[1] == about["rounds"] * (about["together"] // len(published.noises))
    needed = {"batch_size", "learning_rate", "seed", "samples", "judged", "device", "versions"}
    assert needed <= about.keys()
    assert draws >= 2000
    assert PUBLISHED.stat().st_size < 3_000_000


def test_published_draws_are_the_uniform_draws_of_their_seed(published: ScheduleTable) -> None:
    draws = draw_points(*published.points.shape, derive(published.about["seed"], "draws"))
    np.testing.assert_array_equal(published.points, draws)


def test_published_trainings_learned_and_proposals_are_better(published: ScheduleTable) -> None:
    for index, noise in enumerate(published.noises):
        points, accuracy = published.trained(noise)
        assert len(np.unique(points, axis=0)) == len(points)
        assert accuracy.min() > 0.1
        errors = last_error(published.accuracy[index])
        assert 0 < errors.min() < 0.06
        assert errors.max() < 0.5
        assert np.median(last_error(published.found_accuracy[index])) < np.quantile(errors, 0.1)
