"""Folds: every class is spread evenly, and the seed determines them."""

from __future__ import annotations

import numpy as np
import pytest

from s2e.audit.cross_fitting import stratified_folds


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_folds_are_of_equal_size_in_every_class(folds):
    labels = np.random.default_rng(0).choice(4, size=203, p=[0.7, 0.2, 0.08, 0.02])
    found = stratified_folds(labels, folds, 0)
    assert set(found) == set(range(folds))
    assert np.ptp(np.bincount(found)) <= 1
    for label in range(4):
        assert np.ptp(np.bincount(found[labels == label], minlength=folds)) <= 1


def test_seed_determines_the_folds():
    labels = np.arange(60) % 3
    np.testing.assert_array_equal(stratified_folds(labels, 4, 1), stratified_folds(labels, 4, 1))
    assert (stratified_folds(labels, 4, 1) != stratified_folds(labels, 4, 2)).any()


def test_few_samples_have_fewer_folds():
    assert set(stratified_folds(np.array([0, 1, 0, 1]), 5, 0)) == {0, 1}
    assert set(stratified_folds(np.array([0]), 5, 0)) == {0}
