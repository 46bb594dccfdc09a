"""scikit-learn's own checks of `S2EClassifier`: all of them apply."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from s2e import S2EClassifier

ESTIMATOR = S2EClassifier(n_trials=2, epochs=3, learning_rate=1e-2, restarts=1)


def checks() -> Iterator[object]:
    """Checks repeated with samples in read-only memory, and the twin of the check of sparse arrays, are slow."""
    for _, check in estimator_checks_generator(ESTIMATOR):
        name = check.func.__name__.removeprefix("check_")
        repeated = "readonly_memmap" in check.keywords or name == "estimator_sparse_matrix"
        changes = "".join(f", {key}={value}" for key, value in check.keywords.items())
        yield pytest.param(check, id=name + changes, marks=[pytest.mark.slow] if repeated else [])


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("check", list(checks()))
def test_scikit_learns_contract(check):
    check(ESTIMATOR)
