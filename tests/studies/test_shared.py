"""Processes that share a study: every trial is trained once, and those of a process that ended are taken over."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import optuna
import pytest
import sqlalchemy

from postgresql import PASSWORD, Server
from s2e.engine import Member
from s2e.engine.curves import Curves
from s2e.errors import StorageUnavailable, UnreadableData
from s2e.studies import Search, Stop, check_storage, open_study, read_trials, run_generations
from s2e.studies.loop import ask, next_generation
from s2e.studies.optuna_internals import OWNER, NumberTaken, add_trial, owner_of, take_over
from s2e.studies.owners import has_ended, owner_of_trials
from s2e.studies.storage import _engine_arguments, _opened, storage_faults
from s2e.studies.urls import with_driver
from searches import EPOCHS, K, make_plan, make_study, simulated_training, trial_points
from shared_study import processes, trained_by

HALF = simulated_training(lambda _: np.full(EPOCHS, 0.5))


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database of the kind in the parameter."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/study.db"
    return request.getfixturevalue("server").create(tmp_path.name)


both = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
only_postgresql = pytest.mark.parametrize("url", ["postgresql"], indirect=True)


def begun(process: subprocess.Popen[str]) -> list[int]:
    """Wait until a process trains its first generation; return the numbers of its trials."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("begun\n"):
            return [int(word) for word in line.split()[:-1]]
    raise AssertionError(process.stderr and process.stderr.read())


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def assert_all_finished_once(url: str, trials: int) -> None:
    stored = read_trials(url, "search")
    assert [trial.number for trial in stored] == list(range(trials))
    assert {trial.state.name for trial in stored} == {"COMPLETE"}
    assert not any(OWNER in trial.system_attrs for trial in stored)


# ------------------------------------------------------------------------------------------------------- processes


@pytest.mark.slow
@both
def test_each_trial_is_trained_by_one_process_with_the_points_of_a_single_one(url: str) -> None:
    count, trials = (4, 60) if url.startswith("postgresql") else (3, 24)
    running = processes(url, count, "--trials", str(trials), "--generation-size", "3", "--training-seconds", "0.1")
    trained = [trained_by(process) for process in running]
    assert sorted(number for numbers in trained for number in numbers) == list(range(trials))
    assert_all_finished_once(url, trials)
    alone = make_study()
    ask(alone, make_plan("random", trials, 3), trials)
    assert [trial.params for trial in read_trials(url, "search")] == trial_points(alone)


@pytest.mark.slow
@both
def test_trials_of_a_killed_process_of_this_machine_are_taken_over_at_once(url: str) -> None:
    (killed,) = processes(url, 1, "--trials", "8", "--generation-size", "4", "--training-seconds", "600")
    left = begun(killed)
    kill(killed)
    (other,) = processes(url, 1, "--trials", "8", "--generation-size", "4")
    assert trained_by(other) == [*left, *(number for number in range(8) if number not in left)]
    assert_all_finished_once(url, 8)


@pytest.mark.slow
@only_postgresql
def test_trials_of_a_killed_process_of_another_machine_are_taken_over_after_its_heartbeat_is_old(url: str) -> None:
    (killed,) = processes(
        url, 1, "--trials", "8", "--generation-size", "4", "--training-seconds", "600", "--machine", "elsewhere"
    )
    assert begun(killed) == [0, 1, 2, 3]
    kill(killed)
    (other,) = processes(url, 1, "--trials", "8", "--generation-size", "4", "--grace", "3")
    assert sorted(trained_by(other)) == list(range(8))
    assert_all_finished_once(url, 8)


@pytest.mark.slow
@only_postgresql
def test_trials_of_a_living_process_of_another_machine_are_left_to_it(url: str, tmp_path: Path) -> None:
    grace, finish = 4, tmp_path / "finish"
    options = ("--trials", "8", "--generation-size", "4", "--grace", str(grace))
    (slow,) = processes(url, 1, *options, "--training-until", str(finish), "--machine", "elsewhere")
    assert begun(slow) == [0, 1, 2, 3]
    (other,) = processes(url, 1, *options)
    assert begun(other) == [4, 5, 6, 7]
    time.sleep(grace + 1)  # the first heartbeat is older than this now, later ones are not
    finish.touch()
    assert trained_by(other) == []  # it has waited for the others
    assert trained_by(slow) == []  # the first four were read above
    assert_all_finished_once(url, 8)


