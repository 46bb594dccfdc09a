"""Schedules from text and from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2e.errors import InvalidInput, unknown_name
from s2e.files.json_text import read_json
from s2e.schedules.fixed import check_schedule, constant, coteaching

if TYPE_CHECKING:
    from s2e.schedules.fixed import Floats

_FORMS = ("constant:RATE", "coteaching:NOISE_RATE", "FILE.json")


def parse_schedule(text: str, epochs: int | None = None) -> Floats:
    """Return the schedule (T,) that a text describes: `constant:RATE`, `coteaching:NOISE_RATE`, or a JSON file.

    A file holds {"keep_rates": [...]}, as the `schedule.json` of a run does; without `epochs`, T is their number.
    """
    kind, colon, value = text.strip().partition(":")
    if colon and kind in ("constant", "coteaching") and epochs is not None:
        try:
            rate = float(value)
        except ValueError:
            raise InvalidInput(
                f"`schedule` must be written as {kind}:RATE, for example {kind}:0.4, but got {text!r}."
            ) from None
        return constant(rate, epochs) if kind == "constant" else coteaching(rate, epochs)
    path = Path(text.strip())
    if path.suffix != ".json":
        raise unknown_name("schedule", text.strip(), _FORMS)
    rates = _read_keep_rates(path)
    return check_schedule(rates, len(rates) if epochs is None else epochs)


def _read_keep_rates(path: Path) -> list[Any]:
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("keep_rates"), list):
        raise InvalidInput(f'a schedule file must hold {{"keep_rates": [...]}}, but {str(path)!r} does not.')
    rates: list[Any] = content["keep_rates"]
    return rates
