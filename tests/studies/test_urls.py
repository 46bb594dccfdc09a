"""URLs of storages: any path, hidden passwords, the driver of PostgreSQL."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy

from s2e.studies.urls import (
    absolute,
    hide_secrets,
    read_only_sqlite_url,
    same_place,
    sqlite_path,
    sqlite_url,
    with_driver,
    with_password_of_the_environment,
    without_password,
)

NAMES = [
    "study.db",
    "z?1",
    "a%20b",
    "a%2520b",
    "a b",
    "a#b",
    "a@b",
    "a{b}",
    "a:b",
    "a&b=c",
    "ä",
    "file:a",
    "a?uri=true",
]


@pytest.mark.parametrize("name", NAMES)
def test_absolute_url_leads_to_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    url = sqlite_url(Path(name))
    made = absolute(url)
    assert sqlite_path(made) == tmp_path / name
    assert absolute(made) == made
    assert same_place(url, made)
    assert not same_place(made, sqlite_url(tmp_path / "other" / name))


def test_absolute_url_keeps_options_and_other_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("sqlite:///a.db?timeout=0.1") == f"sqlite:///{tmp_path}/a.db?timeout=0.1"
    for url in ("sqlite://", "sqlite:///:memory:", "postgresql://user@host/a", "nonsense::/"):
        assert absolute(url) == url


def test_place_of_a_database_has_no_password_and_no_driver() -> None:
    url = "postgresql://user:secret@host:5432/mine"
    for same in ("postgresql+psycopg://user@host:5432/mine", "postgresql://user:***@host:5432/mine?password=other"):
        assert same_place(url, same)
    for other in ("postgresql://user:secret@host:5432/other", "postgresql://user@host/mine", "nonsense::/"):
        assert not same_place(url, other)


@pytest.mark.parametrize("name", NAMES)
def test_url_leads_to_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    url = sqlite_url(path)
    assert sqlite_path(url) == path
    assert not set("{}") & set(url)
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE songs (title TEXT)"))
    engine.dispose()
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    read_only = sqlalchemy.create_engine(read_only_sqlite_url(path))
    assert sqlalchemy.inspect(read_only).get_table_names() == ["songs"]
    with pytest.raises(sqlalchemy.exc.OperationalError, match="readonly"), read_only.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE more (title TEXT)"))
    read_only.dispose()
    connected = sqlite3.connect(path)
    assert connected.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]
    connected.close()


def test_databases_in_memory_and_on_servers_have_no_path() -> None:
    for url in ("sqlite://", "sqlite:///:memory:", "sqlite:///file:a?mode=memory&uri=true", "postgresql://host/a"):
        assert sqlite_path(url) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:pa%40ss@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("postgresql://host/db?user=a&password=pass", "postgresql://host/db?password=***&user=a"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("sqlite:////tmp/a@b.db", "sqlite:////tmp/a@b.db"),
        ("sqlite:////tmp/a:b@c.db", "sqlite:////tmp/a:b@c.db"),
        ("garbage", "garbage"),
        ("x y://user:pass@host", "x y://user:***@host"),
        ("user:pass@host/db", "user:***@host/db"),
        ("postgresql:/user:pass@host/db", "postgresql:***@host/db"),
        ("postgresql://user:pa?ss@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:pass@host/db?application_name=a@b", "postgresql://user:***@host/db?application_name=a%40b"),
    ],
)
def test_passwords_are_hidden(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_passwords_are_hidden_in_messages_about_a_url() -> None:
    url = "postgresql://user:pa%40ss@host/db"
    assert (
        hide_secrets(f"cannot open {url} with 'pa@ss'", url) == "cannot open postgresql://user:***@host/db with '***'"
    )


def test_an_at_sign_in_the_query_hides_no_less() -> None:
    url = "postgresql://user:pass@host/db?application_name=a@b"
    assert hide_secrets("'pass' was refused", url) == "'***' was refused"


def test_hidden_passwords_are_left_to_the_environment() -> None:
    for url in (
        "postgresql://user:pass@host:1/db?sslmode=require",
        "postgresql://user@host:1/db?password=x&sslmode=require",
    ):
        stored = without_password(url)
        assert with_password_of_the_environment(stored) == "postgresql://user@host:1/db?sslmode=require"
    assert with_password_of_the_environment("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"


def test_postgresql_is_opened_with_the_driver_of_the_extra() -> None:
    pytest.importorskip("psycopg")
    assert with_driver("postgresql://host/db") == "postgresql+psycopg://host/db"
    for url in ("postgresql+psycopg2://host/db", "sqlite:///a.db", "garbage"):
        assert with_driver(url) == url
