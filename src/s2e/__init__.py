"""s2e: train good classifiers on wrong labels, without being told how wrong they are."""

from typing import TYPE_CHECKING, Any

from s2e._version import __version__

if TYPE_CHECKING:
    from s2e.api import SearchResult, TrainResult, search, train
    from s2e.data.samples import LabelledData
    from s2e.estimator.classifier import S2EClassifier

__all__ = ["LabelledData", "S2EClassifier", "SearchResult", "TrainResult", "__version__", "search", "train"]

_HOMES = {"LabelledData": "s2e.data.samples", "S2EClassifier": "s2e.estimator.classifier"}


def __getattr__(name: str) -> Any:
    """Import public names when they are first used, so that `import s2e` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 's2e' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "s2e.api")), name)
