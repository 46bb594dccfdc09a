"""The storage of a study on the command line: other data, odd paths, foreign files, passwords, faults."""

from __future__ import annotations

import html
import json
import shlex
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import TINY_SEARCH, s2e, save
from populations import replace_search_trainer
from postgresql import PASSWORD, USER, Server
from s2e import load
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.runs.directory import CONFIG, Run
from s2e.studies import read_trials
from small_tasks import blobs

QUICK = [*TINY_SEARCH, "--no-baselines"]
ODD_NAMES = ["z?1", "a%20b", "a b", "a#b", "a@b", "a{b}", "a&b=c", "ä", "file:a?mode=memory"]


def one_line(stderr: str) -> str:
    """Return the only line of a refusal, after lines of progress."""
    lines = [line for line in stderr.splitlines() if line.startswith("s2e: ")]
    assert "Traceback" not in stderr
    assert len(lines) == 1, stderr
    assert stderr.endswith(f"{lines[0]}\n")
    return lines[0]


def test_study_of_other_data_is_refused_with_what_differs(work: Path) -> None:
    storage = f"sqlite:///{work}/shared.db"
    other = blobs(seed=9)
    save("own.npz")
    save("other.npz", x_train=other.inputs, y_train=other.labels)
    search = ["search", *QUICK, "--storage", storage]
    done = s2e(*search, "own.npz", "--out", "a/run")
    assert done.exit_code == 0, done.stderr
    before = [trial.values for trial in read_trials(storage, "run")]
    refused = s2e(*search, "other.npz", "--out", "b/run")
    assert refused.exit_code == 2
    line = one_line(refused.stderr)
    assert "the data have changed since; use another storage or name" in line
    assert [trial.values for trial in read_trials(storage, "run")] == before
    assert s2e(*search, "other.npz", "--out", "b/run", "--study", "own").exit_code == 0  # the directory is still new
    renamed = s2e(*search, "other.npz", "--out", "b/run", "--study", "new", "--resume")
    assert "study was 'own' and is now 'new'" in one_line(renamed.stderr)
    (work / "copy").mkdir()
    Path("own.npz").rename("copy/moved.npz")  # the same data at another path
    assert s2e(*search, "copy/moved.npz", "--out", "c/run").exit_code == 0
    assert (
        s2e(*search, "copy/moved.npz", "--out", "d/run", "--epochs", "4").stderr.count("epochs was 3 and is now 4") == 1
    )


def test_resumed_run_at_a_storage_without_its_study_is_refused(work: Path) -> None:
    outside, other = f"sqlite:///{work}/outside.db", f"sqlite:///{work}/other.db"
    data = save()
    for out, storage in (("own", []), ("shared", ["--storage", outside])):
        assert s2e("search", data, *QUICK, *storage, "--out", out).exit_code == 0
        refused = s2e("search", "--resume", "--out", out, "--storage", other, "--trials", "6")
        assert refused.exit_code == 2
        study, begun = ("search", "its own database") if out == "own" else ("shared", repr(outside))
        assert one_line(refused.stderr) == (
            f"s2e: `storage` must hold the study {study!r} of {out!r}, which was begun in {begun}, but got {other!r}, "
            "which has no such study."
        )
    assert not (work / "other.db").exists()
    assert len(read_trials(outside, "shared")) == 4
    (work / "other.db").write_bytes((work / "outside.db").read_bytes())  # the study has moved
    moved = s2e("search", "--resume", "--out", "shared", "--storage", other, "--trials", "6")
    assert moved.exit_code == 0, moved.stderr
    assert (len(read_trials(outside, "shared")), len(read_trials(other, "shared"))) == (4, 6)


