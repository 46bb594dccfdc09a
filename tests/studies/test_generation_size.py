"""How wide a generation is: the decision, and the measurement it rests on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from s2e.engine.step_timing import step_seconds
from s2e.engine.task import Member, Task
from s2e.errors import InvalidInput
from s2e.methods import METHODS, Coteaching
from s2e.studies import generation_size
from s2e.studies.generation_size import SIZES, Pace, paced, picked, sizes_for, widest
from small_tasks import blobs, member, small_mlp, task

# The decision


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({6: 1.0, 8: 1.0, 12: 1.1, 16: 1.2, 24: 1.5}, 16),  # a GPU
        ({6: 6.0, 8: 8.0}, 6),  # a CPU
        ({6: 1.0, 8: 1.4, 12: 1.1}, 12),  # something else was at work while 8 was timed
        ({6: 1.0, 8: 0.9, 12: 1.2, 16: 1.3}, 12),  # by the time of the narrowest, not of the fastest
        ({6: 4.0, 8: 5.0}, 8),  # at most 1.25 times: exactly that will do
        ({6: 4.0, 8: 5.0001}, 6),
        ({6: 2.0}, 6),
        ({12: 1.0, 6: 2.0, 8: 3.0}, 12),  # in whatever order they were written down
    ],
)
def test_the_widest_generation_that_takes_little_longer_is_picked(seconds: dict[int, float], expected: int) -> None:
    assert widest(seconds) == expected


def test_how_much_longer_it_may_take_can_be_said() -> None:
    seconds = {6: 1.0, 8: 1.2, 12: 1.9, 16: 2.1}
    assert [widest(seconds, slower=slower) for slower in (1.0, 1.2, 2.0, 3.0)] == [6, 8, 12, 16]


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        (None, SIZES),
        (1, (2,)),
        (10, (2,)),
        (19, (3,)),
        (30, (6,)),
        (34, (6,)),
        (40, (6, 8)),
        (100, (6, 8, 12, 16, 20)),
        (160, SIZES),
        (9999, SIZES),
    ],
)
def test_of_given_trials_a_generation_has_a_fifth_at_most_but_two(
    trials: int | None, expected: tuple[int, ...]
) -> None:
    assert sizes_for(trials) == expected


def never(sizes: Sequence[int]) -> int:
    raise AssertionError("nothing was to be picked")


@pytest.mark.parametrize("rounds", [5, 10])
@pytest.mark.parametrize("generation", [1, 6, 12])
@pytest.mark.parametrize("begun", [None, {"generation": 8, "trials": 80}])
def test_a_given_generation_is_kept_and_has_the_trials_it_always_had(
    rounds: int, generation: int, begun: dict[str, int] | None
) -> None:
    assert paced(generation, None, rounds=rounds, pick=never, begun=begun) == Pace(generation, 6 * rounds)
    assert paced(generation, 7, rounds=rounds, pick=never, begun=begun) == Pace(generation, 7)
    assert paced(generation, 0, rounds=rounds, pick=never) == Pace(generation, 0)  # refused by the plan


@pytest.mark.parametrize("rounds", [5, 10])
def test_a_picked_generation_is_searched_for_so_many_rounds_or_the_trials_given(rounds: int) -> None:
    assert paced("auto", None, rounds=rounds, pick=min) == Pace(6, 6 * rounds)
    assert paced("auto", None, rounds=rounds, pick=max) == Pace(32, 32 * rounds)
    assert paced("auto", 100, rounds=rounds, pick=max) == Pace(20, 100)
    assert paced("auto", 3, rounds=rounds, pick=max) == Pace(2, 3)


def test_a_continued_search_keeps_its_generation_and_its_trials_unless_others_are_given() -> None:
    begun = {"generation": 24, "trials": 48}
    assert paced("auto", None, rounds=10, pick=never, begun=begun) == Pace(24, 48)
    assert paced("auto", 99, rounds=10, pick=never, begun=begun) == Pace(24, 99)
    assert paced("auto", None, rounds=10, pick=never, begun={"generation": 24}) == Pace(24, 240)
    assert paced("auto", None, rounds=10, pick=max, begun={}) == Pace(32, 320)


@pytest.mark.parametrize("word", ["many", "", "Auto", "2.5"])
def test_a_word_that_is_no_generation_is_refused(word: Any) -> None:
    with pytest.raises(InvalidInput, match=f"`generation` must be a positive integer or auto, but got '{word}'"):
        paced(word, 30, rounds=5, pick=never)


# The measurement


class Device:
    """A clock that only training moves on: a step of P members takes `cost(P)` seconds, and some members do not fit."""

    def __init__(
        self, patched: pytest.MonkeyPatch, cost: Callable[[int], float], *, fit: int = 9999, fail_at: int = 0
    ) -> None:
        self.now, self.cost, self.fit, self.fail_at = 0.0, cost, fit, fail_at
        self.populations: list[list[Member]] = []
        self.alive: weakref.ref[Any] | None = None
        patched.setattr(generation_size, "engine_steps", self.engine_steps)
        patched.setattr(generation_size, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def engine_steps(self, _: Task, members: Sequence[Member]) -> Callable[[int], None]:
        assert self.alive is None or self.alive() is None, "the population before was not freed"
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


def a_task(**changes: Any) -> Task:
    return task(blobs(), Coteaching(), **changes)


def test_every_size_is_timed_up_to_the_first_that_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, lambda members: 1e-3 if members <= 16 else members * 1e-4)
    seconds = step_seconds(a_task(), [member()], SIZES)
    assert seconds == pytest.approx({6: 1e-3, 8: 1e-3, 12: 1e-3, 16: 1e-3, 24: 2.4e-3})
    assert [len(population) for population in device.populations] == [6, 8, 12, 16, 24]
    assert widest(seconds) == 16


def test_a_device_that_is_never_too_slow_is_asked_for_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch, lambda _: 1e-3)
    assert list(step_seconds(a_task(), [member()], SIZES)) == list(SIZES)
    assert list(step_seconds(a_task(), [member()], (6, 20))) == [6, 20]


def test_too_slow_is_by_the_time_of_the_narrowest_not_of_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {6: 1e-3, 8: 0.9e-3, 12: 1.2e-3, 16: 2e-3, 24: 1e-3}
    Device(monkeypatch, lambda members: costs[members])
    assert list(step_seconds(a_task(), [member()], SIZES)) == [6, 8, 12, 16]


def test_where_time_grows_with_every_member_two_sizes_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch, lambda members: members * 1e-3)
    assert step_seconds(a_task(), [member()], SIZES) == pytest.approx({6: 6e-3, 8: 8e-3})


def test_the_first_steps_do_not_count_and_slow_timings_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def cost(_: int) -> float:
        nonlocal calls
        calls += 1
        if calls <= 4:
            return 9.0  # kernels are chosen, the step is captured
        return 1e-3 if 16 <= calls <= 25 else 4e-3  # others are at work, but for ten steps

    Device(monkeypatch, cost)
    assert step_seconds(a_task(), [member()], [6]) == pytest.approx({6: 1e-3})


@pytest.mark.parametrize(("cost", "steps"), [(1e-6, 5 + 5 * 10), (0.02, 5 + 2 * 10), (2.0, 5 + 10)])
def test_slow_steps_are_timed_less_often(cost: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, lambda _: cost)
    step_seconds(a_task(), [member()], [6])
    assert round(device.now / cost) == steps


@pytest.mark.parametrize("fail_at", [0, 3, 20])
def test_what_does_not_fit_the_memory_ends_the_measurement_and_not_the_command(
    fail_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch, lambda _: 1e-3, fit=12, fail_at=fail_at)
    assert list(step_seconds(a_task(), [member()], SIZES)) == [6, 8, 12]
    assert len(device.populations) == 4
    Device(monkeypatch, lambda _: 1e-3, fit=5, fail_at=fail_at)
    assert step_seconds(a_task(), [member()], SIZES) == {}


def test_a_step_that_is_compiled_is_timed_at_the_ends_and_read_off_between(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, lambda members: 40e-6 + members * 5e-6)
    seconds = measured(a_task(fuse=True), [member()])
    assert seconds == pytest.approx({size: 40e-6 + size * 5e-6 for size in SIZES})
    assert [len(population) for population in device.populations] == [6, 32]
    assert widest(seconds) == 8


@pytest.mark.parametrize(
    ("fit", "timed", "known"), [(16, [6, 32, 24, 16], 4), (6, [6, 32, 24, 16, 12, 8], 1), (5, [6], 0)]
)
def test_of_what_is_compiled_the_widest_that_fits_is_an_end(
    fit: int, timed: list[int], known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch, lambda members: members * 1e-6, fit=fit)
    assert measured(a_task(fuse=True), [member()]) == pytest.approx({size: size * 1e-6 for size in SIZES[:known]})
    assert [len(population) for population in device.populations] == timed


@pytest.mark.parametrize(("epochs", "compiled"), [(4, False), (50_000, True)])
def test_what_is_timed_is_compiled_where_the_training_will_be(
    epochs: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Task] = []
    monkeypatch.setattr(generation_size, "_seconds_of_a_step", lambda task, _: asked.append(task) or 1e-3)
    measured(a_task(epochs=epochs), [member()], [6])
    assert [task.fuse for task in asked] == [compiled]


@pytest.mark.parametrize(
    ("seconds", "expected"), [({}, 6), ({6: 1.0}, 6), ({6: 1.0, 8: 1.1, 12: 1.3}, 8)], ids=["none fits", "one", "some"]
)
def test_on_a_gpu_the_measurement_decides(
    seconds: dict[int, float], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu, kinds, sizes = a_task(device=torch.device("cuda")), [member()], (6, 8, 12)
    asked: list[Any] = []
    monkeypatch.setattr(generation_size, "measured", lambda *given: asked.append(given) or seconds)
    assert picked(on_gpu, kinds, sizes) == expected
    assert asked == [(on_gpu, kinds, sizes)]


def test_a_generation_of_several_searches_has_so_many_members_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, lambda _: 1e-3)
    labels = np.arange(192) % 4
    kinds = [member(), member(labels=labels), member(labels=labels, method=METHODS["jocor"])]
    step_seconds(a_task(), kinds, [6, 8])
    for size, population in zip([6, 8], device.populations, strict=True):
        assert len(population) == 3 * size
        for which, kind in enumerate(kinds):
            own = population[which * size : (which + 1) * size]
            assert all(one.method == kind.method and one.labels is kind.labels for one in own)
            assert len({one.seed for one in own}) == size


@pytest.mark.parametrize(
    ("name", "sizes"), [("cpu", SIZES), ("cpu", (4,)), ("cuda", (4,))], ids=["cpu", "cpu, one size", "one size"]
)
def test_nothing_is_measured_on_a_cpu_or_where_there_is_no_choice(
    name: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch, lambda _: 1e-3)
    assert picked(a_task(device=torch.device(name)), [member()], sizes) == sizes[0]
    assert not device.populations


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4))


@pytest.mark.parametrize("network", [small_mlp, with_dropout])
def test_a_real_measurement_gives_seconds_and_leaves_the_random_state_alone(network: Callable[[], nn.Module]) -> None:
    before, precision = torch.get_rng_state(), torch.get_float32_matmul_precision()
    seconds = measured(a_task(network=network), [member(), member(method=METHODS["jocor"])], [2, 64])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_float32_matmul_precision() == precision
    assert 0 < seconds[2] < seconds[64]
