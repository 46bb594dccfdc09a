"""Export to ONNX: another runtime predicts the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from s2e.engine import Classifier, export_onnx
from s2e.errors import InvalidInput
from s2e.networks import reference_network
from small_tasks import small_mlp

NETWORKS = {"mlp": (small_mlp, (6,)), "cnn": (reference_network("cifar10-cnn", (3, 16, 16), 4), (3, 16, 16))}


def classifier(name: str) -> Classifier:
    factory, shape = NETWORKS[name]
    torch.manual_seed(0)
    return Classifier(tuple(factory().eval() for _ in range(2)), tuple("abcd"), shape)


@pytest.mark.slow  # the exporter takes seconds
@pytest.mark.parametrize("name", NETWORKS)
def test_another_runtime_predicts_the_same_for_any_number_of_samples(name: str, tmp_path: Path) -> None:
    import onnxruntime

    given = classifier(name)
    export_onnx(given, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == list("abcd")
    for samples in (1, 5):
        features = np.random.default_rng(samples).random((samples, *given.sample_shape), dtype=np.float32)
        (probabilities,) = session.run(["probabilities"], {"features": features})
        np.testing.assert_allclose(probabilities, given.probabilities(features).mean(axis=0), atol=1e-5)


def test_missing_packages_and_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="`path` must be a file in an existing directory"):
        export_onnx(classifier("mlp"), tmp_path / "absent" / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InvalidInput, match=r"onnx is not installed; run `pip install 's2e\[onnx\]'`"):
        export_onnx(classifier("mlp"), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
    assert isinstance(classifier("mlp").networks[0], nn.Module)
