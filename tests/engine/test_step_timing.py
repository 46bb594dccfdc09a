"""Times of training steps: which sizes are measured, and how."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from s2e.engine import step_timing
from s2e.engine.step_timing import step_seconds
from s2e.engine.task import Member, Task
from s2e.methods import METHODS, Coteaching
from small_tasks import blobs, member, task

SIZES = (6, 8, 12, 16, 24, 32)


class Device:
    """A clock that only training advances: a step of P members takes `cost(P)` seconds, and `fit` members fit."""

    def __init__(
        self, patched: pytest.MonkeyPatch, cost: Callable[[int], float], *, fit: int = 9999, fail_at: int = 0
    ) -> None:
        self.now, self.cost, self.fit, self.fail_at = 0.0, cost, fit, fail_at
        self.populations: list[list[Member]] = []
        self.alive: weakref.ref[Any] | None = None
        patched.setattr(step_timing, "engine_steps", self.engine_steps)
        patched.setattr(step_timing, "gc", SimpleNamespace(collect=lambda: gc.collect(1)))  # a full collection is slow
        patched.setattr(step_timing, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def engine_steps(self, _: Task, members: Sequence[Member]) -> Callable[[int], None]:
        assert self.alive is None or self.alive() is None, "the previous population was not freed"
        self.populations.append(list(members))
        steps = 0

        def run(count: int) -> None:
            nonlocal steps
            for _ in range(count):
                if len(members) > self.fit and steps == self.fail_at:
                    raise torch.OutOfMemoryError
                self.now += self.cost(len(members))
                steps += 1

        self.alive = weakref.ref(run)
        return run

    @property
    def sizes(self) -> list[int]:
        return [len(population) for population in self.populations]


def a_task(**changes: Any) -> Task:
    return task(blobs(), Coteaching(), **changes)


def test_sizes_are_measured_up_to_the_first_that_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {6: 1e-3, 8: 0.9e-3, 12: 1.2e-3, 16: 2e-3, 24: 1e-3}  # relative to the smallest size, not to the fastest
    device = Device(monkeypatch, lambda members: costs[members])
    assert step_seconds(a_task(), [member()], SIZES) == pytest.approx({size: costs[size] for size in SIZES[:4]})
    assert device.sizes == [6, 8, 12, 16]


def test_all_sizes_are_measured_if_none_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch, lambda _: 1e-3)
    assert list(step_seconds(a_task(), [member()], SIZES)) == list(SIZES)


def test_first_steps_and_slow_timings_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def cost(_: int) -> float:
        nonlocal calls
        calls += 1
        if calls <= 4:
            return 9.0  # warm-up
        return 1e-3 if 16 <= calls <= 25 else 4e-3  # one undisturbed timing of ten steps

    Device(monkeypatch, cost)
    assert step_seconds(a_task(), [member()], [6]) == pytest.approx({6: 1e-3})


@pytest.mark.parametrize(("cost", "steps"), [(1e-6, 5 + 5 * 10), (0.02, 5 + 2 * 10), (2.0, 5 + 10)])
def test_slow_steps_are_timed_less_often(cost: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, lambda _: cost)
    step_seconds(a_task(), [member()], [6])
    assert round(device.now / cost) == steps


@pytest.mark.parametrize("fail_at", [0, 20])
def test_size_that_does_not_fit_ends_the_measurement(fail_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, lambda _: 1e-3, fit=12, fail_at=fail_at)
    assert list(step_seconds(a_task(), [member()], SIZES)) == [6, 8, 12]
    assert len(device.populations) == 4
    Device(monkeypatch, lambda _: 1e-3, fit=5, fail_at=fail_at)
    assert step_seconds(a_task(), [member()], SIZES) == {}


@pytest.mark.parametrize(
    ("fit", "measured", "known"),
    [(32, [6, 32], 6), (16, [6, 32, 24, 16], 4), (6, [6, 32, 24, 16, 12, 8], 1), (5, [6], 0)],
)
def test_compiled_steps_are_interpolated_up_to_the_largest_that_fits(
    fit: int, measured: list[int], known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch, lambda members: 40e-6 + members * 5e-6, fit=fit)
    seconds = step_seconds(a_task(compile=True), [member()], SIZES)
    assert seconds == pytest.approx({size: 40e-6 + size * 5e-6 for size in SIZES[:known]})
    assert device.sizes == measured


@pytest.mark.parametrize(("epochs", "compiled"), [(4, False), (50_000, True)])
def test_step_is_compiled_if_the_training_compiles_it(
    epochs: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[Task] = []
    monkeypatch.setattr(step_timing, "_seconds_per_step", lambda task, _: timed.append(task) or 1e-3)
    step_seconds(a_task(epochs=epochs), [member()], [6])
    assert [each.compile for each in timed] == [compiled]


def test_population_has_k_members_like_each_template(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, lambda _: 1e-3)
    labels = np.arange(192) % 4
    templates = [member(), member(labels=labels), member(labels=labels, method=METHODS["jocor"])]
    step_seconds(a_task(), templates, [6, 8])
    for size, population in zip([6, 8], device.populations, strict=True):
        assert len(population) == 3 * size
        for which, template in enumerate(templates):
            own = population[which * size : (which + 1) * size]
            assert all(one.method == template.method and one.labels is template.labels for one in own)
            assert len({one.seed for one in own}) == size


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4))


def test_real_measurement_leaves_the_random_state_unchanged() -> None:
    before, precision = torch.get_rng_state(), torch.get_float32_matmul_precision()
    seconds = step_seconds(a_task(network=with_dropout), [member()], [2, 64], max_slowdown=1e9)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_float32_matmul_precision() == precision
    assert 0 < seconds[2] < np.inf
    assert 0 < seconds[64] < np.inf
