"""Ctrl-C and other signals at any time after the start of a process: one line, their exit code, and clean-up."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TIMEOUT_S = 60
PROJECT = Path(__file__).parents[1] / "pyproject.toml"

WAIT_AT_AN_IMPORT = """
import os, sys, time


class Waiting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["WAIT_AT"]:
            os.write(1, b"waiting")
            time.sleep(60)


sys.meta_path.insert(0, Waiting())
"""
"""As sitecustomize.py, which Python imports before anything else: waits where a module is first imported."""

CLEANING_UP = """
import os, signal, sys
from s2e.interrupts import end_on_signals, cleaned_up_by


def fail():
    raise RuntimeError


end_on_signals()
with cleaned_up_by(lambda: os.write(1, b"done ")):
    pass
with cleaned_up_by(lambda: os.write(1, b"outer ")), cleaned_up_by(fail), cleaned_up_by(lambda: os.write(1, b"inner ")):
    signal.raise_signal(signal.SIGINT)
"""


def entry_point() -> str:
    """The console script as installers write it."""
    found = re.search(r'^s2e = "(.+):(.+)"$', PROJECT.read_text(), re.MULTILINE)
    assert found is not None
    return f"import sys\nfrom {found[1]} import {found[2]}\nif __name__ == '__main__':\n    sys.exit({found[2]}())\n"


def started(tmp_path: Path, way: str) -> list[str]:
    """Return a command that runs s2e in one of the two ways."""
    if way == "python -m":
        return [sys.executable, "-m", "s2e"]
    (tmp_path / "s2e-script").write_text(entry_point())
    return [sys.executable, str(tmp_path / "s2e-script")]


def on_the_path(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


WAYS = ["python -m", "console script"]


@pytest.mark.parametrize(
    ("way", "module"),
    [
        *((way, module) for way in WAYS for module in ("s2e.cli", "s2e.data.loading")),  # the first and the last
        ("python -m", "typer.core"),
        ("python -m", "rich.console"),
    ],
)
def test_an_interrupt_while_the_command_line_is_imported_is_one_line(tmp_path: Path, way: str, module: str) -> None:
    assert interrupted_at(module, tmp_path, signal.SIGINT, way) == (130, b"", b"s2e: interrupted\n")


def interrupted_at(module: str, tmp_path: Path, by: signal.Signals, way: str = "python -m") -> tuple[int, bytes, bytes]:
    """Send a signal while s2e imports a module; return the exit code, stdout and stderr."""
    (tmp_path / "sitecustomize.py").write_text(WAIT_AT_AN_IMPORT)
    process = subprocess.Popen(
        [*started(tmp_path, way), "datasets"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, "PYTHONPATH": on_the_path(tmp_path), "WAIT_AT": module},
        cwd=tmp_path,
    )
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 7) == b"waiting"
    process.send_signal(by)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, stdout, stderr


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_print_their_name_and_have_their_exit_code(tmp_path: Path, by: signal.Signals) -> None:
    assert interrupted_at("s2e.cli", tmp_path, by) == (128 + by, b"", f"s2e: interrupted by {by.name}\n".encode())


@pytest.mark.parametrize("module", ["s2e.interrupts", "contextvars"])
def test_ctrl_c_before_signals_are_handled_is_silent(tmp_path: Path, module: str) -> None:
    assert interrupted_at(module, tmp_path, signal.SIGINT) == (130, b"", b"")


IGNORED_HANGUP = "import signal, s2e.interrupts as i; i.end_on_signals(); print(signal.getsignal(signal.SIGHUP))"


def test_a_signal_ignored_by_nohup_stays_ignored() -> None:
    command = ["nohup", sys.executable, "-c", IGNORED_HANGUP]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stdout == f"{signal.SIG_IGN}\n"


FORKED = """
import os, signal, time
from s2e.interrupts import cleaned_up_by, end_on_signals

end_on_signals()
with cleaned_up_by(lambda: os.write(1, b"cleaned up ")):
    ready, announce = os.pipe()
    child = os.fork()
    if not child:
        os.write(announce, b"!")
        time.sleep(60)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    os.write(1, str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode() + b" ")
"""


def test_a_forked_process_ends_silently_and_cleans_up_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.stdout, done.stderr) == ("143 cleaned up ", "")


POOL = """
import os, signal
from concurrent.futures import ProcessPoolExecutor
from s2e.interrupts import end_on_signals

end_on_signals()
with ProcessPoolExecutor(2) as pool:
    pool.submit(os.getpid).result()
    signal.raise_signal(signal.SIGTERM)
"""


def test_processes_of_a_pool_end_with_their_parent() -> None:
    done = subprocess.run([sys.executable, "-c", POOL], capture_output=True, text=True, timeout=TIMEOUT_S)
    # its output ends when the last process that has inherited it ends
    assert (done.returncode, done.stderr) == (143, "s2e: interrupted by SIGTERM\n")


def test_on_a_terminal_an_early_interrupt_has_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WAIT_AT_AN_IMPORT)
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        started(tmp_path, "python -m"),
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**ENVIRONMENT, "PYTHONPATH": on_the_path(tmp_path), "WAIT_AT": "typer"},
    )
    os.close(terminal)
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 7) == b"waiting"
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 130
    assert os.read(controller, 4096) == b"\r\ns2e: interrupted\r\n"
    os.close(controller)
    process.stdout.close()


@pytest.mark.parametrize("way", WAYS)
def test_module_and_script_are_the_same_program(tmp_path: Path, way: str) -> None:
    command = [*started(tmp_path, way), "reproduce", "figures"]
    refused = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=TIMEOUT_S, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.fullmatch(r"s2e: .*convergence.*\n", refused.stderr)


def test_ctrl_c_is_handled_by_small_standard_modules_only() -> None:
    program = "import sys; before = set(sys.modules); import s2e.__main__; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S)
    imported = set(done.stdout.split())
    assert {"s2e.__main__", "s2e.interrupts"} <= imported
    tops = {name.partition(".")[0] for name in imported} - {"s2e"}
    assert tops <= sys.stdlib_module_names
    assert not tops & {"pathlib", "logging", "subprocess", "tempfile", "shlex", "inspect", "dataclasses"}


def test_cleanups_run_once_in_reverse_order_despite_errors() -> None:
    stopped = subprocess.run([sys.executable, "-c", CLEANING_UP], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert stopped.returncode == 130
    assert stopped.stdout == "done inner outer "
    assert stopped.stderr == "s2e: interrupted\n"


def test_importing_s2e_keeps_the_ctrl_c_handler_of_a_program() -> None:
    program = "import signal, s2e, s2e.cli, s2e.__main__; "
    program += "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.stdout == "True\n"
