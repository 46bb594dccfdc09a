"""Databases of studies: created atomically, shared within a process, closed with their last study."""

from __future__ import annotations

import logging
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from s2e.errors import UnreadableData
from s2e.studies import check_storage, holds_study, open_study, read_trials
from s2e.studies.loop import ask
from searches import make_plan, make_study, trial_points


def times_open(path: Path) -> int:
    """How many times this process has a file open."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.path.samefile(link, path) for link in links)


def test_storage_that_cannot_be_opened_is_unreadable_data(tmp_path: Path) -> None:
    damaged = tmp_path / "study.db"
    damaged.write_bytes(b"this is not a database" * 100)
    for url in ("garbage", f"sqlite:///{tmp_path}/missing/study.db", f"sqlite:///{damaged}"):
        with pytest.raises(UnreadableData, match="could not be opened"):
            check_storage(url)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS trial_id FROM n"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (
            "CREATE TRIGGER evil AFTER INSERT ON trials BEGIN DELETE FROM trials; END",
            "creates no trigger such as 'evil'",
        ),
        (f"DROP TABLE trial_values; CREATE VIEW trial_values AS {ENDLESS}", "creates no view such as 'trial_values'"),
        ("DROP TABLE trial_values; CREATE VIRTUAL TABLE trial_values USING fts5(x)", "no table such as 'trial_values'"),
    ],
)
def test_database_with_statements_of_its_own_is_refused(tmp_path: Path, statement: str, reason: str) -> None:
    path = tmp_path / "study.db"
    ask(make_study(path), make_plan("random"), 1)
    with closing(sqlite3.connect(path)) as connected:
        connected.executescript(statement)
    before = path.read_bytes()
    for read in (lambda: check_storage(f"sqlite:///{path}"), lambda: read_trials(f"sqlite:///{path}", "search")):
        with pytest.raises(UnreadableData, match=reason):
            read()
    assert path.read_bytes() == before


def test_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    with closing(sqlite3.connect(path)) as connected:
        connected.execute("CREATE TABLE bookmarks (address TEXT)")
    before = path.read_bytes()
    with pytest.raises(UnreadableData, match="not a database of Optuna: it has no table"):
        check_storage(f"sqlite:///{path}")
    assert path.read_bytes() == before


@pytest.mark.parametrize("table", ["trial_params", "trial_user_attributes", "studies"])
def test_database_with_a_missing_column_is_refused_without_output_of_optuna(
    tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("optuna"), "propagate", True)
    path = tmp_path / "study.db"
    ask(make_study(path, "mine"), make_plan("random"), 2)
    with closing(sqlite3.connect(path)) as connected:
        column = connected.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall()[-1][0]
        connected.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
    expected = f"'{table}' has no column '{column}'"
    with pytest.raises(UnreadableData, match=expected):
        check_storage(f"sqlite:///{path}")
    with pytest.raises(UnreadableData, match=expected):
        read_trials(f"sqlite:///{path}", "mine")
    assert caplog.text == ""


def test_contents_of_a_damaged_database_are_not_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("optuna"), "propagate", True)
    path = tmp_path / "study.db"
    ask(make_study(path, "mine"), make_plan("random"), 2)
    with closing(sqlite3.connect(path)) as connected:
        connected.execute("UPDATE trial_params SET distribution_json = CAST(x'1b5d303b6f776e656407ff' AS TEXT)")
        connected.commit()
    for read in (lambda url: read_trials(url, "mine"), lambda url: open_study(url, "mine", {})):
        with pytest.raises(UnreadableData) as refused:
            read(f"sqlite:///{path}")
        assert "\n" not in str(refused.value)
    assert caplog.text == ""


def test_storage_holds_the_study_of_a_search_and_those_of_a_comparison(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    assert not holds_study(url, "mine")
    assert not (tmp_path / "study.db").exists()
    make_study(tmp_path / "study.db", "mine")
    make_study(tmp_path / "study.db", "compared/pair:0.45/S2E")
    assert holds_study(url, "mine")
    assert holds_study(url, "compared")
    assert not holds_study(url, "comp")
    with pytest.raises(UnreadableData, match="could not be opened"):
        holds_study("nonsense::/", "mine")


def test_database_is_created_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.db"

    def killed(*_: object) -> None:
        raise SystemExit  # after the tables are created, before the file is renamed

    with monkeypatch.context() as patched:
        patched.setattr("s2e.studies.storage.os.link", killed)
        with pytest.raises(SystemExit):
            make_study(path)
    assert not path.exists()
    for _ in range(2):
        assert make_study(path).trials == []
    assert path.exists()


def test_studies_of_one_file_share_connections_which_close_with_the_last_study(tmp_path: Path) -> None:
    path, plan = tmp_path / "study.db", make_plan("random")
    studies = [make_study(path, "0")]
    ask(studies[0], plan, 2)
    once = times_open(path)
    assert once > 0
    for number in range(1, 5):
        studies.append(make_study(path, f"{number}"))
        ask(studies[number], plan, 2)
    assert times_open(path) == once
    del studies[1:]
    assert len(studies[0].trials) == 2
    studies.clear()
    assert times_open(path) == 0


def test_replaced_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    before = make_study(path)
    ask(before, make_plan("random"), 2)
    path.unlink()
    after = make_study(path)
    assert (len(before.trials), len(after.trials)) == (2, 0)


def test_databases_in_memory_are_not_shared() -> None:
    one, other = (open_study("sqlite:///:memory:", "search", {}) for _ in range(2))
    ask(one, make_plan("random"), 1)
    assert (len(one.trials), len(other.trials)) == (1, 0)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # torch has running threads
def test_forked_process_opens_its_own_connections(tmp_path: Path) -> None:
    study = make_study(tmp_path / "study.db")
    ask(study, make_plan("random"), 1)
    child = os.fork()
    if child == 0:
        own = make_study(tmp_path / "study.db")
        ask(own, make_plan("random"), 1)
        os._exit(0 if own._storage is not study._storage and len(own.trials) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(study.trials) == 2


def test_threads_can_use_studies_of_one_file_concurrently(tmp_path: Path) -> None:
    def searched(number: int) -> list[dict[str, float]]:
        study = make_study(tmp_path / "study.db", f"{number}")
        for trial in ask(study, make_plan("random", seed=number), 3):
            study.tell(trial.number, 0.1)
        return trial_points(study)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(searched, range(4)))
    for number in range(4):
        alone = make_study()
        ask(alone, make_plan("random", seed=number), 3)
        assert found[number] == trial_points(alone)
