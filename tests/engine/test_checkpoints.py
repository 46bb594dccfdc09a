"""A training that is killed and started again continues after its last checkpoint, and equals one never killed."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from populations import assert_same, stop_after, with_batch_norm, with_batch_norm_and_dropout
from s2e.engine.checkpoints import Checkpoints, pause
from s2e.engine.curves import Curves
from s2e.engine.lockstep import PopulationCheckpoint, TaskCheckpoints
from s2e.engine.optimizers import SGD, Adam, RMSProp
from s2e.engine.training import Trainer, train_population
from s2e.engine.two_stage import train_in_two_stages
from s2e.methods import Coteaching, CoteachingPlus, ForwardCorrection, Reweight, Standard
from small_tasks import member, task

EPOCHS = 6


class Killed(BaseException):
    """Stands for the end of a process."""


@pytest.fixture
def checkpoints(tmp_path):
    """Written after every epoch."""
    return Checkpoints(tmp_path / "checkpoints", interval=0.0, max_share=math.inf)


def kill_in(epoch, index=0):
    """An `on_epoch` that kills the training after an epoch of the chunk of a member."""

    def on_epoch(progress):
        if progress.epoch == epoch and index in progress.indices:
            raise Killed

    return on_epoch


def files(checkpoints):
    return sorted(path.name for path in checkpoints.directory.glob("*"))


def assert_resumes(shared, members, checkpoints, caplog, *, kill=(4, 0), stop=None, after=(3,)):
    """Kill a training and start it again: it continues after some epochs, and all equals a training never killed."""
    seen = {"never killed": [], "resumed": []}

    def record(name):
        return lambda now: seen[name].append((now.epoch, now.indices, now.curves.take(np.arange(len(now.indices)))))

    never_killed = train_population(shared, members, on_epoch=record("never killed"), stop=stop)
    stored = replace(shared, checkpoints=checkpoints)
    with pytest.raises(Killed):
        train_population(stored, members, on_epoch=kill_in(*kill), stop=stop)
    assert files(checkpoints)
    caplog.clear()
    resumed = train_population(stored, members, on_epoch=record("resumed"), stop=stop)
    assert sorted(record.args[1] for record in caplog.records) == sorted(after)
    assert_same(resumed, never_killed)
    np.testing.assert_array_equal(resumed.dynamics.seen, never_killed.dynamics.seen)
    assert [each[:2] for each in seen["resumed"]] == [each[:2] for each in seen["never killed"]]
    for (*_, one), (*_, other) in zip(seen["resumed"], seen["never killed"], strict=True):
        np.testing.assert_equal(one.arrays(), other.arrays())
    assert files(checkpoints) == []


def a_task(train, method, valid, **changes):
    return task(train, method, **{"evaluate": {"valid": valid}, "epochs": EPOCHS, "keep_best_on": "valid", **changes})


def three(**changes):
    return [
        member(0.5, seed=1, epochs=EPOCHS, **changes),
        member(0.9, seed=2, epochs=EPOCHS, learning_rate=3e-3, **changes),
        member(0.2, seed=3, epochs=EPOCHS, **changes),
    ]


@pytest.mark.parametrize("method", [Coteaching(), CoteachingPlus(), Reweight()], ids=lambda method: method.name)
@pytest.mark.parametrize("optimizer", [Adam(), SGD(0.9), RMSProp()], ids=lambda one: type(one).__name__)
def test_resumed_training_equals_one_never_killed(
    method, optimizer, train_data, valid_data, checkpoints, caplog
) -> None:
    network = with_batch_norm_and_dropout if optimizer == Adam() else with_batch_norm
    shared = a_task(train_data, method, valid_data, network=network, optimizer=optimizer)
    assert_resumes(shared, three(), checkpoints, caplog)


def test_vectorised_networks_continue_their_random_draws(train_data, valid_data, checkpoints, caplog) -> None:
    shared = a_task(train_data, Standard(), valid_data, network=with_batch_norm_and_dropout, vectorize=True)
    assert_resumes(shared, three(), checkpoints, caplog)


@pytest.mark.parametrize(("kill", "after"), [(4, 3), (3, 2), (6, 5)])
def test_members_stopped_before_the_kill_stay_stopped(kill, after, train_data, valid_data, checkpoints, caplog) -> None:
    members = [*three(), *three(method=Standard())]
    shared = a_task(train_data, Coteaching(), valid_data, network=with_batch_norm)
    assert_resumes(
        shared, members, checkpoints, caplog, kill=(kill, 0), stop=stop_after({1: 1, 5: 2, 2: 5}), after=(after,)
    )


def test_finished_chunks_are_not_trained_again(train_data, valid_data, checkpoints, caplog) -> None:
    shared = a_task(train_data, Coteaching(), valid_data, network=with_batch_norm, chunk=1)
    assert_resumes(shared, three(), checkpoints, caplog, kill=(3, 2), stop=stop_after({1: 4}), after=(6, 4, 2))


def test_threads_continue_after_different_epochs(train_data, valid_data, checkpoints, caplog, monkeypatch) -> None:
    shared = a_task(train_data, Coteaching(), valid_data, network=with_batch_norm)
    monkeypatch.setattr("s2e.engine.threads.FLOPS_PER_THREAD", 1.0)
    torch.set_num_threads(2)
    try:
        assert_resumes(shared, three(), checkpoints, caplog, kill=(4, 2), stop=stop_after({0: 2, 1: 2}), after=(2, 3))
    finally:
        torch.set_num_threads(1)


def test_two_stages_continue_in_each_stage(train_data, valid_data, checkpoints, caplog) -> None:
    shared = a_task(train_data, Standard(), valid_data, keep_best_on=None)
    members = three(method=ForwardCorrection(), transition=None)
    never_killed, _ = train_in_two_stages(shared, members)
    stored = replace(shared, checkpoints=checkpoints)
    for call in (3, EPOCHS + 4):  # in the first stage, then in the second
        calls = iter(range(1, 2 * EPOCHS))

        def kill(_, calls=calls, call=call):
            if next(calls) == call:
                raise Killed

        with pytest.raises(Killed):
            train_in_two_stages(stored, members, on_epoch=kill)
    resumed, _ = train_in_two_stages(stored, members)
    assert [record.args[1] for record in caplog.records] == [2, 3]
    assert_same(resumed, never_killed)


def test_200_epochs_killed_several_times_equal_200_epochs(train_data, valid_data, tmp_path) -> None:
    epochs = 200
    shared = a_task(train_data, Coteaching(), valid_data, epochs=epochs, batch_size=96)
    members = [member(0.5, seed=1, epochs=epochs)]
    stored = replace(shared, checkpoints=Checkpoints(tmp_path / "checkpoints", interval=0.02, max_share=math.inf))
    for epoch in (60, 61, 180):
        with pytest.raises(Killed):
            train_population(stored, members, on_epoch=kill_in(epoch))
    assert_same(train_population(stored, members), train_population(shared, members))


# ------------------------------------------------------------------------------------ which checkpoint is used


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"batch_size": 16},
        {"optimizer": SGD()},
        {"network": with_batch_norm_and_dropout},
        {"keep_best_on": None},
        {"evaluate": {}, "keep_best_on": None},
    ],
    ids=lambda change: "-".join(change),
)
def test_checkpoint_of_another_task_is_not_used(change, train_data, valid_data, checkpoints, caplog) -> None:
    shared = a_task(train_data, Coteaching(), valid_data, network=with_batch_norm, checkpoints=checkpoints)
    with pytest.raises(Killed):
        train_population(shared, three(), on_epoch=kill_in(4))
    train_population(replace(shared, **change), three())
    assert not caplog.records
    train_population(shared, three())
    assert len(caplog.records) == 1


def test_checkpoint_of_other_members_or_data_is_not_used(train_data, valid_data, checkpoints, caplog) -> None:
    shared = a_task(train_data, Coteaching(), valid_data, checkpoints=checkpoints)
    members = three()
    with pytest.raises(Killed):
        train_population(shared, members, on_epoch=kill_in(4))
    train_population(shared, members[:2])
    train_population(shared, [*members[:2], replace(members[2], seed=7)])
    train_population(shared, [*members[:2], replace(members[2], schedule=members[2].schedule * 0.99)])
    train_population(shared, [*members[:2], replace(members[2], labels=np.roll(train_data.labels, 1))])
    train_population(replace(shared, train=replace(train_data, inputs=train_data.inputs + 1)), members)
    assert not caplog.records


def test_one_trainer_removes_the_files_of_each_training(train_data, valid_data, checkpoints) -> None:
    trainer = Trainer(a_task(train_data, Coteaching(), valid_data, checkpoints=checkpoints))
    stored = []
    for seed in (1, 2):
        trainer.train([member(seed=seed, epochs=EPOCHS)], on_epoch=lambda _: stored.append(files(checkpoints)))
    assert [len(names) for names in stored] == [0, 1, 1, 1, 1, 1] * 2
    assert len({name for names in stored for name in names}) == 2
    assert files(checkpoints) == []


def test_clear_removes_checkpoints_only(checkpoints) -> None:
    checkpoints.write("one", {"epochs": torch.tensor(1)})
    (checkpoints.directory / ".two.checkpoint.safetensors.x7.tmp").touch()
    (checkpoints.directory / "model.safetensors").touch()
    checkpoints.clear()
    assert files(checkpoints) == ["model.safetensors"]
    (checkpoints.directory / "model.safetensors").unlink()
    checkpoints.clear()
    assert not checkpoints.directory.exists()
    checkpoints.clear()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # torch has running threads
def test_clear_removes_what_a_process_killed_while_writing_left(checkpoints) -> None:
    def kill_while_writing():
        while not any(path.name.startswith(".") and path.stat().st_size for path in checkpoints.directory.glob("*")):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    checkpoints.directory.mkdir()
    tensors = {"state": torch.zeros(10_000_000)}
    child = os.fork()
    if child == 0:
        threading.Thread(target=kill_while_writing).start()
        checkpoints.write("one", tensors)
        os.kill(os.getpid(), signal.SIGKILL)  # written before the thread noticed it
    os.waitpid(child, 0)
    assert any(checkpoints.directory.iterdir())
    checkpoints.clear()
    assert not checkpoints.directory.exists()


# --------------------------------------------------------------------------------------------------- problems


@pytest.mark.parametrize("damage", [lambda content: content[:-9], lambda _: b"", lambda _: b"no safetensors" * 99])
def test_damaged_checkpoint_is_ignored_with_a_warning(damage, train_data, valid_data, checkpoints, caplog) -> None:
    shared = a_task(train_data, Coteaching(), valid_data, checkpoints=checkpoints)
    with pytest.raises(Killed):
        train_population(shared, three(), on_epoch=kill_in(4))
    (path,) = checkpoints.directory.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    resumed = train_population(shared, three())
    assert [record.getMessage().partition("could not be read")[0] for record in caplog.records] == [f"{path} "]
    assert_same(resumed, train_population(replace(shared, checkpoints=None), three()))


def test_incomplete_checkpoint_is_ignored_with_a_warning(train_data, valid_data, checkpoints, caplog) -> None:
    shared = a_task(train_data, Coteaching(), valid_data, checkpoints=checkpoints)
    with pytest.raises(Killed):
        train_population(shared, three(), on_epoch=kill_in(4))
    (path,) = checkpoints.directory.iterdir()
    name = path.name.partition(".")[0]
    tensors = checkpoints.read(name)
    checkpoints.write(name, {key: tensor for key, tensor in tensors.items() if "optimizer" not in key})
    resumed = train_population(shared, three())
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == ["a checkpoint could not be used"]
    assert_same(resumed, train_population(replace(shared, checkpoints=None), three()))


def test_unwritable_directory_costs_one_warning(train_data, valid_data, tmp_path, caplog) -> None:
    (tmp_path / "file").touch()
    unwritable = Checkpoints(tmp_path / "file" / "checkpoints", interval=0.0, max_share=math.inf)
    shared = a_task(train_data, Coteaching(), valid_data)
    trained = train_population(replace(shared, checkpoints=unwritable), three())
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["no checkpoint was written"]
    assert_same(trained, train_population(shared, three()))


def test_full_disk_costs_one_warning(train_data, valid_data, checkpoints, caplog, monkeypatch) -> None:
    def full(tensors, path):
        Path(path).write_bytes(b"a part")
        raise OSError("No space left on device")

    monkeypatch.setattr("s2e.engine.checkpoints.save_file", full)
    train_population(a_task(train_data, Coteaching(), valid_data, checkpoints=checkpoints), three())
    assert [record.args[0] for record in caplog.records] == ["No space left on device"]
    assert files(checkpoints) == []


def test_optimizer_without_state_trains_with_one_warning(train_data, valid_data, checkpoints, caplog) -> None:
    class Plain:
        """Only what the engine needs, without `state` and `load_state`."""

        state_tensors = 0

        def build(self, parameters, learning_rates, device):
            built = SGD().build(parameters, learning_rates, device)
            plain = type("PlainRows", (), {})()
            plain.update, plain.scale_learning_rates = built.update, built.scale_learning_rates
            return plain

    shared = a_task(train_data, Coteaching(), valid_data, optimizer=Plain(), checkpoints=checkpoints)
    trained = train_population(shared, three())
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "`load_state`" in caplog.text
    assert files(checkpoints) == []
    assert_same(trained, train_population(replace(shared, optimizer=SGD(), checkpoints=None), three()))


# -------------------------------------------------------------------------------------------------------- cost


@pytest.mark.parametrize(("cost", "seconds"), [(0.0, 180.0), (1.0, 180.0), (3.6, 180.0), (10.0, 500.0)])
def test_pause_keeps_the_cost_below_two_percent(cost, seconds) -> None:
    assert pause(180.0, cost, 0.02) == pytest.approx(seconds)
    assert cost / (cost + seconds) < 0.02


def test_files_are_written_when_due_and_not_more_often(train_data, valid_data, tmp_path, monkeypatch) -> None:
    """Epochs of 60 seconds, files of 10 seconds each."""
    now, written = [0.0], []

    def write(_, name, tensors):
        now[0] += 10.0
        written.append(now[0])

    def next_epoch(_):
        now[0] += 60.0

    monkeypatch.setattr(Checkpoints, "write", write)
    epochs = 40
    shared = a_task(train_data, Coteaching(), valid_data, epochs=epochs, checkpoints=Checkpoints(tmp_path))
    trainer = Trainer(shared)
    trainer._checkpoints = TaskCheckpoints(shared, clock=lambda: now[0])
    trainer.train([member(seed=1, epochs=epochs)], on_epoch=next_epoch)
    assert written[0] == 190.0
    assert len(set(np.diff(written))) == 1
    assert np.diff(written)[0] == 550.0  # nine epochs, the first 500 seconds or more later
    assert 10.0 * len(written) / now[0] < 0.02 + 10.0 / now[0]


@pytest.mark.parametrize(("seconds", "is_written"), [(100.0, False), (300.0, True)])
def test_finished_chunk_is_written_if_training_takes_longer_than_the_interval(
    seconds, is_written, train_data, valid_data, tmp_path
) -> None:
    now = [0.0]
    shared = a_task(train_data, Coteaching(), valid_data, checkpoints=Checkpoints(tmp_path))
    own = TaskCheckpoints(shared, clock=lambda: now[0])
    lockstep = type("Finished", (), {"population": None})()
    first = PopulationCheckpoint(own, three(), alone=False)
    now[0] = seconds
    assert first._is_due(shared.checkpoints, lockstep) is is_written
    assert not PopulationCheckpoint(own, three(), alone=True)._is_due(shared.checkpoints, lockstep)


def test_curves_until_an_epoch_are_those_of_that_epoch() -> None:
    curves = Curves.empty(2, 4, ["valid"])
    curves.loss[:] = [[1.0, 2.0, np.inf, 4.0], [1.0, 2.0, np.nan, np.nan]]
    curves.accuracy["valid"][:] = 0.5
    curves.epochs[:], curves.diverged[:] = [4, 2], [True, False]
    before, after = curves.until(2), curves.until(3)
    np.testing.assert_array_equal(before.loss, [[1.0, 2.0, np.nan, np.nan]] * 2)
    np.testing.assert_array_equal(before.accuracy["valid"][0], [0.5, 0.5, np.nan, np.nan])
    assert (before.epochs.tolist(), before.diverged.tolist()) == ([2, 2], [False, False])
    assert (after.epochs.tolist(), after.diverged.tolist()) == ([3, 2], [True, False])
    np.testing.assert_equal(Curves.from_arrays(curves.arrays()).arrays(), curves.arrays())
