"""Progress and result tables: bars on a terminal, plain lines elsewhere, and what the columns say."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress

from s2e.cli.tables import result_table
from s2e.engine.curves import Curves
from s2e.engine.task import Progress
from s2e.engine.training import train_population
from s2e.methods import Standard
from s2e.studies.loop import GenerationFinished
from s2e.workflows import progress as progress_module
from s2e.workflows.progress import Bars, Lines, progress
from small_tasks import blobs, member, task

ESCAPE = "\x1b"


def console(*, terminal: bool, width: int = 200) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=width, highlight=False, soft_wrap=not terminal), text


def after_epoch(epoch: int, first: int = 0, last: int = 4, members: int = 4, epochs: int = 6) -> Progress:
    return Progress(epoch, epochs, tuple(range(first, last)), members, Curves.empty(last - first, epochs, []))


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress_module, "time", made)
    return made


# Lines


def test_elsewhere_than_on_a_terminal_there_is_one_plain_line_for_a_stage_and_for_a_generation(clock: Clock) -> None:
    where, text = console(terminal=False)
    with progress(where) as watch:
        watch.stage("search", 12)
        for generation in (1, 2):
            for epoch in range(1, 7):
                watch.epoch(after_epoch(epoch))
            clock.now += 7
            watch.generation(GenerationFinished(4 * generation, 8, 4, (0.4 + 0.05 * generation,)))
        watch.stage("final training", 6)
    assert text.getvalue().splitlines() == [
        "search: 12 epochs",
        "generation 1/2, trial 4/8: best validation accuracy 45.00%, 7 s, about 7 s left",
        "generation 2/2, trial 8/8: best validation accuracy 50.00%, 14 s, about 0 s left",
        "final training: 6 epochs",
    ]


def test_lines_hold_no_escape_codes_and_no_markup(clock: Clock) -> None:
    where, text = console(terminal=False)
    with progress(where) as watch:
        assert isinstance(watch, Lines)
        watch.stage("[bold]stage[/]", 3)
        clock.now += 11
        watch.epoch(after_epoch(1))
    assert ESCAPE not in text.getvalue()
    assert text.getvalue().startswith("[bold]stage[/]: 3 epochs\n")


def test_epochs_are_mentioned_every_ten_seconds_at_most(clock: Clock) -> None:
    where, text = console(terminal=False)
    lines = Lines(where)
    lines.stage("training", 100)
    for epoch in range(1, 101):
        clock.now += 0.5
        lines.epoch(after_epoch(epoch, first=2, last=4, members=6, epochs=100))
    assert text.getvalue().splitlines()[1:] == [
        f"  epoch {epoch}/100, 2 of 6 members" for epoch in (20, 40, 60, 80, 100)
    ]


def test_a_stage_counts_its_own_time(clock: Clock) -> None:
    where, text = console(terminal=False)
    lines = Lines(where)
    clock.now += 1000
    lines.stage("search", 6)
    clock.now += 3
    lines.generation(GenerationFinished(4, 4, 4, (1.0,)))
    assert text.getvalue().splitlines()[-1] == (
        "generation 1/1, trial 4/4: best validation accuracy 100.00%, 3 s, about 0 s left"
    )


# Bars


def test_on_a_terminal_there_is_a_bar_with_the_best_so_far() -> None:
    where, text = console(terminal=True)
    with progress(where) as watch:
        assert isinstance(watch, Bars)
        watch.stage("search", 6)
        for epoch in range(1, 7):
            watch.epoch(after_epoch(epoch))
        watch.generation(GenerationFinished(4, 8, 4, (0.46078,)))
        watch.stage("final training", 6)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue())
    assert ESCAPE in text.getvalue()
    assert re.search(r"search\s+━+\s+6/6 .*left, generation 1/2, best 46\.08%", shown)
    assert re.search(r"final training\s+━+\s+0/6 ", shown)


@pytest.mark.parametrize("searches", [1, 3, 8])
@pytest.mark.parametrize("stage", ["search", "4 methods", "f-correction, coteaching+, decoupling"])
@pytest.mark.parametrize("width", [80, 100, 200])
def test_stage_share_done_and_best_are_readable_on_80_columns_and_more(width: int, stage: str, searches: int) -> None:
    where, text = console(terminal=True, width=width)
    best = tuple(0.4608 + 0.01 * search for search in range(searches))
    with progress(where) as watch:
        watch.stage(stage, 12000)
        watch.stage("search", 12000)
        watch.epoch(after_epoch(1))
        watch.generation(GenerationFinished(1, 2, 1, best))
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue()).rpartition("\r")[2].splitlines()
    assert all(len(line) <= width for line in shown)
    assert "…" not in "".join(shown)
    words = " ".join(shown).split()
    named = best if searches < 8 else (best[0], best[-1])  # of many, from the worst to the best
    figures = ["0/12000", "1/12000", *(f"{100 * one:.2f}%" for one in named)]
    assert not {*stage.split(), "search", "1/2,", "best", *figures} - {*words}
    if width == 200 and searches < 8:
        assert len([line for line in shown if line.strip()]) == 2, "a line for each stage where there is room"


def test_on_few_columns_words_are_broken_rather_than_the_share_done() -> None:
    where, text = console(terminal=True, width=48)
    with progress(where) as watch:
        watch.stage("f-correction, coteaching+, decoupling", 120000)
        watch.epoch(after_epoch(1))
        watch.generation(GenerationFinished(1, 2, 1, (0.4608, 0.4708, 0.4808)))
    assert "1/120000 -:--:--" in " ".join(text.getvalue().replace("\x1b[36m", "").replace("\x1b[0m", "").split())


def bars() -> tuple[Bars, RichProgress]:
    inner = RichProgress(console=console(terminal=True)[0], auto_refresh=False)
    return Bars(inner), inner


def test_a_chunk_moves_the_bar_by_its_share_of_the_members() -> None:
    watch, inner = bars()
    watch.stage("search", 6)
    watch.epoch(after_epoch(1, first=0, last=3, members=4))
    assert inner.tasks[0].completed == 0.75
    watch.epoch(after_epoch(1, first=3, last=4, members=4))
    assert inner.tasks[0].completed == 1


def test_a_new_stage_moves_a_bar_of_its_own() -> None:
    watch, inner = bars()
    watch.stage("search", 6)
    watch.epoch(after_epoch(1))
    watch.stage("final training", 3)
    watch.epoch(after_epoch(1))
    watch.epoch(after_epoch(2))
    assert [(bar.description, bar.completed, bar.total) for bar in inner.tasks] == [
        ("search", 1, 6),
        ("final training", 2, 3),
    ]


@pytest.mark.parametrize("chunk", [None, 1, 2, 3])
def test_a_training_moves_the_bar_to_its_end_however_it_is_chunked(chunk: int | None) -> None:
    watch, inner = bars()
    watch.stage("training", 3)
    members = [member(seed=seed, epochs=3) for seed in range(4)]
    train_population(task(blobs(), Standard(), epochs=3, chunk=chunk), members, on_epoch=watch.epoch)
    assert inner.tasks[0].completed == pytest.approx(3)


# Tables


def a_row(name: str, *parts: str, precision: float | None = 0.75, diverged: bool = False) -> dict[str, Any]:
    accuracy = {"last_10_epochs": 0.5, "best_epoch": 0.625, "at_epoch": 3}
    shown = dict.fromkeys(("valid", *parts), accuracy)
    return {"name": name, "method": "coteaching", **shown, "label_precision": precision, "diverged": diverged}


def a_result(*rows: dict[str, Any], test: bool, **changes: Any) -> dict[str, Any]:
    samples = {"train": 80, "valid": 20} | ({"test": 30} if test else {})
    plain = {
        "epochs": 20,
        "noise_rate": 0.4396,
        "validation": "clean",
        "samples": samples,
        "device": "cpu",
        "seconds": 2.6,
    }
    return {"methods": list(rows), **plain, **changes}


def printed(result: dict[str, Any]) -> list[str]:
    where, text = console(terminal=False)
    where.print(result_table(result))
    return text.getvalue().splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]


def test_a_table_shows_the_test_part_where_there_is_one() -> None:
    lines = printed(a_result(a_row("Standard", "test"), a_row("S2E", "test"), test=True, search={"trials": 8}))
    assert cells(lines[1]) == ["method", "test accuracy, last 10 epochs", "best epoch", "label precision"]
    assert cells(lines[3]) == ["Standard", "50.00%", "62.50%", "75.00%"]
    assert cells(lines[4]) == ["S2E", "50.00%", "62.50%", "75.00%"]
    assert lines[-1].strip() == "43.96% of the training labels are wrong, 8 schedules searched, 3 s on cpu"


@pytest.mark.parametrize("validation", ["clean", "noisy"])
def test_a_table_says_that_its_figures_are_of_validation_where_there_is_no_test_part(validation: str) -> None:
    lines = printed(a_result(a_row("S2E"), test=False, validation=validation))
    assert cells(lines[1])[1] == f"accuracy on {validation} validation data, last 10 epochs"
    assert cells(lines[3]) == ["S2E", "50.00%", "62.50%", "75.00%"]


def test_a_table_says_what_nobody_knows() -> None:
    lines = printed(a_result(a_row("S2E", precision=None), test=False, noise_rate=None))
    assert cells(lines[3])[3] == "unknown"
    assert lines[-1].strip() == "share of wrong labels unknown, 3 s on cpu"


def test_a_table_marks_what_diverged() -> None:
    lines = printed(a_result(a_row("Standard", "test", diverged=True), a_row("S2E", "test"), test=True))
    assert [cells(line)[0] for line in lines[3:5]] == ["Standard (diverged)", "S2E"]


def test_a_label_precision_of_zero_is_not_unknown() -> None:
    assert cells(printed(a_result(a_row("S2E", precision=0.0), test=False, noise_rate=0.0))[3])[3] == "0.00%"


def test_the_largest_figure_a_table_shows_is_100_percent() -> None:
    row = a_row("S2E", "test", precision=float(np.nextafter(1, 0)))
    assert cells(printed(a_result(row, test=True))[3])[3] == "100.00%"
