"""Stored classifiers: equal predictions, and unreadable files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from s2e.data.samples import LabelledData
from s2e.errors import InvalidInput, UnreadableData
from s2e.networks import ChannelStatistics, NormalisedNetwork
from s2e.networks.factories import reference_network
from s2e.runs.classifier_file import WEIGHTS, read_classifier, write_classifier
from s2e.runs.directory import Run

NAMES = ("cat", "dog", "wild boar")


@pytest.fixture
def images():
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, size=(20, 3, 16, 16), dtype=np.uint8)
    return LabelledData(pixels, np.arange(20) % 3, NAMES)


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", {})


def networks(name, data, count=2):
    torch.manual_seed(0)
    return [reference_network(name, data.sample_shape, data.classes)().eval() for _ in range(count)]


def state_of(modules):
    states = [module.state_dict() for module in modules]
    return {key: torch.stack([state[key] for state in states]) for key in states[0]}


@pytest.mark.parametrize(("name", "count"), [("mlp", 1), ("cifar10-cnn", 2), ("mlp:widths=7-5,batch_norm=true", 2)])
def test_stored_classifier_has_equal_predictions(name, count, images, run):
    modules = networks(name, images, count)
    write_classifier(run, name, images, state_of(modules))
    read = read_classifier(run)
    with torch.no_grad():
        expected = [module(torch.from_numpy(images.inputs) / 255).softmax(dim=1).numpy() for module in modules]
    found = read.probabilities(images.inputs)
    assert found.shape == (count, 20, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert (read.class_names, read.sample_shape) == (NAMES, (3, 16, 16))


def test_stored_classifier_normalises_images(images, run):
    statistics = ChannelStatistics((0.1, 0.5, 1 / 3), (0.2, 1.0, 0.7))
    torch.manual_seed(0)
    module = NormalisedNetwork(networks("mlp", images, 1)[0], statistics).eval()
    write_classifier(run, "mlp", images, state_of([module]), statistics)
    with torch.no_grad():
        expected = module(torch.from_numpy(images.inputs) / 255).softmax(dim=1).numpy()
    np.testing.assert_allclose(read_classifier(run).probabilities(images.inputs)[0], expected, rtol=1e-5, atol=1e-6)


def test_predictions_do_not_depend_on_the_batch_size(images, run, monkeypatch):
    write_classifier(run, "mlp", images, state_of(networks("mlp", images)))
    read = read_classifier(run)
    whole = read.probabilities(images.inputs)
    monkeypatch.setattr("s2e.engine.inference.SAMPLES_PER_BATCH", 7)
    np.testing.assert_allclose(read.probabilities(images.inputs), whole, rtol=1e-5)


def test_samples_of_another_shape_are_refused(images, run):
    write_classifier(run, "mlp", images, state_of(networks("mlp", images)))
    with pytest.raises(InvalidInput, match=r"shape \(3, 16, 16\), as in training, but got \(1, 16, 16\)"):
        read_classifier(run).probabilities(images.inputs[:, :1])


def test_run_without_a_classifier_is_refused(run):
    with pytest.raises(UnreadableData, match="holds no trained classifier yet"):
        read_classifier(run)


def test_damaged_weights_and_those_of_an_older_version_are_refused(images, run):
    write_classifier(run, "mlp", images, state_of(networks("mlp", images)))
    weights = load_file(run.path / WEIGHTS)
    save_file(weights, run.path / WEIGHTS, {"classes": "\n".join(NAMES)})
    with pytest.raises(UnreadableData, match=r"not a classifier of this version.*train it again"):
        read_classifier(run)
    about = {"classes": NAMES, "network": "mlp", "sample_shape": [3, 16, 16], "networks": 2}
    save_file(dict(list(weights.items())[1:]), run.path / WEIGHTS, {"classifier": json.dumps(about)})
    with pytest.raises(UnreadableData, match="train it again"):
        read_classifier(run)
    for other in ({"sample_shape": [3, 2**31, 2**31]}, {"sample_shape": [], "normalisation": {"mean": [0.0]}}):
        save_file(weights, run.path / WEIGHTS, {"classifier": json.dumps(about | other)})
        with pytest.raises(UnreadableData, match=r"`sample_shape` must be the sizes .*train it again"):
            read_classifier(run)
    (run.path / WEIGHTS).write_bytes(b"nonsense")
    with pytest.raises(UnreadableData, match="train it again"):
        read_classifier(run)
