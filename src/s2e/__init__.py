"""s2e: train good classifiers on wrong labels, without being told how wrong they are."""

from s2e._version import __version__

__all__ = ["__version__"]
