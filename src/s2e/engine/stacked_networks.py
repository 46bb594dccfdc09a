"""G networks of one architecture as one tensor program: their weights stacked, their forward pass one call.

| name | shape | what |
|---|---|---|
| parameters | {name: (G, ...)} | trained weights of all networks, leaves of autograd |
| buffers | {name: (G, ...)} | other tensors of a module, such as running statistics of batch norm, and frozen weights |
| logits | (G, B, C) | outputs of all networks on one shared batch |

On an accelerator the forward pass is vectorised over networks (`torch.func.vmap`). On a CPU it is one operation for
each layer of all networks, if the network is a sequence of common layers (`stacked_layers`), since an operation takes
longer to start than a small layer to compute. Otherwise, and for modules that vmap does not support, it is a loop over
networks. All give the same results up to rounding.
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

from s2e.engine.aligned_rows import aligned_rows
from s2e.engine.compiled.torch_internals import set_module_tensor
from s2e.engine.optimizers import Rows
from s2e.engine.precision import forward_precision
from s2e.engine.stacked_layers import Pass, stacked_forward
from s2e.errors import InvalidInput, first_line
from s2e.networks import RANDOM_STATE_LOCK, Factory, isolated_random_state

log = logging.getLogger(__name__)

_GLOBAL_STATE_LOCK = Lock()
"""Held while using global state of the process that threads share: nested derivatives, Python's warning filters."""


class StatelessForward(NamedTuple):
    """Outcome of a forward pass of R networks that changes none of their buffers."""

    logits: Tensor  # (R, B, C)
    leaves: list[Tensor]  # the weights by which the logits can be differentiated


