"""The workflows behind the command line, `s2e.search`, `s2e.train` and `S2EClassifier`, built on one pipeline."""

from s2e.workflows.comparison_figures import bands, keep_rate_curves
from s2e.workflows.defaults import sized
from s2e.workflows.entrants import (
    CLEAN_ORACLE,
    NOISY_VALIDATION,
    ORACLES,
    SEARCHED,
    SELECTED_ORACLE,
    check_entrant_names,
    is_oracle,
    is_searched,
)
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.loaded_run import LoadedRun, RunClassifier, RunInputs, load
from s2e.workflows.outcomes import (
    HELD_OUT,
    PART,
    TEST,
    TEST_PART,
    Outcome,
    best_of_competitors,
    curve_rows,
    result_rows,
    summarise,
)
from s2e.workflows.pipeline import (
    PipelineResult,
    build_task,
    check_choices,
    find_schedule_in_time,
    find_schedules,
    folds_of,
    plan_for,
    search_and_train,
    time_of_search,
)
from s2e.workflows.progress import SILENT, CallbackListener, ProgressListener, notified
from s2e.workflows.python_warnings import warns_in_python
from s2e.workflows.run_files import network_name
from s2e.workflows.shared_inputs import SharedInputs, load_shared_inputs
from s2e.workflows.status import Status
from s2e.workflows.time_budget import ARGUMENTS, SearchTime, population_times
from s2e.workflows.voting import voters_title

__all__ = [
    "ARGUMENTS",
    "CLEAN_ORACLE",
    "HELD_OUT",
    "NOISY_VALIDATION",
    "ORACLES",
    "PART",
    "SEARCHED",
    "SELECTED_ORACLE",
    "SILENT",
    "TEST",
    "TEST_PART",
    "CallbackListener",
    "FinishedTrainings",
    "LoadedRun",
    "Outcome",
    "PipelineResult",
    "ProgressListener",
    "RunClassifier",
    "RunInputs",
    "SearchTime",
    "SharedInputs",
    "Status",
    "bands",
    "best_of_competitors",
    "build_task",
    "check_choices",
    "check_entrant_names",
    "curve_rows",
    "find_schedule_in_time",
    "find_schedules",
    "folds_of",
    "is_oracle",
    "is_searched",
    "keep_rate_curves",
    "load",
    "load_shared_inputs",
    "network_name",
    "notified",
    "plan_for",
    "population_times",
    "result_rows",
    "search_and_train",
    "sized",
    "summarise",
    "time_of_search",
    "voters_title",
    "warns_in_python",
]
