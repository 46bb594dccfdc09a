"""Databases of studies: created atomically, opened once per process, closed with the last study that uses them."""

from __future__ import annotations

import importlib.util
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import optuna
import sqlalchemy
import sqlalchemy.exc
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial

from s2e.errors import StorageUnavailable, UnreadableData, first_line
from s2e.studies.optuna_internals import COLUMNS, TABLES, AtomicTrialStorage
from s2e.studies.urls import hide_secrets, read_only_sqlite_url, sqlite_path, sqlite_url, with_driver, without_password

LOCK_TIMEOUT_SECONDS = 30.0
"""Time to wait for another process that writes to the same SQLite file."""

CONNECT_TIMEOUT_SECONDS = 10
"""Time to wait for the server of a study."""

ANSWER_TIMEOUT_SECONDS = 300
"""Time within which the server of a study must complete one statement; a statement of a long study takes seconds."""

NETWORK_TIMEOUT_SECONDS = 120
"""Time after which a connection is lost whose other end acknowledges nothing."""

KEEPALIVE_SECONDS = 30
"""Time without data after which the other end of a connection is asked whether it is there, and between questions."""

_LIBPQ = ("psycopg", "psycopg2")
"""Drivers with the settings of PostgreSQL's own library."""

SIGNS_OF_DAMAGE = ("(sqlite3.OperationalError) Could not decode", "(sqlite3.DatabaseError)")
"""In messages about SQLite files: text that is not UTF-8; broken pages, or another kind of file."""

MOST_ATTEMPTS = 20
"""Attempts to create tables that other processes create at the same time."""

_OPEN: weakref.WeakValueDictionary[tuple[object, ...], BaseStorage] = weakref.WeakValueDictionary()
"""Open storages by identity, as long as they are used by a study."""


@contextmanager
def quiet_optuna(least: int = optuna.logging.WARNING) -> Iterator[None]:
    """Let Optuna log nothing below a level, by default warnings and errors only.

    Its warnings about a damaged database repeat statements and contents of it, which are then refused in one line.
    """
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, least))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def storage_faults() -> Iterator[None]:
    """Raise `StorageUnavailable` if the storage of a study fails in the body: a stopped server, a locked file, ….

    A damaged file raises `UnreadableData`: to continue would fail again.
    """
    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as problem:
        failed = problem.__cause__ if isinstance(problem, optuna.exceptions.StorageInternalError) else problem
        if any(sign in str(failed) for sign in SIGNS_OF_DAMAGE):
            raise UnreadableData(
                f"the database of the study is damaged: {first_line(failed or problem)}; restore it from a copy, or "
                "start a new run."
            ) from problem
        raise StorageUnavailable(
            f"the study could not be read or written: {first_line(failed or problem)}; finished trials are kept"
        ) from problem


def check_storage(url: str) -> None:
    """Raise `UnreadableData` if the storage cannot be opened."""
    open_storage(url)


def holds_study(url: str, name: str) -> bool:
    """Return whether a storage has a study of this name, or one of a comparison of this name; no file is created."""
    with suppress(sqlalchemy.exc.ArgumentError, ValueError):  # refused below
        path = sqlite_path(url)
        if path is not None and not path.exists():
            return False
    storage = open_storage(url)
    with storage_faults():
        names = optuna.get_all_study_names(storage)
    return any(found == name or found.startswith(f"{name}/") for found in names)


