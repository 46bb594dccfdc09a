"""Connections to PostgreSQL that end with an error where the server does not answer for a long time.

The settings of the system and of the server do not cover this: the kernel of a machine whose server process stalls
continues to acknowledge, and the server that would cancel a statement is the one that stalls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

import psycopg
from sqlalchemy.engine import URL

T = TypeVar("T")


class AnsweringConnection(psycopg.Connection[Any]):
    """A connection that is closed, with an error, when an operation takes longer than `most_seconds`."""

    most_seconds = float("inf")

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **named: Any) -> T:
        """Complete an operation: psycopg resumes its generator whenever the socket is ready, and ten times a second."""
        return super().wait(self._in_time(gen), *arguments, **named)

    def _in_time(self, operation: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        deadline = time.monotonic() + self.most_seconds
        try:
            state = next(operation)
            while True:
                ready = yield state
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()  # SQLAlchemy then replaces the connection
                    raise psycopg.OperationalError(f"the server did not answer for {self.most_seconds:g} seconds")
                state = operation.send(ready)
        except StopIteration as finished:
            result: T = finished.value
            return result


def connector(url: URL, settings: dict[str, Any], most_seconds: float) -> Callable[[], AnsweringConnection]:
    """Return what SQLAlchemy calls for a new connection.

    Args:
        url: URL with the driver psycopg.
        settings: parameters of the connection beside those in the URL.
        most_seconds: time within which the server must answer.
    """
    positional, named = url.get_dialect()().create_connect_args(url)
    return partial(_connect, positional, {**named, **settings}, most_seconds)


def _connect(positional: Any, named: dict[str, Any], most_seconds: float) -> AnsweringConnection:
    connection = AnsweringConnection.connect(*positional, **named)
    connection.most_seconds = most_seconds
    return connection
