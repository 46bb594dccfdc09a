"""Augmentation on the device: random changes of training images, the same for all members of a step.

Random numbers are drawn on the CPU for a whole epoch, so they are the same on every device. The changes themselves are
tensor operations inside the training step. Networks are evaluated, and predict, without them.

Letters: B batch, S steps of an epoch, k random numbers of a sample, H height and W width of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from s2e.engine.batches import scaled
from s2e.engine.compiled.materialise import materialised
from s2e.errors import InvalidInput, InvalidType, raise_all, unknown_name
from s2e.networks import ChannelStatistics
from s2e.specs import NO_AUGMENTATION, convert_options, count_problem, option_converters, parse_named_options

SAMPLES_PER_CHUNK = 4096
"""Samples that are converted to float64 at a time when statistics of all samples are computed."""


@runtime_checkable
class Augmentation(Protocol):
    """A random change of images; immutable, and equal to others with the same settings."""

    def draw(self, count: int, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        """Return the random numbers of some images, (count, k) int64 on the CPU.

        Args:
            count: number of images.
            shape: (channels, H, W); raise `InvalidInput` if images of this shape cannot be changed.
            generator: the only source of randomness.
        """

    def apply(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Return the changed images, (B, channels, H, W).

        On a GPU this is traced, compiled and captured as a CUDA graph: no shape and no decision in Python may depend on
        the values of a tensor.

        Args:
            inputs: (B, channels, H, W) float32, not to be changed in place.
            draws: (B, k) what `draw` returned for these images, on their device.
        """


