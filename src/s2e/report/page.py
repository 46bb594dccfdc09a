"""The page: everything a report says of some runs, rendered into one HTML file that needs nothing from outside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePath

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from s2e._version import __version__
from s2e.audit.run_audit import AuditedRun, audit_run
from s2e.engine.curves import LAST_EPOCHS
from s2e.errors import InvalidInput, S2EError
from s2e.plots.names import display_name
from s2e.report import formatting
from s2e.report.charts import palette
from s2e.report.figures import (
    MOST_SINGLE_SCHEDULES,
    Figure,
    accuracy_figures,
    phase_figures,
    progress_figure,
    selection_figures,
    spread_figure,
)
from s2e.report.gallery import SORTED_BY, Gallery, gallery
from s2e.report.run_numbers import RunNumbers, Score, read_numbers
from s2e.report.search_story import SearchStory
from s2e.report.summary import sentences
from s2e.runs.directory import Run

MOST_CLASSES = 20
"""A matrix with more would not be read: the classes with the most mistakes are shown."""

LEAST_SHARE = 0.005
"""Smaller shares of a class are written as nothing, for they would come out as 0%."""


@dataclass(frozen=True)
class SearchFigures:
    """How one search went: its title among several, its figures, or why there are none.

    `single` tells whether the figures of its phases show each schedule.
    """

    title: str
    progress: Figure | None
    phases: tuple[Figure, ...]
    spread: Figure | None
    problem: str
    single: bool = False


@dataclass(frozen=True)
class SettingFigures:
    """One noise setting: its title, the scores and the figures; whether R(t) and label precision are among these."""

    title: str
    noise_rate: float | None
    scores: tuple[Score, ...]
    accuracy: tuple[Figure, ...]
    selection: tuple[Figure, ...]
    rates: bool
    precision: bool
    searches: tuple[SearchFigures, ...]


@dataclass(frozen=True)
class Matrix:
    """How classes are mistaken for each other, as far as it is shown.

    Attributes:
        names: of the classes shown, as rows and as columns.
        rows: share of the row's class that was given the column's label.
        total: classes there are.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    total: int


@dataclass(frozen=True)
class LabelVerdicts:
    """What is said about the labels of a run, or why nothing can be."""

    issues: int
    total: int
    noise_rate: float
    doubtful: tuple[str, ...]
    matrix: Matrix | None
    gallery: Gallery | None
    problem: str = ""


@dataclass(frozen=True, eq=False)
class RunReport:
    """Everything the page says of one run."""

    anchor: str
    title: str
    numbers: RunNumbers
    sentences: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    settings: tuple[SettingFigures, ...]
    labels: LabelVerdicts


@dataclass(frozen=True)
class Report:
    """A page, and what was found in the runs it is about, a sentence or more for each."""

    html: str
    sentences: tuple[str, ...]


def report(runs: Sequence[Run], *, data_root: Path | None = None, samples: int = 60) -> Report:
    """Make the page about one run or several; the same runs give the same page.

    Args:
        runs: finished or not.
        data_root: where published data lie; None for where each run found them.
        samples: how many doubtful labels of each run to show, at most.
    """
    if not runs:
        raise InvalidInput("`runs` must name at least one run, but got none.")
    if samples < 0:
        raise InvalidInput(f"`samples` must not be negative, but got {samples}.")
    reports = [_run_report(run, f"run-{place}", data_root, samples) for place, run in enumerate(runs, start=1)]
    return Report(_rendered(reports), tuple(said for one in reports for said in one.sentences))


def _run_report(run: Run, anchor: str, data_root: Path | None, samples: int) -> RunReport:
    numbers = read_numbers(run)
    audited, problem = _audited(run, numbers)
    if audited is None:
        labels = LabelVerdicts(0, 0, 0.0, (), None, None, problem)
    else:
        summary = audited.summary()
        labels = LabelVerdicts(
            issues=summary["issues"],
            total=summary["samples"],
            noise_rate=summary["noise_rate"],
            doubtful=tuple(summary["doubtful_classes"]),
            matrix=matrix(audited),
            gallery=gallery(audited, numbers.config, data_root, samples),
        )
    settings = tuple(
        SettingFigures(
            title=setting.title,
            noise_rate=setting.noise_rate,
            scores=setting.scores,
            accuracy=tuple(accuracy_figures(setting)),
            selection=tuple(selection_figures(setting)),
            rates=bool(setting.keep_rates),
            precision=bool(setting.precision),
            searches=tuple(_search_figures(story) for story in setting.searches),
        )
        for setting in numbers.settings
    )
    title = PurePath(str(numbers.options["data"])).name or "data"
    return RunReport(anchor, title, numbers, sentences(numbers, audited), _facts(numbers), settings, labels)


