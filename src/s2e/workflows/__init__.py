"""The workflows behind the command line, `s2e.search`, `s2e.train` and `S2EClassifier`, built on one pipeline."""

from s2e.workflows.status import Status

__all__ = ["Status"]
