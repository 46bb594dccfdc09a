"""Several devices of one machine, simulated by several workers on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from populations import assert_same, stop_after, with_batch_norm_and_dropout
from s2e.engine import Checkpoints, EpochFinished, Member, Task, Trained, Trainer, train_population
from s2e.errors import InvalidInput, WorkerFailed
from s2e.methods import Coteaching, MentorNet, Standard
from s2e.specs import Execution
from s2e.studies import Search, resolve_execution, search_schedules
from s2e.studies.executors import DeviceExecutor
from s2e.studies.executors.devices import DeviceWorker
from searches import make_plan, make_study, make_task, trial_records
from small_tasks import blobs, member, task

CPU = torch.device("cpu")


def on_cpus(count: int, method: Any = None, **changes: Any) -> Task:
    return task(blobs(), method or MentorNet(), executor=DeviceExecutor([CPU] * count), **changes)


def members(count: int = 5) -> list[Member]:
    return [member(0.4 + 0.1 * seed, seed=seed) for seed in range(count)]


@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_population_on_several_devices_equals_one_on_a_single_device(count: int) -> None:
    split = on_cpus(count, evaluate={"valid": blobs(96, seed=1)})
    assert_same(train_population(split, members()), train_population(replace(split, executor=None), members()))


def test_members_of_several_methods_keep_their_order() -> None:
    mixed = [replace(each, method=method) for each, method in zip(members(), [Coteaching(), Standard()] * 3)]  # noqa: B905
    split = on_cpus(2)
    assert_same(train_population(split, mixed), train_population(replace(split, executor=None), mixed))


def test_networks_that_share_torchs_random_state_are_trained_on_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def factory() -> torch.nn.Module:
        return torch.nn.Sequential(with_batch_norm_and_dropout(), torch.nn.Softplus())  # not stacked layer by layer

    split = on_cpus(2, network=factory, vectorize=False)
    assert_same(train_population(split, members(2)), train_population(replace(split, executor=None), members(2)))


def test_members_are_stopped_as_on_one_device() -> None:
    stops, split = {0: 1, 3: 2, 4: 3}, on_cpus(2)
    one = train_population(split, members(), stop=stop_after(stops))
    assert one.curves.epochs.tolist() == [1, 4, 4, 2, 3]
    assert_same(one, train_population(replace(split, executor=None), members(), stop=stop_after(stops)))


@pytest.mark.parametrize("sampler", ["newton", "hyperband"])
def test_a_search_has_the_same_trials_on_several_devices(sampler: str) -> None:
    records = []
    for executor in (None, DeviceExecutor([CPU, CPU])):
        study = make_study()
        plan = make_plan(sampler, trials=6, epochs=3)
        search_schedules(make_task(epochs=3, executor=executor), [Search(plan, study)])
        records.append(trial_records(study))
    assert records[0] == records[1]


def test_progress_of_all_members_arrives_while_they_train() -> None:
    seen: list[EpochFinished] = []
    train_population(on_cpus(2), members(), on_epoch=seen.append)
    for epoch in range(1, 5):
        now = [progress for progress in seen if progress.epoch == epoch]
        assert sorted(index for progress in now for index in progress.indices) == list(range(5))
    assert {progress.population_size for progress in seen} == {5}
    assert all(len(progress.curves.epochs) == len(progress.indices) for progress in seen)


def test_shares_follow_the_measured_speeds() -> None:
    executor = DeviceExecutor([CPU, CPU])
    split = task(blobs(), MentorNet(), executor=executor)
    sizes: list[int] = []

    def note(progress: EpochFinished) -> None:
        if progress.epoch == 1:
            sizes.append(len(progress.indices))

    train_population(split, members(4), on_epoch=note)
    assert sorted(sizes) == [2, 2]
    first, second = executor._workers
    assert first.speed is not None
    first.speed, second.speed = 3.0, 1.0
    sizes.clear()
    train_population(split, members(4), on_epoch=note)
    assert sorted(sizes) == [1, 3]


def test_an_error_on_one_device_ends_the_others_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    def train(self: DeviceWorker, task: Task, members: Sequence[Member], finished: Any, *, can_stop: bool) -> Trained:
        if members[0].seed == 0:
            raise RuntimeError("the device is gone\nand more")
        try:
            return Trainer(replace(task, executor=None, epochs=4)).train(members, stop=lambda p: waited(finished(p)))
        except CancelledError:
            cancelled.set()
            raise

    def waited(stopped: Any) -> Any:
        threading.Event().wait(0.2)
        return stopped

    monkeypatch.setattr(DeviceWorker, "train", train)
    with pytest.raises(WorkerFailed, match=r"^training on cpu failed: the device is gone$"):
        train_population(on_cpus(2), members())
    assert cancelled.is_set()


def test_an_error_of_a_callback_is_raised_as_it_is() -> None:
    def on_epoch(progress: EpochFinished) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train_population(on_cpus(2), members(), on_epoch=on_epoch)


def test_settings_of_the_process_are_restored() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state(), torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(2)
    try:
        train_population(on_cpus(2), members())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before[1])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_float32_matmul_precision() == before[2]


def test_shares_have_checkpoints_of_their_own(tmp_path: Any) -> None:
    written = Checkpoints(tmp_path, interval=0.0, max_share=np.inf)
    killed = on_cpus(2, checkpoints=written)

    def kill(progress: EpochFinished) -> None:
        if progress.epoch >= 3 and any(tmp_path.iterdir()):  # one share may be ahead of the other
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_population(killed, members(4), on_epoch=kill)
    again = on_cpus(2, checkpoints=written)
    assert_same(train_population(again, members(4)), train_population(replace(again, executor=None), members(4)))


@pytest.mark.parametrize(
    ("execution", "problem"),
    [
        (Execution("cpu,abacus"), "`device` must be one this machine has, but got 'abacus'"),
        (Execution("cpu,"), "`device` must be one this machine has, but got ''"),
    ],
)
def test_devices_that_do_not_exist_are_refused(execution: Execution, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        resolve_execution(execution)


def test_one_device_needs_no_executor() -> None:
    assert resolve_execution(Execution("cpu")) == (CPU, None)
    device, executor = resolve_execution(Execution("cpu,cpu"))
    assert device == CPU
    assert isinstance(executor, DeviceExecutor)
