"""Optimizers by name."""

from __future__ import annotations

from typing import Any

from s2e.engine.optimizers.adam import Adam
from s2e.engine.optimizers.adamw import AdamW
from s2e.engine.optimizers.interface import Optimizer
from s2e.engine.optimizers.rmsprop import RMSProp
from s2e.engine.optimizers.row_optimizer import RowOptimizer
from s2e.engine.optimizers.sgd import SGD
from s2e.errors import InvalidInput, unknown_name
from s2e.specs import convert_options, option_converters, parse_named_options

OPTIMIZERS: dict[str, type[RowOptimizer]] = {"adam": Adam, "adamw": AdamW, "sgd": SGD, "rmsprop": RMSProp}
"""Every optimizer by its name; the fields of its class are its options."""


def optimizer_of(optimizer: str | Any) -> Optimizer:
    """Return an optimizer.

    Args:
        optimizer: a name such as "adam", a name with options such as "sgd:momentum=0.9,weight_decay=5e-4", or an object
            with the interface `Optimizer`.
    """
    if isinstance(optimizer, str):
        name, options = parse_named_options("optimizer", optimizer)
        if name not in OPTIMIZERS:
            raise unknown_name("optimizer", name, OPTIMIZERS)
        kind = OPTIMIZERS[name]
        return kind(**convert_options("optimizer", name, options, option_converters(kind)))
    if isinstance(optimizer, type) or not isinstance(optimizer, Optimizer):
        found = f"the class {optimizer.__name__}" if isinstance(optimizer, type) else type(optimizer).__name__
        raise InvalidInput(
            f"`optimizer` must be a name or an object with the interface `s2e.Optimizer`, such as SGD(momentum=0.9) of "
            f"`s2e.engine.optimizers`, but got {found}."
        )
    return optimizer
