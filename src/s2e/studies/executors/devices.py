"""Several devices of this machine: a thread trains a share of every population on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from weakref import ref

import torch

from s2e.engine import Member, Task, Trained, Trainer
from s2e.studies.executors.splitting import Finished, SplitExecutor, Worker


class DeviceExecutor(SplitExecutor):
    """Trains on several devices of this machine.

    Workers on the CPU divide its threads. A CPU is shared, with itself or with GPUs, only for networks whose operations
    are computed by one thread each: the rounding of others depends on the number of threads, and some of them draw from
    a random state that all threads share.

    Args:
        devices: the devices; each GPU once.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._workers = [DeviceWorker(device) for device in devices]

    def workers(self, task: Task, members: Sequence[Member]) -> Sequence[DeviceWorker]:
        """Return the workers that train the members, at most one for each member."""
        on_cpu = [worker for worker in self._workers if worker.device.type == "cpu"]
        used = self._workers
        if on_cpu and on_cpu[0].trainer(task).small_network is None:
            used = [worker for worker in self._workers if worker not in on_cpu] or on_cpu[:1]
        used = used[: len(members)]
        threads = torch.get_num_threads() // max(1, sum(worker.device.type == "cpu" for worker in used))
        for worker in used:
            worker.threads = max(1, threads)
        return used

    @contextmanager
    def while_training(self) -> Iterator[None]:
        """Restore the number of threads, which workers change for the threads that torch starts later."""
        before = torch.get_num_threads()
        try:
            yield
        finally:
            torch.set_num_threads(before)


class DeviceWorker(Worker):
    """One device.

    Args:
        device: the device.

    Attributes:
        threads: threads of torch that it uses, if it is a CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.name = device, str(device)
        self.threads = 1
        self._trainer: tuple[ref[Task], Trainer] | None = None  # a task refers to its executor, and that to this

    def trainer(self, task: Task) -> Trainer:
        """Return the trainer of a task; it is kept for the next population, with captured graphs."""
        if self._trainer is None or self._trainer[0]() is not task:
            self._trainer = ref(task), Trainer(replace(task, device=self.device, executor=None))
        return self._trainer[1]

    def train(self, task: Task, members: Sequence[Member], finished: Finished, *, can_stop: bool) -> Trained:  # noqa: ARG002
        """Train members."""
        if self.device.type == "cpu":
            torch.set_num_threads(self.threads)
        return self.trainer(task).train(members, stop=finished)
