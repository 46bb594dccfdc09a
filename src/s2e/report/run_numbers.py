"""The numbers of a report: scores, curves and searches of a run, read from its files.

A run of `s2e search` or `s2e train` has one noise setting. A comparison may have several, each with its own scores,
curves and searches.

Letters: T epochs. Epochs count from 0, as t does in R(t).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.engine import LAST_EPOCHS
from s2e.ensembles import NETWORKS
from s2e.errors import UnreadableData
from s2e.files.fields import Fields, shown
from s2e.methods import SEARCHABLE
from s2e.plots import display_name, noise_title
from s2e.report.search_history import SearchHistory, search_history
from s2e.runs import CONFIG, Run, all_options, read_configuration
from s2e.schedules import parse_schedule
from s2e.specs import AUTO
from s2e.workflows import FinishedTrainings, Outcome, bands, keep_rate_curves, summarise, voters_title

Floats = NDArray[np.float64]

RESULT, CURVES, SCHEDULE = "result.json", "curves.npz", "schedule.json"
LAST = f"last_{LAST_EPOCHS}_epochs"
SHARES = ("accuracy_valid", "accuracy_test", "train_accuracy", "label_precision", "kept")
"""Quantities by epoch in `CURVES` that lie between 0 and 1."""

REPORTED = ("search", "train", "compare")
"""Commands whose runs can be reported on."""

SEARCHED = "s2e"
"""The method with the searched schedule, as named in comparisons."""


@dataclass(frozen=True)
class Score:
    """The score of one method.

    Attributes:
        name: display name.
        method: name in comparisons, which determines the style of its lines.
        accuracy: mean over the last epochs and the seeds, on the split that the run is evaluated on.
        deviation: standard deviation over the seeds; None if there is one seed.
        best: accuracy of the best epoch.
        precision: label precision over the last epochs; None if the true labels are unknown.
        trainings: number of seeds.
        diverged: number of trainings that diverged.
    """

    name: str
    method: str
    accuracy: float | None
    deviation: float | None
    best: float | None
    precision: float | None
    trainings: int
    diverged: int

    @property
    def searched(self) -> bool:
        """Whether the schedule of this method was searched."""
        return self.method.partition(":")[0] == SEARCHED


@dataclass(frozen=True)
class ClassifierScore:
    """The score of the classifier of a run, which `s2e predict` uses.

    Attributes:
        voters: what votes in it, as text.
        accuracy: on the split that the run is evaluated on.
    """

    voters: str
    accuracy: float | None


@dataclass(frozen=True, eq=False)
class Curve:
    """A quantity by epoch.

    Attributes:
        name: display name.
        method: name in comparisons.
        mean: (T,) mean over seeds; NaN where it is unknown.
        low: (T,) mean minus one standard deviation; None if there is one seed.
        high: (T,) mean plus one standard deviation; None if there is one seed.
    """

    name: str
    method: str
    mean: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True, eq=False)
class Setting:
    """The numbers of a run under one noise setting.

    Attributes:
        noise: noise setting as given on the command line.
        noise_rate: true share of wrong training labels; None if unknown.
        scores: scores of all methods.
        validation: validation accuracy by epoch.
        test: test accuracy by epoch; empty without test data.
        precision: label precision by epoch; empty if the true labels are unknown.
        keep_rates: R(t) of the methods that have one.
        searches: history of each search.
        classifier: score of the classifier; None where single trainings are the result.
    """

    noise: str
    noise_rate: float | None
    scores: tuple[Score, ...]
    validation: tuple[Curve, ...]
    test: tuple[Curve, ...]
    precision: tuple[Curve, ...]
    keep_rates: tuple[Curve, ...]
    searches: tuple[SearchHistory, ...]
    classifier: ClassifierScore | None = None

    @property
    def title(self) -> str:
        """The noise setting as a title."""
        return noise_title(self.noise)


@dataclass(frozen=True, eq=False)
class RunNumbers:
    """All numbers of a run except those of its label audit.

    Attributes:
        name: name of the directory.
        command: command that made the run.
        config: contents of `config.json`.
        evaluated_on: the part that its accuracies refer to, "test", "held-out" or "valid".
        validation: "clean", "noisy" or "relabelled"; "" if unknown yet.
        samples: number of samples in each split.
        settings: one for each noise setting.
        device_and_time: device and duration; "" if unknown yet.
        left_out: methods that were not compared, with the reason.
    """

    name: str
    command: str
    config: Mapping[str, Any]
    evaluated_on: str
    validation: str
    samples: Mapping[str, int]
    settings: tuple[Setting, ...]
    device_and_time: str
    left_out: tuple[str, ...]

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the command."""
        found: Mapping[str, Any] = self.config["options"]
        return found


