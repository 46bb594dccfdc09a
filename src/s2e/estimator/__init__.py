"""`S2EClassifier`: the pipeline under scikit-learn's contract."""
