"""Tensors and metadata in the safetensors format, whose library compares all sizes in the header with the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from s2e.files.regular import check_size, open_regular, unreadable

if TYPE_CHECKING:
    from torch import Tensor


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a file."""
    from safetensors import SafetensorError, safe_open

    with open_regular(path) as opened:
        check_size(path, opened.seek(0, 2))
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a dictionary
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError, AttributeError, TypeError) as problem:
        raise unreadable(path, problem) from problem
