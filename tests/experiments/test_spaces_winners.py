"""`s2e reproduce spaces`: the winners of its searches, chosen by validation, with their own test accuracy."""

from __future__ import annotations

import io
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import create_trial
from rich.console import Console

from command_line import s2e
from populations import train_searches_by
from s2e.cli.reproduce_spaces import recorded, tables, winner_tables
from s2e.data import loading
from s2e.data.preparing import DataOptions, corrupt_and_split
from s2e.engine.curves import Curves
from s2e.engine.task import VALIDATION, Member, Task, Trained
from s2e.engine.training import train_population
from s2e.experiments import spaces
from s2e.experiments.space_results import (
    SearchedSet,
    Winner,
    differences,
    rows_by_set,
    spreadsheet,
    summary,
    winner_of,
    winner_rows,
)
from s2e.experiments.spaces import SpacesOptions
from s2e.runs.directory import Run
from s2e.schedules.spaces import SPACES
from s2e.seeds import derive
from s2e.studies import loop, storage
from s2e.studies.loop import TRAINED
from s2e.workflows.bench import TEST, TrainingOptions, task_of
from s2e.workflows.outcomes import Outcome
from space_runs import TWO_NOISES, clusters, contents, found, made, result, study, table

NOISE, SEED, EPOCHS = "pair:0.4", 5, 12
FIGURES = ("last_10_epochs", "best_epoch")


# ------------------------------------------------------------------------------------------------------------ one study


def judged(*trials: tuple[float, Sequence[float] | None]) -> optuna.Study:
    """Trials with these errors, whose test accuracies by epoch were recorded or not."""
    study = optuna.create_study(direction="minimize")
    for error, tested in trials:
        attributes = {TRAINED: [0.5] * 12} | ({} if tested is None else {"accuracy_test": list(tested)})
        study.add_trial(create_trial(value=error, user_attrs=attributes))
    return study


LOW_THEN_HIGH = [0.0, 0.95, *[0.5] * 5, *[0.75] * 5]  # 12 epochs, the last ten of which have a mean of 0.625


def test_a_winner_has_its_own_test_accuracy_over_its_last_epochs_and_at_its_best() -> None:
    one = winner_of(judged((0.3, [0.9] * 12), (0.25, LOW_THEN_HIGH), (0.25, [1.0] * 12)), "rbf")
    assert (one.space, one.trial, one.validation_accuracy) == ("rbf", 1, 0.75)
    assert one.test_accuracy == {"last_10_epochs": 0.625, "best_epoch": 0.95}


def test_a_winner_is_the_same_whatever_was_recorded_of_it_and_then_has_no_figures() -> None:
    one = winner_of(judged((0.3, [0.9] * 12), (0.25, None)), "rbf")
    assert (one.trial, one.test_accuracy) == (1, {"last_10_epochs": None, "best_epoch": None})


def test_where_all_diverged_the_last_epochs_of_the_winner_count_as_nothing() -> None:
    one = winner_of(judged((1.0, LOW_THEN_HIGH)), "rbf")
    assert one.test_accuracy == {"last_10_epochs": 0.0, "best_epoch": 0.95}


# ------------------------------------------------------------------------------------------------------------- all sets


def a_set(winners: dict[str, tuple[float, float | None, float | None]]) -> SearchedSet:
    """One set with winners of this validation accuracy and these two figures; all else is 0."""
    best = {
        (NOISE, space): Winner(space, place, valid, dict(zip(FIGURES, figures, strict=True)))
        for place, space in enumerate(SPACES)
        for valid, *figures in [winners.get(space, (0.0, 0.0, 0.0))]
    }
    return SearchedSet({(NOISE, space): found(float(space == "single-3")) for space in SPACES}, [], best)