def open_storage(url: str) -> BaseStorage:
    """Open a storage and check its tables, or return the storage that this process has already opened at this URL.

    It is closed when the last study that uses it is deleted.
    """
    try:
        url = with_driver(url)
        _create_atomically(url)
        key = _identity(url)
        storage = None if key is None else _OPEN.get(key)
        if storage is None:
            if sqlite_path(url) is not None:
                _check_schema(url)
            backend = _opened(url)
            storage = optuna.storages.get_storage(backend)
            weakref.finalize(storage, _close, backend.engine, os.getpid())
            if key is not None:
                _OPEN[key] = storage
    except (
        sqlalchemy.exc.SQLAlchemyError,
        optuna.exceptions.OptunaError,
        ImportError,
        LookupError,
        OSError,
        RuntimeError,
        ValueError,
    ) as problem:
        cause = problem.__cause__ if isinstance(problem, optuna.exceptions.StorageInternalError) else None
        reason = f"{hide_secrets(first_line(cause or problem), url)}{_advice(url, problem)}"
        raise UnreadableData(f"the storage {without_password(url)!r} could not be opened: {reason}") from problem
    return storage


def read_trials(url: str, study: str) -> list[FrozenTrial]:
    """Return the trials of a study by number; nothing is written, whatever the database is.

    Raises `UnreadableData` if there is no such study, or if the database is not one of Optuna.
    """
    try:
        url = with_driver(url)
        path = sqlite_path(url)
        if path is not None:
            if not path.is_file():
                raise UnreadableData("the file does not exist.")
            url = read_only_sqlite_url(path)
            _check_schema(url)
        with quiet_optuna(optuna.logging.ERROR):
            return _read_trials(url, study)
    except UnreadableData:
        raise
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError, OSError, ImportError, ValueError) as problem:
        raise UnreadableData(hide_secrets(first_line(problem), url)) from problem


def _read_trials(url: str, study: str) -> list[FrozenTrial]:
    arguments = _engine_arguments(url, read_only=True)
    engine = sqlalchemy.create_engine(url, **arguments)
    try:
        if missing := TABLES - set(sqlalchemy.inspect(engine).get_table_names()):
            raise UnreadableData(f"it is not a database of Optuna: it has no table {min(missing)!r}.")
    finally:
        engine.dispose()
    opened = RDBStorage(url, engine_kwargs=arguments, skip_table_creation=True)
    try:
        trials = optuna.load_study(study_name=study, storage=opened).get_trials(deepcopy=False)
    except KeyError:
        raise UnreadableData(f"it has no study {study!r}.") from None
    finally:
        opened.remove_session()
        opened.engine.dispose()
    return sorted(trials, key=lambda trial: trial.number)


def _check_schema(url: str) -> None:
    """Raise `UnreadableData` for an SQLite file with other tables than those of Optuna, or with statements of its own.

    Triggers and views are executed when a table is written or read; Optuna creates none. Where a column is missing, it
    would log the statement that failed, and try others.
    """
    engine = sqlalchemy.create_engine(url, **_engine_arguments(url))
    try:
        with engine.connect() as connection:
            _check_tables(connection)
    finally:
        engine.dispose()


def _check_tables(connection: sqlalchemy.Connection) -> None:
    query = "SELECT type, name, coalesce(sql, '') LIKE 'CREATE VIRTUAL%' FROM sqlite_master"
    found = connection.execute(sqlalchemy.text(query)).all()
    for kind, name, is_virtual in found:
        if kind not in ("table", "index") or is_virtual:
            raise UnreadableData(f"it is not a database of Optuna, which creates no {kind} such as {str(name)!r}.")
    names = {name for _, name, _ in found}
    if found and not TABLES & names:
        raise UnreadableData(f"it is not a database of Optuna: it has no table {min(TABLES)!r}.")
    query = "SELECT t.name, c.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table'"
    columns = {(table, column) for table, column in connection.execute(sqlalchemy.text(query))}
    if missing := {(table, column) for table, column in COLUMNS if table in names} - columns:
        table, column = min(missing)
        raise UnreadableData(f"it is not a database of Optuna, or is damaged: {table!r} has no column {column!r}.")


def _opened(url: str) -> AtomicTrialStorage:
    """Open a storage; try again if other processes were creating the same tables."""
    for attempt in range(1, MOST_ATTEMPTS + 1):
        try:
            return AtomicTrialStorage(url, _engine_arguments(url))
        except sqlalchemy.exc.DBAPIError as problem:
            created_by_another = isinstance(problem, (sqlalchemy.exc.IntegrityError, sqlalchemy.exc.ProgrammingError))
            if attempt == MOST_ATTEMPTS or not (created_by_another or "already exists" in str(problem)):
                raise
        time.sleep(random.uniform(0.0, 0.2))  # noqa: S311  # not for cryptography
    raise AssertionError


