"""Memory that is left to this process: data that do not fit are refused before they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")

CONTROL_GROUPS = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Versions 2 and 1 of control groups: folder, files of the limit and of the use, and what the kernel can give back."""


def available_memory(root: Path = ROOT) -> int | None:
    """Return the bytes that can be allocated without swapping, or None if the system does not report them.

    It is the smaller of what the machine has and what the limits of its containers and of Slurm leave.

    Args:
        root: folder of `proc` and `sys`.
    """
    known = [size for size in (_of_the_machine(root), *_of_control_groups(root)) if size is not None]
    return min(known, default=None)


def _of_the_machine(root: Path) -> int | None:
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE)
    if found:
        return 1024 * int(found[1])  # free pages and those that the file cache can give back
    if root == ROOT and "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _of_control_groups(root: Path) -> Iterator[int]:
    """Yield what each limited control group leaves: that of this process, and those that it lies in."""
    own = _own_groups(root)
    for (folder, limit_file, use_file, returnable), path in zip(CONTROL_GROUPS, own, strict=True):
        for group in (path, *path.parents):  # a container may see its own group as the root of all
            place = root / folder / str(group).lstrip("/")
            limit, use = _text(place / limit_file).strip(), _text(place / use_file).strip()
            if limit.isdecimal() and use.isdecimal():  # otherwise "max", or there is no such group
                cached = re.search(rf"^{returnable} (\d+)$", _text(place / "memory.stat"), re.MULTILINE)
                yield max(0, int(limit) - int(use) + (int(cached[1]) if cached else 0))


def _own_groups(root: Path) -> tuple[PurePosixPath, PurePosixPath]:
    """Return the control groups of this process in both versions."""
    second = first = PurePosixPath("/")
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if ".." in PurePosixPath(path).parts:  # the group lies outside those that this process sees
            continue
        if number == "0" and not controllers:
            second = PurePosixPath("/") / path
        elif "memory" in controllers.split(","):
            first = PurePosixPath("/") / path
    return second, first


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def in_gib(size: float) -> str:
    """Return a number of bytes as text."""
    return f"{size / 2**30:,.3g} GiB" if size < 2**40 else f"{size / 2**30:,.0f} GiB"
