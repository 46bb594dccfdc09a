"""The configuration of a run: every entry has its type, or the file is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from s2e.errors import UnreadableData
from s2e.runs.configuration import OPTIONS_OF_COMMANDS, all_options, read_configuration
from s2e.runs.directory import CONFIG, Run
from s2e.specs import SearchOptions, flatten, leaves, stored_problems
from small_runs import search_options


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {"command": "search", "options": flatten(search_options("own.npz"))})


def changed(run: Run, options: dict[str, Any], **entries: Any) -> Run:
    config = {"command": "search", **entries, "options": {**flatten(search_options("own.npz")), **options}}
    (run.path / CONFIG).write_text(json.dumps(config))
    return run


def test_options_of_every_command_are_read_as_they_are_written(run: Run) -> None:
    for command, kind in OPTIONS_OF_COMMANDS.items():
        options = flatten(kind())
        run.write_json(CONFIG, {"command": command, "options": options})
        config = read_configuration(run)
        assert config["options"] == json.loads(json.dumps(options))
        assert all_options(run, config) == options


def test_options_that_a_version_did_not_have_are_the_defaults(run: Run) -> None:
    run.write_json(CONFIG, {"command": "search", "options": {"data": "own.npz"}})
    assert all_options(run, read_configuration(run)) == {**flatten(SearchOptions()), "data": "own.npz"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"epochs": "4"}, "`epochs` must be an integer or null, but got '4'"),
        ({"epochs": True}, "`epochs` must be an integer or null, but got True"),
        ({"epochs": 0}, "`epochs` must be an integer of at least 1 or None, but got 0"),
        ({"data": None}, "`data` must be text, but got None"),
        ({"learning_rate": [1]}, r"`learning_rate` must be a number, but got \[1\]"),
        ({"baselines": 1}, "`baselines` must be true or false, but got 1"),
        ({"trials": 1.5}, "`trials` must be an integer or null, but got 1.5"),
        ({"seed": -1}, "`seed` must be an integer of at least 0, but got -1"),
        ({"generation_size": "some"}, "`generation_size` must be an integer of at least 1 or auto, but got 'some'"),
    ],
)
def test_options_of_other_types_are_named(run: Run, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnreadableData, match=rf"config\.json' is damaged: {problem}"):
        read_configuration(changed(run, options))


@pytest.mark.parametrize(
    "entries",
    [
        {"storage": 3},
        {"device": None},
        {"versions": ["1"]},
        {"versions": {"s2e": 1}},
        {"noise_rate": 2},
        {"command": 1},
    ],
)
def test_other_entries_have_their_types_too(run: Run, entries: dict[str, Any]) -> None:
    with pytest.raises(UnreadableData, match=next(iter(entries))):
        read_configuration(changed(run, {}, **entries))


def test_an_unknown_command_has_no_options(run: Run) -> None:
    config = read_configuration(changed(run, {"epochs": "any"}, command="other"))
    with pytest.raises(UnreadableData, match=r"`command` must be one of search, train, .*, but got 'other'"):
        all_options(run, config)


def test_every_default_is_a_value_that_can_be_stored() -> None:
    for kind in OPTIONS_OF_COMMANDS.values():
        stored = json.loads(json.dumps({leaf.name: default for leaf, default in leaves(kind)}))
        assert stored_problems(kind, stored) == []
