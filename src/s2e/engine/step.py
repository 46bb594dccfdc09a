"""One training step of all members, run eagerly, or compiled and replayed as a CUDA graph.

Everything that changes while a graph is replayed (batch order, keep counts, learning rates, sums) is in device tensors
that are written in place. Everything a graph reads is an attribute here, so it lives as long as the graph.

Letters: P members, p members of one method, M networks in a member, G networks in all, B batch, N samples, C classes,
S steps in an epoch, V clean samples in a batch, k random numbers of the augmentations of a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from s2e.engine.augmentation import BatchAugmentation
from s2e.engine.batches import BatchSource
from s2e.engine.compiled.materialise import materialised
from s2e.engine.compiled.torch_internals import start_compile_workers
from s2e.engine.cuda_graphs import CapturedFunction
from s2e.engine.evaluation import predicted_classes
from s2e.engine.optimizers import StackedOptimizer
from s2e.engine.recorder import Recorder, StepOutcome
from s2e.engine.stacked_networks import StackedNetworks
from s2e.methods import Batch, Method, Need, Objective, keep_count

STEPS_PER_GRAPH = 8
"""Steps in the longer of the two graphs in which a step is captured."""


@dataclass(frozen=True, eq=False)
class MethodGroup:
    """Adjacent members that are trained by one method.

    Attributes:
        method: how their samples are weighted.
        members: indices of these members among the P members.
        networks: indices of their networks among the G networks.
        transition: (p, C, C), for methods that need it.
        eligible: (p, N) bool, False for samples that a member holds out; None if there are none.
    """

    method: Method
    members: slice
    networks: slice
    transition: Tensor | None = None
    eligible: Tensor | None = None

    @property
    def size(self) -> int:
        """Return p, the number of members."""
        return self.members.stop - self.members.start  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class CleanSamples:
    """Clean samples for methods that train with them: a source of batches, and all labels on the device."""

    batches: BatchSource
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Epoch:
    """Settings of an epoch.

    Attributes:
        number: from 0.
        order: (S * B,) the samples in the order of training, on the CPU.
        steps: S.
        keep: (P,) samples of a batch to keep.
        keep_rate: (P,) share of a batch to keep.
        learning_rate_factor: factor on every learning rate.
        clean_order: (S * V,) the clean samples in the order of training, for methods that need them.
        draws: (S * B, k) random numbers of the augmentations of each sample in this order, on the CPU.
    """

    number: int
    order: Tensor
    steps: int
    keep: Tensor
    keep_rate: Tensor
    learning_rate_factor: float
    clean_order: Tensor | None = None
    draws: Tensor | None = None


class TrainingStep:
    """One step of all members on the next batch.

    Args:
        networks: G networks; those of a member are adjacent.
        groups: the members by method, in the order of their networks.
        optimizer: updates the stacked parameters.
        batches: source of training batches.
        labels: (P, N) given labels on the device.
        recorder: records each step.
        clean: clean samples, for methods that need them.
        augmentation: changes the training batches; None to train on them as they are. Clean samples are not changed.
        use_graph: replay the step as a CUDA graph if the labels are on a CUDA device.
        compile_step: compile the step before it is captured, if the networks are vectorised.
    """

    def __init__(
        self,
        networks: StackedNetworks,
        groups: Sequence[MethodGroup],
        optimizer: StackedOptimizer,
        batches: BatchSource,
        labels: Tensor,
        recorder: Recorder,
        *,
        clean: CleanSamples | None = None,
        augmentation: BatchAugmentation | None = None,
        use_graph: bool = True,
        compile_step: bool = False,
    ) -> None:
        self._networks, self._groups, self._optimizer = networks, groups, optimizer
        self._batches, self._labels, self._recorder, self._clean = batches, labels, recorder, clean
        self._augmentation = augmentation
        self._keep = torch.zeros(len(labels), dtype=torch.int64, device=labels.device)
        self._keep_rate = torch.zeros(len(labels), dtype=torch.float64, device=labels.device)
        self._epoch = torch.zeros((), dtype=torch.int64, device=labels.device)
        self._some_inactive = any(group.method.may_select_nothing for group in groups)
        self._captured: CapturedFunction | None = None
        if use_graph and labels.is_cuda:
            if compile_step:
                start_compile_workers()
            self._captured = CapturedFunction(
                self._step,
                should_compile=lambda: compile_step and networks.vectorized,
                runs_per_graph=STEPS_PER_GRAPH,
            )

    @property
    def captured(self) -> bool:
        """Whether the step has been captured as a CUDA graph, which can be reused for similar members."""
        return self._captured is not None and self._captured.captured

    def begin_epoch(self, epoch: Epoch) -> None:
        """Apply the settings of an epoch."""
        self._optimizer.scale_learning_rates(epoch.learning_rate_factor)
        self._epoch.fill_(epoch.number)
        self._keep.copy_(epoch.keep)
        self._keep_rate.copy_(epoch.keep_rate)
        self._batches.begin_epoch(epoch.order)
        if self._clean is not None and epoch.clean_order is not None:
            self._clean.batches.begin_epoch(epoch.clean_order)
        if self._augmentation is not None and epoch.draws is not None:
            self._augmentation.begin_epoch(epoch.draws)
        self._recorder.begin_epoch(epoch.number, epoch.order, epoch.steps)

    def run(self, steps: int) -> None:
        """Train every member on the next `steps` batches."""
        sources = [self._batches] if self._clean is None else [self._batches, self._clean.batches]
        if self._captured is not None and all(source.advances_itself for source in sources):
            self._captured(steps)
            return
        for _ in range(steps):
            for source in sources:
                source.advance()
            (self._captured or self._step)()

    def _step(self) -> None:
        inputs, index = self._batches.batch()
        if self._augmentation is not None:
            inputs = self._augmentation.augmented(inputs)
        clean = None
        if self._clean is not None:
            clean_inputs, clean_index = self._clean.batches.batch()
            clean = (clean_inputs, self._clean.labels.index_select(0, clean_index))
        labels = self._labels_of(index)  # (P, B)
        logits_of_all = self._networks.forward(inputs, training=True)  # (G, B, C)
        samples_last = self._networks.layered
        sizes = [group.size * group.method.networks for group in self._groups]
        by_group = _split_by_group(logits_of_all, sizes, samples_last=samples_last)
        outcomes = []
        for group, own in zip(self._groups, by_group, strict=True):
            logits = own.unflatten(0, (group.size, group.method.networks))  # (p, M, B, C)
            networks = None
            if clean is not None and Need.CLEAN_SAMPLES in group.method.needs:
                networks = GroupNetworks(self._networks, group, inputs, *clean)
            given, keep = labels[group.members], self._keep[group.members]
            rate = self._keep_rate[group.members]
            eligible = None
            if group.eligible is not None:
                eligible = materialised(group.eligible.index_select(1, index))  # (p, B)
                keep = keep_count(rate, eligible.sum(dim=-1))
            batch = Batch(logits, given, keep, rate, self._epoch, group.transition, networks, samples_last, eligible)
            predicted = predicted_classes(logits.detach(), samples_last=samples_last)
            outcomes.append(StepOutcome(group.method.objective(batch), predicted, given))
        self._recorder.record(index, outcomes)
        objectives = [outcome.objective for outcome in outcomes]
        sums = [objective.loss.sum() for objective in objectives]
        loss = sums[0] if len(sums) == 1 else torch.stack(sums).sum()
        self._optimizer.update(self._networks.gradients(loss), self._active(objectives))

    def _labels_of(self, index: Tensor) -> Tensor:
        """Return the labels of a batch (B,) of samples for every member, (P, B)."""
        if not self._networks.layered:
            return materialised(self._labels.index_select(1, index))
        if self._labels.stride(0) == 0:  # shared by all members: selecting columns would copy all labels first
            return self._labels[0].index_select(0, index).expand(len(self._labels), -1)
        return self._labels.index_select(1, index)

    def _active(self, objectives: Sequence[Objective]) -> Tensor | None:
        """Return which of the G networks have selected samples, (G,) bool; None for all."""
        if not self._some_inactive:
            return None
        return torch.cat([objective.selected.any(dim=-1).flatten() for objective in objectives])


def _split_by_group(logits: Tensor, sizes: list[int], *, samples_last: bool) -> list[Tensor]:
    """Split the logits (G, B, C) of all networks by the numbers of networks of each group."""
    if samples_last:
        # The gradient of a split is contiguous, whatever the methods do. It must have samples last as well: how a
        # product is rounded depends on the layout of its operands, and must not depend on the number of groups.
        return [own.mT for own in logits.mT.split(sizes)]
    return list(logits.split(sizes))


class GroupNetworks:
    """The networks of one method group in one step: `Networks` of the methods' interface."""

    def __init__(
        self,
        networks: StackedNetworks,
        group: MethodGroup,
        inputs: Tensor,
        clean_inputs: Tensor,
        clean_labels: Tensor,
    ) -> None:
        self._networks, self._rows, self._inputs = networks, group.networks, inputs
        self._shape = (group.size, group.method.networks)
        self.clean_labels = clean_labels
        self._clean_forward = networks.stateless_forward(group.networks, clean_inputs)

    def clean_logits(self) -> Tensor:
        """Return the logits of the clean samples, (p, M, V, C)."""
        logits: Tensor = self._clean_forward.logits.unflatten(0, self._shape)
        return logits

    def change_along_gradient(self, loss: Tensor) -> Tensor:
        """Differentiate the logits of the training batch along the gradient of a scalar of the clean logits."""
        direction = torch.autograd.grad(loss, self._clean_forward.leaves, materialize_grads=True)
        derivative = self._networks.directional_derivative(self._rows, self._inputs, direction)
        return derivative.unflatten(0, self._shape)  # type: ignore[no-any-return]
