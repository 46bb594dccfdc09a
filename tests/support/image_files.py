"""Small image files, flat or random, in any format; missing folders are created."""

from __future__ import annotations

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

GENERATOR = np.random.default_rng(0)
GREY = GENERATOR.integers(0, 256, (20, 20), dtype=np.uint8)
COLOUR = GENERATOR.integers(0, 256, (20, 20, 3), dtype=np.uint8)
JPEG_ERROR = 4  # largest change of a level by compression


def save(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(path, **options)
    return path


def write(path, content=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def flat(colour, size=(20, 20), mode="RGB"):
    return Image.new(mode, size, colour)
