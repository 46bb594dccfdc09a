"""The page: the contents of a report on one or several runs, rendered into one self-contained HTML file."""

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
from s2e.audit import AuditedRun, audit_run
from s2e.engine import LAST_EPOCHS
from s2e.errors import InvalidInput, S2EError
from s2e.plots import display_name
from s2e.report import formatting
from s2e.report.charts import palette
from s2e.report.figures import (
    MAX_SINGLE_SCHEDULES,
    Figure,
    accuracy_figures,
    phase_figures,
    progress_figure,
    selection_figures,
    spread_figure,
)
from s2e.report.gallery import SORT_KEYS, Gallery, gallery
from s2e.report.run_numbers import RunNumbers, Score, read_numbers
from s2e.report.search_history import SearchHistory
from s2e.report.summary import summarise_run
from s2e.runs import Run

MAX_CLASSES = 20
"""Maximum number of classes in the noise matrix; of more, those with the most errors are shown."""

MIN_SHARE = 0.005
"""Smaller shares, which would be rounded to 0%, leave their cell of the noise matrix empty."""


@dataclass(frozen=True)
class SearchSection:
    """One search.

    Attributes:
        title: name of the searched method in a comparison; "" elsewhere.
        progress: trials against cost.
        phases: schedules of early and late trials.
        spread: spread of the schedules; None for a single group of trials.
        problem: why there are no figures; "" if there are.
        single_schedules: whether the figures of the phases show each schedule.
        selected_by_model: whether another trial has a higher accuracy than the selected one.
    """

    title: str
    progress: Figure | None
    phases: tuple[Figure, ...]
    spread: Figure | None
    problem: str
    single_schedules: bool = False
    selected_by_model: bool = False


@dataclass(frozen=True)
class SettingSection:
    """One noise setting: its scores and figures, and whether R(t) and label precision are among the figures."""

    title: str
    noise_rate: float | None
    scores: tuple[Score, ...]
    accuracy: tuple[Figure, ...]
    selection: tuple[Figure, ...]
    has_keep_rates: bool
    has_precision: bool
    searches: tuple[SearchSection, ...]


