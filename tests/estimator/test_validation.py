"""scikit-learn's own checks of `S2EClassifier`: all of them apply."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from s2e import S2EClassifier


@parametrize_with_checks([S2EClassifier(n_trials=2, epochs=3, learning_rate=1e-2, restarts=1)])
def test_scikit_learns_contract(estimator, check):
    check(estimator)
