"""Images as square pixels of one size: measured from their headers, decoded in order by a few threads.

The largest centred square of an image is resized to S × S (what resizing the shorter side to S and cropping the centre
gives), and written into its row of one array made beforehand.

Letters: N images, C channels, S side.
"""

from __future__ import annotations

import io
import logging
import math
import os
import statistics
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from s2e.errors import InvalidInput, UnreadableData, listed

if TYPE_CHECKING:
    from PIL.Image import Image

    from s2e.data.samples import Array

logger = logging.getLogger(__name__)

BUDGET = 2**30
"""How many bytes all inputs together may take, unless told otherwise."""

SMALLEST_SIDE, LARGEST_SIDE = 16, 64
"""Bounds of a side that is chosen here; a side that is asked for may be any."""

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")  # whatever a file is named, no other decoder is let near it

UPRIGHT = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270"}
UPRIGHT |= {7: "TRANSVERSE", 8: "ROTATE_90"}
"""How to turn an image upright, by the orientation that its EXIF data note."""

THREADS = min(4, os.cpu_count() or 1)
LARGE = 2**22
"""Pixels above which images are decoded one at a time, so that the threads together hold one large image at most."""

_LARGE_IMAGE = Lock()

StoredImage: TypeAlias = Path | bytes
"""An encoded image: its file, or what the file holds."""

Made = TypeVar("Made")


@dataclass(frozen=True)
class Header:
    """What is known of an image before it is decoded."""

    shorter_side: int
    grey: bool


@dataclass(frozen=True)
class Broken:
    """Why an image cannot be used."""

    reason: str


def read_images(paths: Iterable[str | os.PathLike[str]], side: int, channels: int) -> Array:
    """Read image files as `read_image_folder` does, in the order given, uint8 (N, C, S, S); for prediction.

    Colour becomes grey where C is 1, and grey becomes colour where it is 3. Broken files are refused, all at once.
    """
    pillow()
    stored = [Path(path) for path in paths]
    if channels not in (1, 3):
        raise InvalidInput(f"`channels` must be 1 (grey) or 3 (colour), but got {channels}.")
    _check_side(side)
    inputs, broken = decode_images(stored, len(stored), side, channels)
    if broken:
        which = listed([f"{stored[position]} ({reason})" for position, reason in broken.items()])
        raise UnreadableData(
            f"every file must be an image that decodes, but {len(broken)} of {len(stored)} do not: {which}; "
            f"replace or leave out those files."
        )
    return inputs


def pillow() -> ModuleType:
    """Return Pillow's module of images; what only reads tables does without it."""
    try:
        import PIL.Image
    except ImportError as error:
        raise UnreadableData("Reading images needs Pillow; install it with: pip install 's2e[images]'") from error
    return PIL.Image


# Shape


