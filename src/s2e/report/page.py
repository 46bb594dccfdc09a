"""The page: the contents of a report on one or several runs, rendered into one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePath
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from s2e._version import __version__
from s2e.audit import ISSUES, AuditedRun, audit_run
from s2e.engine import LAST_EPOCHS
from s2e.errors import InvalidInput, S2EError
from s2e.files.fields import Fields
from s2e.plots import display_name
from s2e.report import formatting
from s2e.report.charts import palette
from s2e.report.figures import (
    MAX_SINGLE_SCHEDULES,
    Figure,
    accuracy_figures,
    phase_figures,
    progress_figure,
    reliability_figure,
    selection_figures,
    spread_figure,
)
from s2e.report.gallery import SORT_KEYS, Gallery, gallery
from s2e.report.label_numbers import Balance, ClassMatrix, balance, confusion, noise_matrix, reliability
from s2e.report.run_numbers import ClassifierScore, RunNumbers, Score, read_numbers
from s2e.report.search_history import SearchHistory
from s2e.report.summary import summarise_run
from s2e.runs import Run
from s2e.specs import SearchOptions, TrainOptions, leaves
from s2e.studies import same_place, without_password

COLUMNS = "columns.json"
"""File of a run that says what became of the columns of a table."""

LONGEST_COUNT = 12
"""Characters of a number of inputs."""

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
    classifier: ClassifierScore | None
    accuracy: tuple[Figure, ...]
    selection: tuple[Figure, ...]
    has_keep_rates: bool
    has_precision: bool
    searches: tuple[SearchSection, ...]


@dataclass(frozen=True)
class UsedColumn:
    """A column of a table, what became of it, and its number of inputs."""

    name: str
    kind: str
    encoding: str
    inputs: str


@dataclass(frozen=True)
class LabelSection:
    """The label audit of a run.

    Attributes:
        issues: number of labels that are more likely wrong than correct.
        total: number of labels.
        reviewed: number of labels that were reviewed before the training.
        noise_rate: estimated share of wrong labels.
        interval: interval of the noise rate; None if unknown.
        message: one line about the audit; "" for none.
        doubtful_classes: classes that the networks have probably not learnt.
        confusion: labels by given label and estimated class.
        matrix: the estimated noise matrix.
        balance: number of samples of each class.
        reliability: qualities against true labels; None if these are unknown.
        gallery: labels to review.
        csv: link to the table of all labels; "" for none.
        command: command that trains again with the decisions.
        file: name of the file of decisions.
    """

    issues: int
    total: int
    reviewed: int
    noise_rate: float
    interval: tuple[float, float] | None
    message: str
    doubtful_classes: tuple[str, ...]
    confusion: ClassMatrix
    matrix: ClassMatrix
    balance: Balance
    reliability: Figure | None
    gallery: Gallery
    csv: str
    command: str
    file: str


@dataclass(frozen=True, eq=False)
class RunSection:
    """The contents of the page for one run."""

    anchor: str
    title: str
    numbers: RunNumbers
    summaries: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    settings: tuple[SettingSection, ...]
    labels: LabelSection | None
    problem: str
    columns: tuple[UsedColumn, ...]


@dataclass(frozen=True, eq=False)
class Report:
    """A page, the summaries of its runs, and the audits of those that have one."""

    html: str
    summaries: tuple[str, ...]
    audits: tuple[tuple[Run, AuditedRun], ...] = ()


def build_report(
    runs: Sequence[Run],
    *,
    data_root: Path | None = None,
    samples: int = 60,
    page: Path | None = None,
    storage: str | None = None,
) -> Report:
    """Build the page about one run or several; the same runs give the same page.

    Args:
        runs: runs, finished or not.
        data_root: folder of the published data sets; None for the folder that each run used.
        samples: maximum number of doubtful labels shown of each run.
        page: file that the page is written to, for links to files of the runs; None for no links.
        storage: server of the studies of the runs; a server that is not named here is not connected to.
    """
    if not runs:
        raise InvalidInput("`runs` must contain at least one run, but got none.")
    if samples < 0:
        raise InvalidInput(f"`samples` must not be negative, but got {samples}.")
    numbers = [read_numbers(run, storage) for run in runs]
    if storage is not None:
        _check_storage(storage, numbers)
    built = [
        _run_section(run, of_run, f"run-{number}", data_root, samples, page)
        for number, (run, of_run) in enumerate(zip(runs, numbers, strict=True), start=1)
    ]
    sections = [section for section, _ in built]
    audits = tuple((run, audited) for run, (_, audited) in zip(runs, built, strict=True) if audited is not None)
    return Report(_render(sections), tuple(summary for section in sections for summary in section.summaries), audits)


def _check_storage(storage: str, runs: Sequence[RunNumbers]) -> None:
    """Raise an error if no run has its study at a storage."""
    found = list(dict.fromkeys(str(run.config["storage"]) for run in runs if run.config.get("storage") is not None))
    if not any(same_place(stored, storage) for stored in found):
        expected = "the storage of the study of a run" + (
            f", {' or '.join(map(without_password, found))}" if found else ""
        )
        reason = "" if found else ", and the studies are inside the runs; leave it out"
        raise InvalidInput(f"`storage` must be {expected}, but got {without_password(storage)}{reason}.")


def _run_section(
    run: Run, numbers: RunNumbers, anchor: str, data_root: Path | None, samples: int, page: Path | None
) -> tuple[RunSection, AuditedRun | None]:
    audited, problem = _audited(run, numbers)
    labels = None if audited is None else _label_section(run, numbers, audited, data_root, samples, page)
    settings = tuple(
        SettingSection(
            title=setting.title,
            noise_rate=setting.noise_rate,
            scores=setting.scores,
            classifier=setting.classifier,
            accuracy=tuple(accuracy_figures(setting)),
            selection=tuple(selection_figures(setting)),
            has_keep_rates=bool(setting.keep_rates),
            has_precision=bool(setting.precision),
            searches=tuple(_search_section(history) for history in setting.searches),
        )
        for setting in numbers.settings
    )
    title = PurePath(str(numbers.options["data"])).name or "data"
    summaries = summarise_run(numbers, audited)
    section = RunSection(
        anchor, title, numbers, summaries, _facts(numbers), settings, labels, problem, _used_columns(run)
    )
    return section, audited


def _label_section(
    run: Run, numbers: RunNumbers, audited: AuditedRun, data_root: Path | None, samples: int, page: Path | None
) -> LabelSection:
    summary, known = audited.summary(), reliability(audited)
    interval = summary.get("noise_rate_interval")
    file = f"reviewed-{run.path.resolve().name}.csv"
    return LabelSection(
        issues=summary["issues"],
        total=summary["samples"],
        reviewed=int(audited.reviewed.sum()),
        noise_rate=summary["noise_rate"],
        interval=None if interval is None else (float(interval[0]), float(interval[1])),
        message=summary.get("message") or "",
        doubtful_classes=tuple(summary["doubtful_classes"]),
        confusion=confusion(audited),
        matrix=noise_matrix(audited),
        balance=balance(audited),
        reliability=None if known is None else reliability_figure(known),
        gallery=gallery(run, audited, numbers.config, data_root, samples),
        csv="" if page is None else quote(os.path.relpath(run.path / ISSUES, page.parent)),
        command=repeated_command(numbers, file),
        file=file,
    )


def repeated_command(run: RunNumbers, reviewed: str) -> str:
    """Return the command that made a run, with a further file of reviewed labels."""
    kind: type = SearchOptions if run.command == "search" else TrainOptions
    words = ["s2e", run.command, str(run.options["data"])]
    for leaf, default in leaves(kind):
        value = run.options.get(leaf.name, default)
        flag = leaf.metadata.get("flag", f"--{leaf.name.replace('_', '-')}")
        if leaf.metadata.get("argument") or leaf.metadata.get("repeated") or value == default:
            continue
        words += [f"--no-{leaf.name.replace('_', '-')}"] if value is False else [flag, str(value)]
    for file in (*run.options["reviewed"], reviewed):
        words += ["--reviewed", file]
    return shlex.join(words)


def _used_columns(run: Run) -> tuple[UsedColumn, ...]:
    """Return what became of the columns of a table; none if the run has not written it."""
    if not (run.path / COLUMNS).exists():
        return ()
    rows = Fields(run.read_json(COLUMNS), run.path / COLUMNS).rows("columns")
    return tuple(
        UsedColumn(row.text("name"), row.text("kind", ""), row.text("encoding", ""), _inputs(row)) for row in rows
    )


def _inputs(row: Fields) -> str:
    """Return the number of inputs of a column, which may be given as their names."""
    value = row.values.get("inputs", "")
    return str(len(value)) if isinstance(value, list) else str(value)[:LONGEST_COUNT]


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
        "issues_file": ISSUES,
        "last_epochs": LAST_EPOCHS,
        "min_share": MIN_SHARE,
        "sort_keys": SORT_KEYS,
        "version": __version__,
    }
    script = _text("review.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    methods = dict.fromkeys(score.name for run in sections for setting in run.settings for score in setting.scores)
    return environment.get_template("page.html.j2").render(
        runs=sections,
        methods=list(methods),
        classifiers=any(setting.classifier for run in sections for setting in run.settings),
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