@pytest.fixture
def two() -> list[SearchedSet]:
    """Two sets in which other spaces with one basis function win, by validation though not by test."""
    first = {"s2e": (0.5, 0.7, 0.9), "rbf": (0.9, 0.9, 0.9), "single-2": (0.6, 0.4, 0.5), "single-4": (0.5, 0.9, 1.0)}
    second = {"s2e": (0.5, 0.9, 0.9), "rbf": (0.9, 0.6, 0.7), "single-2": (0.4, 0.9, 1.0), "single-4": (0.7, 0.6, 0.7)}
    return [a_set(first), a_set(second)]


def test_single_is_the_winner_with_the_best_validation_in_its_set(two: list[SearchedSet]) -> None:
    assert [one.single_winners for one in two] == [{NOISE: "single-2"}, {NOISE: "single-4"}]
    assert [one.single for one in two] == [{NOISE: "single-3"}] * 2  # of what was found: another choice
    rows = [row for row in winner_rows(two) if row["space"] == "single"]
    assert [(row["set"], row["drawn_in"], row["validation_accuracy"]) for row in rows] == [
        (0, "single-2", 0.6),
        (1, "single-4", 0.7),
    ]
    assert [[row[name] for name in FIGURES] for row in rows] == [[0.4, 0.5], [0.6, 0.7]]


def test_there_is_a_row_for_each_winner_with_the_sets_of_a_space_below_each_other(two: list[SearchedSet]) -> None:
    rows = winner_rows(two)
    assert [(row["space"], row["set"]) for row in rows] == [(space, m) for space in (*SPACES, "single") for m in (0, 1)]
    assert all(row["drawn_in"] == row["space"] for row in rows if row["space"] != "single")
    own = {"noise": NOISE, "space": "rbf", "set": 1, "drawn_in": "rbf", "trial": list(SPACES).index("rbf")}
    assert own | {"validation_accuracy": 0.9, "last_10_epochs": 0.6, "best_epoch": 0.7} in rows


def told_of(rows: Sequence[dict[str, Any]], space: str) -> dict[str, Any]:
    (row,) = [row for row in rows if row["space"] == space]
    winner: dict[str, Any] = row["winner"]
    return winner


def final(one: SearchedSet) -> SearchedSet:
    """Give a set one final training in each space, which all came to nothing."""
    none = np.zeros(EPOCHS)
    outcome = Outcome(NOISE, "", 0, TEST, none, none, none, none, none, none, none, diverged=False)
    return replace(one, outcomes=[replace(outcome, method=space) for space in SPACES])


def test_winners_have_means_and_deviations_over_the_sets_and_one_set_has_none(two: list[SearchedSet]) -> None:
    sets = [final(one) for one in two]
    single = told_of(summary(sets), "single")
    assert single["validation_accuracy"] == pytest.approx(0.65)
    assert single["last_10_epochs"] == pytest.approx({"mean": 0.5, "std": statistics.stdev([0.4, 0.6])})
    assert single["best_epoch"] == pytest.approx({"mean": 0.6, "std": statistics.stdev([0.5, 0.7])})
    assert told_of(summary(sets[:1]), "single")["best_epoch"] == {"mean": 0.5, "std": None}
    row = rows_by_set(sets)[-1]  # Single in the second set
    assert (row["space"], row["set"]) == ("single", 1)
    assert row["winner"] == {"drawn_in": "single-4", "trial": list(SPACES).index("single-4")} | {
        "validation_accuracy": 0.7,
        "last_10_epochs": 0.6,
        "best_epoch": 0.7,
    }


def test_differences_of_winners_are_paired_within_sets(two: list[SearchedSet]) -> None:
    sets = [final(one) for one in two]
    rows = differences(sets)
    last, best = (told_of(rows, "rbf")[name] for name in FIGURES)
    assert last["by_set"] == pytest.approx([-0.2, 0.3])
    assert (last["mean"], last["standard_error"]) == pytest.approx((0.05, 0.25))
    assert best["by_set"] == pytest.approx([0.0, 0.2])
    assert told_of(rows, "single")["last_10_epochs"]["by_set"] == pytest.approx([0.3, 0.3])
    assert told_of(rows, "single")["last_10_epochs"]["standard_error"] == pytest.approx(0.0)
    alone = told_of(differences(sets[:1]), "rbf")["last_10_epochs"]
    assert (alone["mean"], alone["standard_error"]) == (pytest.approx(-0.2), None)