@pytest.mark.slow
def test_tables_can_be_created_by_many_at_once(server: Server) -> None:
    for attempt in range(5):
        url = server.create(f"fresh{attempt}")
        with ThreadPoolExecutor(8) as threads:
            opened = list(threads.map(_opened, 8 * [with_driver(url)]))
        for storage in opened:
            storage.engine.dispose()
        assert open_study(url, "search", {}).trials == []


# ------------------------------------------------------------------------------------------------- within a process


def test_number_that_another_process_has_taken_is_not_used_twice(tmp_path: Path) -> None:
    path, plan = tmp_path / "study.db", make_plan("random")
    study = make_study(path)
    before = study.get_trials(deepcopy=False)
    ask(make_study(path), plan, 2)
    with owner_of_trials() as owner:
        assert ask(study, plan, 2, before, owner) == []
    copied = study.get_trials()[0]
    with pytest.raises(NumberTaken):
        add_trial(study, copied, "owner")
    assert len(study.trials) == 2


def test_trials_asked_meanwhile_count_towards_the_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, plan = make_study(tmp_path / "study.db"), make_plan("random", 2 * K, 2 * K)
    asked, add = 0, optuna.Study.add_trial

    def add_after_another(self: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:  # another process is faster
            add(self, trial)
        add(self, trial)

    monkeypatch.setattr(optuna.Study, "add_trial", add_after_another)
    with owner_of_trials() as owner:
        generation = next_generation(Search(plan, study), EPOCHS, owner)
    assert len(study.trials) == 2 * K
    assert [trial.number for trial in generation] == [0, *range(2, 2 * K)]


def test_trial_has_one_new_owner(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study.db")
    ask(study, make_plan("random"), 2)
    for before in study.get_trials()[:1]:
        assert take_over(study, before, "a")
        assert not take_over(study, before, "b")
    (owned, other) = study.get_trials()
    assert owner_of(owned) == "a"
    assert take_over(study, owned, "c")
    assert not take_over(study, owned, "d")
    study.tell(1, 0.5)
    assert not take_over(study, other, "a")
    study.tell(0, 0.5)
    assert all(OWNER not in trial.system_attrs for trial in study.get_trials())


def test_result_of_a_trial_that_was_taken_over_and_finished_is_dropped(tmp_path: Path) -> None:
    study, plan = make_study(tmp_path / "study.db"), make_plan("random", K)

    def train(members: Sequence[Member], stop: Stop) -> Curves:
        other = optuna.load_study(study_name="search", storage=f"sqlite:///{tmp_path}/study.db")
        other.tell(1, 0.125)
        return HALF(members, stop)

    run_generations(train, EPOCHS, [Search(plan, study)])
    assert [trial.values for trial in make_study(tmp_path / "study.db").trials] == [[0.5], [0.125], [0.5]]


def test_exclusive_study_has_no_trials_of_other_owners(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = open_study(url, "search", {})
    ask(study, make_plan("random"), 1)
    assert take_over(study, study.get_trials()[0], "machine/1/2/3")
    assert not has_ended("machine/1/2/3")
    open_study(url, "search", {}, exclusive=True)
    assert owner_of(study.get_trials()[0]) is None


def test_owner_has_ended_with_its_body_or_its_process() -> None:
    with owner_of_trials() as owner:
        assert not has_ended(owner.name)
    assert has_ended(owner.name)
    child = subprocess.Popen(["sleep", "60"])
    machine, _, _, number = owner.name.rsplit("/", 3)
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    name = f"{machine}/{child.pid}/{started}/{number}"
    assert not has_ended(name)
    assert has_ended(f"{machine}/{child.pid}/1/{number}")  # another process of the same number
    child.kill()
    deadline = time.monotonic() + 10
    while not has_ended(name) and time.monotonic() < deadline:  # a zombie until it is waited for
        time.sleep(0.01)
    assert has_ended(name)
    child.wait()
    assert has_ended(name)


# ------------------------------------------------------------------------------------------------------------ faults


@pytest.mark.slow
@only_postgresql
def test_stopped_server_is_one_line_and_the_search_continues_when_it_is_back(url: str, server: Server) -> None:
    study, plan, generations = open_study(url, "search", {}), make_plan("random", 3 * K), 0

    def train(members: Sequence[Member], stop: Stop) -> Curves:
        nonlocal generations
        generations += 1
        if generations == 2:
            server.stop()
        return HALF(members, stop)

    with pytest.raises(StorageUnavailable, match="could not be read or written") as raised:
        run_generations(train, EPOCHS, [Search(plan, study)])
    assert "\n" not in str(raised.value)
    with pytest.raises(UnreadableData, match="could not be opened") as refused:
        check_storage(f"{url}?application_name=again")
    assert "\n" not in str(refused.value)
    assert PASSWORD not in str(refused.value)
    server.start()
    run_generations(train, EPOCHS, [Search(plan, study)])
    assert_all_finished_once(url, 3 * K)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait seconds for a server instead of minutes."""
    monkeypatch.setattr("s2e.studies.storage.ANSWER_TIMEOUT_SECONDS", 2)
    monkeypatch.setattr("s2e.studies.storage.CONNECT_TIMEOUT_SECONDS", 2)


@contextmanager
def stalled(processes: Sequence[int]) -> Iterator[None]:
    """Stop processes of a server in the body: their kernel continues to acknowledge."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@only_postgresql
def test_server_that_stalls_is_one_line_and_the_search_continues_when_it_is_back(url: str, server: Server) -> None:
    study, plan = open_study(url, "search", {}), make_plan("random", 2 * K)
    began = 0.0
    with ExitStack() as stack:

        def train(members: Sequence[Member], stop: Stop) -> Curves:
            nonlocal began
            stack.enter_context(stalled(server.processes()))
            began = time.monotonic()
            return HALF(members, stop)

        with pytest.raises(StorageUnavailable, match="could not be read or written") as raised:
            run_generations(train, EPOCHS, [Search(plan, study)])
        assert time.monotonic() - began < 20
        assert "\n" not in str(raised.value)
        with pytest.raises(UnreadableData, match=r"could not be opened: .*timeout"):
            check_storage(f"{url}?application_name=again")
    run_generations(HALF, EPOCHS, [Search(plan, study)])
    assert_all_finished_once(url, 2 * K)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@only_postgresql
def test_connection_that_stalls_during_a_statement_is_one_line_and_is_replaced(url: str, server: Server) -> None:
    study = open_study(url, "search", {})
    backend = study._storage._backend.engine  # type: ignore[attr-defined]
    with backend.connect() as connection:
        process = connection.scalar(sqlalchemy.text("SELECT pg_backend_pid()"))
        with (
            stalled([process]),
            pytest.raises(StorageUnavailable, match="the server did not answer for 2 seconds"),
            storage_faults(),
        ):
            connection.execute(sqlalchemy.text("SELECT 1"))
    assert study.get_trials() == []  # on another connection


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@only_postgresql
def test_slow_statements_within_the_time_are_completed(url: str, server: Server) -> None:
    study = open_study(url, "search", {})
    backend = study._storage._backend.engine  # type: ignore[attr-defined]
    with backend.connect() as connection:
        for _ in range(3):  # the time is that of each statement
            assert connection.scalar(sqlalchemy.text("SELECT 7 FROM pg_sleep(1)")) == 7


def test_servers_have_timeouts_that_their_urls_may_change() -> None:
    arguments = _engine_arguments("postgresql+psycopg2://host/db?connect_timeout=3")["connect_args"]
    assert "connect_timeout" not in arguments
    assert (
        arguments["tcp_user_timeout"] == 1000 * arguments["keepalives_idle"] * arguments["keepalives_count"] == 120_000
    )
    assert _engine_arguments("mysql+pymysql://host/db")["connect_args"]["read_timeout"] == 300


@pytest.mark.slow
@only_postgresql
def test_server_that_was_restarted_during_a_training_is_not_noticed(url: str, server: Server) -> None:
    study, plan = open_study(url, "search", {}), make_plan("random", 2 * K)

    def train(members: Sequence[Member], stop: Stop) -> Curves:
        server.stop()
        server.start()
        return HALF(members, stop)

    run_generations(train, EPOCHS, [Search(plan, study)])
    assert_all_finished_once(url, 2 * K)
