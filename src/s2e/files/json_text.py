"""JSON within bounds: the size of the text, the depth of nesting, the range of integers, and valid Unicode."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from s2e.errors import UnreadableData, first_line
from s2e.files.regular import check_size, read_content, unreadable

MAX_BYTES = 2**25
"""Values take up to twenty times the memory of their text."""

MAX_DEPTH = 64
"""Functions that call themselves for nested values must not reach Python's limit."""


def read_json(path: Path) -> Any:
    """Read a JSON file, UTF-8 with or without a byte order mark."""
    return parse_json(read_content(path, MAX_BYTES), path)


def parse_json(text: str | bytes, origin: Path | str) -> Any:
    """Return the value of a JSON text; `origin` is the file it comes from."""
    check_size(origin, len(text), MAX_BYTES)
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        value = json.loads(decoded)
    except RecursionError as problem:
        raise _too_deep(origin) from problem
    except ValueError as problem:
        raise unreadable(origin, f"it is not JSON ({first_line(problem)})") from problem
    _check_values(value, origin)
    return value


_NOT_UNICODE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates other than those by which Python writes the bytes of a file name that is not UTF-8."""


def _check_values(value: Any, origin: Path | str) -> None:
    """Raise for values nested too deeply, integers that no float holds, and text that is not Unicode."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each
                inner += each.values()
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, str):
                if not each.isascii() and _NOT_UNICODE.search(each):
                    raise unreadable(origin, f"it holds text that is not Unicode, {each[:40]!a}")
            elif isinstance(each, int) and abs(each) > sys.float_info.max:
                raise unreadable(origin, "it holds an integer of more than 308 digits")
        if not inner:
            return
        level = inner
    raise _too_deep(origin)


def _too_deep(origin: Path | str) -> UnreadableData:
    return unreadable(origin, f"its values are nested more than {MAX_DEPTH} times")
