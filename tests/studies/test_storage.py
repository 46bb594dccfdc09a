"""Studies: opened whole or not at all, and held to what they were begun with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState

from s2e.errors import RunConflict, UnreadableData
from s2e.studies import loop
from s2e.studies.plan import SearchPlan
from s2e.studies.storage import MUTABLE_ON_RESUME, drafted, open_study
from searches import a_plan, at, in_memory, points, quiet

_quiet = pytest.fixture(quiet, autouse=True)


# Opening studies


def test_a_study_is_held_to_the_settings_it_was_begun_with(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    open_study(url, "search", {"epochs": 6, "validation_share": None})
    open_study(url, "search", {"epochs": 6, "validation_share": None})
    with pytest.raises(RunConflict, match="other settings"):
        open_study(url, "search", {"epochs": 7, "validation_share": None})
    open_study(url, "another", {"epochs": 7})


@pytest.mark.parametrize("name", sorted(MUTABLE_ON_RESUME))
def test_a_study_may_be_continued_with_another_number_of(name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    open_study(url, "search", {"epochs": 6, name: 1})
    open_study(url, "search", {"epochs": 6, name: 2})


def test_a_storage_that_cannot_be_opened_is_unreadable_data(tmp_path: Path) -> None:
    damaged = tmp_path / "study.db"
    damaged.write_bytes(b"this is no database, however long one looks at it" * 100)
    for url in ("garbage", f"sqlite:///{tmp_path}/nowhere/study.db", f"sqlite:///{damaged}"):
        with pytest.raises(UnreadableData, match="could not be opened"):
            open_study(url, "search", {})


def test_a_database_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.db"
    url = f"sqlite:///{path}"

    def killed(*_: object) -> None:
        raise SystemExit  # as a process that is killed once the tables are made, but not put in place

    with monkeypatch.context() as patched:
        patched.setattr("s2e.studies.storage.os.link", killed)
        with pytest.raises(SystemExit):
            open_study(url, "search", {})
    assert not path.exists()
    for _ in range(2):
        assert open_study(url, "search", {}).trials == []
    assert path.exists()


# Many studies in one storage


def files_open(path: Path) -> int:
    """How many times this process has a file open."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.path.samefile(link, path) for link in links)


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Record the statements sent to any database, and a COMMIT after those that write."""
    sent: list[str] = []

    def executed(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement.split()[0])

    def committed(connection: Any) -> None:
        if sent and set(sent[len(sent) - sent[::-1].index("COMMIT") if "COMMIT" in sent else 0 :]) & WRITING:
            sent.append("COMMIT")

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", executed)
    sqlalchemy.event.listen(sqlalchemy.Engine, "commit", committed)
    yield sent
    sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", executed)
    sqlalchemy.event.remove(sqlalchemy.Engine, "commit", committed)


WRITING = {"INSERT", "UPDATE", "DELETE"}


def asked_and_told(study: optuna.Study, plan: SearchPlan, statements: list[str]) -> tuple[list[str], list[str]]:
    """Return the statements that ask for a point and those that tell of it, with two attributes."""
    statements.clear()
    (trial,) = loop.ask(study, plan, 1)
    asked = list(statements)
    statements.clear()
    running = optuna.Trial(study, trial._trial_id)
    running.set_user_attr("one", [0.1, 0.2])
    running.set_user_attr("other", {"a": None})
    study.tell(trial.number, 0.5)
    return asked, list(statements)


def test_studies_of_one_file_share_its_connections_which_close_with_the_last_of_them(tmp_path: Path) -> None:
    path, plan = tmp_path / "study.db", a_plan("random")
    studies = [open_study(f"sqlite:///{path}", "0", {})]
    loop.ask(studies[0], plan, 2)
    of_one = files_open(path)
    assert of_one > 0
    for number in range(1, 5):
        studies.append(open_study(f"sqlite:///{path}", f"{number}", {}))
        loop.ask(studies[number], plan, 2)
    assert files_open(path) == of_one
    del studies[1:]
    assert len(studies[0].trials) == 2
    studies.clear()
    assert files_open(path) == 0


def test_a_file_put_in_the_place_of_another_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    before = at(path)
    loop.ask(before, a_plan("random"), 2)
    path.unlink()
    after = at(path)
    assert (len(before.trials), len(after.trials)) == (2, 0)


def test_databases_in_memory_are_never_shared() -> None:
    one, other = (open_study("sqlite:///:memory:", "search", {}) for _ in range(2))
    loop.ask(one, a_plan("random"), 1)
    assert (len(one.trials), len(other.trials)) == (1, 0)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # threads of torch run beside
def test_a_forked_process_opens_connections_of_its_own(tmp_path: Path) -> None:
    study = at(tmp_path / "study.db")
    loop.ask(study, a_plan("random"), 1)
    child = os.fork()
    if child == 0:
        own = at(tmp_path / "study.db")
        loop.ask(own, a_plan("random"), 1)
        os._exit(0 if own._storage is not study._storage and len(own.trials) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(study.trials) == 2


def test_threads_may_open_and_ask_studies_of_one_file_at_once(tmp_path: Path) -> None:
    def worked(number: int) -> list[dict[str, float]]:
        study = open_study(f"sqlite:///{tmp_path / 'study.db'}", f"{number}", {})
        for trial in loop.ask(study, a_plan("random", seed=number), 3):
            study.tell(trial.number, 0.1)
        return points(study)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(worked, range(4)))
    for number in range(4):
        alone = in_memory()
        loop.ask(alone, a_plan("random", seed=number), 3)
        assert found[number] == points(alone)


def test_a_trial_is_written_in_two_commits_and_as_few_statements_for_many_parameters_as_for_few(
    tmp_path: Path, statements: list[str]
) -> None:
    sent = {}
    for space in ("coteaching", "s2e"):  # 3 and 20 parameters
        study, plan = open_study(f"sqlite:///{tmp_path / 'study.db'}", space, {}), a_plan("random", space=space)
        loop.ask(study, plan, 2)  # distributions that are new are looked for among those of the study
        sent[space] = asked_and_told(study, plan, statements)
        assert [part.count("COMMIT") for part in sent[space]] == [1, 1]
    assert sent["coteaching"] == sent["s2e"]
    assert len([*sent["s2e"][0], *sent["s2e"][1]]) < 25


@pytest.mark.parametrize("finish", [{"values": 0.25}, {"state": TrialState.PRUNED}, {"state": TrialState.FAIL}])
def test_what_is_remembered_of_a_trial_is_what_is_stored(tmp_path: Path, finish: dict[str, Any]) -> None:
    study = at(tmp_path / "study.db")

    def stored() -> list[optuna.trial.FrozenTrial]:
        return optuna.load_study(study_name="search", storage=f"sqlite:///{tmp_path / 'study.db'}").get_trials()

    for trial in loop.ask(study, a_plan("random"), 3):
        assert study.get_trials() == stored()
        running = optuna.Trial(study, trial._trial_id)
        running.set_user_attr("curve", (0.5, 0.75))
        running.set_user_attr("curve", (0.5, 0.8))
        if trial.number == 1:
            running.report(0.3, 2)
        elif trial.number == 2:
            running.storage.set_trial_system_attr(trial._trial_id, "noted", 1)
        assert study.get_trials()[trial.number].user_attrs == {"curve": [0.5, 0.8]}
        told = study.tell(trial.number, **finish)
        assert told == stored()[trial.number] == study.get_trials()[trial.number]
        assert told.user_attrs == {"curve": [0.5, 0.8]}
    assert study.get_trials() == stored()
    assert [trial.intermediate_values for trial in stored()] == [{}, {2: 0.3}, {}]
    assert [trial.system_attrs for trial in study.get_trials()] == [{}, {}, {"noted": 1}]


def test_attributes_of_a_trial_that_is_never_finished_are_not_written(tmp_path: Path) -> None:
    study = at(tmp_path / "study.db")
    (trial,) = loop.ask(study, a_plan("random"), 1)
    optuna.Trial(study, trial._trial_id).set_user_attr("curve", [0.5])
    del study
    (left,) = at(tmp_path / "study.db").trials
    assert (left.state, left.user_attrs, left.params) == (TrialState.RUNNING, {}, trial.params)


def test_an_attribute_that_somebody_else_has_written_is_written_over(tmp_path: Path) -> None:
    study = at(tmp_path / "study.db")
    (trial,) = loop.ask(study, a_plan("random"), 1)
    optuna.Trial(study, trial._trial_id).set_user_attr("curve", [0.5])
    other = optuna.load_study(study_name="search", storage=f"sqlite:///{tmp_path / 'study.db'}")
    optuna.Trial(other, trial._trial_id).set_user_attr("curve", [0.1])
    study.tell(trial.number, 0.5)
    (told,) = other.trials
    assert (told.state, told.values, told.user_attrs) == (TrialState.COMPLETE, [0.5], {"curve": [0.5]})


def test_trials_of_another_process_are_seen_at_once(tmp_path: Path) -> None:
    study = at(tmp_path / "study.db")
    loop.ask(study, a_plan("random"), 2)
    other = optuna.load_study(study_name="search", storage=f"sqlite:///{tmp_path / 'study.db'}")
    other.tell(0, 0.5)
    assert [trial.values for trial in study.get_trials()] == [[0.5], None]
    other.add_trial(optuna.trial.create_trial(value=0.3))
    assert [(trial.state.name, trial.values) for trial in study.get_trials()] == [
        ("COMPLETE", [0.5]),
        ("RUNNING", None),
        ("COMPLETE", [0.3]),
    ]


def test_a_trial_with_another_distribution_of_a_parameter_is_refused_and_not_written(tmp_path: Path) -> None:
    study, plan = at(tmp_path / "study.db"), a_plan("random", space="coteaching")
    loop.ask(study, plan, 2)
    name = plan.space.names[0]
    chosen = optuna.distributions.CategoricalDistribution(["a", "b"])
    with pytest.raises(ValueError, match="distribution"):
        study.add_trial(optuna.trial.create_trial(params={name: "a"}, distributions={name: chosen}, value=0.5))
    assert len(study.trials) == len(at(tmp_path / "study.db").trials) == 2


def test_a_draft_has_the_trials_of_its_study_and_leaves_them_alone(tmp_path: Path) -> None:
    study = at(tmp_path / "study.db")
    for trial in loop.ask(study, a_plan("random"), 3)[:2]:
        optuna.Trial(study, trial._trial_id).set_user_attr("curve", [0.5])
        study.tell(trial.number, 0.5)
    before, draft = study.get_trials(), drafted(study)
    for one, other in zip(draft.get_trials(), before, strict=True):
        assert (one.number, one.params, one.values, one.user_attrs, one.state) == (
            (other.number, other.params, other.values, other.user_attrs, other.state)
        )
    for trial in draft.get_trials():
        trial.user_attrs["curve"] = None
        trial.params.clear()
    assert all(trial.params for trial in draft.get_trials(deepcopy=False))
    assert study.get_trials() == before
