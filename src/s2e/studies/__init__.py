"""Schedule search: the generation loop over an Optuna study, with its plan, storage, pruning and selection."""

from s2e.samplers import VALIDATION_ACCURACY
from s2e.studies.executors import resolve_execution
from s2e.studies.generation_size import SIZES, choose_generation_size
from s2e.studies.loop import GenerationFinished, OnGeneration, Stop, epochs_left, run_generations, search_schedules
from s2e.studies.method_choice import MethodSpace
from s2e.studies.plan import (
    DEFAULT_GENERATIONS,
    GENERATIONS_ON_BENCHMARKS,
    Search,
    SearchPlan,
    plan_search,
)
from s2e.studies.selection import BestTrial, best_of, best_trial, lowest_error_trial
from s2e.studies.stopping import is_long_enough
from s2e.studies.storage import check_storage, holds_study, quiet_optuna, read_trials, storage_faults
from s2e.studies.studies import DATA_FINGERPRINT, differences, load_study, open_study
from s2e.studies.trials import (
    DIVERGED,
    FINISHED,
    accuracy_attribute,
    diverged_trials,
    finished_trials,
    point_of,
)
from s2e.studies.urls import (
    absolute,
    same_place,
    sqlite_url,
    storage_to_read,
    with_password_of_the_environment,
    without_password,
)

__all__ = [
    "DATA_FINGERPRINT",
    "DEFAULT_GENERATIONS",
    "DIVERGED",
    "FINISHED",
    "GENERATIONS_ON_BENCHMARKS",
    "SIZES",
    "VALIDATION_ACCURACY",
    "BestTrial",
    "GenerationFinished",
    "MethodSpace",
    "OnGeneration",
    "Search",
    "SearchPlan",
    "Stop",
    "absolute",
    "accuracy_attribute",
    "best_of",
    "best_trial",
    "check_storage",
    "choose_generation_size",
    "differences",
    "diverged_trials",
    "epochs_left",
    "finished_trials",
    "holds_study",
    "is_long_enough",
    "load_study",
    "lowest_error_trial",
    "open_study",
    "plan_search",
    "point_of",
    "quiet_optuna",
    "read_trials",
    "resolve_execution",
    "run_generations",
    "same_place",
    "search_schedules",
    "sqlite_url",
    "storage_faults",
    "storage_to_read",
    "with_password_of_the_environment",
    "without_password",
]
