"""Small images and a network for them."""

from __future__ import annotations

import numpy as np
from torch import nn

from s2e.data.samples import LabelledData

SHAPE = (2, 6, 9)


def images(samples: int = 96, *, wrong: float = 0.3, seed: int = 0) -> LabelledData:
    """Images of four classes, each with one bright row, with a share of wrong labels."""
    generator = np.random.default_rng(seed)
    clean = generator.permutation(np.arange(samples) % 4)
    pixels = generator.integers(0, 100, size=(samples, *SHAPE), dtype=np.uint8)
    pixels[np.arange(samples), :, clean + 1] += 100
    noisy = np.where(generator.random(samples) < wrong, (clean + 1) % 4, clean)
    return LabelledData(pixels, noisy, tuple("abcd"), clean_labels=clean)


def small_cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 7, 4))
