"""Studies on a disk that need not survive a power cut."""

from __future__ import annotations

import sqlite3


def trust_the_machine(connection: object, _: object) -> None:
    """Do not wait for the disk: processes die here, the machine does not, and waiting is much of the time it takes."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")
