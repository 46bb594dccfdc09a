"""The figures and tables of the paper, as declarations that feed the same line."""

from __future__ import annotations

from typing import Any

from s2e.errors import unknown_name

EXPERIMENTS = ("convergence",)


def reproduced(what: str, seed: int) -> dict[str, Any]:
    """Compute one of the paper's results and return its numbers."""
    if what not in EXPERIMENTS:
        raise unknown_name("what", what, EXPERIMENTS)
    from s2e.experiments.convergence import convergence

    return convergence(seed)
