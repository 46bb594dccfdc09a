"""One training step of a whole population, run eagerly, or compiled and replayed as a CUDA graph.

Everything that changes while a graph replays (batch order, keep counts, learning rates, sums) lives in device tensors
that are written in place; everything a graph reads is an attribute here, and so outlives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from s2e.engine.batches import Feed
from s2e.engine.compiled.materialise import written_down
from s2e.engine.cuda_graphs import Replayed
from s2e.engine.optimizers import StackedAdam
from s2e.engine.recorder import Observed, Recorder
from s2e.engine.stacked_networks import Population
from s2e.methods import Batch, Method, Need, Objective

STEPS_AT_ONCE = 8
"""Steps in the longer of the two graphs a step is captured in."""


@dataclass(frozen=True, eq=False)
class Part:
    """Members next to each other that are trained by one method.

    Attributes:
        method: weighs their samples.
        members: their places among the P members.
        networks: the places of their networks among the G of the population.
        transition: (p, C, C) for methods that need it.
    """

    method: Method
    members: slice
    networks: slice
    transition: Tensor | None = None

    @property
    def size(self) -> int:
        """Return p, the number of members."""
        return self.members.stop - self.members.start  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class CleanSamples:
    """Where the clean batches of methods that need them come from: a feed, and the labels (V,) on the device."""

    feed: Feed
    labels: Tensor


class Lockstep:
    """All members of a population, one batch at a time.

    Args:
        population: G networks, those of a member next to each other.
        parts: the members by method, in the order of their networks.
        optimizer: updates the stacked parameters.
        feed: hands out batches.
        labels: (P, N) given labels on the device.
        recorder: what to remember of each step.
        clean: where clean batches come from, for methods that need them.
        use_graph: replay the step as a CUDA graph where the device can.
        fuse: compile the step first; for networks that are vectorised.
    """

    def __init__(
        self,
        population: Population,
        parts: Sequence[Part],
        optimizer: StackedAdam,
        feed: Feed,
        labels: Tensor,
        recorder: Recorder,
        *,
        clean: CleanSamples | None = None,
        use_graph: bool = True,
        fuse: bool = False,
    ) -> None:
        self._population, self._parts, self._optimizer = population, parts, optimizer
        self._feed, self._labels, self._recorder, self._clean = feed, labels, recorder, clean
        self._keep = torch.zeros(len(labels), dtype=torch.int64, device=labels.device)
        self._keep_rate = torch.zeros(len(labels), dtype=torch.float64, device=labels.device)
        self._epoch = torch.zeros((), dtype=torch.int64, device=labels.device)
        self._some_rest = any(part.method.may_select_nothing for part in parts)
        self._replayed: Replayed | None = None
        if use_graph and labels.is_cuda:
            if fuse:
                from s2e.engine.compiled.trace import (
                    warm_up,  # the compiler takes seconds to load, and not everyone needs it
                )

                warm_up()
            self._replayed = Replayed(self._step, fuse=lambda: fuse and population.vectorized, at_once=STEPS_AT_ONCE)

    @property
    def captured(self) -> bool:
        """Whether the step is a CUDA graph by now, which would serve other members of the same kind as well."""
        return self._replayed is not None and self._replayed.captured

    def begin_epoch(self, epoch: Epoch) -> None:
        """Set what holds during an epoch."""
        self._optimizer.plan(epoch.learning_rate_factor, epoch.beta1)
        self._epoch.fill_(epoch.number)
        self._keep.copy_(epoch.keep)
        self._keep_rate.copy_(epoch.keep_rate)
        self._feed.begin_epoch(epoch.order)
        if self._clean is not None and epoch.clean_order is not None:
            self._clean.feed.begin_epoch(epoch.clean_order)
        self._recorder.begin_epoch(epoch.number, epoch.order, epoch.steps)

    def run(self, steps: int) -> None:
        """Train every member on the next batches, so many of them."""
        feeds = [self._feed] if self._clean is None else [self._feed, self._clean.feed]
        if self._replayed is not None and all(feed.advances_itself for feed in feeds):
            self._replayed(steps)
            return
        for _ in range(steps):
            for feed in feeds:
                feed.advance()
            (self._replayed or self._step)()

    def _step(self) -> None:
        inputs, index = self._feed.batch()
        clean = None
        if self._clean is not None:
            clean_inputs, clean_index = self._clean.feed.batch()
            clean = (clean_inputs, self._clean.labels.index_select(0, clean_index))
        labels = written_down(self._labels.index_select(1, index))  # (P, B)
        flat = self._population.forward(inputs, training=True)  # (G, B, C)
        by_part = flat.split([part.size * part.method.networks for part in self._parts])
        observed = []
        for part, own in zip(self._parts, by_part, strict=True):
            logits = own.unflatten(0, (part.size, part.method.networks))  # (p, M, B, C)
            networks = None
            if clean is not None and Need.CLEAN_SAMPLES in part.method.needs:
                networks = PartNetworks(self._population, part, inputs, *clean)
            given, keep = labels[part.members], self._keep[part.members]
            rate = self._keep_rate[part.members]
            batch = Batch(logits, given, keep, rate, self._epoch, part.transition, networks)
            observed.append(Observed(part.method.objective(batch), logits.detach().argmax(dim=-1), given))
        self._recorder.record(index, observed)
        objectives = [one.objective for one in observed]
        loss = torch.stack([objective.loss.sum() for objective in objectives]).sum()
        self._optimizer.update(self._population.gradients(loss), self._stepping(objectives))

    def _stepping(self, objectives: Sequence[Objective]) -> Tensor | None:
        """Tell which of the G networks have something to be trained on; None for all."""
        if not self._some_rest:
            return None
        return torch.cat([objective.selected.any(dim=-1).flatten() for objective in objectives])


@dataclass(frozen=True, eq=False)
class Epoch:
    """What holds during an epoch.

    Attributes:
        number: from 0.
        order: (S * B,) the samples in the order they come, on the CPU.
        steps: S.
        keep: (P,) samples of a batch to keep.
        keep_rate: (P,) the share to keep.
        learning_rate_factor: on every learning rate.
        beta1: Adam's.
        clean_order: (S * V,) the clean samples in the order they come, where a method needs some.
    """

    number: int
    order: Tensor
    steps: int
    keep: Tensor
    keep_rate: Tensor
    learning_rate_factor: float
    beta1: float
    clean_order: Tensor | None = None


class PartNetworks:
    """The networks of one part in one step, as `Networks` of the methods' interface asks for them."""

    def __init__(
        self, population: Population, part: Part, inputs: Tensor, clean_inputs: Tensor, clean_labels: Tensor
    ) -> None:
        self._population, self._rows, self._inputs = population, part.networks, inputs
        self._shape = (part.size, part.method.networks)
        self.clean_labels = clean_labels
        self._peek = population.peek(part.networks, clean_inputs)

    def clean_logits(self) -> Tensor:
        """Return every network's logits of the clean samples, (p, M, V, C)."""
        logits: Tensor = self._peek.logits.unflatten(0, self._shape)
        return logits

    def change_along_gradient(self, loss: Tensor) -> Tensor:
        """Differentiate the logits of the training batch along the gradient of a loss of the clean logits."""
        direction = torch.autograd.grad(loss, self._peek.leaves, materialize_grads=True)
        change: Tensor = self._population.change_along(self._rows, self._inputs, direction).unflatten(0, self._shape)
        return change
