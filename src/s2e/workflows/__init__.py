"""The workflows behind the command line, `s2e.search`, `s2e.train` and `S2EClassifier`, built on one pipeline."""

from s2e.workflows.comparison_figures import bands, keep_rate_curves
from s2e.workflows.defaults import sized
from s2e.workflows.finished import FinishedTrainings
from s2e.workflows.outcomes import Outcome, result_rows, summarise
from s2e.workflows.pipeline import (
    TEST,
    PipelineResult,
    build_task,
    check_choices,
    find_schedules,
    folds_of,
    plan_for,
    search_and_train,
)
from s2e.workflows.progress import SILENT, CallbackListener, ProgressListener, notified
from s2e.workflows.run_files import network_name
from s2e.workflows.shared_inputs import SharedInputs, load_shared_inputs
from s2e.workflows.status import Status

__all__ = [
    "SILENT",
    "TEST",
    "CallbackListener",
    "FinishedTrainings",
    "Outcome",
    "PipelineResult",
    "ProgressListener",
    "SharedInputs",
    "Status",
    "bands",
    "build_task",
    "check_choices",
    "find_schedules",
    "folds_of",
    "keep_rate_curves",
    "load_shared_inputs",
    "network_name",
    "notified",
    "plan_for",
    "result_rows",
    "search_and_train",
    "sized",
    "summarise",
]
