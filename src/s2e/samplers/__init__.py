"""Samplers choose the next points: the paper's steps, the curve model, Optuna's samplers, and any sampler object.

The samplers of this package keep no state: the next point is a function of their arguments and of the study's finished
trials, so a killed search continues from its storage with the same next point.
"""

from s2e.samplers.curve_model import CurveModel, landmarks
from s2e.samplers.curve_sampler import CurveSampler, neighbours
from s2e.samplers.dynamics_sampler import DynamicsSampler
from s2e.samplers.registry import SAMPLERS, SamplerSpec, sampler_spec
from s2e.samplers.relaxation_sampler import RelaxationSampler
from s2e.samplers.study_view import VALIDATION_ACCURACY, complete_trials

__all__ = [
    "SAMPLERS",
    "VALIDATION_ACCURACY",
    "CurveModel",
    "CurveSampler",
    "DynamicsSampler",
    "RelaxationSampler",
    "SamplerSpec",
    "complete_trials",
    "landmarks",
    "neighbours",
    "sampler_spec",
]