def _search_figures(story: SearchStory) -> SearchFigures:
    if story.problem:
        return SearchFigures(story.title, None, (), None, story.problem)
    single = any(len(group.schedules) <= MOST_SINGLE_SCHEDULES for group in story.phases)
    phases = tuple(phase_figures(story))
    return SearchFigures(story.title, progress_figure(story), phases, spread_figure(story), "", single)


def _audited(run: Run, numbers: RunNumbers) -> tuple[AuditedRun | None, str]:
    """GenerationPruner the labels of a run, or say why they cannot be judged."""
    if numbers.command == "compare":
        what = "A comparison keeps no record of single samples, so that its labels cannot be judged"
        return None, f"{what}; a run of s2e search or s2e train does."
    try:
        return audit_run(run), ""
    except S2EError as problem:
        return None, f"The labels cannot be judged: {problem}"


def matrix(audited: AuditedRun) -> Matrix:
    """Return the estimated noise matrix; of many classes, those with the most mistakes in rows and columns."""
    transition = audited.verdicts.transition
    total = len(transition)
    mistakes = transition - np.diag(transition.diagonal())
    most = np.argsort(-(mistakes.sum(axis=0) + mistakes.sum(axis=1)), kind="stable")[:MOST_CLASSES]
    shown = np.sort(most)
    rows = tuple(tuple(float(share) for share in transition[row, shown]) for row in shown)
    return Matrix(tuple(audited.class_names[place] for place in shown), rows, total)


def _facts(run: RunNumbers) -> tuple[tuple[str, str], ...]:
    """Return what a reader must know to repeat the run, in a few words each."""
    options, config = run.options, run.config
    parts = {"train": "for training", "valid": "for validation", "test": "for the test"}
    samples = [f"{formatting.count(run.samples[part])} {what}" for part, what in parts.items() if part in run.samples]
    noises = [
        f"{setting.title}{'' if setting.noise_rate is None else f' ({formatting.percent(setting.noise_rate)} wrong)'}"
        for setting in run.settings
    ]
    validated = {
        "clean": "labels that are trusted",
        "noisy": "labels as doubtful as the others",
        "relabelled": "labels as doubtful as the others, relabelled",
    }.get(run.validation, "")
    trained = f"{options['epochs']} epochs, network {config['network']}"
    if run.command != "compare":
        trained = f"{display_name(options['method'])}, {trained}"
    searched = ""
    if "sampler" in options:
        trials = f"{options['trials']} training{'' if options['trials'] == 1 else 's'}"
        searched = f"{trials}, sampler {options['sampler']}, space {options['space']}"
    made = f"s2e {run.command}, version {config['versions']['s2e']}"
    facts = {
        "Run": run.name,
        "Data": str(options["data"]),
        "Samples": ", ".join(samples),
        "Labels": "; ".join(noises),
        "Validation": validated,
        "Training": trained,
        "Search": searched,
        "Made by": f"{made}, {run.place}" if run.place else made,
    }
    return tuple((name, value) for name, value in facts.items() if value)


# Rendering


def _rendered(reports: Sequence[RunReport]) -> str:
    environment = Environment(
        loader=PackageLoader("s2e.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"percent": formatting.percent, "count": formatting.count, "listing": formatting.listing}
    environment.globals |= {
        "accuracy": formatting.accuracy,
        "last_epochs": LAST_EPOCHS,
        "least_share": LEAST_SHARE,
        "sorted_by": SORTED_BY,
        "version": __version__,
    }
    script = _text("gallery.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    methods = list(dict.fromkeys(score.name for one in reports for part in one.settings for score in part.scores))
    return environment.get_template("page.html.j2").render(
        runs=reports,
        methods=methods,
        style=_text("page.css"),
        light=palette(dark=False),
        dark=palette(dark=True),
        script=script,
        script_digest=digest,
    )


def _text(name: str) -> str:
    return (files("s2e.report") / "templates" / name).read_text(encoding="utf-8")


def write_report(report: Report, path: Path) -> None:
    """Write the page to a file, whole or not at all."""
    if path.is_dir():
        raise InvalidInput(f"`out` must be a file, but {str(path)!r} is a directory; add a name such as report.html.")
    try:
        Run(path.parent).write_text(path.name, report.html)
    except OSError as problem:
        reason = problem.strerror or problem
        raise InvalidInput(f"`out` must be a file that can be written, but {str(path)!r} is not: {reason}.") from None
