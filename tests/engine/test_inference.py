"""Predictions equal those of the trained modules in evaluation mode."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from populations import with_batch_norm
from s2e.data.samples import LabelledData
from s2e.engine.inference import Classifier, predictions
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import Coteaching, Standard
from small_tasks import blobs, member, small_mlp, task


def expected_probabilities(modules, inputs):
    with torch.no_grad():
        return np.stack([module(inputs).softmax(dim=1).numpy() for module in modules])


@pytest.mark.parametrize("rows", [1 << 16, 100, 1])
def test_predictions_do_not_depend_on_batches(rows, monkeypatch):
    monkeypatch.setattr("s2e.engine.evaluation.SAMPLES_PER_CPU_BATCH", rows)
    shared = task(blobs(), Standard(), network=with_batch_norm, epochs=1)
    trained = train_population(shared, [member(seed=seed, epochs=1) for seed in range(3)])
    before = {name: tensor.clone() for name, tensor in trained.state.items()}
    modules = [trained.modules(with_batch_norm, index)[0] for index in range(3)]
    expected = expected_probabilities(modules, torch.from_numpy(shared.train.inputs))
    np.testing.assert_allclose(predictions(shared, trained.state), expected, rtol=1e-4, atol=1e-6)
    for name, tensor in before.items():
        assert torch.equal(trained.state[name], tensor), name


def test_pixels_are_scaled_for_predictions():
    images = np.random.default_rng(0).integers(0, 256, (64, 2, 3), dtype=np.uint8)
    data = LabelledData(images, np.arange(64) % 4, tuple("abcd"))

    def network():
        return nn.Sequential(nn.Flatten(), small_mlp())

    shared = task(data, Standard(), network=network)
    trained = train_population(shared, [member()])
    expected = expected_probabilities(trained.modules(network), torch.from_numpy(images).float() / 255)
    np.testing.assert_allclose(predictions(shared, trained.state), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(predictions(shared, trained.state, images[:5]), expected[:, :5], rtol=1e-4, atol=1e-6)


def test_classifier_predicts_with_all_networks_of_a_member(train_data):
    trained = train_population(task(train_data, Coteaching()), [member(seed=1), member(seed=2)])
    classifier = Classifier(trained.modules(small_mlp, 1), train_data.class_names, (6,))
    expected = predictions(task(train_data, Coteaching()), trained.state)[2:]
    np.testing.assert_allclose(classifier.probabilities(train_data.inputs), expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(InvalidInput, match=r"samples of shape \(6,\), as in training, but got \(5,\)"):
        classifier.probabilities(train_data.inputs[:, :5])
