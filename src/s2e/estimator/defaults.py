"""How long to train, in batches of what size, where nobody says: from the number of samples. Pure."""

from __future__ import annotations

ROUNDS = 5
"""Generations to search: of six schedules, the default sampler has then found what random search finds with 300."""

LARGEST_BATCH, SMALLEST_BATCH = 128, 16
STEPS_OF_AN_EPOCH = 10
"""At least, where the samples are that many: in fewer, larger batches networks hardly learn."""

STEPS = 8_000
"""Of a training: about as many as the reference networks take to learn what is easy, and then to memorise."""

FEWEST_EPOCHS, MOST_EPOCHS = 40, 200
"""Schedules fall over the first tens of epochs, whatever their number."""


def batch_size_for(samples: int) -> int:
    """Return a power of two that leaves ten steps in an epoch, from 16 to 128; never more than the samples."""
    size = LARGEST_BATCH
    while size > SMALLEST_BATCH and samples < STEPS_OF_AN_EPOCH * size:
        size //= 2
    return max(1, min(size, samples))


def epochs_for(samples: int, batch_size: int) -> int:
    """Return the epochs that come to about 8,000 steps, from 40 to 200."""
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, STEPS // max(1, samples // batch_size)))
