"""Numbers of events under the names that loggers show: letters, digits, "_", "-", "." and "/" only."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from s2e.engine import EpochFinished
from s2e.studies import GenerationFinished

_OTHER = re.compile(r"[^A-Za-z0-9_./-]+")


def tag(*parts: object) -> str:
    """Return the name of a series, its parts separated by slashes."""
    return "/".join(_OTHER.sub("_", str(part)).strip("_") for part in parts)


def epoch_scalars(stage: str, done: EpochFinished) -> dict[str, float]:
    """Return the values of the last epoch as `stage/curve/member_INDEX`; those that are not finite are left out."""
    curves, epoch = done.curves, done.epoch - 1
    rows = {
        "loss": curves.loss,
        "train_accuracy": curves.train_accuracy,
        "kept": curves.kept,
        "label_precision": curves.label_precision,
        **{f"{name}_accuracy": accuracy for name, accuracy in curves.accuracy.items()},
    }
    values = {
        tag(stage, name, f"member_{index}"): float(row[position, epoch])
        for name, row in rows.items()
        for position, index in enumerate(done.indices)
    }
    return finite(values)


def generation_scalars(stage: str, done: GenerationFinished) -> dict[str, float]:
    """Return the best validation accuracy so far, of each search if there are several."""
    name = "best_validation_accuracy"
    if len(done.best) == 1:
        return finite({tag(stage, name): done.best[0]})
    return finite({tag(stage, name, f"search_{index}"): best for index, best in enumerate(done.best)})


def result_scalars(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a `result.json` by their paths; rows of results by the names of their methods."""
    return finite({tag(*path): float(value) for path, value in _numbers(result, ())})


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values that are finite: not all loggers accept others."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _numbers(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(inner, (*path, name))
    elif isinstance(value, list):
        for row in value:
            if isinstance(row, Mapping):
                named = [str(row[key]) for key in ("noise", "name") if key in row] or [""]
                named += [str(row["method"])] if "name" not in row and "method" in row else []
                yield from _numbers(row, (*path, *filter(None, named)))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value
