"""Decode images to squares of one size, in order, with a few threads.

The largest centred square of an image is resized to S × S, which equals resizing the shorter side to S and cropping the
centre. The result is written into its row of a preallocated array.

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

from s2e.errors import InvalidInput, UnreadableData, first_line, listed
from s2e.files.memory import available_memory, in_gib
from s2e.files.regular import open_regular

if TYPE_CHECKING:
    from PIL.Image import Image

    from s2e.data.samples import Array

logger = logging.getLogger(__name__)

BUDGET = 2**30
"""Maximum number of bytes of all inputs together, where S is chosen from the images."""

SMALLEST_SIDE, LARGEST_SIDE = 16, 64
"""Bounds of S, where it is chosen from the images."""

COPIES = 2
"""Copies of the inputs in memory: as decoded, and split into training and validation."""

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")  # no other decoder is used, for any suffix

UPRIGHT = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270"}
UPRIGHT |= {7: "TRANSVERSE", 8: "ROTATE_90"}
"""Transposition that turns an image upright, by its EXIF orientation."""

THREADS = min(4, os.cpu_count() or 1)
LARGEST = 2**25
"""Number of pixels above which images are refused: decoding one takes up to 20 bytes for each pixel. JPEG files count
by the pixels that are decoded of them."""

LARGE = 2**22
"""Number of pixels above which images are decoded one at a time, to bound memory."""

_LARGE_IMAGE = Lock()

StoredImage: TypeAlias = Path | bytes
"""An encoded image: the path of its file, or the contents."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Header:
    """Properties of an image that are known before decoding."""

    shorter_side: int
    grey: bool


@dataclass(frozen=True)
class Broken:
    """Reason why an image cannot be decoded."""

    reason: str


def read_images(paths: Iterable[str | os.PathLike[str]], side: int, channels: int) -> Array:
    """Return image files as uint8 (N, C, S, S), in order; for prediction.

    Images are converted to grey if C is 1 and to colour if C is 3. All broken files are reported together.
    """
    stored = [Path(path) for path in paths]
    inputs, broken = decode_images(stored, len(stored), side, channels)
    if broken:
        which = listed(f"{stored[index]} ({reason})" for index, reason in broken.items())
        raise UnreadableData(
            f"all files must be images, but {len(broken)} of {len(stored)} cannot be decoded: {which}; "
            f"replace or remove those files."
        )
    return inputs


def pillow() -> ModuleType:
    """Return the module `PIL.Image`, an optional dependency."""
    try:
        import PIL.Image
    except ImportError as error:
        raise UnreadableData("Reading images needs Pillow; install it with: pip install 's2e[images]'") from error
    return PIL.Image


