"""Methods: how samples are weighted in a training step. One module for each method, behind one small interface."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from s2e.errors import InvalidType, unknown_name
from s2e.methods.coteaching import Coteaching
from s2e.methods.coteaching_plus import CoteachingPlus
from s2e.methods.decoupling import Decoupling
from s2e.methods.forward_correction import ForwardCorrection
from s2e.methods.interface import (
    Batch,
    Method,
    Need,
    Networks,
    Objective,
    keep_count,
    may_hold_out,
    sample_cross_entropy,
    selected_mean,
    small_losses,
    smallest,
    within_classes,
)
from s2e.methods.jocor import JoCoR
from s2e.methods.mentornet import MentorNet
from s2e.methods.reweight import Reweight
from s2e.methods.standard import Standard
from s2e.methods.transition import default_percentile, estimate_transition
from s2e.specs import convert_options, option_converters, parse_named_options

METHODS: dict[str, Method] = {
    each.name: each
    for each in (
        Standard(),
        Decoupling(),
        ForwardCorrection(),
        MentorNet(),
        Coteaching(),
        CoteachingPlus(),
        Reweight(),
        JoCoR(),
    )
}
"""Every method by its name, with the settings its paper uses on MNIST."""

CIFAR_SETTINGS: dict[tuple[str, str], Method] = {
    ("coteaching+", "cifar10-cnn"): CoteachingPlus(warm_up=20),
    ("coteaching+", "cifar100-cnn"): CoteachingPlus(warm_up=5),
    ("jocor", "cifar100-cnn"): JoCoR(agreement=0.85),
}
"""Methods whose papers use other settings on CIFAR-10 or CIFAR-100, by method and reference network."""

SEARCHABLE = tuple(name for name, each in METHODS.items() if Need.SCHEDULE in each.needs)
"""Names of the methods with a keep rate: their schedule can be searched."""


_ATTRIBUTES = ("name", "networks", "needs", "may_select_nothing", "objective")


def method(method: str | Method, network: str = "mlp") -> Method:
    """Return a method.

    Args:
        method: a name in `METHODS`, with options as in "coteaching:by_class=true", or an object that implements
            `Method`, which is returned as it is.
        network: the reference network, for the settings that the method's paper uses with it; for names only.
    """
    if isinstance(method, str):
        name, options = parse_named_options("method", method)
        if name not in METHODS:
            raise unknown_name("method", name, METHODS)
        made = CIFAR_SETTINGS.get((name, network), METHODS[name])
        return with_options(made, options) if options else made
    missing = [name for name in _ATTRIBUTES if not hasattr(method, name)]
    if missing or isinstance(method, type):
        lacking = f" without {', '.join(missing)}" if missing else ""
        found = f"the class {method.__name__}" if isinstance(method, type) else type(method).__name__
        raise InvalidType(
            f"`method` must be one of {', '.join(METHODS)}, or an object that implements `s2e.methods.Method`, "
            f"but got {found}{lacking}."
        )
    if type(method).__hash__ is None:
        raise InvalidType(
            f"`method` must be hashable, but {type(method).__name__} is not; make it a frozen dataclass, for instance."
        )
    return method


def with_options(method: Any, options: Mapping[str, str]) -> Method:
    """Return a method with other settings, given as texts."""
    changed: Method = replace(
        method, **convert_options("method", method.name, options, option_converters(type(method)))
    )
    return changed


__all__ = [
    "METHODS",
    "SEARCHABLE",
    "Batch",
    "Coteaching",
    "CoteachingPlus",
    "Decoupling",
    "ForwardCorrection",
    "JoCoR",
    "MentorNet",
    "Method",
    "Need",
    "Networks",
    "Objective",
    "Reweight",
    "Standard",
    "default_percentile",
    "estimate_transition",
    "keep_count",
    "may_hold_out",
    "method",
    "sample_cross_entropy",
    "selected_mean",
    "small_losses",
    "smallest",
    "with_options",
    "within_classes",
]
