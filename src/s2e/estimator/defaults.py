"""Default number of epochs and batch size, by the number of samples."""

from __future__ import annotations

LARGEST_BATCH, SMALLEST_BATCH = 128, 16
STEPS_PER_EPOCH = 10
"""Fewest steps in an epoch, if there are enough samples; with fewer, networks hardly learn."""

STEPS = 4_000
"""Steps of a training: about the number in which the reference networks learn easy patterns and then memorise."""

FEWEST_EPOCHS, MOST_EPOCHS = 40, 100
"""Schedules fall over the first tens of epochs, whatever their number."""


def batch_size_for(samples: int) -> int:
    """Return a power of two from 16 to 128 that leaves ten steps in an epoch, but no more than the samples."""
    size = LARGEST_BATCH
    while size > SMALLEST_BATCH and samples < STEPS_PER_EPOCH * size:
        size //= 2
    return max(1, min(size, samples))


def epochs_for(samples: int, batch_size: int) -> int:
    """Return the number of epochs, from 40 to 100, that makes about 4,000 steps."""
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, STEPS // max(1, samples // batch_size)))
