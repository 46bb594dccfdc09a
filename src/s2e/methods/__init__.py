"""The methods: how samples are weighted in a step, one small file each."""

from s2e.errors import unknown_name
from s2e.methods.coteaching import Coteaching
from s2e.methods.interface import Batch, Method, Objective, sample_cross_entropy, selected_mean, smallest
from s2e.methods.mentornet import MentorNet
from s2e.methods.standard import Standard

METHODS: dict[str, Method] = {method.name: method for method in (Standard(), MentorNet(), Coteaching())}


def method(name: str) -> Method:
    """Return a method by its name."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


__all__ = [
    "METHODS",
    "Batch",
    "Coteaching",
    "MentorNet",
    "Method",
    "Objective",
    "Standard",
    "method",
    "sample_cross_entropy",
    "selected_mean",
    "smallest",
]
