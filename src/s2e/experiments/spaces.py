"""The paper's Table 2: random search in each space, and the test accuracy of what was found there.

draw the same numbers in every space → train them under every noise setting → choose by validation, in each space →
train the chosen schedules from fresh seeds → test

All spaces see the same noisy labels, the same initial weights and the same order of batches. Their draws are made of
the same uniform numbers, too, and of the same ones under every noise setting: spaces differ in nothing but the curves
those numbers stand for. "Single" is the best of the four spaces with one basis function, by validation; each of the
four has as many draws as any other space.

Letters: T epochs, N samples.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from s2e.bench import TEST, Bench, TrainingOptions, bench, network_name
from s2e.data import LabelledData, fingerprint
from s2e.drawing import draw_line, legend, panels, rendered, settings
from s2e.errors import InvalidInput
from s2e.experiments.table import NOISES
from s2e.figures import STYLES, KeepRateCurve
from s2e.ledger import Ledger
from s2e.noise import achieved_rate, parse_noise
from s2e.outcomes import Outcome, csv_text, result_rows, summarise
from s2e.runs import CONFIG, Run
from s2e.searching import Found, GenerationDone, Search, SearchPlan, epochs_left, search_schedules
from s2e.seeds import derive
from s2e.spaces import SPACES
from s2e.studies import open_study
from s2e.tasks import VALIDATION, Member
from s2e.training import train_population
from s2e.workplace import Place, Watch, begin, ending

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANGEABLE = frozenset({"together"})
"""What may change when a run is continued: how many are trained at a time changes none of them."""

SINGLE = "single"
"""Stands for the best of the spaces with one basis function."""

TITLES = {"coteaching": "Co-teaching", SINGLE: "Single", "rbf": "RBF", "mlp": "MLP", "s2e": "S2E"}
"""The spaces of the paper's table, in its order, as they are written for readers."""

_LOOKS_OF = {"coteaching": "coteaching", SINGLE: "jocor", "rbf": "reweight", "mlp": "decoupling", "s2e": "s2e"}
"""Methods whose lines the spaces borrow: their colours stay apart under all kinds of colour blindness."""

Chosen = Mapping[tuple[str, str], Found]
"""What was found, by noise setting and space."""


@dataclass(frozen=True)
class SpacesOptions:
    """What is searched and trained.

    Attributes:
        data: name or path of the data, with a test part.
        noises: noise settings.
        draws: schedules drawn in each space, under each noise setting.
        seeds: how often what was found is trained and tested.
        together: trainings at a time; what is finished survives an interruption.
        epochs: T.
    """

    data: str = "mnist"
    noises: tuple[str, ...] = NOISES
    draws: int = 50
    seeds: int = 5
    together: int = 250
    network: str = "auto"
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("draws", "seeds", "together"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"`{name}` must be at least 1, but got {getattr(self, name)}.")
        if not self.noises or len({str(parse_noise(each)) for each in self.noises}) < len(self.noises):
            named = ", ".join(self.noises) or "none"
            raise InvalidInput(f"`noise` must name each noise setting once, but got {named}.")

    def training_options(self) -> TrainingOptions:
        """Return how every schedule is trained: by Co-teaching, as in the paper."""
        return TrainingOptions(
            self.data,
            seed=self.seed,
            network=self.network,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
        )


def compare_spaces(options: SpacesOptions, place: Place, watch: Watch, *, resume: bool = False) -> Run:
    """Search every space under every noise setting, test what was found, and write it all."""
    began = time.monotonic()
    on = bench(options.training_options(), options.noises, place.root, place.device)
    test = on.test
    if test is None:
        raise InvalidInput(f"`data` must come with a test part, but {options.data} has none.")
    train, valid = on.task.train, on.task.evaluate[VALIDATION]
    noisy = {noise: replace(train, labels=labels) for noise, labels in on.labels.items()}
    about = {
        "network": network_name(options.network, train),
        "data_fingerprint": fingerprint(*noisy.values(), valid, test),
        "noise_rates": {noise: achieved_rate(data) for noise, data in noisy.items()},
    }
    run, config = begin("reproduce spaces", options, about, place, resume=resume, changeable=CHANGEABLE)
    with run.locked():
        run.write_json(CONFIG, config)
        found = _search(on, options, run, config, watch)
        single = {noise: best_single(found, noise) for noise in options.noises}
        _write_schedules(run, found, single, options.noises)
        outcomes = _train_and_test(on, test, found, options, run, watch)
        run.write_text("results.csv", csv_text([_by_space(row) for row in result_rows(outcomes)]))
        result = {
            "summary": [_with_search(_by_space(row), found) for row in summarise(outcomes)],
            "single": single,
            "draws": options.draws,
            "seeds": options.seeds,
            "epochs": options.epochs,
            "noise_rates": about["noise_rates"],
            "samples": {"train": len(train), "valid": len(valid), "test": len(test)},
        }
        run.write_json("result.json", {**result, **ending(on.task.device, began)})
    return run


# ------------------------------------------------------------------------------------------------------------ the work


