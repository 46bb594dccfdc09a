"""One Co-teaching pair of convolutional networks in plain PyTorch, written for speed: compared by `speed.py large`.

Augmentation, both networks in bfloat16 (autocast, channels last), losses and the exchange of small losses are one
function, which torch compiles as a whole, without graph breaks. A step gathers a batch from data on the device, calls
this function, differentiates its loss and updates all weights by one fused SGD. It evaluates nothing and keeps no
records.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from plain_methods import LEARNING_RATE, exchanged
from s2e.engine import Task
from s2e.engine.augmentation import draw_all
from s2e.engine.batches import scaled
from s2e.engine.optimizers import SGD
from s2e.engine.training import augmentation_draws, batch_order

MODES = ("reduce-overhead", "max-autotune", "default", "none")
"""Modes of `torch.compile`; "none" to run the function without compiling it."""


class PlainPair:
    """Two networks that select samples for each other.

    Args:
        task: what the engine trains, with images, augmentation and SGD; the batches of its first epoch are repeated.
        keep: samples of a batch to keep.
        mode: one of `MODES`.
        precision: of convolutions and linear layers, by autocast.

    Attributes:
        networks: the two networks.
    """

    def __init__(self, task: Task, keep: int, mode: str, precision: torch.dtype = torch.bfloat16) -> None:
        inputs, labels = (torch.from_numpy(each) for each in (task.train.inputs, task.train.labels))
        self._inputs, self._labels = inputs.to(task.device), labels.to(task.device)
        order = batch_order(task, 0)
        draws = augmentation_draws(task, 0, len(order))
        self._batches = [
            (index.to(task.device), own.to(task.device))
            for index, own in zip(order.split(task.batch_size), draws.split(task.batch_size), strict=True)
        ]
        self._next = 0
        self._widths = [
            draw_all([each], 1, task.train.sample_shape, torch.Generator()).shape[1] for each in task.augmentation
        ]
        self.networks = [task.network().to(task.device, memory_format=torch.channels_last) for _ in range(2)]
        self._optimizer = _fused_sgd(self.networks, task)
        self._task, self._keep, self._precision = task, keep, precision
        self._on_graphs = mode in ("reduce-overhead", "max-autotune")
        compiled = mode != "none"
        self._loss = torch.compile(self._plain_loss, mode=mode, fullgraph=True) if compiled else self._plain_loss

    def run(self, steps: int) -> None:
        """Train both networks on a number of batches."""
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
            for _ in range(steps):
                self._step()

    def _step(self) -> None:
        index, draws = self._batches[self._next]
        self._next = (self._next + 1) % len(self._batches)
        if self._on_graphs:  # results of the last step may be overwritten
            torch.compiler.cudagraph_mark_step_begin()
        self._optimizer.zero_grad()
        self._loss(self._inputs.index_select(0, index), self._labels.index_select(0, index), draws).backward()
        self._optimizer.step()

    def _plain_loss(self, pixels: Tensor, labels: Tensor, draws: Tensor) -> Tensor:
        """Return the sum of the losses of both networks, each on the samples that the other one selects.

        Args:
            pixels: (B, channels, height, width).
            labels: (B,)
            draws: (B, k) random numbers of the augmentations.
        """
        images, first = scaled(pixels), 0
        for augmentation, width in zip(self._task.augmentation, self._widths, strict=True):
            images = augmentation.apply(images, draws[:, first : first + width])
            first += width
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self._task.device.type, self._precision, enabled=self._precision != torch.float32):
            logits = [network(images) for network in self.networks]
        losses = [functional.cross_entropy(each.float(), labels, reduction="none") for each in logits]
        return exchanged(losses, self._keep)


def _fused_sgd(networks: list[torch.nn.Module], task: Task) -> torch.optim.SGD:
    """Return one optimizer of all weights, with the settings of the task."""
    if not isinstance(settings := task.optimizer, SGD):
        raise TypeError(f"`optimizer` of the task must be SGD, but got {settings!r}.")
    return torch.optim.SGD(
        [weight for network in networks for weight in network.parameters()],
        lr=LEARNING_RATE,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
        fused=True,
    )
