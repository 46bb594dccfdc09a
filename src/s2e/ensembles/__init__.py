"""Which classifiers vote together: networks by validation, any models by likelihood; kept members; distillation."""

from s2e.ensembles.distillation import SoftLabels, distilled, soft_trained
from s2e.ensembles.ensemble import Ensemble, choose_ensemble, single_member
from s2e.ensembles.kept_members import KEPT, MOST_BYTES, MOST_MEMBERS, KeptMember, KeptMembers
from s2e.ensembles.pooled_models import (
    NETWORKS,
    LabelledSamples,
    PooledModels,
    PosteriorLabels,
    cross_fitting,
    votes_and_pool,
    votes_of,
)
from s2e.ensembles.pooling import Pool, audit_predictions, calibrate, geometric_mean, pool_by_likelihood
from s2e.ensembles.selection import bagged_selection, greedy_selection, is_better_beyond_noise
from s2e.models import flat, model_samples, models_for, probabilities_of, take, weight_parameter

__all__ = [
    "KEPT",
    "MOST_BYTES",
    "MOST_MEMBERS",
    "NETWORKS",
    "Ensemble",
    "KeptMember",
    "KeptMembers",
    "LabelledSamples",
    "Pool",
    "PooledModels",
    "PosteriorLabels",
    "SoftLabels",
    "audit_predictions",
    "bagged_selection",
    "calibrate",
    "choose_ensemble",
    "cross_fitting",
    "distilled",
    "flat",
    "geometric_mean",
    "greedy_selection",
    "is_better_beyond_noise",
    "model_samples",
    "models_for",
    "pool_by_likelihood",
    "probabilities_of",
    "single_member",
    "soft_trained",
    "take",
    "votes_and_pool",
    "votes_of",
    "weight_parameter",
]
