"""The history of a search, against its study and against plain loops."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import sqlalchemy

import report_runs as runs
from s2e.report import build_report
from s2e.report.search_history import FinishedTrial, SearchHistory, TrialGroup, read_trials, search_history
from s2e.runs.directory import Run
from s2e.schedules.spaces import space


def test_best_so_far_ignores_pruned_trials():
    accuracies = [(0.5, False), (0.9, True), (0.4, False), (0.7, False), (0.6, False)]
    trials = tuple(FinishedTrial(i, i + 1.0, share, pruned) for i, (share, pruned) in enumerate(accuracies))
    assert SearchHistory("", trials).best_so_far.tolist() == [0.5, 0.5, 0.5, 0.7, 0.7]


def test_spread_is_the_root_mean_square_of_the_deviation():
    assert TrialGroup(1, 1, np.full((4, 7), 0.3)).spread == pytest.approx(0.0)
    schedules = np.random.default_rng(0).random((5, 3))
    total = 0.0
    for t in range(3):
        mean = sum(schedules[i, t] for i in range(5)) / 5
        total += sum((schedules[i, t] - mean) ** 2 for i in range(5)) / 5
    assert TrialGroup(1, 1, schedules).spread == pytest.approx(math.sqrt(total / 3))


def test_history_is_that_of_the_study():
    run = Run.open(runs.images())
    config, result = run.read_json("config.json"), run.read_json("result.json")
    history = search_history(run, config, config["study"], result["search"]["best_trial"])
    trials = read_trials(run.storage, config["study"])
    assert [trial.accuracy for trial in history.trials] == [1 - trial.values[0] for trial in trials]
    assert [trial.cost for trial in history.trials] == pytest.approx(range(1, 13))
    assert history.selected == result["search"]["best_trial"]
    assert [group.title for group in history.phases] == ["Generation 1", "Generation 2", "Generation 3"]
    schedules = np.concatenate([group.schedules for group in history.groups])
    family = space("s2e")
    for trial, schedule in zip(trials, schedules, strict=True):
        point = [trial.params[name] for name in family.names]
        np.testing.assert_allclose(schedule, family.decode([point], 4)[0])


def test_small_generations_are_grouped():
    run = Run.open(runs.images())
    config = run.read_json("config.json")

    def generations(size: int) -> list[str]:
        changed = {**config, "options": {**config["options"], "generation_size": size}}
        groups = search_history(run, changed, config["study"], None).groups
        assert sum(len(group.schedules) for group in groups) == 12
        return [group.generations for group in groups]

    assert generations(1) == ["1 to 4", "5 to 8", "9 to 12"]
    assert generations(3) == ["1 to 2", "3 to 4"]
    assert generations(5) == ["1", "2 to 3"]


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        ("sqlite:///{folder}/missing.db", "the file does not exist"),
        ("unknowndatabase://user:secret@host/x", "A report connects to no server by itself"),
    ],
)
def test_a_report_omits_a_study_that_cannot_be_read(tmp_path, storage, reason):
    path = runs.copy_of(runs.images, tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "storage": storage.format(folder=tmp_path)}))
    page = build_report([Run.open(path)]).html
    assert reason in page
    assert "secret" not in page
    assert "Best validation accuracy so far" not in page
    assert "Validation accuracy by epoch" in page
    assert not (tmp_path / "missing.db").exists()


def test_a_missing_study_is_not_created(tmp_path):
    run = Run.open(runs.copy_of(runs.images, tmp_path))
    config = run.read_json("config.json")
    for _ in range(2):
        assert "has no study 'another'" in search_history(run, config, "another", None).problem


def test_a_foreign_database_is_not_changed(tmp_path):
    run = Run.open(runs.copy_of(runs.images, tmp_path))
    config = run.read_json("config.json")
    foreign = tmp_path / "foreign ?#%41.db"
    with closing(sqlite3.connect(foreign)) as database:
        database.execute("CREATE TABLE precious (number)")
        database.commit()
    before = foreign.read_bytes()
    storage = sqlalchemy.URL.create("sqlite", database=str(foreign)).render_as_string()
    assert "could not be read" in search_history(run, {**config, "storage": storage}, config["study"], None).problem
    assert foreign.read_bytes() == before
