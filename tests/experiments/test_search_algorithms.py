"""`s2e reproduce searchers`: algorithms compared on a table of trained schedules, and on data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from command_line import assert_refused, s2e
from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.experiments.schedule_table import surrogate
from s2e.experiments.schedule_table.surrogate import TableSurrogate
from s2e.experiments.schedule_table.table import ScheduleTable, drawn, published
from s2e.experiments.search_algorithms import SearchersOptions
from s2e.runs.directory import Run
from s2e.samplers import SAMPLERS
from s2e.schedules.spaces import SPACES
from s2e.seeds import derive
from s2e.studies.loop import TRAINED, run_generations
from s2e.studies.plan import Search, SearchPlan
from searcher_runs import (
    NOISES,
    K,
    assert_rows,
    best_by_hand,
    clusters,
    compared,
    in_an_empty_directory_without_figures,
    numbers,
    quiet,
    rows,
)

EPOCHS = 18
TABLED = ("random", "curve", "hyperband")

work = pytest.fixture(in_an_empty_directory_without_figures, autouse=True)
_quiet = pytest.fixture(quiet, autouse=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def _fewer_trees() -> Iterator[None]:
    """What is claimed does not depend on how many the model of a table has."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(surrogate, "TREES", 20)
        yield


def made_up_table(path: Path) -> str:
    """Write a table of schedules that nobody trained.

    What keeps about the right share in the end does better in the end and worse in the beginning, so that searches that
    stop trainings early stop some of the best.
    """
    space, draws, more, again = SPACES["coteaching"], 48, 4, 12
    generator = np.random.default_rng(0)
    points, found = drawn(draws, len(space.names), 1), np.stack([drawn(more, len(space.names), 2)] * len(NOISES))

    def trained(at: Any, shape: tuple[int, ...], wanted: float) -> Any:
        """Accuracies (*shape, n, T) of points (n, D); the best schedule keeps the share that is wanted."""
        kept = space.decode(at, EPOCHS)[:, -1]  # (n,)
        reached = 0.95 - np.abs(kept - wanted) / 2 + generator.normal(0, 0.01, size=(*shape, len(at)))
        late = np.clip((np.arange(1, EPOCHS + 1) - 3) / 5, 0, 1)  # (T,)
        return np.clip((1 - late) * (0.8 - 0.6 * reached[..., None]) + late * reached[..., None], 0, 1)

    table = ScheduleTable(
        "coteaching",
        NOISES,
        points,
        np.stack([trained(points, (), wanted) for wanted in (0.6, 0.8)]),  # (S, n, T)
        np.stack([np.moveaxis(trained(points[:again], (2,), wanted), 0, 1) for wanted in (0.6, 0.8)]),  # (S, r, m, T)
        found,
        np.stack([trained(found[0], (), wanted) for wanted in (0.6, 0.8)]),  # (S, q, T)
        {"judged": 1000, "data": "made up"},
    )
    np.savez(path, **table.arrays())
    return str(path)


# --------------------------------------------------------------------------------------------------------- on the table


@pytest.fixture(scope="module")
def table_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made_up_table(tmp_path_factory.mktemp("table") / "table.npz")


def on_table(table_file: str, **changes: Any) -> SearchersOptions:
    small = SearchersOptions(
        f"table:{table_file}",
        TABLED,
        repeats=3,
        trials=13,
        random_trials=14,
        generation=K,
        space="coteaching",
        seed=5,
    )
    return replace(small, **changes)


