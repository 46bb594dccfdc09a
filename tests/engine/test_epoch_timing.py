"""The time of an epoch: from a few steps of a real training, scaled to all."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch

from s2e.engine import epoch_timing
from s2e.engine.epoch_timing import _EpochTimer, epoch_seconds
from s2e.engine.learning_rates import plan_of
from s2e.engine.task import EpochFinished, Member, Task
from s2e.engine.training import Trainer
from s2e.methods import METHODS, Coteaching, ForwardCorrection, Standard
from small_tasks import blobs, member, task

CALLBACK_SECONDS = 0.01


class Recorded:
    """Records the trainings that are timed; each epoch of a training takes a millisecond for each of its steps."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.tasks: list[Task] = []
        self.members: list[list[Member]] = []
        now = 0.0

        def train(trainer: Trainer, members: list[Member], *, on_epoch: Any) -> None:
            nonlocal now
            self.tasks.append(trainer.task)
            self.members.append(members)
            for epoch in range(trainer.task.epochs):
                now += 1e-3 * (len(trainer.task.train) // trainer.task.batch_size) * (10 if epoch == 0 else 1)
                on_epoch(finished(epoch + 1, tuple(range(len(members)))))

        patched.setattr(Trainer, "train", train)
        patched.setattr(epoch_timing, "time", type("Clock", (), {"perf_counter": staticmethod(lambda: now)}))


def finished(epoch: int, indices: tuple[int, ...]) -> EpochFinished:
    return EpochFinished(epoch, 3, indices, 4, None)  # type: ignore[arg-type]


def test_time_is_that_of_all_steps_without_the_first_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    whole = task(blobs(192), Standard(), batch_size=4, evaluate={"valid": blobs(100)}, checkpoints=object())
    assert epoch_seconds(whole, [member()], min_seconds=1e-9) == pytest.approx(0.048)
    assert epoch_seconds(whole, [member()], min_seconds=9e9) == pytest.approx(0.048)
    sizes = [(len(short.train), len(short.evaluate["valid"])) for short in recorded.tasks]
    assert sizes == [(4, 3), (4, 3), (192, 100)]
    assert all(short.checkpoints is None and short.executor is None for short in recorded.tasks)


def test_number_of_steps_grows_at_least_by_a_factor_until_they_take_long_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seconds, steps in ((0.002, [1]), (0.003, [1, 4]), (0.01, [1, 5]), (0.06, [1, 30]), (0.2, [1, 48])):
        recorded = Recorded(monkeypatch)
        whole = task(blobs(192), Standard(), batch_size=4)
        assert epoch_seconds(whole, [member()], min_seconds=seconds) == pytest.approx(0.048)
        assert [len(short.train) // 4 for short in recorded.tasks] == steps


def test_transition_matrix_is_made_once_where_a_method_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    epoch_seconds(task(blobs(192), Coteaching(), batch_size=4), [member(), member()])
    epoch_seconds(task(blobs(192), ForwardCorrection(), batch_size=4), [member(), member()])
    without, *_, needed = recorded.members
    assert [each.transition for each in without] == [None, None]
    np.testing.assert_array_equal(needed[0].transition, np.eye(4))
    assert needed[0].transition is needed[1].transition


def test_first_measurement_has_a_sample_of_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    data = blobs(192)
    by_class = data.take(np.argsort(data.labels))
    epoch_seconds(task(by_class, Standard(), batch_size=3), [member()], min_seconds=1e-9)
    assert set(recorded.tasks[0].train.labels) == set(range(4))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_timed_without_changing_the_random_state(name: str) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    given = task(blobs(), METHODS[name], plan=plan_of("linear:warmup=3"), evaluate={"valid": blobs(50)})
    assert epoch_seconds(given, [member(labels=blobs(seed=5).labels)], min_seconds=0) > 0
    assert torch.equal(torch.get_rng_state(), before)


def test_measured_time_is_about_that_of_a_training() -> None:
    given = task(blobs(2000), Coteaching(), epochs=10, batch_size=32)
    members = [member(seed=seed, epochs=10) for seed in range(3)]
    ratios = []
    for _ in range(3):  # another process may slow one of them down
        expected = 10 * epoch_seconds(given, members)
        began = time.perf_counter()
        Trainer(given).train(members)
        ratios.append((time.perf_counter() - began) / expected)
        if 0.5 < ratios[-1] < 2:
            return
    pytest.fail(f"measured and expected times differ by factors {ratios}")


def test_threads_count_once_and_chunks_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(epoch_timing, "time", type("Clock", (), {"perf_counter": staticmethod(lambda: now)}))
    timer = _EpochTimer()
    for at, indices in ((1, (0,)), (2, (1,)), (4, (0,)), (5, (1,)), (7, (2, 3)), (9, (2, 3))):
        now = float(at)
        timer(finished(1, indices))
    assert timer.seconds == (5 - 1) + (9 - 7)
