"""The figures of a report, from the numbers of a run: each with a legend and a short table of its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from s2e.report.charts import Chart, Dot, Line, LineStyle, dot_swatch, line_styles, line_swatch, svg
from s2e.report.formatting import listing, percent
from s2e.report.label_numbers import Reliability
from s2e.report.run_numbers import Curve, Setting
from s2e.report.search_history import SearchHistory

MAX_TABLE_ROWS = 10
"""Maximum number of epochs in the table below a figure."""

FIRST_EPOCHS = 0.05
"""Share of the epochs in which accuracy rises steeply; the limits of the vertical axis ignore it."""

MAX_SINGLE_SCHEDULES = 12
"""Maximum number of schedules of a group that are drawn individually."""

SMALL = (290, 200)
"""Size of charts that are shown three in a row."""

_EMPHASISED, _BACKGROUND = LineStyle("--of-s2e", (), 2.2), LineStyle("--ink-2", (), 1.0)


@dataclass(frozen=True)
class Figure:
    """A figure ready for the page.

    Attributes:
        title: title of the figure.
        drawing: SVG.
        legend: SVG and name of each entry.
        header: header of the table of values.
        rows: rows of the table of values.
    """

    title: str
    drawing: str
    legend: tuple[tuple[str, str], ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def accuracy_figures(setting: Setting) -> list[Figure]:
    """Draw test accuracy, if there is test data, and validation accuracy by epoch."""
    found = []
    if setting.test:
        found.append(_by_epoch("Test accuracy by epoch", setting.test, ignored_start=FIRST_EPOCHS))
    if setting.validation:
        found.append(_by_epoch("Validation accuracy by epoch", setting.validation, ignored_start=FIRST_EPOCHS))
    return found


def selection_figures(setting: Setting) -> list[Figure]:
    """Draw R(t) of the methods that have one, and label precision if it is known."""
    found = []
    if setting.keep_rates:
        found.append(_by_epoch("Keep rate R(t)", setting.keep_rates, full_range=True))
    if setting.precision:
        found.append(_by_epoch("Label precision by epoch", setting.precision))
    return found


def _by_epoch(title: str, curves: Sequence[Curve], *, full_range: bool = False, ignored_start: float = 0.0) -> Figure:
    lines = tuple(
        Line(curve.name, style, np.arange(len(curve.mean), dtype=np.float64), curve.mean, curve.low, curve.high)
        for curve, style in zip(curves, line_styles([curve.method for curve in curves]), strict=True)
    )
    epochs = max(len(curve.mean) for curve in curves)
    last = [f"{curve.name} {percent(_last(curve))}" for curve in curves]
    description = f"One line for each method over {epochs} epochs. In the last epoch: {listing(last)}."
    wide_on_top = tuple(sorted(lines, key=lambda line: line.style.width))
    chart = Chart(title, description, "epoch", wide_on_top, full_range=full_range, ignored_start=ignored_start)
    rows = [(str(epoch), *(percent(float(curve.mean[epoch])) for curve in curves)) for epoch in _table_epochs(epochs)]
    return _figure(chart, lines, ("epoch", *(curve.name for curve in curves)), rows)


def _last(curve: Curve) -> float:
    known = curve.mean[np.isfinite(curve.mean)]
    return float(known[-1]) if len(known) else float("nan")


def _table_epochs(epochs: int) -> list[int]:
    shown = np.linspace(0, epochs - 1, min(epochs, MAX_TABLE_ROWS)).round().astype(int)
    return [int(epoch) for epoch in np.unique(shown)]


def _figure(
    chart: Chart,
    lines: Sequence[Line],
    header: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    dots: Sequence[tuple[str, str]] = (),
) -> Figure:
    """Draw a chart, with a legend of the named lines and the dots."""
    legend = [(line_swatch(line.style), line.name) for line in lines if line.name]
    return Figure(chart.title, svg(chart), (*legend, *dots), tuple(header), tuple(rows))


# The search


def progress_figure(history: SearchHistory) -> Figure:
    """Draw every trial, and the best so far, against the cost of the search."""
    best, trials = history.best_so_far, history.trials
    cost = np.array([trial.cost for trial in trials])
    steps = np.repeat(np.arange(len(best)), 2)  # horizontal up to each trial, then vertical
    line = Line("best so far", _EMPHASISED, cost[steps[1:]], best[steps[:-1]])
    dots = tuple(
        Dot(
            trial.cost,
            trial.accuracy,
            f"trial {trial.number}: {percent(trial.accuracy)}{', stopped early' if trial.pruned else ''}"
            f"{', selected' if trial.number == history.selected else ''}",
            hollow=trial.pruned,
            ringed=trial.number == history.selected,
        )
        for trial in trials
    )
    description = f"{len(trials)} trials; the best validation accuracy is {percent(float(best[-1]))}."
    chart = Chart("Best validation accuracy so far", description, "full trainings", (line,), dots)
    improved = [i for i in range(len(best)) if i == 0 or best[i] > best[i - 1] or i == len(best) - 1]
    rows = [(f"{cost[i]:.4g}", str(trials[i].number), percent(float(best[i]))) for i in improved]
    legend = [(dot_swatch(), "trial")]
    if any(trial.pruned for trial in trials):
        legend.append((dot_swatch("hollow"), "stopped early"))
    if any(trial.number == history.selected for trial in trials):
        legend.append((dot_swatch("ringed"), "selected"))
    return _figure(chart, [line], ("full trainings", "trial", "best so far"), rows, legend)


def phase_figures(history: SearchHistory) -> list[Figure]:
    """Draw the schedules of the first, middle and last group of trials on equal axes."""
    found = []
    for group in history.phases:
        count, epochs = group.schedules.shape
        x = np.arange(epochs, dtype=np.float64)
        shown = group.schedules if count <= MAX_SINGLE_SCHEDULES else group.schedules[:0]
        single = [Line("", _BACKGROUND, x, schedule, faint=True) for schedule in shown]
        mean = Line("", _EMPHASISED, x, group.mean, group.mean - group.deviation, group.mean + group.deviation)
        description = f"Keep rates of {count} schedules by epoch; their spread is {percent(group.spread)}."
        rows = [
            (str(epoch), percent(float(group.mean[epoch])), percent(float(group.deviation[epoch])))
            for epoch in _table_epochs(epochs)
        ]
        chart = Chart(group.title, description, "epoch", (*single, mean), full_range=True, size=SMALL)
        found.append(_figure(chart, [], ("epoch", "mean", "standard deviation"), rows))
    return found


def spread_figure(history: SearchHistory) -> Figure | None:
    """Draw the spread of the schedules of each group; None for a single group."""
    if len(history.groups) < 2:
        return None
    x = np.array([group.last for group in history.groups], dtype=np.float64)
    y = np.array([group.spread for group in history.groups])
    description = f"The spread of the schedules goes from {percent(float(y[0]))} to {percent(float(y[-1]))}."
    line = Line("", _EMPHASISED, x, y, dots=True)
    chart = Chart("Spread of the schedules", description, "generation", (line,))
    rows = [(group.generations, percent(group.spread)) for group in history.groups]
    return _figure(chart, [line], ("generation", "spread"), rows)


# The label audit


def reliability_figure(known: Reliability) -> Figure:
    """Draw the share of correct labels against their quality, beside the line on which both are equal."""
    ends = np.array([0.0, 100.0])
    equal = Line("equal", LineStyle("--ink-2", (4, 3), 1.0), ends, ends / 100)
    observed = Line("correct labels", _EMPHASISED, 100 * known.quality, known.correct, dots=True)
    description = f"Labels in {len(known.counts)} intervals of quality, with the share of them that is correct."
    chart = Chart("Correct labels by quality", description, "quality (%)", (equal, observed), full_range=True)
    rows = [
        (percent(float(quality)), percent(float(correct)), str(count))
        for quality, correct, count in zip(known.quality, known.correct, known.counts.tolist(), strict=True)
    ]
    return _figure(chart, [observed, equal], ("mean quality", "correct", "labels"), rows)
