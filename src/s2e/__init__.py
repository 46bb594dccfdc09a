"""s2e: train good classifiers on wrong labels, without knowing how many are wrong.

| name | what it is |
|---|---|
| `S2EClassifier` | scikit-learn classifier: search, training and label audit in one fit |
| `search`, `SearchResult` | search the schedule with the best validation accuracy, for any network |
| `train`, `TrainResult` | train one member with a schedule; returns the modules |
| `find_label_issues`, `LabelAudit` | labels that are probably wrong, from any classifier's predictions |
| `load`, `LoadedRun` | a run of the command line: its classifier, label audit, study and curves |
| `aggregate_labels`, `AggregatedLabels` | one label for each item from those of several annotators |
| `Status` | how a search or a training ended |
| `LabelledData`, `Curves`, `Dynamics` | samples with labels; records by epoch; records by sample |
| `Callback`, `RunStarted`, `EpochFinished`, `GenerationFinished`, `RunEnded` | progress; see also s2e.callbacks |
| `Space` | interface of families of schedules |
| `Method`, `Batch`, `Need`, `Objective` | interface of methods |
| `Optimizer`, `StackedOptimizer`, `LearningRatePlan`, `Augmentation` | interfaces of further parts of a training |
| `S2EError`, `InvalidInput`, `InvalidType`, `UnreadableData`, `RunConflict`, `TrainingDiverged` | errors |
| `S2EWarning` | warnings |

The command line: s2e --help.
"""

import os
import sys

from s2e._version import __version__

if "torch" not in sys.modules:  # OpenMP reads this when torch is imported
    # Threads that wait for each other sleep. Otherwise they occupy their cores while they wait, and on a busy machine
    # an operation that several threads share takes many times as long. Results do not depend on it.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

TYPE_CHECKING = False  # that of typing, which takes longer to import than all else that `s2e --help` needs at first

if TYPE_CHECKING:
    from s2e.api import SearchResult, TrainResult, search, train
    from s2e.audit import LabelAudit, find_label_issues
    from s2e.callbacks import Callback, RunEnded, RunStarted
    from s2e.data import LabelledData
    from s2e.data.aggregation import AggregatedLabels, aggregate_labels
    from s2e.engine import Augmentation, Curves, Dynamics, EpochFinished, LearningRatePlan, Optimizer, StackedOptimizer
    from s2e.errors import (
        InvalidInput,
        InvalidType,
        RunConflict,
        S2EError,
        S2EWarning,
        TrainingDiverged,
        UnreadableData,
    )
    from s2e.estimator import S2EClassifier
    from s2e.methods import Batch, Method, Need, Objective
    from s2e.schedules import Space
    from s2e.studies import GenerationFinished
    from s2e.workflows import LoadedRun, Status, load

__all__ = [
    "AggregatedLabels",
    "Augmentation",
    "Batch",
    "Callback",
    "Curves",
    "Dynamics",
    "EpochFinished",
    "GenerationFinished",
    "InvalidInput",
    "InvalidType",
    "LabelAudit",
    "LabelledData",
    "LearningRatePlan",
    "LoadedRun",
    "Method",
    "Need",
    "Objective",
    "Optimizer",
    "RunConflict",
    "RunEnded",
    "RunStarted",
    "S2EClassifier",
    "S2EError",
    "S2EWarning",
    "SearchResult",
    "Space",
    "StackedOptimizer",
    "Status",
    "TrainResult",
    "TrainingDiverged",
    "UnreadableData",
    "__version__",
    "aggregate_labels",
    "find_label_issues",
    "load",
    "search",
    "train",
]

_MODULES = {
    "s2e.api": ("SearchResult", "TrainResult", "search", "train"),
    "s2e.audit": ("LabelAudit", "find_label_issues"),
    "s2e.callbacks": ("Callback", "RunEnded", "RunStarted"),
    "s2e.data": ("LabelledData",),
    "s2e.data.aggregation": ("AggregatedLabels", "aggregate_labels"),
    "s2e.engine": (
        "Augmentation",
        "Curves",
        "Dynamics",
        "EpochFinished",
        "LearningRatePlan",
        "Optimizer",
        "StackedOptimizer",
    ),
    "s2e.errors": (
        "InvalidInput",
        "InvalidType",
        "RunConflict",
        "S2EError",
        "S2EWarning",
        "TrainingDiverged",
        "UnreadableData",
    ),
    "s2e.estimator": ("S2EClassifier",),
    "s2e.methods": ("Batch", "Method", "Need", "Objective"),
    "s2e.schedules": ("Space",),
    "s2e.studies": ("GenerationFinished",),
    "s2e.workflows": ("LoadedRun", "Status", "load"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import s2e` imports nothing heavy."""
    from importlib import import_module

    if name not in _MODULE_OF:
        raise AttributeError(f"module 's2e' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet, for `help` and completion."""
    return sorted({*globals(), *__all__})
