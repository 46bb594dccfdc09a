"""Which classifiers vote together: networks by validation, any models by likelihood; kept members; distillation."""

from s2e.ensembles.distillation import SoftLabels, distilled, soft_trained
from s2e.ensembles.ensemble import Ensemble, choose_ensemble, single_member
from s2e.ensembles.kept_members import KEPT, MOST_BYTES, MOST_MEMBERS, KeptMember, KeptMembers
from s2e.ensembles.pooling import Pool, audit_predictions, calibrate, geometric_mean, pool_by_likelihood
from s2e.ensembles.selection import bagged_selection, greedy_selection, is_better_beyond_noise

__all__ = [
    "KEPT",
    "MOST_BYTES",
    "MOST_MEMBERS",
    "Ensemble",
    "KeptMember",
    "KeptMembers",
    "Pool",
    "SoftLabels",
    "audit_predictions",
    "bagged_selection",
    "calibrate",
    "choose_ensemble",
    "distilled",
    "geometric_mean",
    "greedy_selection",
    "is_better_beyond_noise",
    "pool_by_likelihood",
    "single_member",
    "soft_trained",
]
