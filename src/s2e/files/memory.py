"""Memory of this machine: data that do not fit are refused before they are read."""

from __future__ import annotations

import os
import re
from pathlib import Path

MEMINFO = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Return the bytes that can be allocated without swapping, or None if the system does not report them."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", MEMINFO.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return 1024 * int(found[1])  # free pages and those that the file cache can give back
    if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def in_gib(size: float) -> str:
    """Return a number of bytes as text."""
    return f"{size / 2**30:,.3g} GiB" if size < 2**40 else f"{size / 2**30:,.0f} GiB"
