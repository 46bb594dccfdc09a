"""Trained networks as an ONNX model, to predict without PyTorch.

Letters: M networks, N samples, C classes.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from s2e.atomic_write import replace_output
from s2e.engine.inference import Classifier
from s2e.errors import InvalidInput

FEATURES, PROBABILITIES = "features", "probabilities"


class _MeanProbabilities(nn.Module):
    """The class probabilities (N, C), mean over M networks."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.networks = nn.ModuleList(classifier.networks)
        self.classes = len(classifier.class_names)

    def forward(self, features: Tensor) -> Tensor:
        outputs = [network(features).softmax(dim=-1)[..., : self.classes] for network in self.networks]
        return torch.stack(outputs).mean(dim=0)


def export_onnx(classifier: Classifier, path: str | PathLike[str]) -> None:
    """Write a classifier as an ONNX model.

    Its input `features` is float32 (N, ...), encoded samples: what networks receive, so pixels are divided by 255. Its
    output `probabilities` is (N, C), the mean over the networks. The names of the classes are in the metadata of the
    model, under `classes`, as JSON.
    """
    where = Path(path)
    if not where.parent.is_dir() or where.is_dir():
        raise InvalidInput(f"`path` must be a file in an existing directory, but got {str(where)!r}.")
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as problem:
        raise InvalidInput(
            f"export to ONNX must find the packages onnx and onnxscript, but {problem.name} is not installed; run "
            "`pip install 's2e[onnx]'`."
        ) from problem
    example = torch.zeros(2, *classifier.sample_shape)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            _MeanProbabilities(classifier).eval(),
            (example,),
            input_names=[FEATURES],
            output_names=[PROBABILITIES],
            dynamic_shapes={FEATURES: {0: torch.export.Dim("samples")}},
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no model")
    model = program.model_proto
    entry = model.metadata_props.add()
    entry.key, entry.value = "classes", json.dumps(classifier.class_names)
    replace_output(where, model.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what the exporter logs and warns about its own parts."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