def choose_side(shorter_sides: Sequence[int], images: int, channels: int, side: int | None, budget: int) -> int:
    """Return S: the one asked for, or the median of the shorter sides within 16..64; N·C·S² must not exceed the budget.

    A side that is not asked for shrinks with the budget, down to 16.
    """
    fitting = math.isqrt(max(budget, 0) // (images * channels))  # the largest S with N·C·S² ≤ budget
    if side is None:
        median = min(max(statistics.median_low(shorter_sides), SMALLEST_SIDE), LARGEST_SIDE)
        wanted = max(min(median, fitting), SMALLEST_SIDE)
        if wanted < median:
            logger.info("images become %d pixels wide instead of %d, to stay within the budget", wanted, median)
    else:
        wanted = side
        _check_side(side)
    if wanted > fitting:
        smaller = f"a `side` of at most {fitting}, " if fitting else ""
        raise InvalidInput(
            f"all images together must fit into a `budget` of {budget} bytes, but {images} of {wanted} x {wanted} "
            f"pixels and {channels} channel(s) take {images * channels * wanted**2}; "
            f"pass {smaller}a larger budget, or fewer images."
        )
    return wanted


def _check_side(side: int) -> None:
    if side < 1:
        raise InvalidInput(f"`side` must be at least 1 pixel, but got {side}.")


# Images


def measure_images(stored: Iterable[StoredImage]) -> list[Header | Broken]:
    """Return the header of every image, in order."""

    def measure(image: Image) -> Header:
        with _turn(image):
            return Header(min(image.size), _is_grey(image))

    return list(_in_order(measure, stored))


def decode_images(stored: Iterable[StoredImage], count: int, side: int, channels: int) -> tuple[Array, dict[int, str]]:
    """Decode `count` images into one array.

    Returns:
        The images that decode, uint8 (N, C, S, S), in order; and why the others do not, by position.
    """

    def decode(image: Image) -> Array:
        image.draft(None, (2 * side, 2 * side))  # JPEG files can be decoded at 1/2, 1/4 or 1/8 of their size
        with _turn(image):
            return as_pixels(image, side, channels)

    inputs = np.empty((count, channels, side, side), dtype=np.uint8)
    broken: dict[int, str] = {}
    for position, outcome in enumerate(_in_order(decode, stored)):
        if isinstance(outcome, Broken):
            broken[position] = outcome.reason
        else:
            inputs[position - len(broken)] = outcome
    return inputs[: count - len(broken)], broken


def _turn(image: Image) -> AbstractContextManager[object]:
    """Wait until no other large image is in memory, if this one is large."""
    return _LARGE_IMAGE if math.prod(image.size) > LARGE else nullcontext()


def as_pixels(image: Image, side: int, channels: int) -> Array:
    """Return the largest centred square of an image resized to S × S, upright and on white, uint8 (C, S, S)."""
    images = pillow()
    image.load()
    orientation = _orientation(image)
    (width, height), square = image.size, min(image.size)
    box = ((width - square) / 2, (height - square) / 2, (width + square) / 2, (height + square) / 2)
    # The filter is a triangle as wide as the step between two pixels of the result, so shrinking does not alias.
    small = _resizable(image).resize((side, side), images.Resampling.BILINEAR, box)
    if small.mode.startswith("I"):
        levels = np.asarray(small).astype(np.float64) / 257  # 65535 = 257 · 255
        small = images.fromarray(np.rint(levels).astype(np.uint8))
    if small.mode in ("LA", "RGBA"):
        small = images.alpha_composite(images.new("RGBA", small.size, "white"), small.convert("RGBA"))
    if orientation in UPRIGHT:  # a centred square stays one when it is turned, so the small image is turned
        small = small.transpose(images.Transpose[UPRIGHT[orientation]])
    pixels = np.asarray(small.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(side, side, channels).transpose(2, 0, 1)  # (C, S, S)


def _resizable(image: Image) -> Image:
    """Return the image in a mode whose values can be averaged: indices of a palette, for example, cannot."""
    if image.mode.startswith("I;16"):
        return image
    if image.mode == "I":
        lowest, highest = image.getextrema()
        if lowest < 0 or highest >= 2**16:  # type: ignore[operator]
            raise ValueError("32-bit pixels have no known range; save it with 8 or 16 bits")
        return image
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range; save it with 8 or 16 bits")
    grey = image.mode in ("1", "L", "LA", "La")
    if image.has_transparency_data:
        return image.convert("LA" if grey else "RGBA")
    return image.convert("L" if grey else "RGB")


def _is_grey(image: Image) -> bool:
    if image.mode == "P":
        palette = np.array(image.getpalette("RGB") or [], dtype=np.uint8).reshape(-1, 3)
        return bool((palette == palette[:, :1]).all())
    return image.mode in ("1", "L", "LA", "La", "I", "F") or image.mode.startswith("I;16")


def _orientation(image: Image) -> int:
    """Return how the camera was held; the image must be loaded, for some formats are turned upright by that."""
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # what a camera noted may be damaged in any way; the pixels are not
        return 1


def _in_order(use: Callable[[Image], Made], stored: Iterable[StoredImage]) -> Iterator[Made | Broken]:
    """Open every image and yield what `use` makes of it, in order; a few threads work a few images ahead."""
    images = pillow()

    def attempt(one: StoredImage) -> Made | Broken:
        try:
            with images.open(io.BytesIO(one) if isinstance(one, bytes) else one, formats=FORMATS) as image:
                return use(image)
        except Exception as error:  # the bytes of a damaged image can make a decoder raise anything
            return Broken(_reason(one, error))

    ahead: deque[Future[Made | Broken]] = deque()
    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as pool:
        warnings.simplefilter("ignore", UserWarning)  # remarks on what is odd in a file that decodes all the same
        warnings.simplefilter("error", images.DecompressionBombWarning)
        for one in stored:
            ahead.append(pool.submit(attempt, one))
            if len(ahead) > 2 * THREADS:  # or the whole folder would wait in memory for whoever takes the images
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _reason(one: StoredImage, error: Exception) -> str:
    """Say why an image could not be used, in a few words without its path."""
    from PIL import UnidentifiedImageError

    images = pillow()
    if isinstance(error, (images.DecompressionBombError, images.DecompressionBombWarning)):
        return f"more than {images.MAX_IMAGE_PIXELS} pixels"
    if isinstance(error, UnidentifiedImageError):
        empty = not one if isinstance(one, bytes) else one.stat().st_size == 0
        return "empty file" if empty else f"not a readable image ({', '.join(FORMATS)})"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason or type(error).__name__
