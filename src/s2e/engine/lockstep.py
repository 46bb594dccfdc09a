"""A population in training with the outcomes of its stopped members, and its way into a checkpoint and back.

A checkpoint is named by a digest of everything that the training depends on, so it is only ever used for the same
training. Chunks of a population, and the shares of threads, have a checkpoint each.

Letters: P members, T epochs.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e._version import __version__
from s2e.data import fingerprint
from s2e.engine.checkpoints import Checkpoints, pause
from s2e.engine.curves import Curves, Dynamics
from s2e.engine.population import Population, part_of
from s2e.engine.stacked_networks import StackedNetworks
from s2e.engine.task import Member, Task, Trained
from s2e.errors import first_line

log = logging.getLogger(__name__)

FORMAT = "2"
"""Version of the names and shapes of the tensors in a checkpoint."""

NOT_IN_NAME = {"train", "evaluate", "clean", "network", "method", "optimizer", "device"} | {
    "stream",
    "chunk",
    "memory",
    "graph",
    "compile",
    "checkpoints",
    "executor",
}
"""Fields of a task that the name of a checkpoint describes otherwise, or that do not change a training."""


@dataclass(eq=False)
class Lockstep:
    """P members trained in lockstep, of which some may have been stopped.

    Attributes:
        curves: (P, T) each.
        population: the members still in training; None if there are none.
        outcomes: rows and outcome of members that were stopped or are finished.
        epochs: epochs finished.
    """

    curves: Curves
    population: Population | None
    outcomes: list[tuple[NDArray[np.int64], Trained]] = field(default_factory=list)
    epochs: int = 0

    def end_epoch(self, stopped: NDArray[np.bool_]) -> None:
        """Count an epoch, and take the members that stop after it out of the population: all after the last one."""
        self.epochs += 1
        population = self.population
        if population is None:
            return
        left = population.task.epochs - self.epochs
        stopped = stopped | (left == 0)
        if stopped.any():
            self.outcomes.append(population.outcome(self.curves, np.flatnonzero(stopped)))
            self.population = None if stopped.all() else population.take(np.flatnonzero(~stopped), left)

    def trained(self) -> Trained:
        """Return the outcome of all members, in their order."""
        order_of_rows = np.argsort(np.concatenate([rows for rows, _ in self.outcomes]))
        trained = Trained.concatenate([outcome for _, outcome in self.outcomes])
        return trained if len(self.outcomes) == 1 else trained.take(order_of_rows.tolist())

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that the further training depends on, by name, on the CPU."""
        parts = {"curves": {name: torch.from_numpy(array) for name, array in self.curves.arrays().items()}}
        rows = np.zeros(0, dtype=np.int64)
        if self.population is not None:
            parts["population"], rows = self.population.state(), self.population.rows
        for index, (own_rows, outcome) in enumerate(self.outcomes):
            parts[f"stopped {index}"] = {"rows": torch.from_numpy(own_rows), **_outcome_tensors(outcome)}
        named = {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
        return {**named, "epochs": torch.tensor(self.epochs), "rows": torch.from_numpy(rows)}

    @classmethod
    def from_tensors(
        cls,
        task: Task,
        members: Sequence[Member],
        tensors: dict[str, Tensor],
        create: Callable[[Sequence[Member]], Population],
    ) -> Lockstep:
        """Return the training whose `tensors` these are; `create` puts members on the device."""
        expected = Curves.empty(len(members), task.epochs, task.evaluate).arrays()
        stored = part_of(tensors, "curves")
        _check_form(stored, {name: torch.from_numpy(array) for name, array in expected.items()})
        curves = Curves.from_arrays({name: stored[name].numpy() for name in expected})  # files sort their names
        outcomes: list[tuple[NDArray[np.int64], Trained]] = []
        while stopped := part_of(tensors, f"stopped {len(outcomes)}"):
            rows = stopped["rows"].numpy()
            networks = tuple(task.method_of(members[row]).networks for row in rows)
            outcomes.append((rows, _outcome(curves.take(rows), networks, stopped)))
        rows, epochs = tensors["rows"].numpy(), int(tensors["epochs"])
        all_rows = np.sort(np.concatenate([rows, *(own for own, _ in outcomes)]))
        if not 0 < epochs <= task.epochs or not np.array_equal(all_rows, np.arange(len(members))):
            raise ValueError("its epochs or its members are not those of the training")
        population = None
        if len(rows):
            population = create([members[row] for row in rows]).at_rows(rows)
            _check_form(part_of(tensors, "population"), population.state())
            population.load_state(part_of(tensors, "population"))
        return cls(curves, population, outcomes, epochs)


def _check_form(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise unless tensors have the names, types and shapes of others."""
    forms = [{name: (each.dtype, each.shape) for name, each in group.items()} for group in (tensors, expected)]
    if forms[0] != forms[1]:
        different = sorted(name for name in {**forms[0], **forms[1]} if forms[0].get(name) != forms[1].get(name))
        raise ValueError(f"{different[0]!a} has another type or shape")


def _outcome_tensors(outcome: Trained) -> dict[str, Tensor]:
    """Return the tensors of an outcome, without its curves."""
    dynamics = {f"dynamics/{name}": torch.from_numpy(array.copy()) for name, array in outcome.dynamics.arrays().items()}
    state = {f"state/{name}": tensor for name, tensor in outcome.state.items()}
    best = {f"best/{name}": tensor for name, tensor in (outcome.best_state or {}).items()}
    return {**dynamics, **state, **best}


def _outcome(curves: Curves, networks_per_member: tuple[int, ...], tensors: dict[str, Tensor]) -> Trained:
    dynamics = Dynamics(**{name: tensor.numpy() for name, tensor in part_of(tensors, "dynamics").items()})
    best = part_of(tensors, "best") or None
    return Trained(curves, dynamics, part_of(tensors, "state"), networks_per_member, best)


class TaskCheckpoints:
    """The checkpoints of all populations of one task.

    Args:
        task: the task; nothing is ever written unless it has `checkpoints`.
        clock: returns seconds.
    """

    def __init__(self, task: Task, clock: Callable[[], float] = time.monotonic) -> None:
        self.task, self.clock = task, clock
        self.began = clock()
        self.cost = 0.0  # seconds that the last file took
        self.names: set[str] = set()
        self.warned = False

    def begin(self) -> None:
        """Start a training, of one population or of several."""
        self.began = self.clock()

    def end(self) -> None:
        """Remove the files of a training that is finished."""
        for name in self.names:
            if self.task.checkpoints is not None:
                self.task.checkpoints.remove(name)
        self.names.clear()

    def of(self, members: Sequence[Member], *, alone: bool) -> PopulationCheckpoint:
        """Return the checkpoint of a population; `alone` if the training has no other one."""
        return PopulationCheckpoint(self, members, alone=alone)

    @cached_property
    def data_digest(self) -> str:
        """A digest of all data of the task."""
        task = self.task
        truth = () if task.train.clean_labels is None else (task.train.clean_labels.tobytes(),)
        parts = [task.train, *task.evaluate.values(), *(() if task.clean is None else (task.clean,))]
        return _digest([*task.evaluate, task.score, fingerprint(*parts), *truth])


class PopulationCheckpoint:
    """The checkpoint of one population; see `TaskCheckpoints`."""

    def __init__(self, shared: TaskCheckpoints, members: Sequence[Member], *, alone: bool) -> None:
        self._shared, self._members, self._alone = shared, members, alone
        self._last = shared.clock()  # when training began or was last written

    def restored(self, create: Callable[[Sequence[Member]], Population]) -> Lockstep | None:
        """Return the training as it was last written; None if it was not. `create` puts members on the device."""
        checkpoints, task = self._shared.task.checkpoints, self._shared.task
        if checkpoints is None or not checkpoints.any_stored():
            return None
        tensors = checkpoints.read(self._name)
        if tensors is None:
            return None
        try:
            lockstep = Lockstep.from_tensors(task, self._members, tensors, create)
        except torch.OutOfMemoryError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError) as problem:
            log.warning("a checkpoint could not be used (%s); training from the beginning", first_line(problem))
            return None
        self._shared.names.add(self._name)
        log.warning("continuing %d members after epoch %d of %d", len(self._members), lockstep.epochs, task.epochs)
        return lockstep

    def save_if_due(self, lockstep: Lockstep) -> None:
        """Write the training if the last time is long enough ago; a failure costs a warning, never the training."""
        checkpoints = self._shared.task.checkpoints
        if checkpoints is None or not self._is_due(checkpoints, lockstep):
            return
        began, problem = self._shared.clock(), ""
        if lockstep.population is not None and not lockstep.population.resumable:
            problem = "the optimizer has no methods `state` and `load_state`"
        else:
            try:
                checkpoints.write(self._name, lockstep.tensors())
                self._shared.names.add(self._name)
            except Exception as reason:
                problem = first_line(reason)
        self._last = self._shared.clock()
        self._shared.cost = self._last - began
        if problem and not self._shared.warned:
            log.warning("no checkpoint was written: %s; a killed training may start from the beginning", problem)
            self._shared.warned = True

    def _is_due(self, checkpoints: Checkpoints, lockstep: Lockstep) -> bool:
        """A finished population is written before the next one, since it need not be trained again then."""
        now, finished = self._shared.clock(), lockstep.population is None
        if finished and (self._alone or now - self._shared.began < checkpoints.interval):
            return False
        interval = 0.0 if finished else checkpoints.interval
        return now - self._last >= pause(interval, self._shared.cost, checkpoints.max_share)

    @cached_property
    def _name(self) -> str:
        """A digest of all that the training depends on."""
        task, members = self._shared.task, self._members
        network = StackedNetworks(task.network, [members[0].seed], torch.device("cpu"))
        described: list[str | bytes] = [
            FORMAT,
            __version__,
            torch.__version__,
            task.device.type,
            self._shared.data_digest,
            network.architecture,
            *(f"{item.name}={getattr(task, item.name)!r}" for item in fields(task) if item.name not in NOT_IN_NAME),
            *(name for name in network.tensors()),
            *(tensor.view(torch.uint8).numpy().tobytes() for tensor in network.state().values()),
        ]
        for member in members:
            described += [repr((member.seed, member.learning_rate, task.method_of(member), task.optimizer_of(member)))]
            arrays = (member.schedule, member.labels, member.transition, member.held_out)
            described += ["none" if array is None else array.tobytes() for array in arrays]
        return _digest(described)


def _digest(parts: Sequence[str | bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()[:32]