def choose_side(shorter_sides: Sequence[int], images: int, channels: int) -> int:
    """Return S: the median of the shorter sides within 16..64, or less, down to 16, so that N·C·S² fits `BUDGET`."""
    fitting = math.isqrt(BUDGET // (images * channels))  # the largest S with N·C·S² ≤ budget
    median = min(max(statistics.median_low(shorter_sides), SMALLEST_SIDE), LARGEST_SIDE)
    side = max(min(median, fitting), SMALLEST_SIDE)
    if side > fitting:
        raise InvalidInput(
            f"all images together must fit into {BUDGET} bytes, but {images} of {side} x {side} pixels and "
            f"{channels} channel(s) take {images * channels * side**2}; use fewer images."
        )
    if side < median:
        logger.info("images are resized to %d pixels instead of %d, to stay within %d bytes", side, median, BUDGET)
    return side


def check_side(side: int, images: int, channels: int) -> None:
    """Raise if images of a given S, as decoded and split, exceed the available memory."""
    size, available = COPIES * images * channels * side**2, available_memory()
    if available is not None and size > available:
        raise InvalidInput(
            f"`image_size` must be a side at which all images fit into memory, but {images} of {side} x {side} pixels "
            f"and {channels} channel(s) take {in_gib(size)} with the copy made by the split, and {in_gib(available)} "
            f"are available; pass a smaller one or use fewer images."
        )


def measure_images(stored: Iterable[StoredImage]) -> list[Header | Broken]:
    """Return the header of every image, in order."""

    def measure(image: Image) -> Header:
        with _large_image_lock(image):
            return Header(min(image.size), _is_grey(image))

    return list(_in_order(measure, stored))


def decode_images(stored: Iterable[StoredImage], count: int, side: int, channels: int) -> tuple[Array, dict[int, str]]:
    """Decode `count` images into one array.

    Returns:
        The decoded images, uint8 (N, C, S, S), in order, and why the others cannot be decoded, by index.
    """

    def decode(image: Image) -> Array:
        image.draft(None, (2 * side, 2 * side))  # JPEG files can be decoded at 1/2, 1/4 or 1/8 of their size
        if math.prod(image.size) > LARGEST:
            raise ValueError(f"more than {LARGEST:,} pixels; resize it")
        with _large_image_lock(image):
            return as_pixels(image, side, channels)

    inputs = np.empty((count, channels, side, side), dtype=np.uint8)
    broken: dict[int, str] = {}
    for index, outcome in enumerate(_in_order(decode, stored)):
        if isinstance(outcome, Broken):
            broken[index] = outcome.reason
        else:
            inputs[index - len(broken)] = outcome
    return inputs[: count - len(broken)], broken


def _large_image_lock(image: Image) -> AbstractContextManager[object]:
    """Return a lock that only one large image can hold."""
    return _LARGE_IMAGE if math.prod(image.size) > LARGE else nullcontext()


def as_pixels(image: Image, side: int, channels: int) -> Array:
    """Return the largest centred square of an image resized to S × S, upright and on white, uint8 (C, S, S)."""
    images = pillow()
    image.load()
    orientation = _orientation(image)
    (width, height), square = image.size, min(image.size)
    box = ((width - square) / 2, (height - square) / 2, (width + square) / 2, (height + square) / 2)
    # The triangle filter is as wide as the distance between two pixels of the result, which prevents aliasing.
    small = _resizable(image).resize((side, side), images.Resampling.BILINEAR, box)
    if small.mode.startswith("I"):
        levels = np.asarray(small).astype(np.float64) / 257  # 65535 = 257 · 255
        small = images.fromarray(np.rint(levels).astype(np.uint8))
    if small.mode in ("LA", "RGBA"):
        small = images.alpha_composite(images.new("RGBA", small.size, "white"), small.convert("RGBA"))
    if orientation in UPRIGHT:  # a centred square stays centred, so the small image can be turned
        small = small.transpose(images.Transpose[UPRIGHT[orientation]])
    pixels = np.asarray(small.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(side, side, channels).transpose(2, 0, 1)  # (C, S, S)


def _resizable(image: Image) -> Image:
    """Return the image in a mode whose values can be averaged, unlike palette indices."""
    if image.mode.startswith("I;16"):
        return image
    if image.mode == "I":
        lowest, highest = image.getextrema()
        if lowest < 0 or highest >= 2**16:  # type: ignore[operator]
            raise ValueError("the range of 32-bit pixels is unknown; save it with 8 or 16 bits")
        return image
    if image.mode == "F":
        raise ValueError("the range of floating-point pixels is unknown; save it with 8 or 16 bits")
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
    """Return the EXIF orientation. The image must be loaded, because loading turns some formats upright."""
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # damaged metadata can raise anything; the pixels are intact
        return 1


def _in_order(function: Callable[[Image], Result], stored: Iterable[StoredImage]) -> Iterator[Result | Broken]:
    """Open every image and yield the result of `function`, in order; a few threads work a few images ahead."""
    images = pillow()

    def attempt(one: StoredImage) -> Result | Broken:
        try:
            with (
                io.BytesIO(one) if isinstance(one, bytes) else open_regular(one) as file,
                images.open(file, formats=FORMATS) as image,
            ):
                return function(image)
        except Exception as error:  # damaged files can make a decoder raise anything
            return Broken(_reason(one, error))

    ahead: deque[Future[Result | Broken]] = deque()
    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as pool:
        warnings.simplefilter("ignore", UserWarning)  # minor defects in files that can be decoded
        warnings.simplefilter("error", images.DecompressionBombWarning)
        for one in stored:
            ahead.append(pool.submit(attempt, one))
            if len(ahead) > 2 * THREADS:  # bounds the number of decoded images in memory
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _reason(one: StoredImage, error: Exception) -> str:
    """Return why an image could not be decoded, without its path."""
    from PIL import UnidentifiedImageError

    images = pillow()
    if isinstance(error, UnreadableData):  # of `open_regular`, which names the path
        if not isinstance(error.__cause__, Exception):
            return "not a regular file"
        error = error.__cause__
    if isinstance(error, (images.DecompressionBombError, images.DecompressionBombWarning)):
        return f"more than {images.MAX_IMAGE_PIXELS:,} pixels; resize it"
    if isinstance(error, UnidentifiedImageError):
        empty = not one if isinstance(one, bytes) else one.stat().st_size == 0
        return "empty file" if empty else f"not a readable image ({', '.join(FORMATS)})"
    return error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
