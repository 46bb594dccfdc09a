"""Which figures a run gets, from its numbers: each with a legend, and its values as a small table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from s2e.report.charts import Chart, Dot, Line, Look, looks, svg, swatch
from s2e.report.formatting import listing, percent
from s2e.report.run_numbers import Curve, Setting
from s2e.report.search_story import SearchStory

ROWS_OF_VALUES = 10
"""Epochs whose values are written out below a figure; the run's own files have all."""

START = 0.05
"""Share of the epochs in which accuracies rise from nothing: they would take up half of a figure's height."""

MOST_SINGLE_SCHEDULES = 12
SMALL = (290, 200)
"""Size of charts of which three stand side by side."""

_FOUND, _QUIET = Look("--of-s2e", (), 2.2), Look("--ink-2", (), 1.0)


@dataclass(frozen=True)
class Figure:
    """A figure ready for a page.

    Attributes:
        title: what it shows.
        drawing: SVG.
        legend: a piece of each line, and what it is.
        header: of its values.
        rows: its values as text.
    """

    title: str
    drawing: Markup
    legend: tuple[tuple[Markup, str], ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def accuracy_figures(setting: Setting) -> list[Figure]:
    """Draw accuracy by epoch, on test data where there are some and on validation data."""
    found = []
    if setting.test:
        found.append(_by_epoch("Test accuracy by epoch", setting.test, skipped=START))
    if setting.validation:
        found.append(_by_epoch("Validation accuracy by epoch", setting.validation, skipped=START))
    return found


def selection_figures(setting: Setting) -> list[Figure]:
    """Draw R(t) of methods that have one, and the label precision where it is known."""
    found = []
    if setting.keep_rates:
        found.append(_by_epoch("Keep rate R(t)", setting.keep_rates, whole=True))
    if setting.precision:
        found.append(_by_epoch("Label precision by epoch", setting.precision))
    return found


def _by_epoch(title: str, curves: Sequence[Curve], *, whole: bool = False, skipped: float = 0.0) -> Figure:
    lines = tuple(
        Line(curve.name, look, np.arange(len(curve.mean), dtype=np.float64), curve.mean, curve.low, curve.high)
        for curve, look in zip(curves, looks([curve.look for curve in curves]), strict=True)
    )
    epochs = max(len(curve.mean) for curve in curves)
    ends = [f"{curve.name} {percent(_last(curve))}" for curve in curves]
    about = f"One line for each method over {epochs} epochs. In the last epoch: {listing(ends)}."
    on_top = sorted(lines, key=lambda line: line.look.width)  # the wider above the others, as in the other figures
    chart = Chart(title, about, "epoch", tuple(on_top), whole=whole, skipped=skipped)
    at = np.unique(np.linspace(0, epochs - 1, min(epochs, ROWS_OF_VALUES)).round().astype(int))
    rows = [(str(epoch), *(percent(float(curve.mean[epoch])) for curve in curves)) for epoch in at.tolist()]
    return _figure(chart, lines, ("epoch", *(curve.name for curve in curves)), rows)


def _last(curve: Curve) -> float:
    known = curve.mean[np.isfinite(curve.mean)]
    return float(known[-1]) if len(known) else float("nan")


def _figure(chart: Chart, legend: Sequence[Line], header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Figure:
    named = tuple((swatch(line.look), line.name) for line in legend if line.name)
    return Figure(chart.title, svg(chart), named, tuple(header), tuple(rows))


# The search


def progress_figure(story: SearchStory) -> Figure:
    """Draw every trial, and the best so far, against what the search had cost."""
    best = story.best_so_far
    spent = np.array([one.spent for one in story.tried])
    steps = np.repeat(np.arange(len(best)), 2)  # a flat piece to each trial, then up
    stairs = Line("best so far", _FOUND, spent[steps[1:]], best[steps[:-1]])
    dots = tuple(
        Dot(
            one.spent,
            one.accuracy,
            f"trial {one.number}: {percent(one.accuracy)}{', stopped early' if one.stopped else ''}"
            f"{', chosen' if one.number == story.chosen else ''}",
            hollow=one.stopped,
            ringed=one.number == story.chosen,
        )
        for one in story.tried
    )
    about = f"{len(story.tried)} schedules tried; the best validation accuracy is {percent(float(best[-1]))}."
    chart = Chart("Best validation accuracy so far", about, "trainings", (stairs,), dots)
    rises = [i for i in range(len(best)) if i == 0 or best[i] > best[i - 1] or i == len(best) - 1]
    rows = [(f"{spent[i]:.4g}", str(story.tried[i].number), percent(float(best[i]))) for i in rises]
    figure = _figure(chart, [stairs], ("trainings", "trial", "best so far"), rows)
    marks = [(_mark(""), "a schedule")]
    if any(one.stopped for one in story.tried):
        marks.append((_mark(" hollow"), "stopped early"))
    if any(one.number == story.chosen for one in story.tried):
        marks.append((_mark(" ringed"), "chosen"))
    return Figure(figure.title, figure.drawing, (*figure.legend, *marks), figure.header, figure.rows)


def _mark(kind: str) -> Markup:
    return Markup(
        '<svg class="swatch" aria-hidden="true" viewBox="0 0 34 8"><circle class="dot{}" cx="17" cy="4" r="3"/></svg>'
    ).format(kind)


def phase_figures(story: SearchStory) -> list[Figure]:
    """Draw the schedules of the first group of trials, of the one in the middle and of the last, on equal axes."""
    found = []
    for group in story.phases:
        count, epochs = group.schedules.shape
        x = np.arange(epochs, dtype=np.float64)
        shown = group.schedules if count <= MOST_SINGLE_SCHEDULES else group.schedules[:0]
        single = [Line("", _QUIET, x, schedule, faint=True) for schedule in shown]
        mean = Line("", _FOUND, x, group.mean, group.mean - group.deviation, group.mean + group.deviation)
        about = f"Keep rates of {count} schedules by epoch; their spread is {percent(group.spread)}."
        at = np.unique(np.linspace(0, epochs - 1, min(epochs, ROWS_OF_VALUES)).round().astype(int)).tolist()
        rows = [(str(t), percent(float(group.mean[t])), percent(float(group.deviation[t]))) for t in at]
        chart = Chart(group.title, about, "epoch", (*single, mean), whole=True, size=SMALL)
        found.append(_figure(chart, [], ("epoch", "mean", "deviation"), rows))
    return found


def spread_figure(story: SearchStory) -> Figure | None:
    """Draw how far apart the schedules of each group lie; None where there is one group only."""
    if len(story.groups) < 2:
        return None
    x = np.array([group.last for group in story.groups], dtype=np.float64)
    y = np.array([group.spread for group in story.groups])
    about = f"The spread of the schedules goes from {percent(float(y[0]))} to {percent(float(y[-1]))}."
    line = Line("", _FOUND, x, y, dots=True)
    chart = Chart("Spread of the schedules", about, "generation", (line,))
    rows = [(group.title.split(" ", 1)[1], percent(group.spread)) for group in story.groups]
    return _figure(chart, [line], ("generation", "spread"), rows)
