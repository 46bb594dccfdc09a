"""The numbers of a report: what a run holds, read into small tables and curves. Nothing is drawn here.

A run of `s2e search` or `s2e train` has one noise setting; a comparison may have several, each with its own scores,
curves and searches.

Letters: T epochs. Epochs count from 0, as t does in R(t).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.engine.curves import LAST_EPOCHS
from s2e.errors import UnreadableData
from s2e.methods import METHODS, Need
from s2e.plots.names import display_name, noise_title
from s2e.report.search_story import SearchStory, search_story
from s2e.runs.directory import CONFIG, Run
from s2e.workflows.comparison_figures import bands, keep_rate_curves
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.outcomes import Outcome, summarise

Floats = NDArray[np.float64]

RESULT, CURVES, SCHEDULE = "result.json", "curves.npz", "schedule.json"
LAST = f"last_{LAST_EPOCHS}_epochs"
FOUND = "S2E"
"""What the method with the schedule that was found is called in the result of a search."""


@dataclass(frozen=True)
class Score:
    """How one method did.

    Attributes:
        name: for readers.
        look: which of the methods' styles it is drawn in.
        accuracy: mean over the last epochs and the seeds, on the part the run is judged by.
        deviation: over the seeds; None where there is one.
        best: accuracy of the best epoch.
        precision: label precision over the last epochs; None where true labels are unknown.
        trainings: how many it is the mean of.
        diverged: how many of them diverged.
    """

    name: str
    look: str
    accuracy: float | None
    deviation: float | None
    best: float | None
    precision: float | None
    trainings: int
    diverged: int


@dataclass(frozen=True, eq=False)
class Curve:
    """A quantity by epoch, (T,); one standard deviation to either side where there are several seeds."""

    name: str
    look: str
    mean: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True, eq=False)
class Setting:
    """What a run found under one noise setting.

    Attributes:
        noise: as given on the command line.
        noise_rate: true share of wrong training labels; None where nobody knows.
        scores: of every method.
        validation: accuracy on the validation part by epoch.
        test: accuracy on the test part by epoch; empty where there is none.
        precision: label precision by epoch; empty where true labels are unknown.
        keep_rates: R(t) of the methods that have one.
        searches: how each schedule was searched.
    """

    noise: str
    noise_rate: float | None
    scores: tuple[Score, ...]
    validation: tuple[Curve, ...]
    test: tuple[Curve, ...]
    precision: tuple[Curve, ...]
    keep_rates: tuple[Curve, ...]
    searches: tuple[SearchStory, ...]

    @property
    def title(self) -> str:
        """The noise in plain words."""
        return noise_title(self.noise)


@dataclass(frozen=True, eq=False)
class RunNumbers:
    """Everything a report says of a run, but for the verdicts on its labels.

    Attributes:
        name: of the directory.
        command: what made it.
        config: its configuration.
        evaluated_on: the part its accuracies are of, "test" or "valid".
        validation: "clean", "noisy" or "relabelled"; "" where the run does not say yet.
        samples: how many in each part.
        settings: one for each noise setting.
        finished: whether there is a result.
        place: where it ran and for how long; "" where the run does not say yet.
        left_out: methods that took no part, with the reason.
    """

    name: str
    command: str
    config: Mapping[str, Any]
    evaluated_on: str
    validation: str
    samples: Mapping[str, int]
    settings: tuple[Setting, ...]
    finished: bool
    place: str
    left_out: tuple[str, ...]

    @property
    def options(self) -> Mapping[str, Any]:
        """What was asked for."""
        found: Mapping[str, Any] = self.config["options"]
        return found


def read_numbers(run: Run) -> RunNumbers:
    """Read a run, finished or not."""
    config = run.read_json(CONFIG)
    result = run.read_json(RESULT) if (run.path / RESULT).exists() else {}
    try:
        read = _compared if config["command"] == "compare" else _trained
        settings, evaluated_on = read(run, config, result)
        seconds = f"{_duration(result['seconds'])} on {result['device']}" if result else ""
        return RunNumbers(
            name=run.path.resolve().name,
            command=config["command"],
            config=config,
            evaluated_on=evaluated_on,
            validation=result.get("validation", ""),
            samples=result.get("samples", {}),
            settings=settings,
            finished=bool(result),
            place=seconds,
            left_out=tuple(f"{display_name(one['method'])}: {one['reason']}" for one in result.get("left_out", ())),
        )
    except (KeyError, TypeError, AttributeError) as problem:
        raise UnreadableData(f"{str(run.path)!r} is not a run of this version of s2e: {problem!r}.") from problem


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# A search, or a single training


def _trained(run: Run, config: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[tuple[Setting, ...], str]:
    evaluated_on = "test" if "test" in result.get("samples", {}) else "valid"
    methods, curves = result.get("methods", []), run.read_arrays(CURVES)
    told = result.get("noise_rate", config.get("noise_rate"))
    searches = (search_story(run, config, config["study"], ""),) if config["command"] == "search" else ()
    setting = Setting(
        noise=config["options"]["noise"],
        noise_rate=told,
        scores=tuple(_score(row, evaluated_on) for row in methods),
        validation=_curves(methods, curves, "accuracy_valid"),
        test=_curves(methods, curves, "accuracy_test"),
        precision=_curves(methods, curves, "label_precision"),
        keep_rates=_keep_rates(run, config, methods, curves),
        searches=searches,
    )
    return (setting,), evaluated_on


def _name(row: Mapping[str, Any]) -> str:
    return display_name(row["method"]) if row["name"] == row["method"] else str(row["name"])


def _look(row: Mapping[str, Any]) -> str:
    return "s2e" if row["name"] == FOUND else str(row["method"])


def _score(row: Mapping[str, Any], evaluated_on: str) -> Score:
    part, diverged = row[evaluated_on], int(row["diverged"])
    precision = row["label_precision"]
    return Score(_name(row), _look(row), part[LAST], None, part["best_epoch"], precision, 1, diverged)


def _curves(rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, Floats], quantity: str) -> tuple[Curve, ...]:
    """Return a quantity of the methods for which it is known."""
    found = [(row, arrays.get(f"{row['name']}/{quantity}")) for row in rows]
    return tuple(
        Curve(_name(row), _look(row), values)
        for row, values in found
        if values is not None and np.isfinite(values).any()
    )


def _keep_rates(
    run: Run, config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, Floats]
) -> tuple[Curve, ...]:
    """Return R(t): of the run's own method as written, of those beside it as the share they were trained on."""
    if not (run.path / SCHEDULE).exists() or not _has_keep_rate(config["options"]["method"]):
        return ()
    own = {"name": FOUND, "method": config["options"]["method"]}
    if config["command"] == "train":
        own["name"] = own["method"]
    beside = [row for row in rows if row["name"] != own["name"] and _has_keep_rate(row["method"])]
    schedule = np.array(run.read_json(SCHEDULE)["keep_rates"], dtype=np.float64)
    return (*_curves(beside, arrays, "kept"), Curve(_name(own), _look(own), schedule))


