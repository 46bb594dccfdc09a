"""G networks of one architecture as one tensor program: their weights stacked, their forward pass one call.

| name | shape | what |
|---|---|---|
| parameters | {name: (G, ...)} | trained weights of all networks, leaves of autograd |
| buffers | {name: (G, ...)} | what a module keeps beside its weights, such as running statistics of batch norm |
| logits | (G, B, C) | outputs of all networks on one shared batch |

On an accelerator the forward pass is vectorised over networks (`torch.func.vmap`). On a CPU, where that gains nothing,
and for modules that cannot be vmapped, it is a loop over networks. Both give the same results.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, jvp, vmap

from s2e.engine.optimizers import Rows
from s2e.errors import InvalidInput, first_line
from s2e.networks.factories import Factory

log = logging.getLogger(__name__)

_ONE_AT_A_TIME = Lock()
"""Held where threads would share what torch and Python have only one of: the random state, the warning filters."""


class Peek(NamedTuple):
    """Logits of some networks, apart from the training step."""

    logits: Tensor  # (R, B, C)
    leaves: list[Tensor]  # the weights the logits can be differentiated by


class Population:
    """G independent networks, network g initialised from `seeds[g]`.

    Args:
        factory: returns a fresh module that maps (B, ...) to (B, C).
        seeds: G seeds; a network depends on its own seed alone, never on its place or company.
        device: where the stacked tensors live.
        vectorize: True to vmap, False to loop over networks, None to choose by the device.
    """

    def __init__(
        self, factory: Factory, seeds: Sequence[int], device: torch.device, *, vectorize: bool | None = None
    ) -> None:
        self._factory = factory
        self.seeds = tuple(seeds)
        self.device = device
        self.vectorized = device.type != "cpu" if vectorize is None else vectorize
        modules = [_seeded(factory, seed) for seed in seeds]
        self._template = modules[0].to(device)
        self._tied = _tied_names(modules[0])
        trained = {name for name, parameter in modules[0].named_parameters() if parameter.requires_grad}
        if not trained:
            raise InvalidInput("`network` must have trainable parameters, but got a module without any.")
        stacked = _stacked(modules, device)
        self.parameters = {name: stacked[name].requires_grad_() for name in stacked if name in trained}
        self.buffers = {name: stacked[name] for name in stacked if name not in trained}
        # Each network's own weights, for the loop: same storage as the stacked ones, leaves of their own.
        self._rows = [
            {name: tensor.detach()[row].requires_grad_() for name, tensor in self.parameters.items()}
            for row in range(len(seeds))
        ]
        self._modules: list[nn.Module] = []
        self._tried = False
        self._forwards = 0

    def __len__(self) -> int:
        return len(self.seeds)

    def forward(self, inputs: Tensor, *, training: bool) -> Tensor:
        """Return the logits (G, B, C) of all networks on a shared batch (B, ...)."""
        if self._template.training != training:
            for module in (self._template, *self._modules):
                module.train(training)
        if not self._tried:
            return self._first_forward(inputs)
        return self._forward_once(inputs)

    def gradients(self, loss: Tensor) -> list[Rows]:
        """Return, for each parameter, the gradients of a scalar by its G rows: a tensor (G, ...), or G tensors.

        Networks do not touch each other, so the gradient of a sum over networks is everyone's own gradient.
        """
        if self.vectorized:
            return [*torch.autograd.grad(loss, list(self.parameters.values()), materialize_grads=True)]
        leaves = [row[name] for name in self.parameters for row in self._rows]
        flat = torch.autograd.grad(loss, leaves, materialize_grads=True)
        rows = [flat[first : first + len(self)] for first in range(0, len(flat), len(self))]
        return [each if self.device.type == "cpu" else torch.stack(each) for each in rows]

    def take(self, rows: Sequence[int]) -> Population:
        """Return a population of some of the networks, in this order, as they are now."""
        seeds = [self.seeds[row] for row in rows]
        taken = Population(self._factory, seeds, self.device, vectorize=self.vectorized)
        taken.load({name: tensor.detach()[list(rows)] for name, tensor in self.tensors().items()})
        taken._tried, taken._forwards = self._tried, self._forwards
        return taken

    def restart(self, seeds: Sequence[int]) -> None:
        """Begin anew with networks from other seeds, in the same tensors."""
        self.seeds, self._forwards = tuple(seeds), 0
        self.load(_stacked([_seeded(self._factory, seed) for seed in seeds], self.device))

    def peek(self, rows: slice, inputs: Tensor) -> Peek:
        """Pass a batch (B, ...) through some of the networks without changing them, in training or evaluation mode."""
        if self.vectorized:
            weights = {name: tensor.detach()[rows].requires_grad_() for name, tensor in self.parameters.items()}
            return Peek(self._vmapped(inputs, weights, self._copied_buffers(rows)), [*weights.values()])
        leaves = [row[name] for row in self._rows[rows] for name in self.parameters]
        return Peek(self._looped(inputs, range(len(self))[rows], self._copied_buffers(rows)), leaves)

    def change_along(self, rows: slice, inputs: Tensor, direction: Sequence[Tensor]) -> Tensor:
        """Differentiate the logits of some networks along a direction of their weights, (R, B, C): one forward pass.

        Args:
            rows: which networks.
            inputs: (B, ...).
            direction: one tensor for each of `Peek.leaves`.
        """
        names = list(self.parameters)
        buffers = {name: tensor[rows] for name, tensor in self.buffers.items()}
        if self.vectorized:
            weights = {name: tensor.detach()[rows] for name, tensor in self.parameters.items()}
            along = dict(zip(names, direction, strict=True))
            return _change(lambda given, kept: self._vmapped(inputs, given, kept), weights, along, buffers)
        changes = []
        for place, row in enumerate(range(len(self))[rows]):
            own = {name: tensor[place] for name, tensor in buffers.items()}
            weights = {name: tensor.detach() for name, tensor in self._rows[row].items()}
            along = dict(zip(names, direction[place * len(names) :], strict=False))
            self._seed_draws(row, self._forwards - 1)  # those of the batch's own forward pass
            changes.append(_change(lambda given, kept: self._call(given, kept, inputs), weights, along, own))
        return torch.stack(changes)

    def state(self) -> dict[str, Tensor]:
        """Return weights and buffers of all networks, {name: (G, ...)}, detached and on the CPU."""
        return {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.tensors().items()
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return weights and buffers of all networks, {name: (G, ...)}, as they are used."""
        return {**self.parameters, **self.buffers}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over weights and buffers of G networks, {name: (G, ...)}."""
        for name, tensor in self.tensors().items():
            tensor.copy_(state[name])

    def _forward_once(self, inputs: Tensor) -> Tensor:
        if self.vectorized:
            return self._vmapped(inputs, self.parameters, self.buffers)
        if not self._modules:
            self._modules = [self._module(row) for row in range(len(self))]
        logits = []
        for row, module in enumerate(self._modules):
            self._seed_draws(row, self._forwards)
            logits.append(module(inputs))
        self._forwards += self._template.training
        return torch.stack(logits)

    def _module(self, row: int) -> nn.Module:
        """Return one network as a module whose tensors are rows of the stacked ones: no swapping for every pass."""
        module = copy.deepcopy(self._template)
        tensors = {**self._rows[row], **{name: tensor[row] for name, tensor in self.buffers.items()}}
        for name, tied_to in self._tied.items():
            tensors[name] = tensors[tied_to]
        for name, tensor in tensors.items():
            path, _, own = name.rpartition(".")
            holder = module.get_submodule(path)
            held = holder._parameters if own in holder._parameters else holder._buffers
            held[own] = tensor  # type: ignore[assignment]
        return module

    def _vmapped(self, inputs: Tensor, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> Tensor:
        def call(own_parameters: Mapping[str, Tensor], own_buffers: Mapping[str, Tensor]) -> Tensor:
            return self._call(own_parameters, own_buffers, inputs)

        logits: Tensor = vmap(call, randomness="different")(parameters, buffers)
        return logits

    def _looped(self, inputs: Tensor, rows: range, buffers: Mapping[str, Tensor]) -> Tensor:
        logits = []
        for place, row in enumerate(rows):
            self._seed_draws(row, self._forwards)
            own = {name: tensor[place] for name, tensor in buffers.items()}
            logits.append(self._call(self._rows[row], own, inputs))
        return torch.stack(logits)

    def _seed_draws(self, row: int, forwards: int) -> None:
        """Make what a network draws on a CPU (dropout) its own, whoever else is in the population."""
        if self._template.training and self.device.type == "cpu":
            with _ONE_AT_A_TIME:  # another thread may be drawing initial weights from the one random state there is
                torch.default_generator.manual_seed((self.seeds[row] + 0x9E3779B97F4A7C15 * forwards) % 2**63)

    def _copied_buffers(self, rows: slice) -> dict[str, Tensor]:
        return {name: tensor[rows].clone() for name, tensor in self.buffers.items()}

    def _call(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        tensors = {**parameters, **buffers}
        for name, tied_to in self._tied.items():
            tensors[name] = tensors[tied_to]
        # Ties are known once and for all; looking for them anew would take as long as a small network.
        logits: Tensor = functional_call(self._template, tensors, (inputs,), tie_weights=False)
        return logits

    def _first_forward(self, inputs: Tensor) -> Tensor:
        """Try the vectorised pass and fall back to the loop."""
        before = copy.deepcopy(self.buffers)
        try:
            logits = self._forward_once(inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as problem:
            if not self.vectorized:
                raise
            log.warning("this network cannot be vectorised over members (%s); looping over them", first_line(problem))
            self.vectorized = False
            self.buffers = before
            logits = self._forward_once(inputs)
        self._tried = True
        return logits


class BestEpochs:
    """Copies of the networks as they were at the best epoch of the member they belong to.

    Args:
        population: G networks.
        networks: how many of them belong to each of the P members.
    """

    def __init__(self, population: Population, networks: Sequence[int] | NDArray[np.int64]) -> None:
        self._population = population
        self._owners = np.repeat(np.arange(len(networks)), networks)  # (G,)
        self._best = np.full(len(networks), -np.inf)
        self._copies = {name: tensor.detach().clone() for name, tensor in population.tensors().items()}

    def update(self, scores: NDArray[np.float64]) -> None:
        """Take over the networks of members that score better than ever, (P,); of equal epochs the first stays."""
        improved = scores > self._best
        self._best = np.where(improved, scores, self._best)
        rows = torch.from_numpy(np.flatnonzero(improved[self._owners])).to(self._population.device)
        for name, tensor in self._population.tensors().items():
            self._copies[name][rows] = tensor.detach()[rows]

    def take(self, members: NDArray[np.int64], population: Population) -> BestEpochs:
        """Return the copies of some members, whose networks are this population now."""
        taken = BestEpochs(population, np.bincount(self._owners)[members])
        rows = torch.from_numpy(np.flatnonzero(np.isin(self._owners, members))).to(population.device)
        taken._best = self._best[members]
        taken._copies = {name: tensor[rows] for name, tensor in self._copies.items()}
        return taken

    def state(self) -> dict[str, Tensor]:
        """Return the copies, {name: (G, ...)}, on the CPU."""
        return {name: tensor.cpu().contiguous() for name, tensor in self._copies.items()}


def _seeded(factory: Factory, seed: int) -> nn.Module:
    """Build one network from its own seed, leaving the caller's random state alone."""
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return factory()