def test_what_one_set_does_not_know_is_left_out_of_the_means(two: list[SearchedSet]) -> None:
    unknown = Winner("rbf", 0, 0.8, dict.fromkeys(FIGURES))
    sets = [final(two[0]), replace(final(two[1]), winners={**two[1].winners, (NOISE, "rbf"): unknown})]
    assert told_of(summary(sets), "rbf") == {
        "validation_accuracy": pytest.approx(0.85),
        "last_10_epochs": {"mean": None, "std": None},
        "best_epoch": {"mean": None, "std": None},
    }
    compared = told_of(differences(sets), "rbf")["last_10_epochs"]
    assert compared == {"mean": None, "standard_error": None, "by_set": [pytest.approx(-0.2), None]}
    assert told_of(differences(sets), "single")["last_10_epochs"]["mean"] == pytest.approx(0.3)  # as if all were known


def test_a_spreadsheet_has_a_column_for_each_number_of_a_winner() -> None:
    row = {"space": "s2e", "winner": {"validation_accuracy": 0.5, "best_epoch": {"mean": 0.6, "std": None}}}
    flat = {"winner_validation_accuracy": 0.5, "winner_best_epoch": 0.6, "winner_best_epoch_std": None}
    assert spreadsheet([row]) == [{"space": "s2e", **flat}]


# ---------------------------------------------------------------------------------------------------------- a whole run


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(spaces, "rendered", lambda *_: b"")
        patched.setattr(storage, "check_storage", lambda _: None)  # opens every study a second time
        yield


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SpacesOptions:
    data = clusters(tmp_path_factory.mktemp("data") / "own.npz")
    given = {"draws": 2, "seeds": 1, "together": 8, "learning_rate": 2e-3, "seed": SEED}
    return SpacesOptions(data, (NOISE,), epochs=EPOCHS, batch_size=64, **given)


