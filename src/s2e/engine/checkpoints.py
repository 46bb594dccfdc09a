"""Checkpoints: files with the state of a population in training, from which a killed training continues."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from s2e.atomic_write import TEMPORARY, replacing
from s2e.errors import UnreadableData, first_line
from s2e.files.regular import read_content

log = logging.getLogger(__name__)

SUFFIX = ".checkpoint.safetensors"
LEFT_BY_SAFETENSORS = ".tmp*"
"""Names under which safetensors (from 0.8) writes a file before it renames it; a killed process leaves one."""
DIGEST = "digest"
"""Name of the tensor with the digest of all others."""


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often the state of populations in training is written.

    Attributes:
        directory: created with the first file; used by one process at a time.
        interval: seconds of training between two files.
        max_share: largest share of the time spent on writing; the interval becomes longer where this needs it.
    """

    directory: Path
    interval: float = 180.0
    max_share: float = 0.02

    def any_stored(self) -> bool:
        """Return whether there are checkpoints, of this training or of another."""
        return any(self.directory.glob(f"*{SUFFIX}"))

    def read(self, name: str) -> dict[str, Tensor] | None:
        """Return the tensors of a checkpoint; None if there is none, or with a warning if it cannot be read."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            tensors = load(read_content(path))
            if not torch.equal(tensors.pop(DIGEST), digest_of(tensors)):
                raise ValueError("its digest is that of another content")
            return tensors
        except (UnreadableData, SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as problem:
            log.warning("%s could not be read (%s); training from the beginning", path, first_line(problem))
            return None

    def write(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Replace a checkpoint; the tensors are on the CPU and share no memory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with replacing(self._path(name)) as temporary:
            written = {key: tensor.contiguous() for key, tensor in tensors.items()}
            save_file({**written, DIGEST: digest_of(written)}, temporary)

    def remove(self, name: str) -> None:
        """Remove a checkpoint if there is one."""
        self._path(name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all checkpoints and unfinished ones, and the directory if it is empty then."""
        for pattern in (f"*{SUFFIX}", f".*{SUFFIX}.*{TEMPORARY}", LEFT_BY_SAFETENSORS):
            for path in self.directory.glob(pattern):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.directory.rmdir()

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}{SUFFIX}"


def digest_of(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return a digest of names, types, shapes and numbers, uint8 (16,): the format of the file has no checksum."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return torch.tensor(list(digest.digest()), dtype=torch.uint8)


def pause(interval: float, cost: float, max_share: float) -> float:
    """Return the seconds of training between two checkpoints.

    Args:
        interval: the fewest seconds.
        cost: seconds that it took to write the last one.
        max_share: largest share of the time spent on writing.
    """
    return max(interval, cost / max_share)