def read_numbers(run: Run, storage: str | None = None) -> RunNumbers:
    """Read the numbers of a run, finished or not.

    Args:
        run: the run directory.
        storage: server of its study; None to read a study in a file only.
    """
    config = read_configuration(run)
    config["options"] = all_options(run, config)
    written = Fields(config, run.path / CONFIG)
    for name in ("data_root", "study", "network", "data_fingerprint"):
        written.text(name)
    if config.get("storage") is not None:
        written.text("storage")
    written.fields("versions").text("s2e")
    written.fields("options").integer("epochs", least=1)  # a run stores the number that was decided
    command = written.text("command")
    if command not in REPORTED:
        raise written.error("command", f"one of {', '.join(REPORTED)}", command)
    finished = (run.path / RESULT).exists()
    result = run.read_fields(RESULT) if finished else Fields({}, run.path / RESULT)
    samples = result.fields("samples", {})
    settings, evaluated_on = (_compared if command == "compare" else _trained)(run, config, result, storage)
    return RunNumbers(
        name=run.path.resolve().name,
        command=command,
        config=config,
        evaluated_on=evaluated_on,
        validation=result.text("validation", ""),
        samples={name: samples.integer(name) for name in samples.values},
        settings=settings,
        device_and_time=f"{result.text('device')}, {_duration(result.number('seconds', least=0))}" if finished else "",
        left_out=tuple(
            f"{display_name(row.text('method'))}: {row.text('reason')}" for row in result.rows("left_out", [])
        ),
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# A search, or a single training


def _trained(
    run: Run, config: Mapping[str, Any], result: Fields, storage: str | None
) -> tuple[tuple[Setting, ...], str]:
    evaluated_on = "test" if "test" in result.fields("samples", {}) else "valid"
    rows, curves = result.rows("methods", []), _read_curves(run, config["options"]["epochs"])
    setting = Setting(
        noise=config["options"]["noise"],
        noise_rate=result.share("noise_rate", config.get("noise_rate")),
        scores=tuple(_score(row, evaluated_on) for row in rows),
        validation=_curves(rows, curves, "accuracy_valid"),
        test=_curves(rows, curves, "accuracy_test"),
        precision=_curves(rows, curves, "label_precision"),
        keep_rates=_keep_rates(run, config, rows, curves),
        searches=(_search(run, config, result, storage),) if config["command"] == "search" else (),
        classifier=_classifier(result.fields("classifier"), evaluated_on) if "classifier" in result else None,
    )
    return (setting,), evaluated_on


def _search(run: Run, config: Mapping[str, Any], result: Fields, storage: str | None) -> SearchHistory:
    selected = result.fields("search").integer("best_trial") if "search" in result else None
    return search_history(run, config, config["study"], selected, named=storage)


def _read_curves(run: Run, epochs: int) -> dict[str, Floats]:
    """Return the curves of all trainings, each (T,)."""
    found = run.read_arrays(CURVES)
    for name, array in found.items():
        if name.rpartition("/")[2] not in SHARES:
            continue
        if array.dtype.kind not in "fiu" or array.shape != (epochs,):
            raise UnreadableData(
                f"{str(run.path / CURVES)!r} is damaged: {shown(name)} must be {epochs} numbers, one for each epoch, "
                f"but got {array.dtype} of shape {array.shape}."
            )
        if not (np.isnan(array) | ((array >= 0) & (array <= 1))).all():
            raise UnreadableData(
                f"{str(run.path / CURVES)!r} is damaged: {shown(name)} must lie in 0..1, but does not."
            )
    return found


def _name(row: Fields) -> str:
    name, method = row.text("name"), row.text("method")
    return display_name(method) if name == method else name


def _method(row: Fields) -> str:
    return SEARCHED if row.flag("searched", False) else row.text("method")


def _score(row: Fields, evaluated_on: str) -> Score:
    part, diverged = row.fields(evaluated_on), int(row.flag("diverged"))
    precision = row.share("label_precision")
    return Score(_name(row), _method(row), part.share(LAST), None, part.share("best_epoch"), precision, 1, diverged)


def _classifier(row: Fields, evaluated_on: str) -> ClassifierScore:
    votes = row.fields("votes", {NETWORKS: 1.0})
    shares = {name: votes.number(name) for name in votes.values} or {NETWORKS: 1.0}
    return ClassifierScore(voters_title(row.integer("networks"), shares), row.share(evaluated_on))


def _curves(rows: Sequence[Fields], arrays: Mapping[str, Floats], quantity: str) -> tuple[Curve, ...]:
    """Return a quantity of the methods for which it is known."""
    found = [(row, arrays.get(f"{row.text('name')}/{quantity}")) for row in rows]
    return tuple(
        Curve(_name(row), _method(row), values)
        for row, values in found
        if values is not None and np.isfinite(values).any()
    )


def _keep_rates(
    run: Run, config: Mapping[str, Any], rows: Sequence[Fields], arrays: Mapping[str, Floats]
) -> tuple[Curve, ...]:
    """Return R(t): of the run's method from its schedule, of the baselines from the share they were trained on."""
    method, epochs = config["options"]["method"], config["options"]["epochs"]
    if not (run.path / SCHEDULE).exists() or method not in (*SEARCHABLE, AUTO):
        return ()
    trained = SEARCHED if config["command"] == "search" else method
    baselines = [row for row in rows if _method(row) != trained and row.text("method") in SEARCHABLE]
    schedule = parse_schedule(str(run.path / SCHEDULE), epochs)
    return (*_curves(baselines, arrays, "kept"), Curve(display_name(trained), trained, schedule))


# A comparison


def _compared(
    run: Run, config: Mapping[str, Any], result: Fields, storage: str | None
) -> tuple[tuple[Setting, ...], str]:
    outcomes = FinishedTrainings.of(run).outcomes
    methods = list(dict.fromkeys(row.text("method") for row in result.rows("summary", [])))
    methods += [outcome.method for outcome in outcomes if outcome.method not in methods]
    outcomes = sorted(outcomes, key=lambda outcome: (methods.index(outcome.method), outcome.seed))
    evaluated_on = outcomes[0].evaluated_on if outcomes else "valid"
    searches = [
        (search.text("noise"), search.text("method"), search.integer("search", 0), search.integer("best_trial"))
        for search in result.rows("search", [])
    ]
    several = any(index > 0 for _, _, index, _ in searches)
    rates = Fields(config, run.path / CONFIG).fields("noise_rates")
    settings = []
    for noise in config["options"]["noises"]:
        of_noise = [outcome for outcome in outcomes if outcome.noise == noise]
        histories = [
            search_history(
                run,
                config,
                "/".join([config["study"], noise, method, *([str(index)] if index else [])]),
                selected,
                f"{display_name(method)}, search {index + 1}" if several else display_name(method),
                named=storage,
            )
            for searched_noise, method, index, selected in searches
            if searched_noise == noise
        ]
        settings.append(_setting(noise, rates.share(noise, None), of_noise, evaluated_on, histories))
    return tuple(settings), evaluated_on


def _setting(
    noise: str, rate: float | None, outcomes: Sequence[Outcome], evaluated_on: str, histories: Sequence[SearchHistory]
) -> Setting:
    def curves(quantity: str) -> tuple[Curve, ...]:
        return tuple(
            Curve(display_name(band.method), band.method, band.mean, band.low, band.high)
            if band.seeds > 1 and not band.diverged
            else Curve(display_name(band.method), band.method, band.mean)
            for band in bands(outcomes, quantity)
        )

    return Setting(
        noise=noise,
        noise_rate=rate,
        scores=tuple(
            Score(
                name=display_name(row["method"]),
                method=row["method"],
                accuracy=row[LAST]["mean"],
                deviation=row[LAST]["std"],
                best=row["best_epoch"]["mean"],
                precision=row["label_precision"]["mean"],
                trainings=row["seeds"],
                diverged=row["diverged"],
            )
            for row in summarise(outcomes)
        ),
        validation=curves("valid_accuracy"),
        test=curves("accuracy") if evaluated_on == "test" else (),
        precision=curves("label_precision"),
        keep_rates=tuple(
            Curve(", ".join(map(display_name, curve.methods)), curve.methods[0], curve.keep_rates)
            for curve in keep_rate_curves(outcomes)
        ),
        searches=tuple(histories),
    )