def _search(
    on: Bench, options: SpacesOptions, run: Run, config: Mapping[str, Any], watch: Watch
) -> dict[tuple[str, str], Found]:
    """Search every space under every noise setting, some draws of all of them in one population at a time."""
    generation = max(1, options.together // (len(SPACES) * len(options.noises)))
    lasting = {name: value for name, value in config["options"].items() if name not in CHANGEABLE}
    searches = {}
    for noise, labels in on.labels.items():
        for space in SPACES:
            plan = SearchPlan.named(
                space,
                "random",
                epochs=options.epochs,
                trials=options.draws,
                generation=generation,
                learning_rate=options.learning_rate,
                seed=options.seed,
            )
            study = open_study(config["storage"] or run.storage, f"{config['study']}/{noise}/{space}", lasting)
            searches[noise, space] = Search(plan, study, labels)

    def told(done: GenerationDone) -> None:
        """Tell of the best space under each noise setting: one figure for each search would be too many to read."""
        each = [done.best[first : first + len(SPACES)] for first in range(0, len(done.best), len(SPACES))]
        watch.generation(replace(done, best=tuple(map(max, each))))

    watch.stage("search", epochs_left(list(searches.values()), options.epochs))
    found = search_schedules(on.task, list(searches.values()), on_generation=told, on_epoch=watch.epoch)
    return dict(zip(searches, found, strict=True))


def best_single(found: Chosen, noise: str) -> str:
    """Return which of the spaces with one basis function has the best validation accuracy, the first of equals."""
    singles = [space for space in SPACES if space.startswith(SINGLE)]
    return max(singles, key=lambda space: found[noise, space].validation_accuracy)


def _train_and_test(
    on: Bench, test: LabelledData, found: Chosen, options: SpacesOptions, run: Run, watch: Watch
) -> list[Outcome]:
    """Train what was found in each space from fresh seeds, with batches in a fresh order, and test it."""
    seed = derive(options.seed, "final")
    task = replace(on.task, evaluate={**on.task.evaluate, TEST: test}, seed=derive(seed, "batches"))
    entries = [(noise, space, which) for noise, space in found for which in range(options.seeds)]
    ledger = Ledger.of(run)
    finished = {(one.noise, one.method, one.seed) for one in ledger.outcomes}
    missing = [entry for entry in entries if entry not in finished]
    parts = [missing[first : first + options.together] for first in range(0, len(missing), options.together)]
    watch.stage("final training", len(parts) * options.epochs)
    for part in parts:
        members = [
            Member(
                found[noise, space].schedule,
                derive(seed, "restart", which),
                options.learning_rate,
                on.labels[noise],
            )
            for noise, space, which in part
        ]
        curves = train_population(task, members, on_epoch=watch.epoch).curves
        outcomes = [
            Outcome(
                noise=noise,
                method=space,
                seed=which,
                judged_on=TEST,
                accuracy=curves.accuracy[TEST][row],
                valid_accuracy=curves.accuracy[VALIDATION][row],
                train_accuracy=curves.train_accuracy[row],
                label_precision=curves.label_precision[row],
                kept=curves.kept[row],
                loss=curves.loss[row],
                keep_rates=members[row].schedule,
                diverged=bool(curves.diverged[row]),
            )
            for row, (noise, space, which) in enumerate(part)
        ]
        ledger.add(outcomes, {})
    return sorted(ledger.outcomes, key=lambda one: entries.index((one.noise, one.method, one.seed)))


# ------------------------------------------------------------------------------------------------- what is made of it


def _by_space(row: Mapping[str, Any]) -> dict[str, Any]:
    """Call what was trained by the name of its space: the method is the same for all."""
    return {"space" if name == "method" else name: value for name, value in row.items()}


def _with_search(row: Mapping[str, Any], found: Chosen) -> dict[str, Any]:
    """Add what was known of a schedule when it was chosen."""
    chosen = found[row["noise"], row["space"]]
    return {**row, "best_trial": chosen.trial, "validation_accuracy": chosen.validation_accuracy}


def _write_schedules(run: Run, found: Chosen, single: Mapping[str, str], noises: Sequence[str]) -> None:
    """Write the schedules found in every space, and draw those of the spaces in the table."""
    content = [
        {"noise": noise, "space": space, "trial": one.trial, "validation_accuracy": one.validation_accuracy}
        | {"point": one.point.tolist(), "keep_rates": one.schedule.tolist()}
        for (noise, space), one in found.items()
    ]
    run.write_json("schedules.json", {"schedules": content})
    figure = draw_schedules(schedule_curves(found, single, noises))
    for kind in ("png", "svg"):
        run.write_bytes(f"schedules.{kind}", rendered(figure, kind))


def schedule_curves(found: Chosen, single: Mapping[str, str], noises: Sequence[str]) -> list[KeepRateCurve]:
    """R(t) as found in each space of the table under each noise setting; `single` tells which of the four it is."""
    return [
        KeepRateCurve(noise, (space,), found[noise, single[noise] if space == SINGLE else space].schedule)
        for noise in noises
        for space in TITLES
    ]


def draw_schedules(curves: Sequence[KeepRateCurve]) -> Figure:
    """One panel for each noise setting, one line for each space."""
    styles = {space: STYLES[looks] for space, looks in _LOOKS_OF.items()}
    with settings():
        figure, axes_of = panels([curve.noise for curve in curves], "keep rate R(t)")
        for curve in curves:
            draw_line(axes_of[curve.noise], curve.keep_rates, styles[curve.methods[0]])
        for axes in axes_of.values():
            axes.set_ylim(0, 1.02)
        legend(figure, {TITLES[space]: style for space, style in styles.items()})
    return figure
