"""Entrants of a comparison, and the noise settings they are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s2e.data import LabelledData, Prepared
from s2e.errors import InvalidInput, unknown_name
from s2e.methods import METHODS, SEARCHABLE, Method, Need, Standard, method
from s2e.networks import default_network
from s2e.specs import ALL

SEARCHED = "s2e"
"""Name of an entrant whose schedule is searched: `s2e` for Co-teaching, `s2e:METHOD` for another method."""

NOISY_VALIDATION = "s2e-noisy-validation"
"""Name of an entrant whose schedule is searched without clean samples, where the others have some."""

SELECTED_ORACLE, CLEAN_ORACLE = "oracle:selected", "oracle:clean"
ORACLES = (SELECTED_ORACLE, CLEAN_ORACLE)
"""Entrants that use the true labels: Standard without the wrongly labelled samples, and Standard on clean labels."""


def is_oracle(name: str) -> bool:
    """Return whether an entrant uses the true labels: it is no competitor, but shows what is left to gain."""
    return name in ORACLES


def is_searched(name: str) -> bool:
    """Return whether the schedule of an entrant is searched."""
    return name.partition(":")[0] in (SEARCHED, NOISY_VALIDATION)


@dataclass(frozen=True, eq=False)
class Setting:
    """One draw of one noise setting."""

    noise: str
    draw: int
    prepared: Prepared


@dataclass(frozen=True)
class Entrant:
    """A method under its name in the comparison, with a schedule that is searched or computed from a noise rate.

    Attributes:
        name: its name.
        method: its method.
        searched: whether its schedule is searched.
        noisy_validation: whether it is searched on validation labels with the noise of the training labels.
    """

    name: str
    method: Method
    searched: bool = False
    noisy_validation: bool = False

    def labels(self, train: LabelledData) -> NDArray[np.int64]:
        """Return the labels (N,) that it is trained on: the given ones, or the true ones."""
        return train.labels if self.name != CLEAN_ORACLE else true_labels(train)

    def held_out(self, train: LabelledData) -> NDArray[np.bool_] | None:
        """Return the samples (N,) that it is not trained on: the wrongly labelled ones for an oracle, else None."""
        return None if self.name != SELECTED_ORACLE else train.labels != true_labels(train)


def true_labels(data: LabelledData) -> NDArray[np.int64]:
    """Return the true labels (N,), which must be known."""
    if data.clean_labels is None:
        raise InvalidInput("an oracle needs the true labels of the training samples, but they are unknown.")
    return data.clean_labels


def check_entrant_names(names: Sequence[str]) -> None:
    """Refuse names that do not exist; needs no data."""
    for name in names:
        if name != ALL:
            _entrant(name)


def entrants_for(
    names: Sequence[str], settings: Sequence[Setting], *, noise_rate: float | None
) -> tuple[list[Entrant], list[dict[str, str]]]:
    """Return the entrants, and the methods of `all` whose needs these data do not meet, with the reason.

    Args:
        names: names of METHODS, `s2e`, `s2e:METHOD`, `s2e-noisy-validation`, names of ORACLES, or `all` for the methods
            and `s2e`; the needs of a method named explicitly must be met.
        settings: the data.
        noise_rate: noise rate for methods that need one; None for the true one where it is known.
    """
    train = settings[0].prepared.splits.train
    network = default_network(train.sample_shape, train.classes)
    requested = [other for name in names for other in ([*METHODS, SEARCHED] if name == ALL else [name])]
    possible, left_out = [], []
    for name in dict.fromkeys(requested):
        entrant = _entrant(name, network)
        reason = _missing(entrant, settings, noise_rate)
        if reason is None:
            possible.append(entrant)
        elif name not in names:  # included in `all`
            left_out.append({"method": name, "reason": reason})
        else:
            raise InvalidInput(f"{name} {reason}.")
    return possible, left_out


def _entrant(name: str, network: str = "mlp") -> Entrant:
    first, colon, base = name.partition(":")
    if name == NOISY_VALIDATION:
        return Entrant(name, method("coteaching", network), searched=True, noisy_validation=True)
    if name in ORACLES:
        return Entrant(name, Standard())
    if first != SEARCHED:
        if name not in METHODS:
            known = [ALL, *METHODS, SEARCHED, f"{SEARCHED}:METHOD", NOISY_VALIDATION, *ORACLES]
            raise unknown_name("methods", name, known)
        return Entrant(name, method(name, network))
    base = base if colon else "coteaching"
    if base not in SEARCHABLE:
        raise unknown_name("methods", name, [f"{SEARCHED}:{each}" for each in SEARCHABLE])
    return Entrant(name, method(base, network), searched=True)


def _missing(entrant: Entrant, settings: Sequence[Setting], noise_rate: float | None) -> str | None:
    """Return the need of an entrant that these data do not meet; None if all are met."""
    needs = entrant.method.needs
    if Need.CLEAN_SAMPLES in needs and any(one.prepared.validation != "clean" for one in settings):
        return f"needs {Need.CLEAN_SAMPLES.value}; give some with --validation FILE"
    if is_oracle(entrant.name) and any(one.prepared.splits.train.clean_labels is None for one in settings):
        return "needs the true labels of all training samples, which are unknown; name only other methods"
    if entrant.noisy_validation and any(one.prepared.validation != "clean" or one.noise == "none" for one in settings):
        return f"needs clean validation samples and noise to add to them; without them it is {SEARCHED}"
    rate_is_known = noise_rate is not None or all(one.prepared.noise_rate is not None for one in settings)
    if Need.SCHEDULE in needs and not entrant.searched and not rate_is_known:
        return "needs a noise rate for its schedule; give an estimate with --noise-rate, or search with s2e"
    return None
