"""`S2EClassifier`: the pipeline as a scikit-learn classifier."""

from s2e.estimator.classifier import S2EClassifier

__all__ = ["S2EClassifier"]
