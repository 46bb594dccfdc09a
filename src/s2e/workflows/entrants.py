"""Who takes part in a comparison, and on what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from s2e.data.preparing import Prepared
from s2e.errors import InvalidInput, unknown_name
from s2e.methods import METHODS, SEARCHABLE, Method, Need, method
from s2e.networks.factories import default_network

ALL = "all"
SEARCHED = "s2e"
"""Name of the entrant whose schedule is searched: `s2e` for Co-teaching's, `s2e:METHOD` for another method's."""


@dataclass(frozen=True, eq=False)
class Setting:
    """One draw of one noise setting."""

    noise: str
    draw: int
    prepared: Prepared


@dataclass(frozen=True)
class Entrant:
    """A method under its name in the comparison, with a schedule that is searched or made from a noise rate."""

    name: str
    method: Method
    searched: bool = False


def taking_part(
    names: Sequence[str], settings: Sequence[Setting], *, told: float | None
) -> tuple[list[Entrant], list[dict[str, str]]]:
    """Return who takes part, and of `all` who cannot and why; a method that was named must be able to.

    Args:
        names: names of METHODS, `s2e`, `s2e:METHOD`, or `all`.
        settings: what they are to be trained on.
        told: the noise rate methods are told; None for the true one where it is known.
    """
    train = settings[0].prepared.splits.train
    like = default_network(train.sample_shape, train.classes)
    everyone = [*METHODS, SEARCHED]
    wanted = [other for name in names for other in (everyone if name == ALL else [name])]
    able, left_out = [], []
    for name in dict.fromkeys(wanted):
        entrant = _contestant(name, like)
        reason = _missing(entrant, settings, told)
        if reason is None:
            able.append(entrant)
        elif name not in names:  # it came with `all`
            left_out.append({"method": name, "reason": reason})
        else:
            raise InvalidInput(f"{name} {reason}.")
    return able, left_out


def _contestant(name: str, like: str) -> Entrant:
    first, colon, base = name.partition(":")
    if first != SEARCHED:
        if name not in METHODS:
            raise unknown_name("methods", name, [ALL, *METHODS, SEARCHED, f"{SEARCHED}:METHOD"])
        return Entrant(name, method(name, like))
    base = base if colon else "coteaching"
    if base not in SEARCHABLE:
        raise unknown_name("methods", name, [f"{SEARCHED}:{each}" for each in SEARCHABLE])
    return Entrant(name, method(base, like), searched=True)


def _missing(entrant: Entrant, settings: Sequence[Setting], told: float | None) -> str | None:
    """Say what a entrant needs and these data do not give."""
    needs = entrant.method.needs
    if Need.CLEAN_SAMPLES in needs and any(one.prepared.validation != "clean" for one in settings):
        return f"needs {Need.CLEAN_SAMPLES.value}; give some with --validation FILE.npz"
    knows_rate = told is not None or all(one.prepared.noise_rate is not None for one in settings)
    if Need.SCHEDULE in needs and not entrant.searched and not knows_rate:
        return "needs a noise rate to make its schedule from; give your guess with --noise-rate, or search with s2e"
    return None
