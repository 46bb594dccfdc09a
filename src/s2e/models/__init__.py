"""Models of scikit-learn beside networks: which ones, on which samples, fitted ahead in a process of their own.

Neither torch nor pandas is imported here, so that such a process starts quickly.
"""

from s2e.models.candidates import MOST_NUMBERS, models_for
from s2e.models.fitting_process import Fit, fitted_ahead, fitted_predictions, use_one_thread
from s2e.models.sample_arrays import about_samples, arrays_of_samples, samples_of_arrays
from s2e.models.scikit_models import flat, model_samples, probabilities_of, take, weight_parameter

__all__ = [
    "MOST_NUMBERS",
    "Fit",
    "about_samples",
    "arrays_of_samples",
    "fitted_ahead",
    "fitted_predictions",
    "flat",
    "model_samples",
    "models_for",
    "probabilities_of",
    "samples_of_arrays",
    "take",
    "use_one_thread",
    "weight_parameter",
]
