"""A PostgreSQL server of its own, in a temporary directory."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

USER, PASSWORD = "searcher", "se/cr@et:%41"
TIMEOUT_SECONDS = 60


def binaries() -> Path | None:
    """Return the directory of initdb and pg_ctl; None if no server is installed."""
    found = [path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), reverse=True)]
    if (on_path := shutil.which("pg_ctl")) is not None:
        found.insert(0, Path(on_path).resolve().parent)
    if (config := shutil.which("pg_config")) is not None:
        listed = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
        found.append(Path(listed))
    return next((path for path in found if (path / "initdb").exists() and (path / "pg_ctl").exists()), None)


def reason_to_skip() -> str | None:
    """Return why there can be no server here; None if there can be one."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    return "no PostgreSQL server is installed" if binaries() is None else None


@dataclass(frozen=True)
class Server:
    """A server on 127.0.0.1, which asks for the password."""

    commands: Path
    directory: Path
    port: int

    def url(self, database: str, password: str | None = PASSWORD) -> str:
        """Return the URL of a database."""
        from sqlalchemy.engine import URL

        made = URL.create("postgresql", USER, password, "127.0.0.1", self.port, database)
        return made.render_as_string(hide_password=False)

    def create(self, database: str) -> str:
        """Create a database; return its URL."""
        import psycopg

        address = {"host": "127.0.0.1", "port": self.port, "user": USER, "password": PASSWORD, "dbname": "postgres"}
        with psycopg.connect(**address, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = f"-p {self.port} -k {self.directory} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-D", self._data, "-o", options, "-l", str(self.directory / "log"), "-w", "start")

    def stop(self) -> None:
        """Stop the server at once, as a fault would."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def processes(self) -> list[int]:
        """Return the numbers of the server's processes: the first, and one for each connection among the others."""
        first = int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
        return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]

    def initialise(self) -> None:
        """Create the files of the server."""
        secret = self.directory / "password"
        secret.write_text(PASSWORD)
        if (user := unprivileged_user()) is not None:
            for path in (self.directory, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        how = ["--username", USER, "--pwfile", str(secret), "--auth", "scram-sha-256", "--encoding", "UTF8"]
        self._run("initdb", "-D", self._data, *how, "--no-sync", "--locale", "C")

    @property
    def _data(self) -> str:
        return str(self.directory / "data")

    def _run(self, command: str, *arguments: str) -> None:
        user = unprivileged_user()
        switched = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        log = self.directory / f"{command}.out"
        with log.open("w") as output:  # a pipe would stay open as long as the server runs
            done = subprocess.run(
                [self.commands / command, *arguments],
                cwd=self.directory,
                stdout=output,
                stderr=output,
                timeout=TIMEOUT_SECONDS,
                check=False,
                **switched,
            )
        if done.returncode:
            raise RuntimeError(f"{command} failed: {log.read_text()}")


def unprivileged_user() -> pwd.struct_passwd | None:
    """Return the user who runs the server: initdb refuses root; None for this user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return pwd.getpwnam("postgres" if "postgres" in names else "nobody")


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server and stop it after the body; `reason_to_skip` must be None."""
    commands = binaries()
    assert commands is not None
    directory = Path(tempfile.mkdtemp(prefix="s2e-postgresql-"))  # its parents are open to other users
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(commands, directory, port)
    try:
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            if (directory / "data" / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
