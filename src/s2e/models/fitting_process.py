"""Fits of models in a process of their own, while this one trains networks.

Models of many small parts, such as trees, spend most of their time in Python's interpreter. In threads they would take
it from the training of small networks, whose steps do the same. The process receives arrays and names, and returns
arrays. It fits each model with one thread, as this process does, so the predictions are the same to the bit; those that
it does not return, for whatever reason, are made here.

Letters: N samples, C classes.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from s2e.files.fields import Fields
from s2e.interrupts import cleaned_up_by
from s2e.models.candidates import models_for
from s2e.models.sample_arrays import about_samples, arrays_of_samples, samples_of_arrays
from s2e.models.scikit_models import probabilities_of

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Fit:
    """A model that is fitted to some of the samples, and predicts others.

    Attributes:
        name: its name in `models_for`.
        fitted_to: indices of the samples to which it is fitted.
        predicted: indices of the samples that it predicts.
    """

    name: str
    fitted_to: Labels
    predicted: Labels


def fitted_predictions(estimator: Any, samples: Any, labels: Labels, fit: Fit, classes: int) -> Floats:
    """Fit a copy of an estimator, and return its predictions, (n, C)."""
    fitted = clone(estimator).fit(samples[fit.fitted_to], labels[fit.fitted_to])
    return probabilities_of(fitted, samples[fit.predicted], classes)


@contextmanager
def fitted_ahead(
    samples: Any, labels: Labels, classes: int, fits: Sequence[Fit], threads: int
) -> Iterator[Mapping[int, Floats]]:
    """Fit the models of `models_for` in another process during the body, and end it after the body.

    Args:
        samples: (N, F) as models take them.
        labels: (N,)
        classes: C.
        fits: the fits, in this order.
        threads: number of fits at a time.

    Yields:
        The predictions that have been received so far, by the index of the fit.
    """
    arrays = {"labels": labels, **arrays_of_samples(samples)}
    for index, fit in enumerate(fits):
        arrays |= {f"fitted to {index}": fit.fitted_to, f"predicted {index}": fit.predicted}
    forms = [(name, array.dtype.str, array.shape, _order(array)) for name, array in arrays.items()]
    names = [fit.name for fit in fits]
    job = f"serve({forms!r}, {about_samples(samples)!r}, {classes}, {names!r}, {threads})"
    # Modules are found where this process finds them, nowhere else: not in the current directory, for instance.
    program = f"import sys; sys.path[:] = {sys.path!r}; from s2e.models.fitting_process import serve; {job}"
    if getattr(sys, "frozen", False):  # a program with an interpreter in it would start itself again
        yield {}
        return
    try:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, TypeError, ValueError):  # no interpreter, or no memory
        yield {}
        return
    received: dict[int, Floats] = {}
    thread = Thread(target=_exchange, args=(process, arrays, fits, classes, received), daemon=True)

    thread.start()
    try:
        with cleaned_up_by(process.kill):
            yield received
    finally:
        process.wait()
        thread.join()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # of what was not sent
                _opened(pipe).close()


def _exchange(
    process: subprocess.Popen[bytes],
    arrays: Mapping[str, NDArray[Any]],
    fits: Sequence[Fit],
    classes: int,
    received: dict[int, Floats],
) -> None:
    """Send the arrays, and receive predictions until the process ends."""
    with suppress(OSError, EOFError):
        target, source = _opened(process.stdin), _opened(process.stdout)
        for array in arrays.values():
            target.write(array.tobytes(_order(array)))
        target.flush()
        while True:
            index = int(_read(source, (), "<i8"))
            received[index] = _read(source, (len(fits[index].predicted), classes), "<f8")


def serve(
    forms: Sequence[tuple[str, str, tuple[int, ...], Any]],
    about: dict[str, int],
    classes: int,
    names: Sequence[str],
    threads: int,
) -> None:
    """Receive samples and fits, and return predictions, as the program of the process.

    Args:
        forms: name, type, shape and order of the arrays that are received.
        about: numbers of the samples.
        classes: C.
        names: names of the models.
        threads: number of fits at a time.
    """
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # for anything that is printed
    arrays = {name: _read(source, shape, kind, order) for name, kind, shape, order in forms}
    Thread(target=_exit_with, args=(source,), daemon=True).start()
    labels = arrays["labels"]
    samples = samples_of_arrays(Fields(about, "samples"), arrays, len(labels))
    models, lock = models_for(samples, classes), Lock()

    def predict(index: int) -> None:
        fit = Fit(names[index], arrays[f"fitted to {index}"], arrays[f"predicted {index}"])
        predicted = fitted_predictions(models[fit.name], samples, labels, fit, classes)
        with lock:
            target.write(np.array(index, dtype="<i8").tobytes())
            target.write(predicted.astype("<f8").tobytes())
            target.flush()

    warnings.simplefilter("ignore")  # this process shows none
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads, initializer=use_one_thread) as pool:
        for done in [pool.submit(predict, index) for index in range(len(names))]:
            with suppress(Exception):  # is raised again where the predictions are made instead
                done.result()


def use_one_thread() -> None:
    """Limit OpenMP, whose limits are those of the calling thread."""
    threadpool_limits(1, "openmp")


def _exit_with(source: IO[bytes]) -> None:
    """End this process when the one that started it has ended."""
    source.read()
    os._exit(0)


def _order(array: NDArray[Any]) -> Any:
    """Return the order of an array in memory, since how products are rounded may depend on it."""
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def _read(source: IO[bytes], shape: tuple[int, ...], kind: str, order: Any = "C") -> NDArray[Any]:
    content = source.read(math.prod(shape) * np.dtype(kind).itemsize)
    if len(content) < math.prod(shape) * np.dtype(kind).itemsize:
        raise EOFError
    return np.frombuffer(bytearray(content), kind).reshape(shape, order=order)


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101
    return pipe
