"""Encode images as inputs. Pure: arrays in, arrays out. Letters: N samples, H x W pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2e.errors import InvalidInput

if TYPE_CHECKING:
    from s2e.data.samples import Array

CHANNELS = (1, 3, 4)
"""Numbers of channels of an image."""

SMALLEST_SIDE = 4
"""A last axis of one of these lengths holds channels if the two axes before it are longer than this."""


@dataclass(frozen=True)
class ImageEncoder:
    """Encoder of images (N, H, W), (N, channels, H, W) or (N, H, W, channels); other arrays keep their axes.

    Attributes:
        shape: shape of one sample before encoding.
        pixels: whether samples are uint8, which networks receive divided by 255.
        centre: mean of all numbers; 0 for pixels and for numbers in [0, 1].
        scale: standard deviation of all numbers; 1 for these.
    """

    shape: tuple[int, ...]
    pixels: bool
    centre: float = 0.0
    scale: float = 1.0

    @classmethod
    def fit(cls, samples: Array) -> ImageEncoder:
        """Fit to samples (N, ...)."""
        shape, pixels = samples.shape[1:], samples.dtype == np.uint8
        low, high = (0, 1) if pixels or not samples.size else (samples.min(), samples.max())
        if (low >= 0 and high <= 1) or not np.isfinite(high - low):  # callers refuse numbers that are not finite
            return cls(shape, pixels)
        return cls(shape, pixels, float(samples.mean(dtype=np.float64)), float(samples.std(dtype=np.float64)) or 1.0)

    def encode(self, samples: Array) -> Array:
        """Return uint8 or float32 (N, channels, H, W), or (N, ...)."""
        if samples.shape[1:] != self.shape or (samples.dtype == np.uint8) != self.pixels:
            wanted = f"{'uint8' if self.pixels else 'numbers other than uint8'} of shape (N, {str(self.shape)[1:]}"
            raise InvalidInput(
                f"samples must be {wanted}, as in training, but got {samples.dtype} of shape {samples.shape}."
            )
        if not self.pixels:
            with np.errstate(over="ignore"):  # overflow gives infinity, which callers refuse
                samples = ((samples - self.centre) / self.scale).astype(np.float32)
        if len(self.shape) == 2:
            samples = samples[:, None]  # (N, 1, H, W)
        elif len(self.shape) == 3 and self.shape[2] in CHANNELS and min(self.shape[:2]) > SMALLEST_SIDE:
            samples = samples.transpose(0, 3, 1, 2)  # (N, channels, H, W)
        return np.ascontiguousarray(samples)
