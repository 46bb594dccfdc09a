"""Schedule search: the generation loop over an Optuna study, with its plan, storage, pruning and selection."""

from s2e.studies.generation_size import SIZES, choose_generation_size
from s2e.studies.loop import GenerationFinished, OnGeneration, Stop, epochs_left, run_generations, search_schedules
from s2e.studies.plan import (
    DEFAULT_GENERATIONS,
    DEFAULT_GENERATIONS_OF_SHORT_SEARCHES,
    Search,
    SearchPlan,
    plan_search,
)
from s2e.studies.selection import BestTrial, best_trial, lowest_error_trial
from s2e.studies.storage import check_storage
from s2e.studies.studies import open_study, quiet_optuna
from s2e.studies.trials import (
    DIVERGED,
    FINISHED,
    VALIDATION_ACCURACY,
    accuracy_attribute,
    diverged_trials,
    finished_trials,
    point_of,
)

__all__ = [
    "DEFAULT_GENERATIONS",
    "DEFAULT_GENERATIONS_OF_SHORT_SEARCHES",
    "DIVERGED",
    "FINISHED",
    "SIZES",
    "VALIDATION_ACCURACY",
    "BestTrial",
    "GenerationFinished",
    "OnGeneration",
    "Search",
    "SearchPlan",
    "Stop",
    "accuracy_attribute",
    "best_trial",
    "check_storage",
    "choose_generation_size",
    "diverged_trials",
    "epochs_left",
    "finished_trials",
    "lowest_error_trial",
    "open_study",
    "plan_search",
    "point_of",
    "quiet_optuna",
    "run_generations",
    "search_schedules",
]