def _stacked(modules: Sequence[nn.Module], device: torch.device) -> dict[str, Tensor]:
    """Return weights and buffers of modules as one tensor each, {name: (G, ...)}.

    Contiguous even for channels-last weights: the fused optimizer reads storages, not strides.
    """
    states = [dict([*module.named_parameters(), *module.named_buffers()]) for module in modules]
    return {name: torch.stack([state[name].detach().to(device) for state in states]).contiguous() for name in states[0]}


def _change(
    logits: Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Tensor],
    weights: dict[str, Tensor],
    direction: dict[str, Tensor],
    buffers: dict[str, Tensor],
) -> Tensor:
    """Jacobian-vector product of logits by the weights; modules write to copies of the buffers, made on the way."""

    def of(given: Mapping[str, Tensor]) -> Tensor:
        return logits(given, {name: tensor.clone() for name, tensor in buffers.items()})

    # One thread at a time: torch counts how deep products are nested for the whole process, not for each thread.
    with _ONE_AT_A_TIME, torch.no_grad():
        _prepare_forward_differentiation()
        change: Tensor = jvp(of, (weights,), (direction,))[1]
    return change


@cache
def _prepare_forward_differentiation() -> None:
    """Let torch load what it needs, once, without the warning about a part of its own that it gives while doing so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jvp(torch.sin, (torch.zeros(()),), (torch.zeros(()),))


def _tied_names(module: nn.Module) -> dict[str, str]:
    """Return further names of tensors a module holds under several, {name: first name}."""
    first: dict[int, str] = {}
    tied = {}
    for name, tensor in [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]:
        if first.setdefault(id(tensor), name) != name:
            tied[name] = first[id(tensor)]
    return tied