@pytest.fixture(scope="module")
def whole(table_file: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compared(on_table(table_file), tmp_path_factory.mktemp("runs") / "whole", jobs=2)


@pytest.mark.parametrize("sampler", TABLED)
def test_the_table_holds_what_searches_run_by_hand_find(sampler: str, whole: Run, table_file: str) -> None:
    table, budget = ScheduleTable.read(Path(table_file)), 14 if sampler == "random" else 13
    for noise in NOISES:
        model, best = TableSurrogate(table, noise), []
        for repeat in range(3):
            seed = derive(5, "searchers", sampler, repeat)
            plan = SearchPlan.named("coteaching", sampler, epochs=EPOCHS, trials=budget, generation=K, seed=seed)
            study = optuna.create_study(study_name=f"{sampler}-{repeat}")
            run_generations(model.train, EPOCHS, [Search(plan, study)])
            trials = []
            for trial in study.trials:
                point = np.array([[trial.params[name] for name in plan.space.names]])
                expected = model.error(plan.space.decode(point, EPOCHS))[0]
                error = float(expected) if trial.state == TrialState.COMPLETE else math.nan
                trials.append((len(trial.user_attrs[TRAINED]) / EPOCHS, error))
            best.append(best_by_hand(trials, budget))
        assert_rows(whole, sampler, noise, best)
        np.testing.assert_allclose(whole.read_arrays("repeats.npz")[f"{sampler}/{noise}"], best, atol=1e-6)


def test_the_result_says_what_was_compared_and_how_good_the_tables_model_is(whole: Run, table_file: str) -> None:
    result, table = whole.read_json("result.json"), rows(whole)
    assert (result["on"], result["repeats"], result["epochs"]) == (f"table:{table_file}", 3, EPOCHS)
    assert (result["device"], result["processes"]) == ("cpu", 2)
    assert {(row["sampler"], row["noise"], row["trainings"]) for row in result["summary"]} == {
        (sampler, noise, spent)
        for sampler in TABLED
        for noise in NOISES
        for spent in (12, 14 if sampler == "random" else 13)
    }
    for row in result["summary"]:
        same = table[row["sampler"], row["noise"], row["trainings"]]
        for name in ("error", "low", "high"):
            assert float(same[name]) == pytest.approx(row[name], abs=1e-6)
    assert set(result["surrogate"]) == set(NOISES)
    assert all(checked["correlation"] > 0.8 for checked in result["surrogate"].values())


def test_the_result_says_how_many_trainings_the_default_needs(whole: Run) -> None:
    needed, table = whole.read_json("result.json")["needed"], rows(whole)
    assert [(row["noise"], row["than"], row["trainings"]) for row in needed] == [
        (noise, "random", 14) for noise in NOISES
    ]
    for row in needed:
        goal = float(table["random", row["noise"], 14]["error"])
        reached = [spent for spent in range(1, 14) if float(table["curve", row["noise"], spent]["error"]) <= goal]
        assert row["default_trainings"] == min(reached, default=None)


def test_a_figure_is_written_in_two_formats(whole: Run) -> None:
    assert (whole.path / "searchers.png").read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in (whole.path / "searchers.svg").read_bytes()


def test_repeats_differ_and_so_do_seeds(whole: Run, table_file: str) -> None:
    for found in whole.read_arrays("repeats.npz").values():
        assert len(np.unique(found, axis=0)) == 3
    other = compared(on_table(table_file, seed=6, samplers=("random",)), "other")
    assert (
        other.read_arrays("repeats.npz")["random/pair:0.4"] != whole.read_arrays("repeats.npz")["random/pair:0.4"]
    ).any()


def test_the_number_of_processes_changes_nothing_but_its_own_entry(whole: Run, table_file: str) -> None:
    one = compared(on_table(table_file), "one", jobs=1)
    assert numbers(one) == numbers(whole)
    assert one.read_json("result.json")["processes"] == 1


def test_algorithms_may_join_later_and_find_what_they_find_from_the_beginning(whole: Run, table_file: str) -> None:
    compared(on_table(table_file, samplers=("random",)), "run")
    assert numbers(compared(on_table(table_file), "run", resume=True)) == numbers(whole)


def test_what_is_finished_is_not_searched_again(table_file: str) -> None:
    options = on_table(table_file, samplers=("random", "hyperband"), repeats=1)
    run = compared(options, "run")
    before = numbers(run)
    marked = {name: np.stack([spent, np.full_like(errors, 0.125)]) for name, (spent, errors) in searched(run, "random")}
    run.write_arrays("traces-random.npz", marked)
    (run.path / "traces-hyperband.npz").unlink()
    table = rows(compared(options, "run", resume=True))
    assert {float(row["error"]) for (sampler, *_), row in table.items() if sampler == "random"} == {0.125}
    again = [line for line in (run.path / "searchers.csv").read_text().splitlines() if line.startswith("hyperband")]
    assert again == [line for line in before[0].splitlines() if line.startswith("hyperband")]


def searched(run: Run, sampler: str) -> list[tuple[str, Any]]:
    return list(run.read_arrays(f"traces-{sampler}.npz").items())


@pytest.mark.parametrize("changes", [{"trials": 12}, {"repeats": 2}, {"seed": 6}, {"noises": NOISES[:1]}], ids=str)
def test_a_comparison_is_not_continued_with_other_settings(
    changes: dict[str, Any], whole: Run, table_file: str
) -> None:
    with pytest.raises(RunConflict, match=f"{next(iter(changes))} was"):
        compared(on_table(table_file, **changes), whole.path, resume=True)


def test_a_comparison_is_not_continued_on_another_table(table_file: str, work: Path) -> None:
    own = work / "own.npz"
    own.write_bytes(Path(table_file).read_bytes())
    options = on_table(str(own), samplers=("random",), repeats=1, noises=NOISES[:1])
    compared(options, "run")
    with np.load(own) as stored:
        arrays = dict(stored)
    arrays["accuracy"] = np.maximum(arrays["accuracy"], 1) - 1
    np.savez(own, **arrays)
    with pytest.raises(RunConflict, match="the data have changed"):
        compared(options, "run", resume=True)


@pytest.mark.parametrize("budgets", [(1, 1), (5, 6)])
def test_one_repeat_and_small_budgets_are_compared_too(budgets: tuple[int, int], table_file: str) -> None:
    trials, random_trials = budgets
    run = compared(on_table(table_file, repeats=1, trials=trials, random_trials=random_trials), "run")
    for (sampler, _, spent), row in rows(run).items():
        assert row["error"] == row["low"] == row["high"]
        assert spent <= (random_trials if sampler == "random" else trials)
    assert len(rows(run)) == 2 * (2 * trials + random_trials)


def test_the_packages_own_table_is_read_and_its_settings_are_the_default() -> None:
    assert ScheduleTable.read(published()).noises
    assert SearchersOptions().on == "table"
    assert set(SearchersOptions().samplers) == set(SAMPLERS)


# ------------------------------------------------------------------------------------------------------ what is refused


def test_options_that_make_no_sense_are_refused(table_file: str) -> None:
    for changes, said in (
        ({"repeats": 0}, "`repeats` must be at least 1, but got 0"),
        ({"samplers": ()}, "`samplers` must name each algorithm once"),
        ({"samplers": ("tpe", "random", "tpe")}, "but got tpe, random, tpe"),
        ({"samplers": ("tpe", "nonsense")}, "`sampler` must be one of .*'nonsense'"),
        ({"space": "nonsense"}, "'nonsense'"),
    ):
        with pytest.raises(InvalidInput, match=said):
            on_table(table_file, **changes)


COMMAND = ["reproduce", "searchers", "--space", "coteaching", "--out", "run", "--jobs", "1"]
SMALL = [*COMMAND, "--repeats", "2", "--trials", "4", "--random-trials", "5", "--generation", str(K)]


def test_bad_input_is_refused_in_one_line_and_leaves_nothing(table_file: str) -> None:
    on = ["--on", f"table:{table_file}"]
    assert_refused(s2e(*SMALL, *on, "--samplers", "random,nonsense"), "`sampler` must be one of", "'nonsense'")
    assert_refused(s2e(*SMALL, *on, "--samplers", "random,random"), "`samplers` must name each algorithm once")
    noises = ["--noise", NOISES[0], "--noise", "pair:0.3"]
    assert_refused(s2e(*SMALL, *on, *noises), f"`noise` must be one of {', '.join(NOISES)}, but got 'pair:0.3'")
    for option in ("repeats", "trials", "random_trials", "generation"):
        refused = s2e(*COMMAND, *on, f"--{option.replace('_', '-')}", "0", "--out", "none")
        assert_refused(refused, f"`{option}` must be at least 1")
    assert not Path("none").exists()
    assert_refused(s2e(*SMALL, "--on", "table:nowhere.npz"), "'nowhere.npz' is not a table of schedules")
    assert_refused(s2e(*SMALL, "--on", "nowhere.npz"), "nowhere.npz")
    clusters()
    assert_refused(s2e(*SMALL, "--on", "own.npz", "--noise", "nonsense:0.2"), "nonsense")


def test_a_file_that_is_no_table_is_refused(work: Path) -> None:
    (work / "text.npz").write_text("no table")
    np.savez(work / "other.npz", points=np.zeros(3))
    for name in ("text.npz", "other.npz"):
        with pytest.raises(UnreadableData, match=f"'{name}' (could not be read|is not a table of schedules)"):
            compared(on_table(name), "run")
    assert not Path("run").exists()


# ----------------------------------------------------------------------------------------------------- the command line


def test_the_command_shows_one_row_for_each_algorithm_and_is_continued_with_more(table_file: str) -> None:
    on = ["--on", f"table:{table_file}", "--noise", NOISES[0]]
    shown = s2e(*SMALL, *on, "--samplers", "random, curve")
    assert shown.exit_code == 0, shown.exception
    assert "pair noise, 40%" in shown.stdout
    assert "symmetric" not in shown.stdout
    assert "curve needs" in shown.stdout
    assert shown.stdout.endswith("run: run\n")
    first = rows(Run.open(Path("run")))
    more = s2e("reproduce", "searchers", "--resume", "--out", "run", "--samplers", "random,curve,tpe", "--json")
    assert more.exit_code == 0, more.exception
    result = json.loads(more.stdout)
    assert [(row["sampler"], row["trainings"]) for row in result["summary"]] == [
        ("random", 5),
        ("curve", 4),
        ("tpe", 4),
    ]
    assert result["run"] == "run"
    assert {key: row for key, row in rows(Run.open(Path("run"))).items() if key[0] != "tpe"} == first
