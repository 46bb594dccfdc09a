"""Sessions on a run directory: what is refused before data are loaded, and what a resumed run adopts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from s2e.errors import RunConflict, S2EError, UnreadableData
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation, Session, stored_options
from s2e.specs import SearchOptions, TrainOptions, flatten, leaves
from small_runs import search_options

SAME_DATA = {"data_fingerprint": "1234"}
OPEN = {"generation_size": "auto", "trials": None}
NAMES = frozenset(leaf.name for leaf, _ in leaves(SearchOptions))


@pytest.fixture
def location(tmp_path: Path) -> RunLocation:
    return RunLocation(tmp_path / "run")


def session(location: RunLocation, *, resume: bool = True, **changes: Any) -> Session[SearchOptions]:
    return Session("search", search_options("own.npz", **changes), location, resume=resume)


def run_once(location: RunLocation, about: dict[str, Any] = SAME_DATA, **changes: Any) -> SearchOptions:
    """Run a session to its end; return its options."""
    one = session(location, **changes)
    with one.start(about):
        one.finish({}, torch.device("cpu"))
    return one.options


# ------------------------------------------------------------------------------------------------------ a new directory


def test_config_repeats_the_command(location: RunLocation) -> None:
    options = json.loads(json.dumps(flatten(run_once(location))))  # JSON has no tuples
    config = Run.open(location.out).read_json(CONFIG)
    assert (config["command"], config["options"]) == ("search", options)
    assert set(config["versions"]) == {"s2e", "python", "torch", "optuna", "numpy"}
    stored, where = stored_options(location.out, "search", NAMES)
    assert stored == options
    assert RunLocation(location.out, **where) == location


def test_session_writes_nothing_before_it_starts(location: RunLocation) -> None:
    session(location)
    assert not location.out.exists()


@pytest.mark.parametrize("content", ["file", "file as parent", "other files"])
def test_used_directory_is_refused(location: RunLocation, content: str) -> None:
    if content == "file":
        location.out.write_text("")
    elif content == "file as parent":
        location.out.write_text("")
        location = replace(location, out=location.out / "run")
    else:
        location.out.mkdir()
        (location.out / "thesis.tex").write_text("")
    for resume in (False, True):
        with pytest.raises(S2EError, match="`out` must be"):
            session(location, resume=resume)


def test_existing_run_is_refused_unless_resumed(location: RunLocation) -> None:
    run_once(location)
    with pytest.raises(RunConflict, match="already holds a run"):
        session(location, resume=False)
    session(location)


def test_storage_that_cannot_be_opened_is_refused(location: RunLocation) -> None:
    with pytest.raises(UnreadableData, match="could not be opened"):
        session(replace(location, storage="nonsense://"))


# ------------------------------------------------------------------------------------------------------------ resuming


def test_run_at_a_storage_continues_there_only(location: RunLocation) -> None:
    shared = replace(location, storage=f"sqlite:///{location.out.parent}/shared.db")
    for _ in range(2):  # the first session was killed before it began its study
        with session(shared).start(SAME_DATA):
            pass
    with pytest.raises(
        RunConflict, match=r"was begun in 'sqlite:///.*shared\.db', but got its own database, which has"
    ):
        session(location)
    assert not (location.out / "study.db").exists()


def test_other_options_are_refused_with_both_values(location: RunLocation) -> None:
    run_once(location)
    with pytest.raises(RunConflict) as refused:
        session(location, epochs=9, space="rbf")
    differences = "epochs was 4 and is now 9; space was 'coteaching' and is now 'rbf'"
    assert str(refused.value) == f"{str(location.out)!r} was made with other settings: {differences}."


def test_mutable_options_may_change_and_are_stored(location: RunLocation) -> None:
    run_once(location)
    run_once(location, trials=8, restarts=1, baselines=False)
    stored, _ = stored_options(location.out, "search", NAMES)
    assert (stored["trials"], stored["restarts"], stored["baselines"]) == (8, 1, False)


def test_open_choices_are_adopted_from_the_first_session(location: RunLocation) -> None:
    run_once(location, generation_size=12, trials=48)
    adopted = session(location, **OPEN).options.search
    assert (adopted.generation_size, adopted.trials) == (12, 48)
    more = session(location, generation_size="auto", trials=60).options.search
    assert (more.generation_size, more.trials) == (12, 60)
    with pytest.raises(RunConflict, match="generation_size was 12 and is now 6"):
        session(location, generation_size=6)


def test_choices_of_the_command_are_stored(location: RunLocation) -> None:
    one = session(location, **OPEN)
    chosen = replace(one.options, search=replace(one.options.search, generation_size=8, trials=80))
    with one.start(SAME_DATA, chosen):
        pass
    assert session(location, **OPEN).options == chosen


def test_changed_data_are_refused(location: RunLocation) -> None:
    run_once(location)
    with pytest.raises(RunConflict, match="the data have changed since"):
        run_once(location, {"data_fingerprint": "5678"})


def test_run_of_another_command_is_refused(location: RunLocation) -> None:
    run_once(location)
    with pytest.raises(RunConflict, match="it was made by s2e search"):
        Session("train", TrainOptions(), location, resume=True)
    with pytest.raises(RunConflict, match=r"must continue a run of s2e compare, but .* is of s2e search"):
        stored_options(location.out, "compare", NAMES)


def test_config_that_is_not_of_a_run_is_refused(location: RunLocation) -> None:
    location.out.mkdir()
    for config in ("[]", "{}", '{"command": "search"}', '{"command": "search", "options": 3}', '["command"]'):
        (location.out / CONFIG).write_text(config)
        with pytest.raises(UnreadableData, match=r"config\.json' is (not the configuration of a run|damaged)"):
            session(location)
        with pytest.raises(UnreadableData, match=r"config\.json' is (not the configuration of a run|damaged)"):
            stored_options(location.out, "search", NAMES)


def test_options_of_another_version_are_refused(location: RunLocation) -> None:
    run_once(location)
    with pytest.raises(UnreadableData, match="options unknown to this version: restarts"):
        stored_options(location.out, "search", NAMES - {"restarts"})


def test_versions_of_the_first_session_stay(location: RunLocation) -> None:
    run_once(location)
    config = Run(location.out).read_json(CONFIG)
    Run(location.out).write_json(CONFIG, {**config, "versions": {"s2e": "0.0"}})
    run_once(location)
    assert Run(location.out).read_json(CONFIG)["versions"] == {"s2e": "0.0"}


# ------------------------------------------------------------------------------------------------------------- studies


def test_studies_of_runs_in_one_storage_have_their_own_names(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/shared.db"
    for name in ("one", "two"):
        made = session(RunLocation(tmp_path / name, storage=storage))
        with made.start(SAME_DATA):
            assert made.study("pair:0.4").study_name == f"{name}/pair:0.4"


def test_study_of_a_run_with_other_options_is_refused(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/shared.db"
    for parent, seed in (("a", 0), ("b", 1)):
        made = session(RunLocation(tmp_path / parent / "run", storage=storage), seed=seed)
        with made.start(SAME_DATA):
            if seed:
                with pytest.raises(
                    RunConflict, match=r"other settings: seed was 0 and is now 1; use another storage or name"
                ):
                    made.study()
            else:
                made.study()


def test_run_is_locked_while_the_session_lasts(location: RunLocation) -> None:
    one = session(location)
    with one.start(SAME_DATA), pytest.raises(RunConflict, match="another process"), session(location).start(SAME_DATA):
        pass


def test_of_two_sessions_that_start_together_one_has_the_run(location: RunLocation) -> None:
    first, second = (session(location, resume=False, seed=seed) for seed in (1, 2))
    with first.start(SAME_DATA), pytest.raises(RunConflict), second.start(SAME_DATA):
        pass
    with pytest.raises(RunConflict, match="already holds a run"), second.start(SAME_DATA):
        pass
    assert Run(location.out).read_json(CONFIG)["options"]["seed"] == 1


def test_study_of_other_data_is_refused(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/shared.db"
    one, other = (session(RunLocation(tmp_path / parent / "run", storage=storage)) for parent in "ab")
    with one.start(SAME_DATA):
        one.study()
    with (
        other.start({"data_fingerprint": "5678"}),
        pytest.raises(RunConflict, match="the data have changed since; use"),
    ):
        other.study()


def test_password_of_the_storage_is_in_no_text_of_the_session(location: RunLocation) -> None:
    assert "s3cret" not in repr(replace(location, storage="postgresql://user:s3cret@host/db"))
