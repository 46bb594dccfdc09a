"""Which trained networks vote together: the members kept by a search, greedy selection, distillation."""

from s2e.ensembles.distillation import SoftLabels, distilled
from s2e.ensembles.ensemble import Ensemble, choose_ensemble, single_member
from s2e.ensembles.kept_members import KEPT, MOST_BYTES, MOST_MEMBERS, KeptMember, KeptMembers
from s2e.ensembles.selection import bagged_selection, greedy_selection, is_better_beyond_noise

__all__ = [
    "KEPT",
    "MOST_BYTES",
    "MOST_MEMBERS",
    "Ensemble",
    "KeptMember",
    "KeptMembers",
    "SoftLabels",
    "bagged_selection",
    "choose_ensemble",
    "distilled",
    "greedy_selection",
    "is_better_beyond_noise",
    "single_member",
]
