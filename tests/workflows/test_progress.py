"""Progress: callbacks, plain lines, and bars on a terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.progress import Progress

from listeners import Log
from s2e.callbacks import Callback, FunctionCallback, RunEnded, RunStarted
from s2e.engine.curves import Curves
from s2e.engine.task import EpochFinished
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import Standard
from s2e.studies import GenerationFinished
from s2e.workflows import progress as progress_module
from s2e.workflows.progress import Bars, CallbackListener, Lines, notified, progress
from small_tasks import blobs, member, task

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def console(*, terminal: bool, width: int = 200) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=width, highlight=False, soft_wrap=not terminal), text


def after_epoch(epoch: int, first: int = 0, last: int = 4, members: int = 4, epochs: int = 6) -> EpochFinished:
    return EpochFinished(epoch, epochs, tuple(range(first, last)), members, Curves.empty(last - first, epochs, []))


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress_module, "time", made)
    return made


# ------------------------------------------------------------------------------------------------ callbacks


class Recorder(Callback):
    """Records the names of all calls, and gives the same answer to each."""

    def __init__(self, answer: bool | None = None) -> None:
        self.answer, self.calls, self.ended = answer, [], None

    def on_start(self, started):
        self.calls.append(f"start {started.command}")

    def on_stage(self, name, epochs):
        self.calls.append(f"stage {name} {epochs}")

    def on_epoch(self, done):
        self.calls.append(f"epoch {done.epoch}")
        return self.answer

    def on_generation(self, done):
        self.calls.append(f"generation {done.finished}")
        return self.answer

    def on_end(self, ended):
        self.ended = ended


def test_true_from_on_epoch_stops_all_members_of_the_population() -> None:
    listener = CallbackListener([FunctionCallback(on_epoch=lambda done: done.epoch == 2)])
    for epoch, stopped in ((1, ()), (2, (1, 2)), (3, (1, 2))):
        listener.epoch(after_epoch(epoch, first=1, last=3))
        assert listener.members_to_stop(after_epoch(epoch, first=1, last=3)) == stopped


def test_true_from_on_epoch_stops_a_search_after_its_generation() -> None:
    listener = CallbackListener([FunctionCallback(on_epoch=lambda done: done.epoch == 2)])
    for epoch in (1, 2, 3):
        listener.epoch(after_epoch(epoch))
    assert listener.generation(GenerationFinished(4, 8, 4, (0.5,))) is True


def test_only_true_from_on_generation_stops_the_search() -> None:
    for answer in (True, False, None, 1):
        listener = CallbackListener([FunctionCallback(on_generation=lambda _, answer=answer: answer)])
        assert listener.generation(GenerationFinished(4, 8, 4, (0.5,))) is (True if answer is True else None)
        assert listener.stopped is (answer is True)


def test_stop_after_the_last_generation_is_no_early_stop() -> None:
    listener = CallbackListener([FunctionCallback(on_generation=lambda _: True)])
    listener.generation(GenerationFinished(8, 8, 4, (0.5,)))
    assert not listener.stopped


def test_every_callback_receives_every_event_also_after_one_has_stopped() -> None:
    first, second, shown = Recorder(answer=True), Recorder(), Log()
    with notified([first, second], RunStarted("search", {}), shown) as listener:
        listener.stage("search", 3)
        listener.epoch(after_epoch(1))
        listener.generation(GenerationFinished(4, 8, 4, (0.5,)))
        listener.note("a remark")
        listener.metrics = {"validation_accuracy": 0.5}
    assert first.calls == second.calls == ["start search", "stage search 3", "epoch 1", "generation 4"]
    assert second.ended == RunEnded({"validation_accuracy": 0.5})
    assert (shown.stage_names, len(shown.epochs), len(shown.generations)) == (["search"], 1, 1)
    assert shown.notes == ["a remark"]


def test_a_run_that_fails_ends_with_its_error_and_without_metrics() -> None:
    recorder = Recorder()

    def fail() -> None:
        with notified([recorder], RunStarted("search", {})) as listener:
            listener.metrics = {"validation_accuracy": 0.5}
            listener.stage("search", 3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert isinstance(recorder.ended.error, KeyboardInterrupt)
    assert recorder.ended.metrics == {}


def test_a_run_that_is_refused_before_its_first_stage_neither_starts_nor_ends() -> None:
    recorder = Recorder()
    with pytest.raises(InvalidInput), notified([recorder], RunStarted("search", {})):
        raise InvalidInput("`x` must be given.")
    assert (recorder.calls, recorder.ended) == ([], None)


def test_only_callbacks_that_received_the_start_receive_the_end() -> None:
    class Refusing(Recorder):
        def on_start(self, started):  # noqa: ARG002
            raise InvalidInput("`where` must exist.")

    first, refusing, last = Recorder(), Refusing(), Recorder()
    with pytest.raises(InvalidInput), notified([first, refusing, last], RunStarted("search", {})) as listener:
        listener.stage("search", 3)
    assert [each.ended is not None for each in (first, refusing, last)] == [True, False, False]
    assert last.calls == []


# ------------------------------------------------------------------------------------------------ lines


def test_without_a_terminal_each_stage_and_generation_is_a_line(clock: Clock) -> None:
    where, text = console(terminal=False)
    with progress(where) as listener:
        listener.stage("search", 12)
        for generation in (1, 2):
            for epoch in range(1, 7):
                listener.epoch(after_epoch(epoch))
            clock.now += 7
            listener.generation(GenerationFinished(4 * generation, 8, 4, (0.4 + 0.05 * generation,)))
        clock.now += 1000
        listener.stage("[bold]final training[/]", 6)
        clock.now += 3
        listener.generation(GenerationFinished(4, 4, 4, (1.0,)))
        listener.note("a remark")
    assert text.getvalue().splitlines() == [
        "search: 12 epochs",
        "generation 1/2, trial 4/8: best validation accuracy 45.00%, 7 s, about 7 s left",
        "generation 2/2, trial 8/8: best validation accuracy 50.00%, 14 s, about 0 s left",
        "[bold]final training[/]: 6 epochs",
        "generation 1/1, trial 4/4: best validation accuracy 100.00%, 3 s, about 0 s left",
        "a remark",
    ]


def test_epochs_are_printed_at_most_every_ten_seconds(clock: Clock) -> None:
    where, text = console(terminal=False)
    lines = Lines(where)
    lines.stage("training", 100)
    for epoch in range(1, 101):
        clock.now += 0.5
        lines.epoch(after_epoch(epoch, first=2, last=4, members=6, epochs=100))
    assert text.getvalue().splitlines()[1:] == [
        f"  epoch {epoch}/100, 2 of 6 members" for epoch in (20, 40, 60, 80, 100)
    ]


# ------------------------------------------------------------------------------------------------ bars


@pytest.mark.parametrize(("width", "searches"), [(80, 8), (200, 1)])
def test_terminal_shows_stage_progress_and_best(width: int, searches: int) -> None:
    where, text = console(terminal=True, width=width)
    best = tuple(0.4608 + 0.01 * search for search in range(searches))
    with progress(where) as listener:
        assert isinstance(listener, Bars)
        listener.stage("f-correction, coteaching+, decoupling", 12000)
        listener.stage("search", 12000)
        listener.epoch(after_epoch(1))
        listener.generation(GenerationFinished(1, 2, 1, best))
    assert ESCAPE.search(text.getvalue())
    shown = ESCAPE.sub("", text.getvalue()).rpartition("\r")[2].splitlines()
    assert all(len(line) <= width for line in shown)
    assert "…" not in "".join(shown)
    shown_best = ["46.08%"] if searches == 1 else ["46.08%", "53.08%"]  # of many, the range
    expected = {"f-correction,", "decoupling", "search", "0/12000", "1/12000", "1/2,", "best", *shown_best}
    assert expected <= set(" ".join(shown).split())
    if width == 200 and searches == 1:
        assert len([line for line in shown if line.strip()]) == 2, "one line for each stage"


def test_on_a_narrow_terminal_words_wrap_and_figures_do_not() -> None:
    where, text = console(terminal=True, width=48)
    with progress(where) as listener:
        listener.stage("f-correction, coteaching+, decoupling", 120000)
        listener.epoch(after_epoch(1))
        listener.generation(GenerationFinished(1, 2, 1, (0.4608, 0.4708, 0.4808)))
    assert "1/120000 -:--:--" in " ".join(ESCAPE.sub("", text.getvalue()).split())


def bars() -> tuple[Bars, Progress]:
    inner = Progress(console=console(terminal=True)[0], auto_refresh=False)
    return Bars(inner), inner


def test_each_stage_has_its_own_bar() -> None:
    listener, inner = bars()
    listener.stage("search", 6)
    listener.epoch(after_epoch(1, first=0, last=3, members=4))
    assert inner.tasks[0].completed == 0.75  # a chunk of three of four members
    listener.epoch(after_epoch(1, first=3, last=4, members=4))
    listener.stage("final training", 3)
    listener.epoch(after_epoch(1))
    listener.epoch(after_epoch(2))
    assert [(bar.description, bar.completed, bar.total) for bar in inner.tasks] == [
        ("search", 1, 6),
        ("final training", 2, 3),
    ]


@pytest.mark.parametrize("chunk", [None, 3])
def test_training_completes_the_bar_however_it_is_chunked(chunk: int | None) -> None:
    listener, inner = bars()
    listener.stage("training", 3)
    members = [member(seed=seed, epochs=3) for seed in range(4)]
    train_population(task(blobs(), Standard(), epochs=3, chunk=chunk), members, on_epoch=listener.epoch)
    assert inner.tasks[0].completed == pytest.approx(3)
