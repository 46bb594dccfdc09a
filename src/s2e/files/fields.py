"""The fields of a JSON object from a file, by type: an error names the file, what must hold, and what was got."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from s2e.errors import UnreadableData

MAX_SHOWN = 60
MAX_NAME = 120
LONGEST_TEXT: Final = 4096
"""Characters of the longest name or option: those of the longest path."""

MOST_NUMBERS_OF_A_SAMPLE: Final = 2**31
"""Numbers in the largest sample, 8 GiB: sizes whose product is larger overflow where memory is reserved."""

_REQUIRED: Final = object()


class Fields:
    """A JSON object.

    Every method returns the field of a key, or its `default` where there is no such field; a field without a default
    must be there.

    Args:
        value: value read from a file; must be an object.
        origin: the file.
        path: names of the outer fields, for messages.
    """

    def __init__(self, value: Any, origin: Path | str, path: str = "") -> None:
        self.origin, self._path = str(origin), path
        if not isinstance(value, dict):
            raise self.error("", "an object with named fields", value)
        self.values: Mapping[str, Any] = value

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def error(self, key: str, expected: str, got: Any) -> UnreadableData:
        """Return the error for a field that is not as expected."""
        name = self._name(key)
        what = f"`{name}`" if name else "it"
        return UnreadableData(f"{self.origin!r} is damaged: {what} must be {expected}, but got {shown(got)}.")

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        """Return a text of at most `LONGEST_TEXT` characters."""
        value = self._value(key, default)
        if key not in self.values or (isinstance(value, str) and len(value) <= LONGEST_TEXT):
            return value  # type: ignore[no-any-return]
        raise self.error(key, f"text of at most {LONGEST_TEXT} characters", value)

    def texts(self, key: str, default: Any = _REQUIRED) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self._value(key, default)
        if key not in self.values:
            return value  # type: ignore[no-any-return]
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        raise self.error(key, "a list of texts", value)

    def flag(self, key: str, default: Any = _REQUIRED) -> bool:
        """Return true or false."""
        value = self._value(key, default)
        if key not in self.values or isinstance(value, bool):
            return value  # type: ignore[no-any-return]
        raise self.error(key, "true or false", value)

    def integer(self, key: str, default: Any = _REQUIRED, *, least: int = 0, most: int = 2**53) -> int:
        """Return an integer within bounds."""
        value = self._value(key, default)
        if key not in self.values or (is_integer(value) and least <= value <= most):
            return value  # type: ignore[no-any-return]
        raise self.error(key, f"an integer in {least}..{most}", value)

    def integers(self, key: str, default: Any = _REQUIRED, *, least: int = 0, most: int = 2**31) -> tuple[int, ...]:
        """Return a list of integers within bounds."""
        value = self._value(key, default)
        if key not in self.values:
            return value  # type: ignore[no-any-return]
        if isinstance(value, list) and all(is_integer(each) and least <= each <= most for each in value):
            return tuple(value)
        raise self.error(key, f"a list of integers in {least}..{most}", value)

    def shape(self, key: str) -> tuple[int, ...]:
        """Return the shape of a sample, a list of sizes."""
        sizes = self.integers(key, least=1)
        if not sizes or math.prod(sizes) > MOST_NUMBERS_OF_A_SAMPLE:
            expected = f"the sizes of a sample of 1..{MOST_NUMBERS_OF_A_SAMPLE} numbers"
            raise self.error(key, expected, list(sizes))
        return sizes

    def number(
        self, key: str, default: Any = _REQUIRED, *, least: float = -math.inf, most: float = math.inf, nan: bool = False
    ) -> float:
        """Return a number within bounds; NaN only where it is allowed."""
        value = self._value(key, default)
        if key not in self.values:
            return value  # type: ignore[no-any-return]
        if is_number(value) and ((math.isfinite(value) and least <= value <= most) or (nan and math.isnan(value))):
            return float(value)
        bounds = f" in {least:g}..{most:g}" if (least, most) != (-math.inf, math.inf) else ""
        raise self.error(key, f"a finite number{bounds}", value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of finite numbers."""
        value = self._value(key, _REQUIRED)
        if isinstance(value, list) and value and all(is_number(each) and math.isfinite(each) for each in value):
            return tuple(map(float, value))
        raise self.error(key, "a list of finite numbers", value)

    def share(self, key: str, default: Any = _REQUIRED) -> float | None:
        """Return a number in 0..1, NaN, or None."""
        return (
            None if key in self and self.values[key] is None else self.number(key, default, least=0, most=1, nan=True)
        )

    def fields(self, key: str, default: Any = _REQUIRED) -> Fields:
        """Return an object."""
        return Fields(self._value(key, default), self.origin, ".".join(filter(None, [self._path, key])))

    def rows(self, key: str, default: Any = _REQUIRED) -> list[Fields]:
        """Return a list of objects."""
        value = self._value(key, default)
        if not isinstance(value, list):
            raise self.error(key, "a list of objects", value)
        name = ".".join(filter(None, [self._path, key]))
        return [Fields(each, self.origin, f"{name}[{index}]") for index, each in enumerate(value)]

    def _value(self, key: str, default: Any) -> Any:
        if key in self.values:
            return self.values[key]
        if default is _REQUIRED:
            name = self._name(key)
            raise UnreadableData(f"{self.origin!r} is damaged or of another version of s2e: `{name}` is missing.")
        return default

    def _name(self, key: str) -> str:
        """Return the path of a field for a message: names may come from the file, so in one short printable line."""
        name = ".".join(filter(None, [self._path, key]))
        name = name if name.isprintable() else ascii(name)[1:-1]
        return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def is_integer(value: Any) -> bool:
    """Return whether a JSON value is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number that a float holds."""
    return isinstance(value, float) or (is_integer(value) and abs(value) <= sys.float_info.max)


def shown(value: Any) -> str:
    """Return a short text of any value, in one line."""
    text = ascii(value) if isinstance(value, str) and len(value) <= MAX_SHOWN else reprlib.repr(value)
    return text if len(text) <= MAX_SHOWN and text.isprintable() else f"{ascii(text)[1 : MAX_SHOWN - 1]}…"
