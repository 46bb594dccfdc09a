"""A Ray cluster: an actor trains a share of every population on each of its devices.

Data are put into the object store once. An actor reports every epoch; if members may be stopped early, it waits for the
decision of this process, which has the curves of all members. The share of an actor that was lost is trained by another
one, from its last checkpoint if the run directory is on a path that both have.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import socket
import sys
import warnings
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from queue import SimpleQueue
from threading import Lock, RLock, Thread
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from s2e._version import __version__
from s2e.data import LabelledData
from s2e.engine import EpochFinished, Member, Task, Trained, Trainer
from s2e.errors import InvalidInput, WorkerFailed, first_line
from s2e.interrupts import cleaned_up_by
from s2e.studies.executors.splitting import Finished, SplitExecutor, Worker, WorkerLost

log = logging.getLogger(__name__)

START_SECONDS = 60.0
"""Seconds in which actors of a cluster with free devices have started."""

CONNECT_SECONDS = 10.0
"""Seconds in which a running cluster answers."""

ADVICE_TO_JOIN = (
    "; if it asks for a token, set RAY_AUTH_MODE=token, with the token in RAY_AUTH_TOKEN or ~/.ray/auth_token"
)
"""Where something listens at an address and Ray cannot join: it sends a token to an address only if it is told to."""

REQUEST_SECONDS = 20.0
"""Seconds after which a request for an object is repeated."""


def check_ray_installed() -> None:
    """Raise `InvalidInput` if Ray is not installed."""
    if find_spec("ray") is None:
        raise InvalidInput("`executor` ray needs the package ray: install s2e[ray].")


class RayExecutor(SplitExecutor):
    """Trains on the devices of a Ray cluster: on its GPUs if it has some, else on its CPUs.

    A cluster that this executor starts is shut down when the executor is no longer referenced, at the latest with the
    process. If Ray is initialised in this process already, that cluster is used.

    Args:
        address: address of a running cluster; None to start one on this machine.
        device: "cuda" for GPUs, "cpu" for CPUs, "auto" for GPUs if there are any.
    """

    def __init__(self, address: str | None = None, device: str = "auto") -> None:
        check_ray_installed()
        self._address, self._device = address, device
        self._connected = False
        self._workers: list[RayWorker] = []
        self._objects = ObjectStore()
        self._lock = Lock()
        self._shutdown: weakref.finalize[[], RayExecutor] | None = None  # of a cluster that this executor started

    def close(self) -> None:
        """End the workers, and the cluster if this executor started it."""
        self._release(self._workers)
        self._objects, self._connected = ObjectStore(), False
        if self._shutdown is not None:
            self._shutdown()

    def workers(self, task: Task, members: Sequence[Member]) -> Sequence[RayWorker]:
        """Return workers for the members: those that are running, and new ones on other devices of the cluster."""
        self._connect()
        request = self._request(task)
        with self._lock:
            self._workers = [worker for worker in self._workers if worker.alive]
            if any(worker.request != request for worker in self._workers):
                self._release(self._workers)
            wanted = min(_slots(request), len(members))
            while len(self._workers) < wanted:
                self._workers.append(RayWorker(request, self._objects))
            return _started(self._workers[: max(1, wanted)])

    def replacement(self, lost: Worker) -> RayWorker | None:
        """Return a new worker instead of one that was lost; None if it does not start in time."""
        assert isinstance(lost, RayWorker)  # noqa: S101
        worker = RayWorker(lost.request, self._objects)
        if not worker.has_started(START_SECONDS):
            worker.cancel()
            return None
        with self._lock:
            self._workers = [worker, *(other for other in self._workers if other is not lost)]
        return worker

    @contextmanager
    def while_training(self) -> Iterator[None]:
        """Shut down a cluster that this executor started if Ctrl-C ends the process, which leaves processes of Ray."""
        training = True

        def shut_down() -> None:
            if training and self._shutdown is not None:
                self._shutdown()

        with cleaned_up_by(shut_down):
            try:
                yield
            finally:
                training = False

    def _release(self, workers: Sequence[RayWorker]) -> None:
        for worker in workers:
            worker.cancel()
        self._workers = []

    def _request(self, task: Task) -> Request:
        """Return what a worker needs: a GPU, one core for small networks, or as many as this process uses."""
        import ray

        gpus = self._device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1
        if not gpus and self._device == "cuda":
            raise InvalidInput("`device` cuda needs a Ray cluster with GPUs, but it has none.")
        if gpus:
            return Request("cuda", num_gpus=1, num_cpus=1, threads=1)
        small = Trainer(replace(task, device=torch.device("cpu"), executor=None)).small_network is not None
        threads = 1 if small else torch.get_num_threads()  # how large networks are rounded depends on the threads
        return Request("cpu", num_gpus=0, num_cpus=min(threads, _most_cpus()), threads=threads)

    def _connect(self) -> None:
        """Join the cluster or start one, once; do nothing if this process has done so itself."""
        import ray

        if self._connected or ray.is_initialized():
            self._connected = True
            return
        handler = signal.getsignal(signal.SIGTERM)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if self._address is None:
                cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
                ray.init(address="local", num_cpus=cores, include_dashboard=False, **quiet)
            else:
                _check_reachable(self._address)
                ray.init(address=self._address, **quiet)
        except (OSError, RuntimeError, ValueError) as problem:
            where = "could not be started" if self._address is None else f"at {self._address!r} could not be joined"
            advice = ADVICE_TO_JOIN if "connect to Ray cluster" in str(problem) else ""
            raise WorkerFailed(f"the Ray cluster {where}: {first_line(problem)}{advice}") from problem
        finally:
            _restore_signal_handler(handler)
        self._connected = True
        self._shutdown = weakref.finalize(self, ray.shutdown)


def _check_reachable(address: str) -> None:
    """Raise `OSError` if nothing listens at an address; Ray itself would try for ten minutes."""
    host, colon, port = address.rpartition("//")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


@dataclass(frozen=True)
class Request:
    """What a worker needs.

    Attributes:
        device: "cpu" or "cuda".
        num_gpus: GPUs of the cluster.
        num_cpus: cores of the cluster.
        threads: threads of torch.
    """

    device: str
    num_gpus: int
    num_cpus: int
    threads: int


def _slots(request: Request) -> int:
    """Return the number of workers that the cluster has room for, if nothing else uses it."""
    import ray

    total = 0
    for node in ray.nodes():
        if node["Alive"]:
            cpus, gpus = (int(node["Resources"].get(name, 0)) for name in ("CPU", "GPU"))
            total += min(gpus, cpus) if request.num_gpus else cpus // request.num_cpus
    return max(1, total)


def _most_cpus() -> int:
    import ray

    return max([1, *(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])])


def _started(workers: Sequence[RayWorker]) -> list[RayWorker]:
    """Return the workers that have started, after some time for all and as long as it takes for one."""
    import ray

    waiting = {worker.ready: worker for worker in workers}
    _, missing = ray.wait(list(waiting), num_returns=len(waiting), timeout=START_SECONDS)
    if len(missing) == len(waiting):
        log.warning("waiting for a free device of the Ray cluster")
        ray.wait(list(waiting), num_returns=1)
    started = [worker for worker in workers if worker.has_started(0.0)]
    if not started:
        raise WorkerFailed("no worker could be started on the Ray cluster.")
    return started


def _restore_signal_handler(handler: Any) -> None:
    """Undo that `ray.init` replaces the handler of SIGTERM; only the main thread may set one."""
    try:
        signal.signal(signal.SIGTERM, handler)
    except (TypeError, ValueError):
        log.debug("the handler of SIGTERM was not restored")


# ------------------------------------------------------------------------------------------------------- what is sent


class ObjectStore:
    """Arrays and tasks in the object store of the cluster, each put there once."""

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[object, Any]] = {}  # with the array, so that its id remains its own
        self._task: tuple[weakref.ref[Task], Any] | None = None
        self._lock = RLock()  # the threads of several workers ask at the same time

    def array(self, array: NDArray[Any]) -> Any:
        """Return the reference of an array."""
        import ray

        with self._lock:
            if id(array) not in self._arrays:
                self._arrays[id(array)] = array, ray.put(array)
            return self._arrays[id(array)][1]

    def task(self, task: Task) -> Any:
        """Return the reference of a description of a task, in which references stand for its data."""
        import ray

        with self._lock:
            if self._task is None or self._task[0]() is not task:
                self._task = weakref.ref(task), ray.put(self._described(task))
            return self._task[1]

    def _described(self, task: Task) -> dict[str, Any]:
        checkpoints = task.checkpoints
        if checkpoints is not None:  # workers have another working directory
            checkpoints = replace(checkpoints, directory=checkpoints.directory.absolute())
        return {
            **{item.name: getattr(task, item.name) for item in fields(task)},
            "train": self._data(task.train),
            "evaluate": {name: self._data(data) for name, data in task.evaluate.items()},
            "clean": None if task.clean is None else self._data(task.clean),
            "executor": None,
            "checkpoints": checkpoints,
        }

    def _data(self, data: LabelledData) -> dict[str, Any]:
        values = {item.name: getattr(data, item.name) for item in fields(data)}
        return {name: self.array(value) if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _described_task(described: Mapping[str, Any], device: str) -> Task:
    """Return the task of a description; called by a worker."""
    evaluate = {name: _described_data(data) for name, data in described["evaluate"].items()}
    clean = None if described["clean"] is None else _described_data(described["clean"])
    data = {"train": _described_data(described["train"]), "evaluate": evaluate, "clean": clean}
    checkpoints = described["checkpoints"]
    if checkpoints is not None and not checkpoints.directory.parent.is_dir():
        checkpoints = None  # the run directory is not on a path that this machine shares
    return Task(**{**described, **data, "checkpoints": checkpoints, "device": torch.device(device)})


def _described_data(described: Mapping[str, Any]) -> LabelledData:
    import ray

    return LabelledData(
        **{name: _object(value) if isinstance(value, ray.ObjectRef) else value for name, value in described.items()}
    )


def _object(reference: Any) -> Any:
    """Wait for the object of a reference. The request is repeated: Ray can lose one when several threads wait."""
    import ray

    while not ray.wait([reference], timeout=REQUEST_SECONDS)[0]:
        log.debug("still waiting for %s", reference)
    return ray.get(reference)


# ------------------------------------------------------------------------------------------------------------- workers


@dataclass(frozen=True)
class Started:
    """What a worker reports when it has started."""

    host: str
    pid: int
    versions: tuple[str, str]


VERSIONS = (f"s2e {__version__}", f"torch {torch.__version__}")
"""Versions that all machines of a cluster must share."""


class RayWorker(Worker):
    """An actor of the cluster, as this process sees it.

    Args:
        request: what it needs.
        objects: the object store.

    Attributes:
        alive: False after it was lost or cancelled.
        ready: reference of its `Started`.
    """

    def __init__(self, request: Request, objects: ObjectStore) -> None:
        import ray

        self.request, self._objects = request, objects
        self.name, self.alive, self._cancelled = "a worker", True, False
        actor: Any = ray.remote(TrainingActor).options(
            num_cpus=request.num_cpus, num_gpus=request.num_gpus, max_concurrency=2, max_restarts=0
        )
        self._actor = actor.remote(request.device, request.threads, sys.path)
        self.ready = self._actor.started.remote()

    def has_started(self, seconds: float) -> bool:
        """Return whether the actor runs, after waiting for it for some seconds."""
        import ray

        try:
            started: Started = ray.get(self.ready, timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            return False
        except ray.exceptions.RayError as problem:
            self.alive = False
            log.warning("a worker did not start: %s", first_line(problem))
            return False
        self.name = f"worker {started.pid} on {started.host}"
        if started.versions != VERSIONS:
            raise InvalidInput(
                f"all machines of the Ray cluster must have {' and '.join(VERSIONS)}, "
                f"but {started.host} has {' and '.join(started.versions)}."
            )
        return True

    def train(self, task: Task, members: Sequence[Member], finished: Finished, *, can_stop: bool) -> Trained:
        """Train members on the actor."""
        import ray

        try:
            return self._train(task, members, finished, can_stop=can_stop)
        except ray.exceptions.RayTaskError as problem:
            raise problem.cause from None
        except ray.exceptions.RayError as problem:
            self.alive = False
            if self._cancelled:
                raise CancelledError from problem
            raise WorkerLost(first_line(problem)) from problem
        except BaseException:  # of a callback
            self.cancel()
            raise

    def _train(self, task: Task, members: Sequence[Member], finished: Finished, *, can_stop: bool) -> Trained:
        labels = [None if member.labels is None else self._objects.array(member.labels) for member in members]
        without = [replace(member, labels=None) for member in members]
        _object(self._actor.start.remote([self._objects.task(task)], without, labels, can_stop))
        while True:
            event: EpochFinished | Trained | str = _object(self._actor.next_event.remote())
            if isinstance(event, Trained):
                return event
            if isinstance(event, str):
                log.warning("%s: %s", self.name, event)
                continue
            stopped = finished(event)
            if can_stop:
                self._actor.answer.remote(list(stopped))

    def cancel(self) -> None:
        """Kill the actor."""
        import ray

        self.alive, self._cancelled = False, True
        ray.kill(self._actor)


class TrainingActor:
    """Trains shares of populations, one after the other, in a process of a Ray cluster.

    Args:
        device: "cpu" or "cuda".
        threads: threads of torch on a CPU.
        path: where modules are imported from, such as those of networks, besides the own path.
    """

    def __init__(self, device: str, threads: int, path: Sequence[str]) -> None:
        sys.path += [each for each in path if each not in sys.path]
        self._device, self._threads = device, threads
        self._events: SimpleQueue[EpochFinished | Trained | str | BaseException] = SimpleQueue()
        self._answers: SimpleQueue[Collection[int]] = SimpleQueue()
        self._trainer: tuple[Any, Trainer] | None = None
        # Arrays in the object store are read-only, and so are the tensors that share their memory.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        logging.getLogger("s2e").addHandler(_Forwarding(self._events))

    def started(self) -> Started:
        """Return where the actor runs."""
        return Started(platform.node(), os.getpid(), VERSIONS)

    def start(self, task: Sequence[Any], members: Sequence[Member], labels: Sequence[Any], can_stop: bool) -> None:
        """Start to train members; `next_event` reports it.

        Args:
            task: reference of the description of the task; in a list, so that Ray passes the reference itself.
            members: the members without labels.
            labels: references of their labels, or None.
            can_stop: wait for an `answer` after every epoch.
        """
        if self._device == "cpu":
            torch.set_num_threads(self._threads)
        own = {each: _object(each) for each in labels if each is not None}
        complete = [replace(member, labels=own.get(each)) for member, each in zip(members, labels, strict=True)]
        # Objects are read here and not in the thread: Ray may forget a request of another thread when a call returns.
        Thread(target=self._train, args=(self._trainer_of(task[0]), complete, can_stop), daemon=True).start()

    def next_event(self) -> EpochFinished | Trained | str:
        """Wait for the next epoch, message or outcome; raise the exception that ended the training."""
        event = self._events.get()
        if isinstance(event, BaseException):
            raise event
        return event

    def answer(self, stopped: Collection[int]) -> None:
        """Receive the indices of the members to stop after the last epoch."""
        self._answers.put(stopped)

    def _train(self, trainer: Trainer, members: Sequence[Member], can_stop: bool) -> None:
        def finished(progress: EpochFinished) -> Collection[int]:
            copied = progress.curves.take(np.arange(len(progress.indices)))  # training continues to fill the curves
            self._events.put(replace(progress, curves=copied))
            return self._answers.get() if can_stop else ()

        try:
            self._events.put(trainer.train(members, stop=finished))
        except BaseException as problem:
            self._events.put(problem)

    def _trainer_of(self, reference: Any) -> Trainer:
        """Return the trainer of a task; it is kept for the next population, with captured graphs."""
        if self._trainer is None or self._trainer[0] != reference:
            self._trainer = None
            self._trainer = reference, Trainer(_described_task(_object(reference), self._device))
        return self._trainer[1]


class _Forwarding(logging.Handler):
    """Forwards warnings of this package to the process that started the training."""

    def __init__(self, events: SimpleQueue[Any]) -> None:
        super().__init__(logging.WARNING)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        """Forward one warning."""
        self._events.put(record.getMessage())
