"""Studies on a disk that need not survive a power failure."""

from __future__ import annotations

import sqlite3


def skip_disk_sync(connection: object, _: object) -> None:
    """Let SQLite not wait for the disk: tests kill processes, not the machine."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")