@dataclass(frozen=True)
class NoiseMatrix:
    """The part of the estimated noise matrix that is shown.

    Attributes:
        names: names of the classes shown, in rows and columns.
        rows: share of samples of the row's class that have the column's label.
        total: number of all classes.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    total: int


@dataclass(frozen=True)
class LabelSection:
    """The label audit of a run, or why there is none."""

    issues: int
    total: int
    noise_rate: float
    doubtful_classes: tuple[str, ...]
    matrix: NoiseMatrix | None
    gallery: Gallery | None
    problem: str = ""


@dataclass(frozen=True, eq=False)
class RunSection:
    """The contents of the page for one run."""

    anchor: str
    title: str
    numbers: RunNumbers
    summaries: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    settings: tuple[SettingSection, ...]
    labels: LabelSection


@dataclass(frozen=True)
class Report:
    """A page, and the summaries of its runs."""

    html: str
    summaries: tuple[str, ...]


def build_report(runs: Sequence[Run], *, data_root: Path | None = None, samples: int = 60) -> Report:
    """Build the page about one run or several; the same runs give the same page.

    Args:
        runs: runs, finished or not.
        data_root: folder of the published data sets; None for the folder that each run used.
        samples: maximum number of doubtful labels shown of each run.
    """
    if not runs:
        raise InvalidInput("`runs` must contain at least one run, but got none.")
    if samples < 0:
        raise InvalidInput(f"`samples` must not be negative, but got {samples}.")
    sections = [_run_section(run, f"run-{number}", data_root, samples) for number, run in enumerate(runs, start=1)]
    return Report(_render(sections), tuple(summary for section in sections for summary in section.summaries))


def _run_section(run: Run, anchor: str, data_root: Path | None, samples: int) -> RunSection:
    numbers = read_numbers(run)
    audited, problem = _audited(run, numbers)
    if audited is None:
        labels = LabelSection(0, 0, 0.0, (), None, None, problem)
    else:
        summary = audited.summary()
        labels = LabelSection(
            issues=summary["issues"],
            total=summary["samples"],
            noise_rate=summary["noise_rate"],
            doubtful_classes=tuple(summary["doubtful_classes"]),
            matrix=noise_matrix(audited),
            gallery=gallery(audited, numbers.config, data_root, samples),
        )
    settings = tuple(
        SettingSection(
            title=setting.title,
            noise_rate=setting.noise_rate,
            scores=setting.scores,
            accuracy=tuple(accuracy_figures(setting)),
            selection=tuple(selection_figures(setting)),
            has_keep_rates=bool(setting.keep_rates),
            has_precision=bool(setting.precision),
            searches=tuple(_search_section(history) for history in setting.searches),
        )
        for setting in numbers.settings
    )
    title = PurePath(str(numbers.options["data"])).name or "data"
    return RunSection(anchor, title, numbers, summarise_run(numbers, audited), _facts(numbers), settings, labels)


def _search_section(history: SearchHistory) -> SearchSection:
    if history.problem:
        return SearchSection(history.title, None, (), None, history.problem)
    single = any(len(group.schedules) <= MAX_SINGLE_SCHEDULES for group in history.phases)
    phases = tuple(phase_figures(history))
    by_model = any(
        trial.number == history.selected and trial.accuracy < history.best_so_far[-1] for trial in history.trials
    )
    return SearchSection(history.title, progress_figure(history), phases, spread_figure(history), "", single, by_model)


def _audited(run: Run, numbers: RunNumbers) -> tuple[AuditedRun | None, str]:
    """Audit the labels of a run, or return why that is not possible."""
    if numbers.command == "compare":
        return None, (
            "A comparison does not record individual samples, so its labels cannot be audited. "
            "Use a run of s2e search or s2e train instead."
        )
    try:
        return audit_run(run), ""
    except S2EError as error:
        return None, f"The labels cannot be audited: {error}"


def noise_matrix(audited: AuditedRun) -> NoiseMatrix:
    """Return the estimated noise matrix, of at most `MAX_CLASSES` classes with the most errors in rows and columns."""
    transition = audited.audit.transition
    errors = transition - np.diag(transition.diagonal())
    most = np.argsort(-(errors.sum(axis=0) + errors.sum(axis=1)), kind="stable")[:MAX_CLASSES]
    shown = np.sort(most)
    rows = tuple(tuple(float(share) for share in transition[row, shown]) for row in shown)
    return NoiseMatrix(tuple(audited.class_names[index] for index in shown), rows, len(transition))


def _facts(run: RunNumbers) -> tuple[tuple[str, str], ...]:
    """Return names and values of the facts about a run."""
    options, config = run.options, run.config
    parts = {"train": "training", "valid": "validation", "test": "test"}
    samples = [f"{formatting.count(run.samples[part])} {name}" for part, name in parts.items() if part in run.samples]
    noises = [
        f"{setting.title}{'' if setting.noise_rate is None else f' ({formatting.percent(setting.noise_rate)} wrong)'}"
        for setting in run.settings
    ]
    validation = {
        "clean": "trusted labels",
        "noisy": "labels as noisy as the training labels",
        "relabelled": "noisy labels, relabelled before the search",
    }.get(run.validation, "")
    training = f"{options['epochs']} epochs, network {config['network']}"
    if run.command != "compare":
        training = f"{display_name(options['method'])}, {training}"
    search = ""
    if "sampler" in options:
        budget = f"{options['trials']} full training{'' if options['trials'] == 1 else 's'}"
        search = f"{budget}, sampler {options['sampler']}, space {options['space']}"
    facts = {
        "Run": run.name,
        "Data": str(options["data"]),
        "Samples": ", ".join(samples),
        "Labels": "; ".join(noises),
        "Validation": validation,
        "Training": training,
        "Search": search,
        "Command": f"s2e {run.command}, version {config['versions']['s2e']}",
        "Device and time": run.device_and_time,
    }
    return tuple((name, value) for name, value in facts.items() if value)


# Rendering


def _render(sections: Sequence[RunSection]) -> str:
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
        "min_share": MIN_SHARE,
        "sort_keys": SORT_KEYS,
        "version": __version__,
    }
    script = _text("gallery.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    methods = dict.fromkeys(score.name for run in sections for setting in run.settings for score in setting.scores)
    return environment.get_template("page.html.j2").render(
        runs=sections,
        methods=list(methods),
        style=_text("page.css"),
        light=palette(dark=False),
        dark=palette(dark=True),
        script=script,
        script_digest=digest,
    )


def _text(name: str) -> str:
    return (files("s2e.report") / "templates" / name).read_text(encoding="utf-8")


def write_report(report: Report, path: Path) -> None:
    """Write the page to a file atomically."""
    if path.is_dir():
        raise InvalidInput(f"`out` must be a file, but {str(path)!r} is a directory; add a name such as report.html.")
    try:
        Run(path.parent).write_text(path.name, report.html)
    except OSError as error:
        reason = error.strerror or error
        raise InvalidInput(f"`out` must be a writable file, but {str(path)!r} is not: {reason}.") from None
