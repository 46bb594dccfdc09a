"""Fits in another process: the same predictions for samples of every kind; whatever is missing can be made here."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from s2e.data.model_samples import TextSamples
from s2e.models import Fit, fitted_ahead, fitted_predictions, fitting_process, models_for, use_one_thread

COUNT, CLASSES = 60, 3


def dense() -> NDArray[np.float32]:
    return np.random.default_rng(0).random((COUNT, 4), dtype=np.float32)


def terms() -> sparse.csr_matrix:
    return sparse.random(COUNT, 30, 0.2, "csr", np.float32, np.random.default_rng(1))


SAMPLES = {
    "dense": dense(),
    "columns adjacent in memory": np.asfortranarray(dense()),
    "sparse": terms(),
    "text": TextSamples(dense(), 2, terms()),
}


def labels() -> NDArray[np.int64]:
    return np.arange(COUNT) % CLASSES


def fits_of(samples: Any) -> list[Fit]:
    halves = np.arange(COUNT // 2), np.arange(COUNT // 2, COUNT)
    return [Fit(name, *parts) for name in models_for(samples, CLASSES) for parts in (halves, halves[::-1])]


def received_all(received: Mapping[int, Any], count: int) -> bool:
    end = time.monotonic() + 60
    while len(received) < count and time.monotonic() < end:
        time.sleep(0.02)
    return len(received) == count


@pytest.mark.parametrize("kind", SAMPLES)
def test_predictions_are_those_of_this_process(kind: str) -> None:
    samples = SAMPLES[kind]
    fits, models = fits_of(samples), models_for(samples, CLASSES)
    use_one_thread()
    with fitted_ahead(samples, labels(), CLASSES, fits, 2) as received:
        assert received_all(received, len(fits))
    for index, fit in enumerate(fits):
        expected = fitted_predictions(models[fit.name], samples, labels(), fit, CLASSES)
        np.testing.assert_array_equal(received[index], expected)


def test_fit_that_fails_there_is_left_out() -> None:
    everything = np.arange(COUNT)
    fits = [Fit("logistic-regression", everything[::CLASSES], everything), *fits_of(dense())]  # a single class
    with fitted_ahead(dense(), labels(), CLASSES, fits, 1) as received:
        assert received_all(received, len(fits) - 1)
    assert 0 not in received


def started(patched: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Return a list to which the processes will be added."""
    processes, popen = [], subprocess.Popen

    def start(*args: Any, **settings: Any) -> subprocess.Popen[bytes]:
        processes.append(popen(*args, **settings))
        return processes[-1]

    patched.setattr(fitting_process.subprocess, "Popen", start)
    return processes


def test_process_ends_with_the_body_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = started(monkeypatch)
    with pytest.raises(KeyboardInterrupt), fitted_ahead(dense(), labels(), CLASSES, fits_of(dense()), 1):
        raise KeyboardInterrupt
    (process,) = processes
    assert process.returncode is not None


def test_nothing_is_received_of_a_killed_process(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = started(monkeypatch)
    with fitted_ahead(dense(), labels(), CLASSES, fits_of(dense()), 1) as received:
        processes[0].kill()
        processes[0].wait()
    assert received == {}


@pytest.mark.parametrize("interpreter", [None, "", "/nowhere/python"])
def test_nothing_is_received_without_an_interpreter(interpreter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)
    with fitted_ahead(dense(), labels(), CLASSES, fits_of(dense()), 1) as received:
        time.sleep(0.1)
    assert received == {}


def test_process_ends_with_the_one_that_started_it() -> None:
    program = (
        "import os; from test_fitting_process import *; "
        "context = fitted_ahead(dense(), labels(), CLASSES, fits_of(dense()) * 50, 1); context.__enter__(); "
        "children = open(f'/proc/self/task/{os.getpid()}/children').read(); print(children, flush=True); os._exit(0)"
    )
    if not sys.platform.startswith("linux"):
        pytest.skip("needs /proc")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=__file__.rpartition("/")[0]
    )
    (child,) = done.stdout.split()
    end = time.monotonic() + 60
    while is_running(int(child)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(int(child))


def is_running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_torch_is_not_imported_there() -> None:
    program = "import sys, s2e.models; print(*({'torch', 'optuna'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("", "")
