"""Databases of studies: created atomically, opened once per process, closed with the last study that uses them."""

from __future__ import annotations

import os
import re
import threading
import weakref
from pathlib import Path

import optuna
import sqlalchemy
import sqlalchemy.exc
from optuna.storages import BaseStorage

from s2e.errors import UnreadableData
from s2e.studies.optuna_internals import AtomicTrialStorage

_OPEN: weakref.WeakValueDictionary[tuple[object, ...], BaseStorage] = weakref.WeakValueDictionary()
"""Open storages by identity, as long as they are used by a study."""


def check_storage(url: str) -> None:
    """Raise `UnreadableData` if the storage cannot be opened."""
    open_storage(url)


def open_storage(url: str) -> BaseStorage:
    """Open a storage and check its tables, or return the storage that this process has already opened at this URL.

    It is closed when the last study that uses it is deleted.
    """
    try:
        _create_atomically(url)
        key = _identity(url)
        storage = None if key is None else _OPEN.get(key)
        if storage is None:
            backend = AtomicTrialStorage(url)
            storage = optuna.storages.get_storage(backend)
            weakref.finalize(storage, _close, backend.engine, os.getpid())
            if key is not None:
                _OPEN[key] = storage
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UnreadableData(f"the storage {url!r} could not be opened: {reason}") from problem
    return storage


def _identity(url: str) -> tuple[object, ...] | None:
    """Return the identity of an open storage; None for a database in memory, which cannot be shared.

    A file is identified by its inode, because it may have been replaced. The process is included because a forked
    process must not use connections of its parent.
    """
    parsed = sqlalchemy.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return os.getpid(), url
    try:
        found = os.stat(parsed.database or ":memory:")
    except OSError:
        return None
    return os.getpid(), url, found.st_dev, found.st_ino


def _close(engine: sqlalchemy.Engine, process: int) -> None:
    engine.dispose(close=os.getpid() == process)  # a forked process does not close connections of its parent


def _create_atomically(url: str) -> None:
    """Create the database of an SQLite URL under a temporary name and rename it.

    Optuna creates its tables one after the other. A process killed in between leaves a table without its index; the
    next process then creates a second study with the same name, and the study can no longer be opened.
    """
    match = re.fullmatch(r"sqlite:///(.+)", url)
    if match is None or ":memory:" in url or "?" in url or Path(match[1]).exists():
        return
    path = Path(match[1])
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    created = optuna.storages.RDBStorage(f"sqlite:///{temporary}")
    created.remove_session()
    created.engine.dispose()
    try:
        os.link(temporary, path)  # fails if another process has created the database meanwhile
    except OSError:
        if not path.exists():  # a file system without links
            os.replace(temporary, path)
    temporary.unlink(missing_ok=True)