def _has_keep_rate(method: str) -> bool:
    return method in METHODS and Need.SCHEDULE in METHODS[method].needs


# A comparison


def _compared(run: Run, config: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[tuple[Setting, ...], str]:
    outcomes = FinishedTrainings.of(run).outcomes
    methods = list(dict.fromkeys(row["method"] for row in result.get("summary", ())))
    methods += [one.method for one in outcomes if one.method not in methods]
    outcomes = sorted(outcomes, key=lambda one: (methods.index(one.method), one.seed))
    evaluated_on = outcomes[0].evaluated_on if outcomes else "valid"
    noises = config["options"]["noises"]
    searched = [(one["noise"], one["method"]) for one in result.get("search", ())]
    settings = []
    for noise in noises:
        own = [one for one in outcomes if one.noise == noise]
        stories = [
            search_story(run, config, f"{config['study']}/{noise}/{method}", display_name(method))
            for about, method in searched
            if about == noise
        ]
        settings.append(_setting(noise, config["noise_rates"].get(noise), own, evaluated_on, stories))
    return tuple(settings), evaluated_on


def _setting(
    noise: str, rate: float | None, outcomes: Sequence[Outcome], evaluated_on: str, stories: Sequence[SearchStory]
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
                look=row["method"],
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
        searches=tuple(stories),
    )