@pytest.fixture(scope="module")
def whole(quick: None, small: SpacesOptions, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(small, tmp_path_factory.mktemp("runs") / "whole")


def winner_alone(given: SpacesOptions, space: str) -> tuple[int, Curves]:
    """Train both draws of a space one at a time, and return the number and the curves of the better by validation."""
    source = loading.load(given.data, Path("data"))
    prepared = corrupt_and_split(source, DataOptions(given.data, NOISE, "clean", None, SEED), Path("data"))
    task = task_of(TrainingOptions(given.data, seed=SEED, epochs=EPOCHS, batch_size=64), prepared, "cpu")
    task = replace(task, evaluate={**task.evaluate, TEST: source.test})
    known, drawn = SPACES[space], optuna.create_study(direction="minimize")
    plan = loop.SearchPlan.named(space, "random", epochs=EPOCHS, trials=2, generation=2, seed=SEED)
    curves = []
    for trial in loop.ask(drawn, plan, 2):
        schedule = known.decode(np.array([[trial.params[name] for name in known.names]]), EPOCHS)[0]
        seed = derive(SEED, "trial", trial.number)
        curves.append(train_population(task, [Member(schedule, seed, 2e-3)]).curves)
    number = int(np.argmax([each.accuracy[VALIDATION][0, -10:].mean() for each in curves]))
    return number, curves[number]


@pytest.mark.parametrize("space", ["s2e", "mlp"])
def test_the_winner_of_a_run_is_the_better_training_itself(whole: Run, small: SpacesOptions, space: str) -> None:
    number, curves = winner_alone(small, space)
    (row,) = [row for row in table(whole, "winners.csv") if row["space"] == space]
    assert int(row["trial"]) == number
    assert float(row["validation_accuracy"]) == pytest.approx(curves.accuracy[VALIDATION][0, -10:].mean(), abs=1e-6)
    assert float(row["last_10_epochs"]) == pytest.approx(curves.accuracy[TEST][0, -10:].mean(), abs=2e-6)
    assert float(row["best_epoch"]) == pytest.approx(curves.accuracy[TEST][0].max(), abs=1e-6)


def test_every_file_of_a_run_has_the_same_winners(whole: Run) -> None:
    told, listed = whole.read_json("result.json"), table(whole, "winners.csv")
    assert [row["space"] for row in listed] == [*SPACES, "single"]
    for row, by_set, summed, flat in zip(
        listed, told["by_set"], told["summary"], table(whole, "summary.csv"), strict=True
    ):
        assert row["space"] == by_set["space"] == summed["space"] == flat["space"]
        for name in FIGURES:
            for value in (by_set["winner"][name], summed["winner"][name]["mean"], float(flat[f"winner_{name}"])):
                assert value == pytest.approx(float(row[name]), abs=1e-6)
            assert flat[f"winner_{name}_std"] == ""
    assert told["single_winners"] == {NOISE: [listed[-1]["drawn_in"]]}
    of = {row["space"]: row["winner"]["last_10_epochs"] for row in told["by_set"]}
    for compared in told["s2e_minus"]:
        assert compared["winner"]["last_10_epochs"]["by_set"] == pytest.approx([of["s2e"] - of[compared["space"]]])


def test_a_run_begun_by_a_version_that_recorded_no_test_accuracy_goes_on_and_invents_none(
    whole: Run, small: SpacesOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    populations: list[int] = []

    def as_before(task: Task, members: Sequence[Member], **rest: Any) -> Trained:
        """Evaluate validation only, and be interrupted before the second draws."""
        populations.append(len(members))
        if len(populations) == 2:
            raise KeyboardInterrupt
        return train_population(replace(task, evaluate={VALIDATION: task.evaluate[VALIDATION]}), members, **rest)

    with monkeypatch.context() as patched:
        train_searches_by(as_before, patched)
        with pytest.raises(KeyboardInterrupt):
            made(small, tmp_path / "run")
    run = made(small, tmp_path / "run", resume=True)
    before, after = contents(whole), contents(run)
    assert after["schedules.json"] == before["schedules.json"]
    assert after["results.csv"] == before["results.csv"]
    known = []
    for had, has in zip(table(whole, "winners.csv"), table(run, "winners.csv"), strict=True):
        known.append(has["trial"] == "1")
        assert has == (had if known[-1] else {**had, "last_10_epochs": "", "best_epoch": ""})
    assert {True, False} == set(known)  # winners are among the first draws and among the second
    assert ["accuracy_test" in trial.user_attrs for trial in study(run, NOISE, "s2e").trials] == [False, True]
    shown = s2e("reproduce", "spaces", "--resume", "--out", str(run.path))
    assert shown.exit_code == 0, shown.stderr
    assert "not recorded" in shown.stdout


# ------------------------------------------------------------------------------------------------------ what is shown


def with_winners(**changes: Any) -> dict[str, Any]:
    """A result in which the winners of every space under every noise setting have figures of their own."""
    told = result(single_winners={"pair:0.4": ["single-2"], "symmetric:0.3": ["single-4"]})
    for place, row in enumerate(told["summary"]):
        figure = {"mean": 0.3 + 0.01 * place, "std": None}
        row["winner"] = {"last_10_epochs": figure, "best_epoch": {**figure, "mean": figure["mean"] + 0.3}}
    for place, row in enumerate(told["s2e_minus"]):
        row["winner"] = {"last_10_epochs": {"mean": 0.001 * place - 0.002, "standard_error": None}}
    return {**told, **changes}


def cells(of: Any, column: int) -> list[str]:
    return [str(cell) for cell in of.columns[column].cells]


def test_the_tables_of_winners_have_their_figures() -> None:
    best, last, lead = winner_tables(with_winners())
    assert [str(each.title) for each in (best, last, lead)] == [
        "winners: test accuracy, best epoch",
        "winners: test accuracy, last 10 epochs",
        "winners: S2E minus the other space, last 10 epochs",
    ]
    assert cells(best, 0) == ["Co-teaching", "Single", "RBF", "MLP", "S2E"]
    place = {space: number for number, space in enumerate(SPACES)} | {"single": 2 * len(SPACES)}  # rows of the summary
    in_order = [place[space] for space in ("coteaching", "single", "rbf", "mlp", "s2e")]
    assert cells(last, 1) == [f"{30 + number:.2f}" for number in in_order]
    assert cells(best, 1) == [f"{60 + number:.2f}" for number in in_order]
    assert [cell.style for cell in last.columns[1].cells] == ["", "bold", "", "", ""]
    assert cells(lead, 1) == ["-0.20", "-0.10", "+0.00", "+0.10"]
    assert "the paper's figure; the epoch is chosen by the test data" in str(best.caption)
    assert "one training each: the one with the best validation accuracy of 50 in each space" in str(last.caption)
    assert str(last.caption).endswith("by its winner's validation: single-2, single-4")
    several = winner_tables(with_winners(sets=3))
    assert "mean ± standard deviation over 3 sets of draws" in str(several[1].caption)


def test_a_winner_that_was_not_recorded_is_told_of_and_none_at_all_make_no_tables() -> None:
    told = with_winners()
    none = {"mean": None, "std": None}
    for row in told["summary"]:
        if (row["noise"], row["space"]) != ("pair:0.4", "rbf"):
            row["winner"] = {"last_10_epochs": none, "best_epoch": none}
    for row in told["s2e_minus"]:
        row["winner"] = {"last_10_epochs": {"mean": None, "standard_error": None}}
    _, last, lead = winner_tables(told)
    assert [cell == "not recorded" for cell in cells(last, 1)] == [True, True, False, True, True]
    assert [cell.style for cell in last.columns[1].cells] == ["", "", "bold", "", ""]
    assert cells(last, 2) == ["not recorded"] * 5
    assert not any(cell.style for cell in last.columns[2].cells)
    assert cells(lead, 2) == ["not recorded"] * 4
    for row in told["summary"]:
        row["winner"] = {"last_10_epochs": none, "best_epoch": none}
    assert not recorded(told)
    assert winner_tables(told) == []
    assert len(tables(told)) == 3  # of the fresh trainings


def test_a_command_whose_search_recorded_no_winners_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = with_winners(run="")
    for row in told["summary"]:
        row["winner"]["best_epoch"] = {"mean": None, "std": None}
    (tmp_path / "result.json").write_text(json.dumps(told))
    monkeypatch.setattr(spaces, "compare_spaces", lambda *_, **__: Run(tmp_path))
    shown = s2e("reproduce", "spaces")
    assert shown.stdout.startswith("no winners: ")
    assert shown.stdout.count("│ Co-teaching ") == 3


def test_three_noise_settings_fit_into_eighty_columns() -> None:
    third = "symmetric:0.5"
    told = with_winners(sets=12)
    figure = {"mean": 0.98634, "std": 0.10121, "standard_error": 0.10121}
    for name in ("summary", "s2e_minus"):
        extra = [{**row, "noise": third} for row in told[name] if row["noise"] == TWO_NOISES[0]]
        told[name] = [
            row | figure | {"winner": dict.fromkeys(FIGURES, figure), **dict.fromkeys(FIGURES, figure)}
            for row in [*told[name], *extra]
        ]
    for name in ("single", "single_winners"):
        told[name] = {**told[name], third: ["single-1"]}
    console = Console(width=80, record=True, file=io.StringIO())
    for each in [*winner_tables(told), *tables(told)]:
        console.print(each)
    shown = console.export_text().splitlines()
    assert max(map(len, shown)) <= 80
    assert sum(line.count("98.63 ± 10.12") for line in shown) == (4 * 5 + 2 * 4) * 3  # no figure is broken in two