def _engine_arguments(url: str, *, read_only: bool = False) -> dict[str, Any]:
    parsed = sqlalchemy.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return {"connect_args": {} if "timeout" in parsed.query else {"timeout": LOCK_TIMEOUT_SECONDS}}
    settings: dict[str, Any] = {name: value for name, value in _timeouts(parsed).items() if name not in parsed.query}
    if read_only and parsed.get_driver_name() in _LIBPQ:
        settings["options"] = "-c default_transaction_read_only=on"
    # A connection that was lost while a generation was trained is replaced.
    arguments = {"connect_args": settings, "pool_pre_ping": True}
    if parsed.get_driver_name() == "psycopg" and importlib.util.find_spec("psycopg") is not None:
        from s2e.studies.postgresql import connector

        arguments["creator"] = connector(parsed, settings, ANSWER_TIMEOUT_SECONDS)
    return arguments


def _timeouts(url: sqlalchemy.URL) -> dict[str, int]:
    """Return the arguments of a driver with which a server that does not answer is an error."""
    connect = {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
    if url.get_driver_name() in _LIBPQ:
        return connect | {
            "keepalives": 1,
            "keepalives_idle": KEEPALIVE_SECONDS,
            "keepalives_interval": KEEPALIVE_SECONDS,
            "keepalives_count": NETWORK_TIMEOUT_SECONDS // KEEPALIVE_SECONDS,
            "tcp_user_timeout": 1000 * NETWORK_TIMEOUT_SECONDS,
        }
    if url.get_driver_name() in ("pymysql", "mysqldb"):
        return connect | {"read_timeout": ANSWER_TIMEOUT_SECONDS, "write_timeout": ANSWER_TIMEOUT_SECONDS}
    return {}


def _advice(url: str, problem: Exception) -> str:
    """Return what to do about a storage that cannot be opened, if that is known."""
    if not url.startswith("postgres"):
        return ""
    if isinstance(problem, ImportError):
        return " (install the extra: pip install 's2e[postgresql]')"
    if "password" in str(problem):
        return " (give the storage with its password, or set PGPASSWORD or ~/.pgpass; a run does not store it)"
    return ""


def _identity(url: str) -> tuple[object, ...] | None:
    """Return the identity of an open storage; None for a database in memory, which cannot be shared.

    A file is identified by its inode, because it may have been replaced. The process is included because a forked
    process must not use connections of its parent.
    """
    if sqlalchemy.make_url(url).get_backend_name() != "sqlite":
        return os.getpid(), url
    path = sqlite_path(url)
    if path is None or not path.exists():
        return None
    found = path.stat()
    return os.getpid(), url, found.st_dev, found.st_ino


def _close(engine: sqlalchemy.Engine, process: int) -> None:
    engine.dispose(close=os.getpid() == process)  # a forked process does not close connections of its parent


class _Unsynchronised(sqlite3.Connection):
    """A connection that does not wait for the disk after each statement."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA synchronous = OFF")


def _create_atomically(url: str) -> None:
    """Create the database of an SQLite URL under a temporary name and rename it.

    Optuna creates its tables one after the other. A process killed in between leaves a table without its index; the
    next process then creates a second study with the same name, and the study can no longer be opened.
    """
    path = sqlite_path(url)
    if path is None or path.exists():
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    created = RDBStorage(sqlite_url(temporary), {"connect_args": {"factory": _Unsynchronised}})
    created.remove_session()
    created.engine.dispose()
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)  # fails if another process has created the database meanwhile
    except OSError:
        if not path.exists():  # a file system without links
            os.replace(temporary, path)
    temporary.unlink(missing_ok=True)
