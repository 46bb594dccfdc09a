"""`s2e reproduce spaces --sets`: the whole search repeated with independent draws, and what spaces differ by then."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from command_line import s2e
from populations import train_searches_by
from s2e.cli.reproduce_spaces import tables
from s2e.data import loading
from s2e.data.preparing import DataOptions, corrupt_and_split
from s2e.engine.task import Member, Task, Trained
from s2e.engine.training import train_population
from s2e.errors import RunConflict
from s2e.experiments import spaces
from s2e.experiments.figures import draw_schedules, schedule_curves
from s2e.experiments.space_results import (
    SearchedSet,
    Winner,
    differences,
    rows_by_set,
    spreadsheet,
    summary,
    training_rows,
)
from s2e.experiments.spaces import SpacesOptions, seed_of_set
from s2e.runs.directory import CONFIG, Run
from s2e.schedules.spaces import SPACES
from s2e.seeds import derive
from s2e.studies import storage
from s2e.studies.loop import Found, search_schedule
from s2e.studies.plan import SearchPlan
from s2e.workflows.bench import TEST, TrainingOptions, task_of
from s2e.workflows.outcomes import Outcome
from space_runs import clusters, contents, found, made, result, table

NOISE, SEED = "pair:0.4", 5
SETS = 2
SEED_OF = [SEED, derive(SEED, "set", 1)]


class Populations(list[tuple[str, list[int]]]):
    """What each population was trained for, and the seeds of its members; the one at `stop_at` is interrupted."""

    stop_at: int | None = None

    def training(self, purpose: str) -> Callable[..., Trained]:
        def train(task: Task, members: Sequence[Member], **rest: Any) -> Trained:
            if len(self) == self.stop_at:
                raise KeyboardInterrupt
            self.append((purpose, [member.seed for member in members]))
            return train_population(task, members, **rest)

        return train


@pytest.fixture(scope="module")
def trained() -> Iterator[Populations]:
    """Record what is trained, and draw no figures."""
    seen = Populations()
    with pytest.MonkeyPatch.context() as patched:
        train_searches_by(seen.training("search"), patched)
        patched.setattr(spaces, "train_population", seen.training("final"))
        patched.setattr(spaces, "rendered", lambda *_: b"")
        patched.setattr(storage, "check_storage", lambda _: None)  # opens every study a second time
        yield seen


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SpacesOptions:
    data = clusters(tmp_path_factory.mktemp("data") / "own.npz")
    return SpacesOptions(
        data, (NOISE,), draws=2, sets=SETS, seeds=2, epochs=2, batch_size=64, learning_rate=2e-3, seed=SEED
    )


@pytest.fixture(scope="module")
def whole(small: SpacesOptions, trained: Populations, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two sets that was stopped twice, in the search and in the final trainings."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    for stop_at in (1, 3):  # the second population of the search, then of the final trainings
        trained.stop_at = stop_at
        with pytest.raises(KeyboardInterrupt):
            made(replace(small, together=30), path, resume=True)
    trained.stop_at = None
    return made(replace(small, together=30), path, resume=True)


# --------------------------------------------------------------------------------------------------- what is computed


def alone(data: str, space: str, seed: int) -> tuple[Found, list[Any]]:
    """Search one space with the draws of one seed, apart from all others, then train what was found one at a time."""
    source = loading.load(data, Path("data"))
    prepared = corrupt_and_split(source, DataOptions(data, NOISE, "clean", None, SEED), Path("data"))
    task = task_of(TrainingOptions(data, seed=SEED, epochs=2, batch_size=64), prepared, "cpu")
    plan = SearchPlan.named(space, "random", epochs=2, trials=2, generation=2, learning_rate=2e-3, seed=seed)
    best = search_schedule(task, plan, optuna.create_study(direction="minimize"))
    final = replace(task, evaluate={TEST: source.test}, seed=derive(derive(SEED, "final"), "batches"))
    seeds = [derive(derive(seed, "final"), "restart", which) for which in range(2)]
    return best, [train_population(final, [Member(best.schedule, each, 2e-3)]).curves for each in seeds]


@pytest.mark.parametrize(("which", "space"), [(0, "s2e"), (1, "s2e"), (1, "rbf")])
def test_a_set_among_others_comes_to_what_it_comes_to_alone(
    whole: Run, small: SpacesOptions, which: int, space: str
) -> None:
    best, curves = alone(small.data, space, SEED_OF[which])
    (chosen,) = [
        one for one in whole.read_json("schedules.json")["schedules"] if (one["set"], one["space"]) == (which, space)
    ]
    assert chosen["point"] == best.point.tolist()
    assert (chosen["trial"], chosen["validation_accuracy"]) == (best.trial, best.validation_accuracy)
    rows = [row for row in table(whole) if (row["set"], row["space"]) == (str(which), space)]
    assert [row["seed"] for row in rows] == ["0", "1"]
    for row, own in zip(rows, curves, strict=True):
        assert float(row["last_10_epochs"]) == pytest.approx(own.accuracy[TEST][0].mean(), abs=1e-6)


def test_the_first_set_is_what_a_single_one_is_and_the_others_have_seeds_of_their_own() -> None:
    seeds = [seed_of_set(SEED, which) for which in range(9)]
    assert seeds[:SETS] == SEED_OF
    assert len(set(seeds)) == 9


def test_sets_draw_other_numbers_which_all_spaces_of_a_set_share(whole: Run) -> None:
    drawn = {}
    for which in range(SETS):
        for space, known in SPACES.items():
            name = f"reproduce spaces/{NOISE}/{space}" + ("" if which == 0 else f"/{which}")
            trials = optuna.load_study(study_name=name, storage=whole.storage).trials
            drawn[which, space] = np.array([[trial.params[name] for name in known.names] for trial in trials])
    for (which, _), points in drawn.items():
        assert len(points) == 2
        np.testing.assert_array_equal(points, drawn[which, "s2e"][:, : points.shape[1]])
    assert len(np.unique([drawn[which, "s2e"] for which in range(SETS)])) == SETS * 2 * 20


def test_all_sets_ride_in_the_same_populations_and_an_interruption_repeats_none(
    whole: Run, trained: Populations
) -> None:
    searches, finals = trained[:2], trained[2:4]
    assert [purpose for purpose, _ in trained[:4]] == ["search", "search", "final", "final"]
    assert [len(seeds) for _, seeds in searches] == [16, 16]  # one draw of each of the 2 x 8 searches
    assert [len(seeds) for _, seeds in finals] == [30, 2]  # 2 sets x 8 spaces x 2 seeds, at most 30 together
    for number, (_, seeds) in enumerate(searches):
        assert seeds == [derive(seed, "trial", number) for seed in SEED_OF for _ in SPACES]
    restarts = [derive(derive(seed, "final"), "restart", which) for seed in SEED_OF for which in range(2)]
    assert finals[0][1] + finals[1][1] == restarts * len(SPACES)


def test_how_many_are_trained_at_a_time_changes_nothing(
    whole: Run, small: SpacesOptions, trained: Populations, tmp_path: Path
) -> None:
    before = len(trained)
    assert contents(made(replace(small, together=47), tmp_path / "run")) == contents(whole)
    assert [len(seeds) for _, seeds in trained[before:]] == [32, 32]


# --------------------------------------------------------------------------------------------------- what is made of it


def test_a_run_reports_every_training_every_set_and_all_sets_together(whole: Run) -> None:
    rows, told = table(whole), whole.read_json("result.json")
    wanted = [(space, str(which), str(seed)) for space in SPACES for which in range(SETS) for seed in range(2)]
    assert [(row["space"], row["set"], row["seed"]) for row in rows] == wanted
    assert told["sets"] == SETS
    assert len(told["by_set"]) == SETS * (len(SPACES) + 1)
    flat = list(csv.DictReader((whole.path / "summary.csv").read_text().splitlines()))
    assert [row["space"] for row in flat] == [row["space"] for row in told["summary"]] == [*SPACES, "single"]
    for summed, row in zip(told["summary"], flat, strict=True):
        of = told["single"][NOISE] if summed["space"] == "single" else [summed["space"]] * SETS
        values = [float(row["last_10_epochs"]) for row in rows if of[int(row["set"])] == row["space"]]
        assert (summed["sets"], summed["seeds"], len(values)) == (SETS, 2, 4)
        assert summed["last_10_epochs"]["mean"] == pytest.approx(statistics.mean(values), abs=1e-5)
        assert summed["last_10_epochs"]["std"] == pytest.approx(statistics.stdev(values), abs=1e-5)
        assert float(row["last_10_epochs"]) == pytest.approx(summed["last_10_epochs"]["mean"], abs=1e-6)
        assert float(row["last_10_epochs_std"]) == pytest.approx(summed["last_10_epochs"]["std"], abs=1e-6)
    for compared in told["s2e_minus"]:
        means = {
            (row["set"], row["space"]): row["last_10_epochs"]["mean"]
            for row in told["by_set"]
            if row["space"] in ("s2e", compared["space"])
        }
        each = [means[which, "s2e"] - means[which, compared["space"]] for which in range(SETS)]
        assert compared["by_set"] == pytest.approx(each)
        assert compared["mean"] == pytest.approx(statistics.mean(each))
        assert compared["standard_error"] == pytest.approx(statistics.stdev(each) / SETS**0.5)


def trained_to(space: str, seed: int, accuracy: float) -> Outcome:
    curve = np.full(3, accuracy)
    return Outcome(NOISE, space, seed, TEST, curve, curve, curve, curve, curve, curve, curve, diverged=False)


def a_set(validation: dict[str, float], tested: dict[str, tuple[float, float]]) -> SearchedSet:
    """One set in which every space not named has accuracies of 0."""
    chosen = {(NOISE, space): found(validation.get(space, 0.0)) for space in SPACES}
    outcomes = [trained_to(space, seed, tested.get(space, (0, 0))[seed]) for space in SPACES for seed in range(2)]
    winners = {(NOISE, space): Winner(space, 0, 0.0, {"last_10_epochs": 0.0, "best_epoch": 0.0}) for space in SPACES}
    return SearchedSet(chosen, outcomes, winners)


@pytest.fixture
def two() -> list[SearchedSet]:
    """Two sets in which other spaces with one basis function are best, by validation though not by test."""
    first = {"s2e": (0.8, 1.0), "single-2": (0.5, 0.7), "single-4": (0.9, 0.9), "rbf": (0.9, 0.9)}
    second = {"s2e": (0.7, 0.7), "single-2": (0.9, 0.9), "single-4": (0.3, 0.5), "rbf": (0.9, 0.9)}
    return [a_set({"single-2": 0.6, "single-4": 0.5}, first), a_set({"single-2": 0.1, "single-4": 0.4}, second)]


def test_single_is_chosen_in_each_set_by_validation(two: list[SearchedSet]) -> None:
    assert [one.single for one in two] == [{NOISE: "single-2"}, {NOISE: "single-4"}]
    (single,) = [row for row in summary(two) if row["space"] == "single"]
    assert single["last_10_epochs"]["mean"] == pytest.approx(0.5)  # 0.5 and 0.7, 0.3 and 0.5
    assert single["last_10_epochs"]["std"] == pytest.approx(statistics.stdev([0.5, 0.7, 0.3, 0.5]))
    assert single["validation_accuracy"] == pytest.approx(0.5)
    each = [row for row in rows_by_set(two) if row["space"] == "single"]
    assert [(row["set"], row["validation_accuracy"]) for row in each] == [(0, 0.6), (1, 0.4)]
    assert [row["last_10_epochs"]["mean"] for row in each] == pytest.approx([0.6, 0.4])
    assert not [row for row in training_rows(two) if row["space"] == "single"]  # no training counts twice


def test_differences_are_paired_within_sets(two: list[SearchedSet]) -> None:
    rows = {row["space"]: row for row in differences(two)}
    assert list(rows) == ["coteaching", "single", "rbf", "mlp"]
    assert rows["single"]["by_set"] == pytest.approx([0.3, 0.3])
    assert rows["single"]["mean"] == pytest.approx(0.3)
    assert rows["single"]["standard_error"] == pytest.approx(0.0)  # each varies, but both alike
    assert rows["rbf"]["by_set"] == pytest.approx([0.0, -0.2])
    assert (rows["rbf"]["mean"], rows["rbf"]["standard_error"]) == pytest.approx((-0.1, 0.1))


def test_one_set_has_differences_without_an_error(two: list[SearchedSet]) -> None:
    (row,) = [row for row in differences(two[1:]) if row["space"] == "rbf"]
    assert row["mean"] == pytest.approx(-0.2)
    assert row["standard_error"] is None


def test_a_spreadsheet_has_a_column_for_each_number() -> None:
    row = {"space": "s2e", "best_epoch": {"mean": 0.5, "std": None}, "sets": 2}
    assert spreadsheet([row]) == [{"space": "s2e", "best_epoch": 0.5, "best_epoch_std": None, "sets": 2}]


# ------------------------------------------------------------------------------------------------------ what is shown


def test_the_figure_has_a_thin_line_of_the_same_colour_for_each_set() -> None:
    chosen = [
        {(NOISE, space): found(0.5, 0.01 * (place + 1) + 0.5 * which) for place, space in enumerate(SPACES)}
        for which in range(2)
    ]
    curves = [schedule_curves(chosen[which], {NOISE: f"single-{1 + which}"}, [NOISE]) for which in range(2)]
    (panel,), (alone,) = draw_schedules(curves).axes, draw_schedules(curves[:1]).axes
    places = {space: place for place, space in enumerate(SPACES)}
    drawn = [
        ["coteaching", "single-1", "rbf", "mlp", "s2e"],
        ["coteaching", "single-2", "rbf", "mlp", "s2e"],
    ]
    wanted = [0.01 * (places[space] + 1) + 0.5 * which for which in range(2) for space in drawn[which]]
    assert [float(line.get_ydata()[0]) for line in panel.lines] == pytest.approx(wanted)
    colours = [line.get_color() for line in alone.lines]
    assert [line.get_color() for line in panel.lines] == colours * 2
    for line, wide in zip(panel.lines, [*alone.lines, *alone.lines], strict=True):
        assert line.get_linewidth() < wide.get_linewidth()
    assert panel.figure.legends[0].get_title().get_text() == "one line for each of 2 sets of draws"
    assert alone.figure.legends[0].get_title().get_text() == ""


def test_the_table_of_differences_has_a_sign_and_an_error_where_there_are_several_sets() -> None:
    _, one, _ = tables(result())
    assert str(one.title) == "fresh seeds: S2E minus the other space, last 10 epochs"
    cells = [[str(cell) for cell in column.cells] for column in one.columns]
    assert cells[0] == ["Co-teaching", "Single", "RBF", "MLP"]
    assert cells[1:] == [["+0.00", "+1.00", "+2.00", "+3.00"], ["-0.00", "-1.00", "-2.00", "-3.00"]]
    assert "one set: no standard error" in str(one.caption)
    rows = [{**row, "standard_error": 0.0012} for row in result()["s2e_minus"]]
    several = tables(result(s2e_minus=rows, sets=4))[1]
    assert str(list(several.columns[1].cells)[1]) == "+1.00 ± 0.12"
    assert "mean ± standard error over 4 sets" in str(several.caption)


def test_the_caption_says_what_the_figures_are_of() -> None:
    single = {"pair:0.4": ["single-3", "single-1", "single-3"], "symmetric:0.3": ["single-4"] * 3}
    caption = str(tables(result(sets=3, single=single))[2].caption)
    assert "mean ± standard deviation over 3 sets of draws with 2 seeds each;" in caption
    assert ": single-3 (2 of 3 sets) or single-1 (1), single-4 (3 of 3 sets)\n" in caption
    assert "over 3 sets of draws with one seed each" in str(tables(result(sets=3, seeds=1))[2].caption)
    summary = [{**row, "sets": 3, "diverged": int(row["space"] == "mlp")} for row in result()["summary"]]
    caption = str(tables(result(sets=3, summary=summary))[2].caption)
    assert "diverged, counted as 0 over the last epochs: mlp 1 of 6 (pair:0.4); mlp 1 of 6 (symmetric:0.3)" in caption


def test_the_command_hands_its_sets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(spaces, "compare_spaces", lambda options, *_, **__: asked.append(options))
    s2e("reproduce", "spaces", "--sets", "7")
    assert asked == [SpacesOptions(sets=7)]


# --------------------------------------------------------------------------------------------------- what is continued


def test_other_sets_are_refused_when_a_run_is_continued(whole: Run, small: SpacesOptions) -> None:
    with pytest.raises(RunConflict, match="other settings: sets was 2 and is now 1"):
        made(replace(small, sets=1), whole.path, resume=True)


def test_a_run_from_before_there_were_sets_has_one_and_goes_on(
    whole: Run, small: SpacesOptions, trained: Populations, tmp_path: Path
) -> None:
    given = replace(small, sets=1, draws=1, seeds=1)
    run = made(given, tmp_path / "run")
    before, trainings = contents(run), len(trained)
    config = run.read_json(CONFIG)
    del config["options"]["sets"]
    (run.path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(RunConflict, match="other settings: sets was None and is now 2"):
        made(replace(given, sets=2), run.path, resume=True)
    assert contents(made(given, run.path, resume=True)) == before
    assert len(trained) == trainings  # nothing was left to train
    study = optuna.load_study(study_name=f"reproduce spaces/{NOISE}/s2e", storage=run.storage)
    assert "sets" not in study.user_attrs["settings"]  # as such a run has written it
