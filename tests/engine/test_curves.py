"""Curves and dynamics: concatenation, selection, summary and files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from s2e.engine.curves import LAST_EPOCHS, Curves, Dynamics


def random_curves(members, epochs):
    generator = np.random.default_rng(0)
    curves = Curves.empty(members, epochs, ("valid", "test"))
    for array in (curves.loss, curves.train_accuracy, curves.kept, curves.label_precision, *curves.accuracy.values()):
        array[:] = generator.random((members, epochs))
    curves.diverged[:] = np.arange(members) % 2 == 1
    curves.epochs[:] = epochs
    return curves


def random_dynamics(members, intervals=2, samples=4):
    generator = np.random.default_rng(0)
    shapes = [(members, samples), (members, samples), (members, intervals, samples)]
    return Dynamics(np.ones((intervals, samples), dtype=np.int64), *(np.float32(generator.random(s)) for s in shapes))


def test_empty_curves_are_nan():
    for name, array in Curves.empty(3, 5, ["valid", "test"]).arrays().items():
        by_member = name in ("diverged", "epochs")
        assert array.shape == ((3,) if by_member else (3, 5))
        assert not array.any() if by_member else np.isnan(array).all()


@pytest.mark.parametrize("whole", [random_curves(5, 4), random_dynamics(5)], ids=["curves", "dynamics"])
def test_concatenate_is_the_inverse_of_take(whole):
    parts = [whole.take(np.array(members)) for members in ([0, 1], [2], [3, 4])]
    for name, array in type(whole).concatenate(parts).arrays().items():
        np.testing.assert_array_equal(array, whole.arrays()[name], err_msg=name)
    for name, array in whole.take(np.array([3, 1])).arrays().items():
        np.testing.assert_array_equal(array, whole.arrays()[name][[3, 1]] if name != "seen" else whole.seen)


def test_concatenated_seen_is_that_of_the_part_trained_longest():
    stopped, longest = random_dynamics(2), replace(random_dynamics(1), seen=np.full((2, 4), 3))
    for parts in ([stopped, longest], [longest, stopped]):
        assert Dynamics.concatenate(parts).seen is longest.seen


@pytest.mark.parametrize("epochs", [1, 3, LAST_EPOCHS, LAST_EPOCHS + 7])
def test_last_is_the_mean_over_the_last_ten_epochs(epochs):
    curves = random_curves(4, epochs)
    for member in (0, 2):
        last = curves.accuracy["valid"][member].tolist()[-10:]
        assert curves.last("valid")[member] == pytest.approx(sum(last) / min(10, epochs))


def test_last_is_0_for_diverged_members():
    curves = random_curves(4, 12)
    curves.accuracy["valid"][1] = np.nan
    last = curves.last("valid")
    assert last[1] == last[3] == 0
    assert (last[[0, 2]] > 0).all()


@pytest.mark.parametrize("records", [random_curves(2, 3), random_dynamics(2)], ids=["curves", "dynamics"])
def test_arrays_survive_a_file(records, tmp_path):
    np.savez(tmp_path / "records.npz", **records.arrays())
    with np.load(tmp_path / "records.npz", allow_pickle=False) as loaded:
        assert set(loaded) == set(records.arrays())
        for name, array in records.arrays().items():
            np.testing.assert_array_equal(loaded[name], array)
            assert loaded[name].dtype == array.dtype


def test_arrays_of_accuracies_have_the_name_of_the_data_set():
    curves = random_curves(2, 3)
    np.testing.assert_array_equal(curves.arrays()["accuracy_test"], curves.accuracy["test"])
