"""URLs of storages: paths with any character, the driver of PostgreSQL, and passwords that are never shown."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from urllib.parse import quote, unquote

import sqlalchemy
import sqlalchemy.exc
from sqlalchemy.engine import URL

HIDDEN = "***"
"""Written in the place of a password."""

SECRET_NAMES = ("password", "passwd", "pwd", "secret", "token")
"""Parts of the names of query parameters that hold passwords."""


def sqlite_url(path: Path) -> str:
    """Return the URL of an SQLite file, whatever characters its path has.

    SQLAlchemy 2.0 does not escape the path, so a path that it would read differently is written as a URI of SQLite.
    Optuna would replace braces in a URL.
    """
    url = URL.create("sqlite", database=str(path)).render_as_string()
    if sqlalchemy.make_url(url).database == str(path) and not set("{}") & set(url):
        return url
    return _sqlite_uri(path, "uri=true")


def read_only_sqlite_url(path: Path) -> str:
    """Return the URL that opens an existing SQLite file to read only."""
    return _sqlite_uri(path.resolve(), "mode=ro&uri=true")


def _sqlite_uri(path: Path, query: str) -> str:
    """Quote a path for SQLite, and once more where SQLAlchemy decodes paths (from version 2.1)."""
    quoted = quote(str(path))
    decoded_once = sqlalchemy.make_url("sqlite:///%2523").database == "%23"
    return f"sqlite:///file:{quote(quoted) if decoded_once else quoted}?{query}"


def sqlite_path(url: str) -> Path | None:
    """Return the file of an SQLite URL; None for a database in memory and for other databases."""
    parsed = sqlalchemy.make_url(url)
    database = parsed.database or ":memory:"
    if parsed.get_backend_name() != "sqlite" or ":memory:" in database or parsed.query.get("mode") == "memory":
        return None
    if parsed.query.get("uri") and database.startswith("file:"):
        path = database.removeprefix("file:").partition("?")[0]
        return Path(unquote(path.removeprefix("//") if path.startswith("///") else path))
    return Path(database)


def absolute(url: str) -> str:
    """Return the URL of an SQLite file with its absolute path; other URLs are unchanged."""
    try:
        path = sqlite_path(url)
    except (sqlalchemy.exc.ArgumentError, ValueError):  # refused where it is opened
        return url
    if path is None or path.is_absolute():
        return url
    made = sqlalchemy.make_url(sqlite_url(path.absolute()))
    query = {**sqlalchemy.make_url(url).query, **made.query}
    return made.set(query=query).render_as_string(hide_password=False)


def same_place(one: str, other: str) -> bool:
    """Return whether two URLs name the same database: their passwords and drivers may differ."""
    return _place(one) == _place(other)


def _place(url: str) -> object:
    try:
        parsed, path = sqlalchemy.make_url(url), sqlite_path(url)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        return url
    if path is not None:
        return path.absolute()
    query = {name: value for name, value in parsed.query.items() if not _is_secret(name)}
    return parsed.get_backend_name(), parsed.username, parsed.host, parsed.port, parsed.database, query


def storage_to_read(own: str, stored: str | None, named: str | None) -> str | None:
    """Return the storage that holds the study of a run that is only read; None if it is a server that was not named.

    The run may be that of someone else. A server that only its configuration names is not connected to: the driver
    would send it a password of the environment.

    Args:
        own: database inside the run.
        stored: storage in the configuration of the run; None for its own database.
        named: server that the caller names; None if there is none.
    """
    if stored is None:
        return own
    if _is_sqlite(stored):
        return stored
    return None if named is None or not same_place(stored, named) else with_password_of_the_environment(named)


def _is_sqlite(url: str) -> bool:
    try:
        return sqlalchemy.make_url(url).get_backend_name() == "sqlite"
    except (sqlalchemy.exc.ArgumentError, ValueError):
        return False


def with_driver(url: str) -> str:
    """Return a PostgreSQL URL without a driver with that of the extra `postgresql`; other URLs are unchanged."""
    scheme, separator, rest = url.partition("://")
    if scheme == "postgresql" and separator and importlib.util.find_spec("psycopg") is not None:
        return f"postgresql+psycopg://{rest}"
    return url


def without_password(url: str) -> str:
    """Return the URL with `HIDDEN` in the place of every password, to be shown or stored."""
    secrets = _secrets(url)
    if not secrets:
        return url
    try:
        parsed = sqlalchemy.make_url(url)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        return hide_secrets(url, url)
    query = {name: HIDDEN if _is_secret(name) else value for name, value in parsed.query.items()}
    return parsed.set(query=query).render_as_string(hide_password=True).replace(quote(HIDDEN), HIDDEN)


def with_password_of_the_environment(url: str) -> str:
    """Return a URL written by `without_password` without its hidden passwords.

    The driver then takes the password from where it always looks: PGPASSWORD and ~/.pgpass for PostgreSQL.
    """
    if HIDDEN not in url:
        return url
    parsed = sqlalchemy.make_url(url)
    query = {name: value for name, value in parsed.query.items() if value != HIDDEN}
    user = parsed.set(query=query)
    if user.password is not None and str(user.password) == HIDDEN:
        user = URL.create(user.drivername, user.username, None, user.host, user.port, user.database, user.query)
    return user.render_as_string(hide_password=False)


def hide_secrets(text: str, url: str) -> str:
    """Return a message about a URL with `HIDDEN` in the place of every password of this URL."""
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _is_secret(name: str) -> bool:
    return any(part in name.lower() for part in SECRET_NAMES)


def _secrets(url: str) -> set[str]:
    """Return the passwords in a URL, as written and decoded; the URL need not be valid."""
    _, scheme, rest = url.partition("://")
    rest = rest if scheme else url  # the scheme was forgotten
    address, _, query = rest.partition("?")
    found = []
    if not rest.startswith("/"):  # a path begins there
        # A question mark may be part of the password, and an @ part of the query.
        found = [text.rpartition("@")[0].partition(":")[2] for text in (address, rest)]
    found += [value for name, value in re.findall(r"([^&=]+)=([^&]*)", query) if _is_secret(name)]
    return {text for secret in found for text in (secret, unquote(secret)) if text and text != HIDDEN}
