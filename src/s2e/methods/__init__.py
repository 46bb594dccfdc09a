"""The methods: how samples are weighted in a step, one small file each."""

from s2e.errors import unknown_name
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
    sample_cross_entropy,
    selected_mean,
    smallest,
)
from s2e.methods.jocor import JoCoR
from s2e.methods.mentornet import MentorNet
from s2e.methods.reweight import Reweight
from s2e.methods.standard import Standard
from s2e.methods.transition import check_transition, default_percentile, estimate_transition

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
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
"""Every method, with the settings its paper uses on MNIST."""

OTHER_SETTINGS: dict[tuple[str, str], Method] = {
    ("coteaching+", "cifar10-cnn"): CoteachingPlus(warm_up=20),
    ("coteaching+", "cifar100-cnn"): CoteachingPlus(warm_up=5),
    ("jocor", "cifar100-cnn"): JoCoR(agreement=0.85),
}
"""Where the papers use other settings on CIFAR-10 and CIFAR-100, by the network they train there."""

SEARCHABLE = tuple(name for name, each in METHODS.items() if Need.SCHEDULE in each.needs)
"""Methods with a keep rate: their schedule can be searched."""


def method(name: str, network: str = "mlp") -> Method:
    """Return a method by its name, with the settings published for the data this reference network is used on."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return OTHER_SETTINGS.get((name, network), METHODS[name])


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
    "check_transition",
    "default_percentile",
    "estimate_transition",
    "method",
    "sample_cross_entropy",
    "selected_mean",
    "smallest",
]
