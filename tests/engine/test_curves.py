"""Records against numbers worked by hand on a tiny made-up training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from s2e.engine.curves import LAST_EPOCHS, STRETCHES, Curves, Dynamics
from s2e.engine.recorder import Observed, Recorder, bytes_per_member
from s2e.methods import Objective

CPU = torch.device("cpu")
CLEAN = torch.tensor([[True, False, True, True], [False, False, True, False]])  # (P, N)
LABELS = torch.tensor([[0, 1, 2, 0], [1, 1, 1, 1]])

STEPS = [  # two members of two networks, four samples, two steps of two samples
    {
        "index": [0, 1],
        "loss": [[1.0, 3.0], [5.0, 5.0]],
        "sample_losses": [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 5.0], [5.0, 5.0]]],
        "selected": [[[1, 0], [1, 1]], [[0, 0], [0, 0]]],
        "predicted": [[[0, 1], [0, 0]], [[0, 0], [0, 1]]],
    },
    {
        "index": [3, 2],
        "loss": [[2.0, 2.0], [7.0, 9.0]],
        "sample_losses": [[[0.5, 0.25], [0.5, 0.75]], [[1.0, 2.0], [3.0, 4.0]]],
        "selected": [[[1, 1], [1, 0]], [[0, 1], [0, 0]]],
        "predicted": [[[0, 2], [1, 1]], [[1, 1], [1, 1]]],
    },
]


def recorded_step(recorder, step):
    index = torch.tensor(step["index"])
    objective = Objective(
        torch.tensor(step["loss"]),
        torch.tensor(step["sample_losses"]),
        torch.tensor(step["selected"], dtype=torch.bool),
    )
    recorder.record(index, [Observed(objective, torch.tensor(step["predicted"]), LABELS[:, index])])


def recorded(clean=CLEAN, epochs=1, steps=STEPS):
    """The same made-up steps in every epoch."""
    recorder = Recorder(2, 4, epochs, clean, CPU)
    curves = Curves.empty(2, epochs, ["valid"])
    for epoch in range(epochs):
        recorder.begin_epoch(epoch, torch.cat([torch.tensor(step["index"]) for step in steps]), len(steps))
        for step in steps:
            recorded_step(recorder, step)
        recorder.end_epoch(epoch, curves)
    return curves, recorder.dynamics()


def drawn_curves(members, epochs, seed=0, names=("valid", "test")):
    generator = np.random.default_rng(seed)
    curves = Curves.empty(members, epochs, names)
    for array in (curves.loss, curves.train_accuracy, curves.kept, curves.label_precision, *curves.accuracy.values()):
        array[:] = generator.random((members, epochs))
    curves.diverged[:] = np.arange(members) % 2 == 1
    curves.epochs[:] = epochs
    return curves


def test_curves_match_an_epoch_worked_by_hand():
    curves, _ = recorded()
    np.testing.assert_allclose(curves.loss[:, 0], [(2 + 2) / 2, (5 + 8) / 2])
    # Member 0: 2 and 1 of 2 right, then 2 and 0. Member 1: 0 and 1, then all four.
    np.testing.assert_allclose(curves.train_accuracy[:, 0], [(0.75 + 0.5) / 2, (0.25 + 1.0) / 2])
    np.testing.assert_allclose(curves.kept[:, 0], [(0.75 + 0.75) / 2, (0.0 + 0.25) / 2])


def test_label_precision_matches_an_epoch_worked_by_hand():
    curves, _ = recorded()
    # Member 0: one of one and one of two, then two of two and one of one.
    # Member 1 picks once in the epoch, sample 2, and that is right.
    np.testing.assert_allclose(curves.label_precision[:, 0], [((1 + 0.5) / 2 + (1 + 1) / 2) / 2, 1.0])


def test_an_epoch_without_any_pick_has_no_label_precision():
    curves, _ = recorded(steps=STEPS[:1])
    np.testing.assert_allclose(curves.label_precision[0, 0], 0.75)
    assert np.isnan(curves.label_precision[1, 0])
    assert curves.kept[1, 0] == 0


def test_label_precision_stays_unknown_where_true_labels_are():
    known, unknown = (recorded(clean)[0] for clean in (CLEAN, None))
    assert np.isnan(unknown.label_precision).all()
    np.testing.assert_array_equal(unknown.loss, known.loss)
    np.testing.assert_array_equal(unknown.kept, known.kept)
    np.testing.assert_array_equal(unknown.train_accuracy, known.train_accuracy)


def test_dynamics_match_an_epoch_worked_by_hand():
    _, dynamics = recorded()
    np.testing.assert_array_equal(dynamics.seen, [[1, 1, 1, 1]])
    np.testing.assert_array_equal(dynamics.kept, [[2, 1, 1, 2], [0, 0, 1, 0]])
    np.testing.assert_array_equal(dynamics.agreed, [[2, 1, 1, 1], [0, 1, 2, 2]])
    np.testing.assert_allclose(dynamics.loss, [[[4.0, 6.0, 1.0, 1.0]], [[10.0, 10.0, 6.0, 4.0]]])


def test_epochs_start_from_nothing_and_dynamics_add_up():
    once, dynamics_once = recorded()
    thrice, dynamics_thrice = recorded(epochs=3)
    for epoch in range(3):
        np.testing.assert_allclose(thrice.loss[:, epoch], once.loss[:, 0])
        np.testing.assert_allclose(thrice.label_precision[:, epoch], once.label_precision[:, 0])
    np.testing.assert_array_equal(dynamics_thrice.kept, 3 * dynamics_once.kept)
    np.testing.assert_array_equal(dynamics_thrice.agreed, 3 * dynamics_once.agreed)
    np.testing.assert_array_equal(dynamics_thrice.loss, np.repeat(dynamics_once.loss, 3, axis=1))  # a stretch each


@pytest.mark.parametrize("epochs", [1, 2, 9, 10, 11, 25, 200])
def test_every_epoch_falls_into_one_of_equal_stretches(epochs):
    recorder = Recorder(1, 3, epochs, None, CPU)
    for epoch in range(epochs):
        recorder.begin_epoch(epoch, torch.tensor([0, 2]), 1)
    seen = recorder.dynamics().seen
    stretches = min(STRETCHES, epochs)
    assert seen.shape == (stretches, 3)
    assert seen[:, 0].sum() == seen[:, 2].sum() == epochs
    assert set(seen[:, 0]) <= {epochs // stretches, -(-epochs // stretches)}
    assert not seen[:, 1].any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_member_that_was_once_not_finite_has_diverged_for_good(bad):
    recorder = Recorder(2, 4, 2, CLEAN, CPU)
    curves = Curves.empty(2, 2, [])
    broken = {**STEPS[0], "loss": [[1.0, 3.0], [5.0, bad]]}  # one network is enough
    for epoch, step in enumerate((broken, STEPS[1])):
        recorder.begin_epoch(epoch, torch.tensor(step["index"]), 1)
        recorded_step(recorder, step)
        recorder.end_epoch(epoch, curves)
        assert curves.diverged.tolist() == [False, True]


def test_empty_curves_are_unknown_everywhere():
    curves = Curves.empty(3, 5, ["valid", "test"])
    assert set(curves.accuracy) == {"valid", "test"}
    for name, array in curves.arrays().items():
        plain = name in ("diverged", "epochs")
        assert array.shape == ((3,) if plain else (3, 5))
        assert not array.any() if plain else np.isnan(array).all()


def test_concatenated_curves_keep_every_member_in_order():
    whole = drawn_curves(5, 4)
    parts = [
        Curves(
            whole.loss[part],
            whole.train_accuracy[part],
            whole.kept[part],
            whole.label_precision[part],
            {name: curve[part] for name, curve in whole.accuracy.items()},
            whole.diverged[part],
            whole.epochs[part],
        )
        for part in (slice(0, 2), slice(2, 3), slice(3, 5))
    ]
    for name, array in Curves.concatenate(parts).arrays().items():
        np.testing.assert_array_equal(array, whole.arrays()[name], err_msg=name)
    for name, array in Curves.concatenate([whole]).arrays().items():
        np.testing.assert_array_equal(array, whole.arrays()[name], err_msg=name)


def test_concatenated_dynamics_keep_every_member_and_share_what_was_seen():
    _, one = recorded()
    other = Dynamics(one.seen, one.kept + 1, one.agreed + 2, one.loss + 3)
    joined = Dynamics.concatenate([one, other])
    np.testing.assert_array_equal(joined.seen, one.seen)
    np.testing.assert_array_equal(joined.kept, np.vstack([one.kept, other.kept]))
    np.testing.assert_array_equal(joined.agreed, np.vstack([one.agreed, other.agreed]))
    np.testing.assert_array_equal(joined.loss, np.concatenate([one.loss, other.loss]))


@pytest.mark.parametrize("epochs", [1, 3, LAST_EPOCHS, LAST_EPOCHS + 7])
def test_the_last_accuracy_is_the_mean_over_the_last_ten_epochs_or_all_there_are(epochs):
    curves = drawn_curves(4, epochs)
    for member in (0, 2):
        last = curves.accuracy["valid"][member].tolist()[-10:]
        assert curves.last("valid")[member] == pytest.approx(sum(last) / min(10, epochs))


def test_members_that_diverged_score_0_even_where_their_accuracy_is_unknown():
    curves = drawn_curves(4, 12)
    curves.accuracy["valid"][1] = np.nan
    last = curves.last("valid")
    assert last.shape == (4,)
    assert last[1] == last[3] == 0
    assert (last[[0, 2]] > 0).all()


@pytest.mark.parametrize("which", ["curves", "dynamics"])
def test_arrays_come_back_from_a_file_as_they_were(which, tmp_path):
    curves, dynamics = recorded(epochs=3)
    arrays = {"curves": curves, "dynamics": dynamics}[which].arrays()
    np.savez(tmp_path / "records.npz", **arrays)
    with np.load(tmp_path / "records.npz", allow_pickle=False) as read:
        assert set(read) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array)
            assert read[name].dtype == array.dtype


def test_arrays_name_the_data_set_of_every_accuracy():
    curves = drawn_curves(2, 3, names=("valid", "test"))
    assert {"accuracy_valid", "accuracy_test"} < set(curves.arrays())
    np.testing.assert_array_equal(curves.arrays()["accuracy_test"], curves.accuracy["test"])


def test_a_members_records_take_the_bytes_that_are_planned_for_them():
    recorder = Recorder(3, 50, 200, None, CPU)
    dynamics = recorder.dynamics()
    assert dynamics.kept.nbytes + dynamics.agreed.nbytes + dynamics.loss.nbytes == 3 * bytes_per_member(50)
