"""Small files in the formats of published data sets, for tests that read and download them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

TRAIN_LABELS = np.array([5, 0, 4, 1, 9])
TEST_LABELS = np.array([7, 2])
FINE_NAMES = [f"class {label}" for label in range(100)]


def random_bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def mnist_files() -> dict[str, bytes]:
    return {
        "train-images-idx3-ubyte": idx(random_bytes(5, 28, 28)),
        "train-labels-idx1-ubyte": idx(TRAIN_LABELS),
        "t10k-images-idx3-ubyte": idx(random_bytes(2, 28, 28)),
        "t10k-labels-idx1-ubyte": idx(TEST_LABELS),
    }


def cifar_records(count: int, *labels: int) -> bytes:
    head = np.tile(np.array(labels, dtype=np.uint8), (count, 1))
    return np.concatenate([head, random_bytes(count, 3072)], axis=1).tobytes()


def cifar10_files() -> dict[str, bytes]:
    train = {f"data_batch_{k}.bin": cifar_records(k, k) for k in range(1, 6)}
    return train | {"test_batch.bin": cifar_records(2, 9)}


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def compressed(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}
