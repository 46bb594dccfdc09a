"""Display names of methods and titles of noise settings, for figures, tables and reports."""

from __future__ import annotations

from pathlib import PurePath

_DISPLAY_NAMES = {
    "standard": "Standard",
    "decoupling": "Decoupling",
    "f-correction": "F-correction",
    "mentornet": "MentorNet",
    "coteaching": "Co-teaching",
    "coteaching+": "Co-teaching+",
    "reweight": "Reweight",
    "jocor": "JoCoR",
    "s2e": "S2E",
    "s2e-noisy-validation": "S2E, noisy validation",
    "oracle:selected": "oracle: right labels only",
    "oracle:clean": "oracle: clean labels",
}


_DATA_TITLES = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "digits": "digits (8 x 8)",
}


def data_title(data: str) -> str:
    """Return the title of a data set: `cifar10` is CIFAR-10, a path is the name of its file."""
    return _DATA_TITLES.get(data, PurePath(data).name)


def display_name(method: str) -> str:
    """Return the display name of a method: `coteaching+` is Co-teaching+, `s2e:jocor` is S2E (JoCoR)."""
    if method in _DISPLAY_NAMES:
        return _DISPLAY_NAMES[method]
    name, _, searched = method.partition(":")
    shown = _DISPLAY_NAMES.get(name, name)
    return f"{shown} ({display_name(searched)})" if searched else shown


def noise_title(noise: str) -> str:
    """Return a noise setting as a title: `pair:0.45` is "pair noise, 45%"."""
    kind, _, value = noise.partition(":")
    if kind == "none":
        return "labels as given"
    if not value:
        return f"{kind} noise"
    try:
        return f"{kind} noise, {100 * float(value):.4g}%"
    except ValueError:
        return f"{kind} noise, {PurePath(value).name}"
