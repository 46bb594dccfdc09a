"""Models that vote beside the networks: cross-fitted, fitted to the posterior, written without pickle."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from s2e.data import LabelledData
from s2e.ensembles import (
    NETWORKS,
    LabelledSamples,
    PooledModels,
    PosteriorLabels,
    cross_fitting,
    pooled_models,
    votes_and_pool,
)
from s2e.errors import InvalidInput
from s2e.files.fields import Fields
from s2e.models import MOST_NUMBERS, models_for
from small_tasks import blobs


def one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    return np.asarray(np.eye(classes)[labels])


def pool(samples: np.ndarray, labels: np.ndarray, weights: dict[str, float]) -> PooledModels:
    classes = int(labels.max()) + 1
    candidates = np.tile(np.arange(classes), (len(labels), 1))
    return PooledModels.fit(weights, PosteriorLabels(samples, candidates, one_hot(labels, classes)), classes)


def given(data: LabelledData, known: np.ndarray | None = None) -> LabelledSamples:
    return LabelledSamples(data.inputs, data.labels, np.zeros(len(data), dtype=bool) if known is None else known)


def no_vote() -> np.ndarray:
    raise AssertionError("the networks were asked")


def test_a_held_out_sample_does_not_see_its_own_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled_models, "models_for", lambda *_: {"nearest": KNeighborsClassifier(1)})
    samples, labels = np.repeat(np.arange(12.0), 2)[:, None], np.arange(24) % 2
    data = LabelledSamples(samples, labels, np.zeros(24, dtype=bool))
    monkeypatch.setattr(pooled_models, "FOLDS", 24)
    with cross_fitting(data, 2, 0) as predictions:
        ((name, found),) = predictions()
    assert name == "nearest"
    pairs = pooled_models.stratified_folds(labels, 24, 0).reshape(12, 2)
    apart = np.repeat(pairs[:, 0] != pairs[:, 1], 2)
    assert apart.any()
    np.testing.assert_array_equal(found.argmax(axis=1)[apart], 1 - labels[apart])  # that of the other sample there


def test_a_fold_that_leaves_one_class_has_no_predictions() -> None:
    data = LabelledSamples(np.eye(4), np.array([0, 0, 0, 1]), np.zeros(4, dtype=bool))
    with cross_fitting(data, 2, 0) as predictions:
        assert predictions() == []


def test_predictions_are_the_same_if_they_are_made_ahead() -> None:
    data, found = blobs(), []
    for ahead in (False, True):
        with cross_fitting(given(data), 4, 0, ahead=ahead) as predictions:
            found.append(predictions())
    for (name, one), (other_name, other) in zip(*found, strict=True):
        assert name == other_name
        np.testing.assert_array_equal(one, other)


def test_the_pool_does_not_depend_on_the_number_of_threads() -> None:
    data = blobs()
    networks = np.full((len(data), data.classes), 1 / data.classes)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(votes_and_pool(given(data), networks, 0))
    finally:
        torch.set_num_threads(before)
    (votes, probabilities), (other_votes, other) = found
    assert votes == other_votes
    np.testing.assert_array_equal(probabilities, other)


def test_certain_labels_give_the_model_of_these_labels() -> None:
    data = blobs()
    labels = data.clean_labels
    assert labels is not None
    found = pool(data.inputs, labels, {"logistic-regression": 1.0})
    expected = models_for(data.inputs, 4)["logistic-regression"].fit(data.inputs, labels).predict_proba(data.inputs)
    np.testing.assert_allclose(found.probabilities(data.inputs, no_vote), expected, atol=1e-6)


def test_improbable_classes_are_not_trained_on_and_others_are_weighted() -> None:
    samples, candidates = np.array([[0.0], [1.0]]), np.array([[0, 1], [0, 1]])
    labels = PosteriorLabels(samples, candidates, np.array([[0.99, 0.01], [0.25, 0.75]]))
    by_hand = LogisticRegression().fit([[0.0], [1.0], [1.0]], [0, 0, 1], sample_weight=[0.99, 0.25, 0.75])
    np.testing.assert_allclose(labels.fitted(LogisticRegression()).coef_, by_hand.coef_)


def test_networks_vote_beside_the_models() -> None:
    data = blobs()
    votes = one_hot(np.zeros(len(data), dtype=np.int64), 4) * 0.97 + 0.01
    alone = pool(data.inputs, data.labels, {"extra-trees": 1.0}).probabilities(data.inputs, no_vote)
    both = pool(data.inputs, data.labels, {NETWORKS: 0.5, "extra-trees": 0.5}).probabilities(data.inputs, lambda: votes)
    assert (both[:, 0] > alone[:, 0] - 1e-9).all()


def test_models_depend_on_the_size_and_the_kind_of_samples() -> None:
    assert set(models_for(np.zeros((10, 2)), 2)) == {"logistic-regression", "support-vectors", "extra-trees"}
    assert set(models_for(np.zeros((30_000, 2)), 2)) == {"logistic-regression", "boosting"}
    assert models_for(np.broadcast_to(0.0, (MOST_NUMBERS, 2)), 1) == {}
    assert set(models_for(np.zeros((1000, 2)), 101)) == {"logistic-regression"}
    assert models_for(np.zeros((1000, 2)), MOST_NUMBERS // 1000 + 1) == {}
    positive = sparse.csr_matrix(np.eye(3))
    assert set(models_for(positive, 2)) == {"logistic-regression", "naive-bayes"}
    assert set(models_for(-positive, 2)) == {"logistic-regression"}  # naive Bayes takes counts


def test_votes_are_shares_and_the_pool_is_better_than_bad_networks() -> None:
    data = blobs(480)
    assert data.clean_labels is not None
    guess = np.full((len(data), 4), 0.25)
    votes, predicted = votes_and_pool(given(data), guess, seed=0)
    assert sum(votes.values()) == pytest.approx(1)
    assert NETWORKS not in votes
    assert (predicted.argmax(axis=1) == data.clean_labels).mean() > 0.9
    again, same = votes_and_pool(given(data), guess, seed=0)
    assert again == votes
    np.testing.assert_array_equal(same, predicted)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_models_of_a_file_are_fitted_again(as_sparse: bool) -> None:
    data = blobs()
    samples = np.abs(data.inputs)
    weights = {"logistic-regression": 0.75, "naive-bayes" if as_sparse else "support-vectors": 0.25}
    before = pool(sparse.csr_matrix(samples) if as_sparse else samples, data.labels, weights)
    about = Fields(json.loads(json.dumps(before.about())), Path("file"))
    after = PooledModels.from_file(about, before.arrays(), 4)
    assert after.name == before.name
    np.testing.assert_array_equal(after.probabilities(samples, no_vote), before.probabilities(samples, no_vote))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("classes", np.zeros((3, 4), dtype=np.int64)),
        ("classes", np.full((192, 4), 9)),
        ("posterior", np.full((192, 4), 2.0)),
        ("samples", np.zeros((192, 6), dtype=np.int64)),
        ("samples", np.zeros(192)),
    ],
)
def test_damaged_files_are_refused_in_one_line(name: str, value: np.ndarray) -> None:
    data = blobs(192)
    made = pool(data.inputs, data.labels, {"logistic-regression": 1.0})
    with pytest.raises(InvalidInput, match="the data of its models are damaged: other"):
        PooledModels.from_file(Fields(made.about(), Path("file")), {**made.arrays(), name: value}, 4)
    with pytest.raises(InvalidInput, match="damaged: samples that are not finite"):
        PooledModels.from_file(
            Fields(made.about(), Path("file")), {**made.arrays(), "samples": data.inputs * np.inf}, 4
        )
    with pytest.raises(InvalidInput, match="damaged: other votes"):
        PooledModels.from_file(Fields({"weights": {"pickle": 1.0}}, Path("file")), made.arrays(), 4)


def test_samples_of_another_width_are_refused() -> None:
    data = blobs()
    found = pool(data.inputs, data.labels, {"logistic-regression": 1.0})
    with pytest.raises(InvalidInput, match="samples must have 6 numbers, as in training, but got 5"):
        found.probabilities(data.inputs[:, :5], no_vote)


def test_a_few_known_labels_decide_which_of_two_classes_is_right() -> None:
    """Nearly half of the labels of each class are those of the next one; without known labels either may be right."""
    data = blobs(480)
    assert data.clean_labels is not None
    generator = np.random.default_rng(0)
    flipped = generator.random(len(data)) < 0.48
    known = np.arange(len(data)) < 24
    labels = np.where(flipped & ~known, (data.clean_labels + 1) % 4, data.clean_labels)
    guess = np.full((len(data), 4), 0.25)
    votes, predicted = votes_and_pool(LabelledSamples(data.inputs, labels, known), guess, seed=0)
    assert (predicted.argmax(axis=1) == data.clean_labels)[~known].mean() > 0.95
    assert sum(votes.values()) == pytest.approx(1)
    assert votes.keys() <= models_for(data.inputs, 4).keys()  # a model fitted to known labels alone has its name


def test_models_are_fitted_to_known_labels_alone_too() -> None:
    data = blobs()
    known = np.arange(len(data)) < 40
    labels = np.where(known, data.labels, 0)
    with cross_fitting(LabelledSamples(data.inputs, labels, known), 4, 0) as predictions:
        found = predictions()
    names = list(models_for(data.inputs, 4))
    assert [name for name, _ in found] == [*names, *names]
    by_hand = models_for(data.inputs, 4)["logistic-regression"].fit(data.inputs[known], labels[known])
    np.testing.assert_allclose(found[len(names)][1][~known], by_hand.predict_proba(data.inputs[~known]))


def test_known_samples_that_are_not_audited_keep_their_labels() -> None:
    data = LabelledSamples(np.arange(3.0)[:, None], np.array([0, 1, 2]), np.array([False, False, True]))
    posterior = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]])
    found = PosteriorLabels.of(data, np.tile(np.arange(3), (2, 1)), posterior)
    np.testing.assert_array_equal(found.posterior[:2], posterior)
    assert found.classes[2, found.posterior[2] > 0].tolist() == [2]


def test_balanced_weights_of_certain_labels_are_those_of_scikit_learn() -> None:
    data = blobs(240)
    labels = np.minimum(data.labels, 1)
    posterior = PosteriorLabels(data.inputs, np.tile(np.arange(2), (len(data), 1)), one_hot(labels, 2), balanced=True)
    by_hand = LogisticRegression(class_weight="balanced").fit(data.inputs, labels)
    np.testing.assert_allclose(posterior.fitted(LogisticRegression()).coef_, by_hand.coef_, atol=1e-6)


def test_models_with_balanced_weights_are_fitted_with_them_again() -> None:
    data = blobs(192)
    candidates, labels = np.tile(np.arange(4), (192, 1)), np.minimum(data.labels, 1)
    posterior = PosteriorLabels(data.inputs, candidates, one_hot(labels, 4), balanced=True)
    before = PooledModels.fit({"logistic-regression": 1.0}, posterior, 4)
    after = PooledModels.from_file(Fields(before.about(), Path("file")), before.arrays(), 4)
    expected = before.probabilities(data.inputs, no_vote)
    np.testing.assert_array_equal(after.probabilities(data.inputs, no_vote), expected)