def test_resumed_run_finds_a_relative_storage_from_another_directory(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = work / save()
    assert s2e("search", str(data), *QUICK, "--storage", "sqlite:///outside.db", "--out", "run").exit_code == 0
    (work / "elsewhere").mkdir()
    monkeypatch.chdir(work / "elsewhere")
    resumed = s2e("search", "--resume", "--out", "../run", "--trials", "6")
    assert resumed.exit_code == 0, resumed.stderr
    assert list(Path.cwd().iterdir()) == []
    assert len(read_trials(f"sqlite:///{work}/outside.db", "run")) == 6
    given = s2e("search", "--resume", "--out", "../run", "--trials", "6", "--storage", "sqlite:///../outside.db")
    assert given.exit_code == 0, given.stderr


@pytest.mark.parametrize("name", ["study.db", "study.db-journal", "checkpoints"])
def test_resumed_run_whose_database_is_a_link_is_refused(work: Path, name: str) -> None:
    data = save()
    for out in ("run", "other"):
        assert s2e("search", data, *QUICK, "--out", out).exit_code == 0
    before = (work / "other" / "study.db").read_bytes()
    (work / "run" / name).unlink(missing_ok=True)
    (work / "run" / name).symlink_to(work / "other" / ("" if name == "checkpoints" else "study.db"))
    for command in (["--resume"], [data, *QUICK, "--resume"]):
        refused = s2e("search", *command, "--out", "run", "--trials", "6")
        assert refused.exit_code == 2
        kind = "a directory of the run" if name == "checkpoints" else "a regular file"
        assert f"'run/{name}' must be {kind}, but is" in one_line(refused.stderr)
    assert (work / "other" / "study.db").read_bytes() == before


@pytest.mark.parametrize("name", ODD_NAMES)
def test_database_lies_in_the_run_whatever_its_name(work: Path, name: str) -> None:
    data = save(f"{name.replace('/', '')}.npz")
    done = s2e("search", data, *QUICK, "--trials", "2", "--out", name)
    assert done.exit_code == 0, done.stderr
    assert {entry.name for entry in work.iterdir()} == {data, name}
    assert (work / name / "study.db").stat().st_size > 0
    assert s2e("search", "--resume", "--out", name, "--trials", "4").exit_code == 0
    assert len(read_trials(Run(work / name).storage, "search")) == 4
    reported = s2e("report", name)
    assert reported.exit_code == 0, reported.stderr
    assert "could not be read" not in (work / name / "report.html").read_text()


@pytest.mark.parametrize("tables", ["CREATE TABLE songs (title TEXT)", "CREATE TABLE trials (title TEXT)", ""])
def test_report_writes_nothing_to_a_foreign_database(work: Path, tables: str) -> None:
    assert s2e("search", save(), *QUICK, "--trials", "2", "--out", "run").exit_code == 0
    foreign = work / "songs?.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute(tables)
    connection.close()
    before = foreign.read_bytes()
    config = Run("run").read_json(CONFIG)
    Run("run").write_json(CONFIG, {**config, "storage": f"sqlite:///{work}/songs%3F.db"})
    done = s2e("report", "run")
    assert done.exit_code == 0, done.stderr
    assert "it is not a database of Optuna" in (work / "run" / "report.html").read_text()
    assert foreign.read_bytes() == before
    assert {entry.name for entry in work.iterdir()} == {"own.npz", "run", "songs?.db"}


@contextmanager
def listening() -> Iterator[socket.socket]:
    """Return a server that has not accepted a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.mark.parametrize(
    "url", ["postgresql://user:***@127.0.0.1:{port}/db", "postgresql:///db?host=127.0.0.1&port={port}"]
)
def test_server_that_only_a_run_names_is_not_connected_to(
    work: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    assert s2e("search", save(), *QUICK, "--trials", "2", "--out", "run").exit_code == 0
    with listening() as server:
        forged = url.format(port=server.getsockname()[1])
        Run("run").write_json(CONFIG, {**Run("run").read_json(CONFIG), "storage": forged})
        done = s2e("report", "run")
        assert done.exit_code == 0, done.stderr
        page = html.unescape((work / "run" / "report.html").read_text())
        command = shlex.join(["s2e", "report", "run", "--storage", forged])
        assert f"The study is at {forged}. A report connects to no server by itself; to show it: {command}" in page
        assert "Validation accuracy by epoch" in page
        other = s2e("report", "run", "--storage", "postgresql://user:word@elsewhere/db")
        assert other.exit_code == 2
        assert one_line(other.stderr) == (
            f"s2e: `storage` must be the storage of the study of a run, {forged}, but got "
            "postgresql://user:***@elsewhere/db."
        )
        for given in (None, "postgresql://elsewhere/db"):
            with pytest.raises(InvalidInput, match=r"`storage` must be given to `s2e.load` for a study on a server"):
                load("run", storage=given).study  # noqa: B018
        with pytest.raises(BlockingIOError):
            server.accept()


def test_storage_for_a_report_of_runs_with_their_own_databases_is_refused(work: Path) -> None:
    assert s2e("search", save(), *QUICK, "--trials", "2", "--out", "run").exit_code == 0
    refused = s2e("report", "run", "--storage", "postgresql://user@host/db")
    assert refused.exit_code == 2
    assert "the studies are inside the runs; leave it out" in one_line(refused.stderr)


def test_locked_database_is_one_line_with_the_way_to_continue(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = f"sqlite:///{work}/study.db?timeout=0.1"
    locks: list[sqlite3.Connection] = []

    def lock_then_train(*arguments: Any, **named: Any) -> Any:
        locks.append(sqlite3.connect(work / "study.db"))
        locks[-1].execute("BEGIN EXCLUSIVE")
        return train_population(*arguments, **named)

    with monkeypatch.context() as patched:
        replace_search_trainer(lock_then_train, patched)
        stopped = s2e("search", save(), *QUICK, "--storage", storage, "--out", "run")
    locks[0].close()
    assert stopped.exit_code == 1
    line = one_line(stopped.stderr)
    assert "the study could not be read or written: (sqlite3.OperationalError) database is locked" in line
    assert line.endswith("; continue with: s2e search --resume --out run")
    resumed = s2e("search", "--resume", "--out", "run")
    assert resumed.exit_code == 0, resumed.stderr
    assert [trial.state.name for trial in read_trials(storage, "run")] == 4 * ["COMPLETE"]


def test_password_of_a_storage_that_cannot_be_opened_is_not_shown(work: Path) -> None:
    data = save()
    for storage in (
        "postgresql://user:s3cret@127.0.0.1:1/none",
        "postgres://user:s3cret@127.0.0.1:1/none",
        "postgresql://user@127.0.0.1:1/none?password=s3cret",
        "nonsense://user:s3cret@host/x",
        "postgresql://user:s3c@ret@host:port/x",
    ):
        refused = s2e("search", data, *QUICK, "--storage", storage, "--out", "run")
        assert refused.exit_code == 2
        line = one_line(refused.stderr)
        assert "s3c" not in line
        assert "***" in line


# ------------------------------------------------------------------------------------------------------- PostgreSQL


@pytest.mark.slow
def test_password_is_not_stored_and_comes_from_the_environment(
    work: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, quoted = server.create("secrets"), server.url("x").partition(f":{server.port}")[0].split(":")[2].split("@")[0]
    done = s2e("search", save(), *QUICK, "--trials", "2", "--storage", url, "--out", "run")
    assert done.exit_code == 0, done.stderr
    config = (work / "run" / CONFIG).read_text()
    assert json.loads(config)["storage"].endswith(f":***@127.0.0.1:{server.port}/secrets")
    resume = ["search", "--resume", "--out", "run", "--trials"]
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(work / "none"))
    refused = s2e(*resume, "4")
    assert refused.exit_code == 2
    assert "give the storage with its password, or set PGPASSWORD or ~/.pgpass" in one_line(refused.stderr)
    assert s2e(*resume, "4", "--storage", url).exit_code == 0
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    last = s2e(*resume, "6")
    assert last.exit_code == 0, last.stderr
    assert len(read_trials(url, "run")) == 6
    named = f"postgresql://{USER}:***@127.0.0.1:{server.port}/secrets"  # as the report without it shows
    reported = s2e("report", "run", "--storage", named)
    assert reported.exit_code == 0, reported.stderr
    page = (work / "run" / "report.html").read_text()
    assert "could not be read" not in page
    assert "Best validation accuracy so far" in page
    assert len(load("run", storage=url).study.trials) == len(load("run", storage=named).study.trials) == 6
    texts: Sequence[str] = [done.output, refused.output, last.output, reported.output, config]
    for text in [*texts, *(path.read_text("latin-1") for path in (work / "run").iterdir() if path.is_file())]:
        assert PASSWORD not in text
        assert quoted not in text
    assert np.load(work / "run" / "curves.npz")


@pytest.mark.slow
def test_stopped_server_is_one_line_with_the_way_to_continue(
    work: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.create("stopped")

    def stop_then_train(*arguments: Any, **named: Any) -> Any:
        server.stop()
        return train_population(*arguments, **named)

    with monkeypatch.context() as patched:
        replace_search_trainer(stop_then_train, patched)
        stopped = s2e("search", save(), *QUICK, "--storage", url, "--out", "run")
    server.start()
    assert stopped.exit_code == 1
    assert one_line(stopped.stderr).endswith("; continue with: s2e search --resume --out run")
    assert s2e("search", "--resume", "--out", "run", "--storage", url).exit_code == 0
    assert [trial.state.name for trial in read_trials(url, "run")] == 4 * ["COMPLETE"]


def test_processes_with_other_directories_share_a_study_by_its_name(work: Path) -> None:
    storage = f"sqlite:///{work}/study.db"
    for out in ("one", "two"):
        result = s2e("search", save(), *QUICK, "--storage", storage, "--study", "mine", "--out", out)
        assert result.exit_code == 0, result.stderr
    assert [trial.state.name for trial in read_trials(storage, "mine")] == 4 * ["COMPLETE"]
    refused = s2e("search", save(), *QUICK, "--study", "mine", "--out", "three")
    assert refused.exit_code == 2
    assert "`study` must be used with `storage`" in one_line(refused.stderr)