@dataclass(frozen=True)
class Crop:
    """Add a border of zeros, then cut out a part of the original size at a random position.

    Args:
        padding: width of the border in pixels, less than the shorter side.
    """

    padding: int = 4

    def __post_init__(self) -> None:
        raise_all([count_problem("padding", self.padding)])

    def draw(self, count: int, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        """Return the position of the part in the image with its border: row and column from 0 to twice the padding."""
        side = min(shape[1:])
        if self.padding >= side:
            raise InvalidInput(
                f"`padding` of crop must be less than the shorter side of the images, {side} pixels, "
                f"but got {self.padding}."
            )
        return torch.randint(2 * self.padding + 1, (count, 2), generator=generator)

    def apply(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Gather the pixels of the part; those outside the image are 0."""
        height, width = inputs.shape[2:]
        first = draws - self.padding  # (B, 2)
        rows = first[:, :1] + torch.arange(height, device=inputs.device)  # (B, H)
        columns = first[:, 1:] + torch.arange(width, device=inputs.device)  # (B, W)
        inside = _grid_and((rows >= 0) & (rows < height), (columns >= 0) & (columns < width))  # (B, 1, H, W)
        pixels = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]  # (B, H, W)
        index = pixels.flatten(1)[:, None].expand(-1, inputs.shape[1], -1)  # (B, channels, H * W)
        moved: Tensor = inputs.flatten(2).gather(2, index).unflatten(2, (height, width))
        return moved.masked_fill(~inside, 0.0)


@dataclass(frozen=True)
class Flip:
    """Mirror every second image, on average, from left to right."""

    def draw(self, count: int, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return 1 for images to mirror, 0 for others."""
        return torch.randint(2, (count, 1), generator=generator)

    def apply(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Mirror the images whose number is 1."""
        return torch.where((draws > 0)[:, :, None, None], inputs.flip(3), inputs)


@dataclass(frozen=True)
class Cutout:
    """Set a square around a random pixel to 0 in all channels (DeVries and Taylor, 2017).

    The part of the square that lies outside the image is cut off.

    Args:
        size: side of the square in pixels, at most the shorter side of the images.
    """

    size: int = 8

    def __post_init__(self) -> None:
        raise_all([count_problem("size", self.size)])

    def draw(self, count: int, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        """Return row and column of the centre, uniform over the image."""
        side = min(shape[1:])
        if self.size > side:
            raise InvalidInput(
                f"`size` of cutout must not exceed the shorter side of the images, {side} pixels, but got {self.size}."
            )
        return torch.cat([torch.randint(length, (count, 1), generator=generator) for length in shape[1:]], dim=1)

    def apply(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """Set the square whose first row and column are half its size before the centre to 0."""
        first = draws - self.size // 2  # (B, 2)
        rows = torch.arange(inputs.shape[2], device=inputs.device) - first[:, :1]  # (B, H), in the square from 0
        columns = torch.arange(inputs.shape[3], device=inputs.device) - first[:, 1:]  # (B, W)
        square = _grid_and((rows >= 0) & (rows < self.size), (columns >= 0) & (columns < self.size))
        return inputs.masked_fill(square, 0.0)


def _grid_and(rows: Tensor, columns: Tensor) -> Tensor:
    """Return where both hold, (B, 1, H, W), for conditions on rows (B, H) and on columns (B, W)."""
    return (rows[:, :, None] & columns[:, None, :]).unsqueeze(1)


# ------------------------------------------------------------------------------------------------------ names


AUGMENTATIONS: dict[str, type[Crop] | type[Flip] | type[Cutout]] = {"crop": Crop, "flip": Flip, "cutout": Cutout}
"""Every augmentation by its name; the fields of its class are its options. Each has at most one."""

NORMALIZE = "normalize"
"""Name of the normalisation by channel, which is chosen together with augmentations but holds in evaluation too."""


class ChosenAugmentation(NamedTuple):
    """Augmentations in the order in which they are applied, and whether networks normalise channels."""

    augmentation: tuple[Augmentation, ...]
    normalize: bool


def augmentation_of(augment: str | Any) -> ChosenAugmentation:
    """Return the augmentations.

    Args:
        augment: "none", or a list of names such as "crop:padding=4,flip,normalize"; or a sequence of such names and of
            objects with the interface `Augmentation`, or one such object.
    """
    if isinstance(augment, str):
        entries: Sequence[Any] = [] if augment.strip() == NO_AUGMENTATION else augment.split(",")
    else:
        entries = augment if isinstance(augment, (list, tuple)) else [augment]
    if NO_AUGMENTATION in [entry.strip() for entry in entries if isinstance(entry, str)]:
        raise InvalidInput(f"`augment` must be {NO_AUGMENTATION} or a list of others, but got {augment!r}.")
    chosen = [_single(entry) for entry in entries]
    return ChosenAugmentation(tuple(each for each in chosen if each is not None), any(each is None for each in chosen))


def _single(entry: str | Any) -> Augmentation | None:
    """Return one augmentation by its name, or an object as it is; None for "normalize"."""
    if isinstance(entry, str):
        name, options = parse_named_options("augment", entry)
        if name == NORMALIZE:
            convert_options("augment", name, options, {})
            return None
        if name not in AUGMENTATIONS:
            raise unknown_name("augment", name, [*AUGMENTATIONS, NORMALIZE, NO_AUGMENTATION])
        kind = AUGMENTATIONS[name]
        return kind(**convert_options("augment", name, options, option_converters(kind)))
    if isinstance(entry, type) or not isinstance(entry, Augmentation):
        found = f"the class {entry.__name__}" if isinstance(entry, type) else type(entry).__name__
        raise InvalidType(
            f"`augment` must hold names or objects with the interface `s2e.Augmentation`, such as Crop() of "
            f"`s2e.engine.augmentation`, but got {found}."
        )
    return entry


# --------------------------------------------------------------------------------------------------- checks


def check_images(sample_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the shape of a sample, or raise `InvalidInput` if samples are not images."""
    if len(sample_shape) != 3:
        raise InvalidInput(
            f"`augment` must be none for data that are not images of shape (channels, height, width), "
            f"but samples have the shape {sample_shape}."
        )
    channels, height, width = sample_shape
    return channels, height, width


def _found(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def check_augmentation(augmentation: Sequence[Augmentation], sample_shape: tuple[int, ...]) -> None:
    """Raise `InvalidInput` if samples of a shape cannot be augmented."""
    for each in augmentation:
        shape = check_images(sample_shape)
        draws: Any = each.draw(2, shape, torch.Generator().manual_seed(0))  # what a user's object returns
        if not isinstance(draws, Tensor) or draws.dtype != torch.int64 or draws.ndim != 2 or len(draws) != 2:
            raise InvalidInput(
                f"`draw` of augmentation {each!r} must return int64 of shape (count, k), "
                f"but got {_found(draws)} for 2 images."
            )
        applied: Any = each.apply(torch.zeros(2, *shape), draws)
        if not isinstance(applied, Tensor) or applied.dtype != torch.float32 or applied.shape != (2, *shape):
            raise InvalidInput(
                f"`apply` of augmentation {each!r} must return float32 of shape {(2, *shape)} like the images, "
                f"but got {_found(applied)}."
            )


# ------------------------------------------------------------------------------------------------ in the step


def draw_all(
    augmentation: Sequence[Augmentation], count: int, sample_shape: tuple[int, ...], generator: torch.Generator
) -> Tensor:
    """Return the random numbers of all augmentations side by side, (count, k)."""
    shape = check_images(sample_shape)
    return torch.cat([each.draw(count, shape, generator) for each in augmentation], dim=1)


class BatchAugmentation:
    """Changes the batches of an epoch, one after the other.

    `augmented` can be captured in a CUDA graph: the step is counted on the device, and the random numbers of an epoch
    are written to a tensor whose address never changes.

    Args:
        augmentation: at least one.
        sample_shape: (channels, H, W).
        batch_size: B.
        steps: S.
        device: device of the batches.
    """

    def __init__(
        self,
        augmentation: Sequence[Augmentation],
        sample_shape: tuple[int, ...],
        batch_size: int,
        steps: int,
        device: torch.device,
    ) -> None:
        shape, generator = check_images(sample_shape), torch.Generator().manual_seed(0)
        self._augmentation = augmentation
        self._widths = [each.draw(1, shape, generator).shape[1] for each in augmentation]
        self._draws = torch.zeros(steps, batch_size, sum(self._widths), dtype=torch.int64, device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)

    def begin_epoch(self, draws: Tensor) -> None:
        """Copy the random numbers of an epoch, (S * B, k), to the device and start before its first batch."""
        self._draws.copy_(draws.view_as(self._draws))
        self._step.fill_(-1)

    def augmented(self, inputs: Tensor) -> Tensor:
        """Return the images of the next batch, (B, channels, H, W), changed."""
        self._step += 1
        draws = self._draws.index_select(0, self._step).squeeze(0)  # (B, k)
        for each, own in zip(self._augmentation, draws.split(self._widths, dim=1), strict=True):
            inputs = each.apply(inputs, own)
        return materialised(inputs)


# ----------------------------------------------------------------------------------------------- normalisation


def channel_statistics(inputs: NDArray[Any]) -> ChannelStatistics:
    """Return mean and standard deviation of every channel of images (N, channels, H, W), uint8 ones scaled to [0, 1].

    The standard deviation of a constant channel is given as 1, so that it can be divided by.
    """
    chunks = torch.from_numpy(inputs).split(SAMPLES_PER_CHUNK)
    count = inputs.size // inputs.shape[1]
    total = sum(scaled(chunk).double().sum(dim=(0, 2, 3)) for chunk in chunks)
    mean = (torch.as_tensor(total) / count)[:, None, None]  # (channels, 1, 1)
    squares = sum((scaled(chunk).double() - mean).square().sum(dim=(0, 2, 3)) for chunk in chunks)
    std = (torch.as_tensor(squares) / count).sqrt().numpy()
    return ChannelStatistics(tuple(mean.flatten().tolist()), tuple(np.where(std > 0, std, 1.0).tolist()))