class StackedNetworks:
    """G independent networks of one architecture, network g initialised from `seeds[g]`.

    Args:
        factory: returns a new module that maps (B, ...) to (B, C).
        seeds: G seeds; a network depends on its own seed only, not on its index or on other networks.
        device: device of the stacked tensors.
        vectorize: True to use vmap, False to loop over networks, None to decide by the device and the network.
        precision: number formats of products in forward passes; see `precision`. Logits are float32.
    """

    def __init__(
        self,
        factory: Factory,
        seeds: Sequence[int],
        device: torch.device,
        *,
        vectorize: bool | None = None,
        precision: str = "auto",
    ) -> None:
        self._factory = factory
        self.seeds = tuple(seeds)
        self.device = device
        modules = [_seeded(factory, seed) for seed in seeds]
        self._template = modules[0].to(device)
        self._tied = _tied_names(modules[0])
        self._layers = None
        if vectorize is None and device.type == "cpu" and not self._tied and precision != "bfloat16":
            self._layers = stacked_forward(self._template)
        self._vectorize, self._precision = vectorize, precision
        self.vectorized = device.type != "cpu" or self._layers is not None if vectorize is None else vectorize
        trained = {name for name, parameter in modules[0].named_parameters() if parameter.requires_grad}
        if not trained:
            raise InvalidInput("`network` must have trainable parameters, but got a module without any.")
        stacked = _stacked(modules, device)
        if self._layers is not None:
            stacked = {name: aligned_rows(tensor) for name, tensor in stacked.items()}
        self.parameters = {name: stacked[name].requires_grad_() for name in stacked if name in trained}
        self.buffers = {name: stacked[name] for name in stacked if name not in trained}
        # Weights of each network, for the loop: views of the stacked ones, but separate leaves of autograd.
        self._rows = [
            {name: tensor.detach()[row].requires_grad_() for name, tensor in self.parameters.items()}
            for row in range(len(seeds))
        ]
        self._modules: list[nn.Module] = []
        self._tried = False
        self._forwards = 0

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def layered(self) -> bool:
        """Whether the forward pass is one operation for each layer of all networks, on a CPU."""
        return self._layers is not None

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

        Networks are independent, so the gradient of a sum over networks holds the gradient of each network's own term.
        """
        if self.vectorized:
            return [*torch.autograd.grad(loss, list(self.parameters.values()), materialize_grads=True)]
        leaves = [row[name] for name in self.parameters for row in self._rows]
        flat = torch.autograd.grad(loss, leaves, materialize_grads=True)
        rows = [flat[first : first + len(self)] for first in range(0, len(flat), len(self))]
        return [each if self.device.type == "cpu" else torch.stack(each) for each in rows]

    def take(self, rows: Sequence[int]) -> StackedNetworks:
        """Return a copy of some of the networks, in the given order, in their current state."""
        seeds = [self.seeds[row] for row in rows]
        vectorize = self._vectorize if self.vectorized else False
        taken = StackedNetworks(self._factory, seeds, self.device, vectorize=vectorize, precision=self._precision)
        taken.load({name: tensor.detach()[list(rows)] for name, tensor in self.tensors().items()})
        taken._tried, taken._forwards = self._tried, self._forwards
        return taken

    def reinitialize(self, seeds: Sequence[int]) -> None:
        """Initialise the networks again from other seeds, in place."""
        self.seeds, self._forwards = tuple(seeds), 0
        self.load(_stacked([_seeded(self._factory, seed) for seed in seeds], self.device))

    def stateless_forward(self, rows: slice, inputs: Tensor) -> StatelessForward:
        """Return the logits of some networks on a batch (B, ...) in the current mode, without changing buffers."""
        if self.vectorized:
            weights = {name: tensor.detach()[rows].requires_grad_() for name, tensor in self.parameters.items()}
            logits = self._forward_stacked(inputs, weights, self._copied_buffers(rows), self.seeds[rows])
            return StatelessForward(logits, [*weights.values()])
        leaves = [row[name] for row in self._rows[rows] for name in self.parameters]
        return StatelessForward(self._looped(inputs, range(len(self))[rows], self._copied_buffers(rows)), leaves)

    def directional_derivative(self, rows: slice, inputs: Tensor, direction: Sequence[Tensor]) -> Tensor:
        """Differentiate the logits of R networks along a direction of their weights, (R, B, C), in one forward pass.

        Args:
            rows: the R networks.
            inputs: (B, ...).
            direction: one tensor for each of `StatelessForward.leaves`.
        """
        names = list(self.parameters)
        buffers = {name: tensor[rows] for name, tensor in self.buffers.items()}
        if self.vectorized:
            weights = {name: tensor.detach()[rows] for name, tensor in self.parameters.items()}
            tangents = dict(zip(names, direction, strict=True))
            seeds, forwards = (
                self.seeds[rows],
                self._forwards - 1,
            )  # the same draws as in the training step's forward pass

            def logits(primals: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> Tensor:
                return self._forward_stacked(inputs, primals, kept, seeds, forwards)

            return _jvp(logits, weights, tangents, buffers)
        derivatives = []
        for position, row in enumerate(range(len(self))[rows]):
            own = {name: tensor[position] for name, tensor in buffers.items()}
            weights = {name: tensor.detach() for name, tensor in self._rows[row].items()}
            tangents = dict(zip(names, direction[position * len(names) :], strict=False))
            self._seed_dropout(row, self._forwards - 1)  # the same draws as in the training step's forward pass
            derivatives.append(_jvp(lambda primals, kept: self._call(primals, kept, inputs), weights, tangents, own))
        return torch.stack(derivatives)

    def state(self) -> dict[str, Tensor]:
        """Return weights and buffers of all networks, {name: (G, ...)}, detached and on the CPU."""
        return {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.tensors().items()
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return weights and buffers of all networks, {name: (G, ...)}, without copying."""
        return {**self.parameters, **self.buffers}

    @property
    def architecture(self) -> str:
        """The modules of a network with their settings, as text."""
        return str(self._template)

    def training_state(self) -> dict[str, Tensor]:
        """Return all that further training depends on, on the CPU: `state`, forward passes so far, random state."""
        with RANDOM_STATE_LOCK:
            random = {"random/cpu": torch.default_generator.get_state()}
        if self.device.type == "cuda":
            random["random/cuda"] = torch.cuda.get_rng_state(self.device)
        weights = {f"weights/{name}": tensor for name, tensor in self.state().items()}
        return {**weights, **random, "forwards": torch.tensor(self._forwards)}

    def load_training_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `training_state` returned, in place."""
        self.load({name: state[f"weights/{name}"] for name in self.tensors()})
        self._forwards = int(state["forwards"])
        with RANDOM_STATE_LOCK:  # another thread may be drawing initial weights
            torch.default_generator.set_state(state["random/cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random/cuda"], self.device)

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy weights and buffers of G networks, {name: (G, ...)}, into the stacked tensors."""
        for name, tensor in self.tensors().items():
            tensor.copy_(state[name])

    def _forward_once(self, inputs: Tensor) -> Tensor:
        if self.vectorized:
            logits_of_all = self._forward_stacked(inputs, self.parameters, self.buffers, self.seeds)
            self._forwards += self._template.training
            return logits_of_all
        if not self._modules:
            self._modules = [self._module(row) for row in range(len(self))]
        logits = []
        for row, module in enumerate(self._modules):
            self._seed_dropout(row, self._forwards)
            with forward_precision(self._precision, self.device):
                logits.append(module(inputs).float())
        self._forwards += self._template.training
        return torch.stack(logits)

    def _module(self, row: int) -> nn.Module:
        """Return one network as a module whose tensors are rows of the stacked ones, so no pass has to swap tensors."""
        module = copy.deepcopy(self._template)
        tensors = {**self._rows[row], **{name: tensor[row] for name, tensor in self.buffers.items()}}
        for name, tied_to in self._tied.items():
            tensors[name] = tensors[tied_to]
        for name, tensor in tensors.items():
            set_module_tensor(module, name, tensor)
        return module

    def _forward_stacked(
        self,
        inputs: Tensor,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        seeds: Sequence[int],
        forwards: int | None = None,
    ) -> Tensor:
        """Return the logits of R networks with these weights and seeds; they draw as in the given forward pass."""
        if self._layers is None:
            return self._vmapped(inputs, parameters, buffers)
        training, generators = self._template.training, []
        if self._layers.draws and training:
            forwards = self._forwards if forwards is None else forwards
            generators = [torch.Generator().manual_seed(_dropout_seed(seed, forwards)) for seed in seeds]
        return self._layers(inputs, Pass({**parameters, **buffers}, training, generators))

    def _vmapped(self, inputs: Tensor, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> Tensor:
        def call(own_parameters: Mapping[str, Tensor], own_buffers: Mapping[str, Tensor]) -> Tensor:
            return self._call(own_parameters, own_buffers, inputs, vectorized=True)

        logits: Tensor = vmap(call, randomness="different")(parameters, buffers)
        return logits

    def _looped(self, inputs: Tensor, rows: range, buffers: Mapping[str, Tensor]) -> Tensor:
        logits = []
        for position, row in enumerate(rows):
            self._seed_dropout(row, self._forwards)
            own = {name: tensor[position] for name, tensor in buffers.items()}
            logits.append(self._call(self._rows[row], own, inputs))
        return torch.stack(logits)

    def _seed_dropout(self, row: int, forwards: int) -> None:
        """Seed the random state on a CPU, so that a network's draws (dropout) do not depend on other networks."""
        if self._template.training and self.device.type == "cpu":
            with RANDOM_STATE_LOCK:  # another thread may be drawing initial weights
                torch.default_generator.manual_seed(_dropout_seed(self.seeds[row], forwards))

    def _copied_buffers(self, rows: slice) -> dict[str, Tensor]:
        return {name: tensor[rows].clone() for name, tensor in self.buffers.items()}

    def _call(
        self,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        inputs: Tensor,
        *,
        vectorized: bool = False,
    ) -> Tensor:
        tensors = {**parameters, **buffers}
        for name, tied_to in self._tied.items():
            tensors[name] = tensors[tied_to]
        # The ties are known; searching for them in every call would take as long as a small network.
        with forward_precision(self._precision, self.device, vectorized=vectorized):
            logits: Tensor = functional_call(self._template, tensors, (inputs,), tie_weights=False)
        return logits.float()

    def _first_forward(self, inputs: Tensor) -> Tensor:
        """Try the vectorised pass; if it does not support the network, switch to the loop."""
        before = copy.deepcopy(self.buffers)
        try:
            logits = self._forward_once(inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as problem:
            if not self.vectorized:
                raise
            if self._layers is None:
                log.warning("this network cannot be vectorised with vmap (%s); using a loop", first_line(problem))
            self.vectorized, self._layers = False, None
            self.buffers = before
            logits = self._forward_once(inputs)
        self._tried = True
        return logits


class BestEpochs:
    """Copies of the networks at the best epoch of their member.

    Args:
        networks: G networks.
        networks_per_member: P counts that sum to G; networks of a member are adjacent.
    """

    def __init__(self, networks: StackedNetworks, networks_per_member: Sequence[int] | NDArray[np.int64]) -> None:
        self._networks = networks
        self._members = np.repeat(np.arange(len(networks_per_member)), networks_per_member)  # (G,) member of a network
        self._best = np.full(len(networks_per_member), -np.inf)
        self._copies = {name: tensor.detach().clone() for name, tensor in networks.tensors().items()}

    def update(self, scores: NDArray[np.float64]) -> None:
        """Copy the networks of members whose score, (P,), exceeds all earlier ones; ties keep the earlier epoch."""
        improved = scores > self._best
        self._best = np.where(improved, scores, self._best)
        rows = torch.from_numpy(np.flatnonzero(improved[self._members])).to(self._networks.device)
        for name, tensor in self._networks.tensors().items():
            self._copies[name][rows] = tensor.detach()[rows]

    def take(self, members: NDArray[np.int64], networks: StackedNetworks) -> BestEpochs:
        """Return the copies of some members, which continue as the given networks."""
        taken = BestEpochs(networks, np.bincount(self._members)[members])
        rows = torch.from_numpy(np.flatnonzero(np.isin(self._members, members))).to(networks.device)
        taken._best = self._best[members]
        taken._copies = {name: tensor[rows] for name, tensor in self._copies.items()}
        return taken

    @property
    def scores(self) -> NDArray[np.float64]:
        """Scores of the best epochs, (P,)."""
        return self._best

    def state(self) -> dict[str, Tensor]:
        """Return the copies, {name: (G, ...)}, on the CPU."""
        return {name: tensor.cpu().contiguous() for name, tensor in self._copies.items()}

    def load_state(self, state: Mapping[str, Tensor], scores: NDArray[np.float64]) -> None:
        """Continue from what `state` and `scores` were."""
        self._best = scores
        for name, tensor in self._copies.items():
            tensor.copy_(state[name])


def _seeded(factory: Factory, seed: int) -> nn.Module:
    """Build one network from its seed without changing the caller's random state."""
    with isolated_random_state():
        torch.default_generator.manual_seed(seed)
        return factory()


def _dropout_seed(seed: int, forwards: int) -> int:
    """Return the seed of a network's random numbers in one forward pass, given the number of passes before it."""
    return (seed + 0x9E3779B97F4A7C15 * forwards) % 2**63


def _stacked(modules: Sequence[nn.Module], device: torch.device) -> dict[str, Tensor]:
    """Stack weights and buffers of G modules, {name: (G, ...)}.

    Contiguous even for channels-last weights: the fused optimizer reads storages and ignores strides.
    """
    states = [dict([*module.named_parameters(), *module.named_buffers()]) for module in modules]
    return {name: torch.stack([state[name].detach().to(device) for state in states]).contiguous() for name in states[0]}


def _jvp(
    logits: Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Tensor],
    weights: dict[str, Tensor],
    direction: dict[str, Tensor],
    buffers: dict[str, Tensor],
) -> Tensor:
    """Return the Jacobian-vector product of logits by the weights; modules write to copies of the buffers."""

    def logits_of(primals: Mapping[str, Tensor]) -> Tensor:
        return logits(primals, {name: tensor.clone() for name, tensor in buffers.items()})

    # One thread at a time: torch counts the nesting of these products per process, not per thread.
    with _GLOBAL_STATE_LOCK, torch.no_grad():
        _prepare_forward_differentiation()
        product: Tensor = jvp(logits_of, (weights,), (direction,))[1]
    return product


@cache
def _prepare_forward_differentiation() -> None:
    """Let torch import what it needs, once, without the deprecation warning that this import raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jvp(torch.sin, (torch.zeros(()),), (torch.zeros(()),))


def _tied_names(module: nn.Module) -> dict[str, str]:
    """Return the additional names of tensors that a module holds under several names, {name: first name}."""
    first: dict[int, str] = {}
    tied = {}
    for name, tensor in [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]:
        if first.setdefault(id(tensor), name) != name:
            tied[name] = first[id(tensor)]
    return tied
