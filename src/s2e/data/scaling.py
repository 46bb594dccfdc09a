"""Centre and scale numbers robustly. Pure. Letters: N rows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from s2e.data.samples import Array

NORMAL_IQR = 1.349
"""Interquartile range of the standard normal distribution, so that the scale estimates the standard deviation."""

COMPRESSED_BEYOND = 3.0
LARGEST = 1e300
"""Absolute value above which numbers count as infinite."""


def centre_and_scale(numbers: Array) -> tuple[Array, Array]:
    """Return the median and the scale of numbers (N, ...) along the first axis, (...); NaN is ignored.

    The scale is the standard deviation of a normal distribution with the same quartiles, or the root mean square
    deviation where the quartiles coincide. It is 0 where all values are equal and NaN where there are none.
    """
    numbers = np.asarray(numbers, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns that are all NaN
        lower, median, upper = np.nanquantile(numbers, (0.25, 0.5, 0.75), axis=0)
        largest = np.nanmax(np.abs(numbers - median), axis=0)
        root_mean_square = largest * np.sqrt(np.nanmean(((numbers - median) / largest) ** 2, axis=0))
    scale = (upper - lower) / NORMAL_IQR
    return median, np.where(scale > 0, scale, np.where(largest > 0, root_mean_square, largest))


def standardised(numbers: Array, centre: Array | float, scale: Array | float) -> Array:
    """Return z = (x − centre) / scale with outliers compressed and NaN as 0, in the shape of the numbers.

    |z| > c becomes c (1 + ln(|z| / c)), which is continuous, as is its slope, and monotonic.
    """
    with np.errstate(over="ignore"):
        z = np.where(np.isnan(numbers), 0.0, (numbers - centre) / scale)
    far = np.clip(np.abs(z) / COMPRESSED_BEYOND, 1.0, LARGEST)
    return np.asarray(np.clip(z, -COMPRESSED_BEYOND, COMPRESSED_BEYOND) * (1.0 + np.log(far)))
