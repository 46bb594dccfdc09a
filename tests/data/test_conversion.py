"""Arrays, tensors and map-style datasets as labelled data."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from s2e.data import LabelledData, as_labelled_data, as_labelled_parts, conversion
from s2e.errors import InvalidInput
from s2e.files.memory import available_memory

INPUTS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
LABELS = np.array([0, 2, 1, 0, 2, 1])


class Pairs(Dataset[Any]):
    """A dataset whose samples are made by a function of the index; it counts how often they are read."""

    def __init__(self, sample: Callable[[int], Any], length: int = 6) -> None:
        self.sample, self.length, self.reads = sample, length, [0] * min(length, 100)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.reads[index] += 1
        return self.sample(index)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(INPUTS[0], 0)])


class Reversed(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(len(self) - 1 - index)


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(INPUTS), torch.from_numpy(LABELS)


def refusal(data: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        as_labelled_data(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def equal(data: LabelledData, order: Any = slice(None)) -> bool:
    return np.array_equal(data.inputs, INPUTS[order]) and np.array_equal(data.labels, LABELS[order])


def test_every_kind_of_data_gives_the_same_arrays() -> None:
    inputs, labels = tensors()
    for data in (
        (INPUTS, LABELS),
        (INPUTS.tolist(), LABELS.tolist()),
        (list(inputs), list(labels)),
        (inputs.double().requires_grad_(), labels.int()),
        TensorDataset(inputs, labels),
        Pairs(lambda index: (INPUTS[index], int(LABELS[index]))),
        Pairs(lambda index: (inputs[index], labels[index])),
        Pairs(lambda index: (INPUTS[index].tolist(), LABELS[index])),
        [(sample, label) for sample, label in zip(INPUTS, LABELS, strict=True)],
        ConcatDataset([TensorDataset(inputs[:2], labels[:2]), TensorDataset(inputs[2:], labels[2:])]),
    ):
        assert equal(as_labelled_data(data)), data
    assert equal(as_labelled_data(Reversed(inputs, labels)), slice(None, None, -1))


def test_subsets_of_tensors_and_of_other_datasets_are_equal() -> None:
    whole = TensorDataset(*tensors())
    for dataset in (whole, Pairs(lambda index: whole[index])):
        assert equal(as_labelled_data(Subset(Subset(dataset, range(1, 6)), [4, 0, 2])), [5, 1, 3])


def test_tensor_datasets_are_not_read_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "_read", lambda _: pytest.fail("read by index"))
    whole = TensorDataset(*tensors())
    assert equal(as_labelled_data(whole))
    assert equal(as_labelled_data(Subset(whole, [3, 1, 4, 2])), [3, 1, 4, 2])


def test_samples_are_read_once_with_progress(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(conversion, "PROGRESS_SECONDS", -1.0)
    dataset = Pairs(lambda index: (INPUTS[index], LABELS[index]))
    with caplog.at_level(logging.INFO, "s2e"):
        as_labelled_data(dataset)
    assert dataset.reads == [2, 1, 1, 1, 1, 1], "the first is read again, to notice random transforms"
    assert "read 6 of 6 samples of the dataset" in caplog.messages[-1]


def test_only_images_stay_uint8() -> None:
    pixels = np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4)
    for data in ((pixels, LABELS), Pairs(lambda index: (torch.from_numpy(pixels[index]), LABELS[index]))):
        converted = as_labelled_data(data).inputs
        assert converted.dtype == np.uint8
        np.testing.assert_array_equal(converted, pixels)
    flat = pixels.reshape(6, 16)
    assert as_labelled_data((flat, LABELS)).inputs.dtype == np.float32
    assert as_labelled_data(Pairs(lambda index: (flat[index], LABELS[index]))).inputs.dtype == np.float32


def test_embeddings_in_bfloat16_and_read_only_arrays_are_converted() -> None:
    inputs, labels = tensors()
    half = inputs.bfloat16()
    np.testing.assert_array_equal(as_labelled_data((half, labels)).inputs, half.float().numpy())
    frozen = INPUTS.copy()
    frozen.flags.writeable = False
    assert as_labelled_data((frozen, LABELS)).inputs.flags.writeable


def test_ragged_samples_are_refused_by_index_and_shape() -> None:
    images = [torch.zeros(3, 8, 8 + (index == 4)) for index in range(6)]
    for data in (Pairs(lambda index: (images[index], 0)), (images, LABELS)):
        assert refusal(data) == (
            "`data` must hold samples of one shape and type, but sample 0 is float32 of shape (3, 8, 8) and sample 4 "
            "is float32 of shape (3, 8, 9); resize, crop or pad the samples."
        )
    mixed = Pairs(lambda index: (np.zeros((8, 8), np.uint8 if index < 2 else np.float32), 0))
    assert "sample 0 is uint8 of shape (8, 8) and sample 2 is float32" in refusal(mixed)
    assert "samples of one shape, but NumPy reports" in refusal(([[1, 2], [3]], [0, 1]))


def test_datasets_larger_than_the_memory_are_refused_after_one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "available_memory", lambda: 6 * 3 * 4)
    assert len(as_labelled_data(Pairs(lambda index: (INPUTS[index], LABELS[index])))) == 6
    monkeypatch.setattr(conversion, "available_memory", lambda: 2**30)
    dataset = Pairs(lambda _: (torch.zeros(1024, 1024), 0), 1024)
    assert "1024 samples of float32 of shape (1024, 1024) take 4 GiB and 1 GiB are available" in refusal(dataset)
    assert sum(dataset.reads) == 1


def test_the_available_memory_is_known() -> None:
    available = available_memory()
    assert available is None or 2**20 < available < 2**50


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ((Image.new("L", (3, 3)), 0), "but got PIL images; convert them to tensors of one shape, for example with"),
        (("text", 0), "sample 0 of `data` must hold numbers, but got str."),
        ((INPUTS[0], 0, 1), "sample 0 of `data` must be a pair (input, label), but got 3 values."),
        ({"x": INPUTS[0]}, "`label` must be given, one of the keys x of the samples of `data`."),
        ((INPUTS[0], 0.5), "the label of sample 0 of `data` must be an integer, but got 0.5."),
        ((INPUTS[0], np.eye(9)), "the label of sample 0 of `data` must be an integer, but got array([[1"),
    ],
    ids=["PIL", "text", "three values", "dictionary", "fraction", "matrix"],
)
def test_unusable_samples_are_refused(sample: Any, message: str) -> None:
    assert message in refusal(Pairs(lambda _: sample))


def test_other_objects_are_refused() -> None:
    assert "but got Stream; pass a list of its pairs" in refusal(Stream())
    assert "but got DataLoader; pass its dataset" in refusal(DataLoader(TensorDataset(*tensors())))
    assert "at least one sample, but got an empty dataset" in refusal(Pairs(lambda _: None, 0))
    for data in (INPUTS, tensors()[0], {"x": INPUTS}, "digits", 5):
        assert refusal(data).endswith(f"with `__getitem__` and `__len__`, but got {type(data).__name__}.")
    assert "`inputs` must be numbers of shape (N, ...), but got <U1 of shape (2,)" in refusal((["a", "b"], [0, 1]))


# Dictionaries


def test_samples_may_be_dictionaries() -> None:
    data = as_labelled_data(Pairs(lambda index: {"image": INPUTS[index], "label": LABELS[index], "path": "x.png"}))
    assert equal(data)
    named = Pairs(lambda index: {"first": INPUTS[index], "kind": torch.tensor(LABELS[index])})
    assert equal(as_labelled_data(named, label="kind"))
    assert equal(as_labelled_data(named, label="kind", inputs="first"))


def test_keys_that_are_not_found_are_asked_for() -> None:
    dataset = Pairs(lambda index: {"a": INPUTS[index], "b": LABELS[index], "c": 0})
    assert "`inputs` must be given, one of the keys a, b, c of the samples" in refusal(dataset)
    with pytest.raises(InvalidInput, match=r"`label` must be one of .*, but got 'd'"):
        as_labelled_data(dataset, label="d", inputs="a")
    uneven = Pairs(lambda index: {"x": INPUTS[index], "y": 0} if index < 3 else {"x": INPUTS[index]})
    assert "sample 3 of `data` must have the keys x and y of the first" in refusal(uneven)


def test_random_transforms_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    generator = np.random.default_rng(0)
    as_labelled_data(Pairs(lambda index: (generator.normal(size=3), index % 2)))
    assert "`data` has random transforms: every sample is read once" in caplog.text
    caplog.clear()
    as_labelled_data(Pairs(lambda index: (np.full(3, np.nan if index > 9 else 1.0), index % 2)))
    assert not caplog.records


# Tables

FRAME = pd.DataFrame({"size": np.arange(30) % 7, "colour": ["red", "blue", "red"] * 10, "kind": ["cat", "dog"] * 15})


def tables() -> list[Any]:
    datasets = pytest.importorskip("datasets")
    polars = pytest.importorskip("polars")
    return [
        FRAME,
        polars.from_pandas(FRAME),
        polars.from_pandas(FRAME).lazy(),
        pyarrow.Table.from_pandas(FRAME),
        datasets.Dataset.from_pandas(FRAME),
    ]


def test_tables_of_every_library_are_encoded_alike() -> None:
    expected = as_labelled_parts(FRAME, {"valid": FRAME[:6]}, label="kind")
    assert expected.train.class_names == ("cat", "dog")
    assert expected.encoder.feature_names == ("size", "colour = blue", "colour = red")
    for table in tables():
        found = as_labelled_parts(table, {"valid": table}, label="kind")
        assert found.encoder == expected.encoder
        np.testing.assert_array_equal(found.train.inputs, expected.train.inputs)
        np.testing.assert_array_equal(found.others["valid"].labels, expected.train.labels)


def test_labels_may_be_given_beside_a_table() -> None:
    polars = pytest.importorskip("polars")
    expected = as_labelled_parts(FRAME, {}, label="kind").train
    inputs = FRAME[["size", "colour"]]
    for labels in (FRAME["kind"], FRAME["kind"].tolist(), polars.Series(FRAME["kind"]), pyarrow.array(FRAME["kind"])):
        found = as_labelled_parts((polars.from_pandas(inputs), labels), {}).train
        np.testing.assert_array_equal(found.inputs, expected.inputs)
        np.testing.assert_array_equal(found.labels, expected.labels)


def test_columns_are_dropped_and_read_as_text() -> None:
    found = as_labelled_parts(FRAME, {}, label="kind", drop=["size"], text=["colour"])
    assert {"colour: blue", "colour: red"} < set(found.encoder.feature_names)
    assert all(name.startswith("colour: ") for name in found.encoder.feature_names)
    with pytest.raises(InvalidInput, match="`drop` and `text` must name columns of a table, but got tuple"):
        as_labelled_parts((INPUTS, LABELS), {}, drop=["size"])


def test_a_label_column_that_is_not_found_is_asked_for() -> None:
    with pytest.raises(InvalidInput, match="`label` must be the label column of the table, one of size, colour, kind"):
        as_labelled_parts(FRAME, {})
    with pytest.raises(InvalidInput, match="`data` must be a table like the training data, but got ndarray"):
        as_labelled_parts(FRAME, {"valid": INPUTS}, label="kind")


def test_datasets_of_images_are_decoded() -> None:
    datasets = pytest.importorskip("datasets")
    pixels = np.random.default_rng(0).integers(0, 256, size=(6, 16, 16, 3), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    columns = {"image": [Image.fromarray(each) for each in pixels], "label": [0, 1] * 3}
    dataset = datasets.Dataset.from_dict(columns, features=features)
    found = as_labelled_parts(dataset, {"valid": dataset})
    assert found.train.class_names == ("cat", "dog")
    np.testing.assert_array_equal(found.train.inputs, pixels.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(found.others["valid"].inputs, found.train.inputs)
    read_by_sample = as_labelled_parts(dataset.with_format("torch"), {}).train
    np.testing.assert_array_equal(read_by_sample.inputs, found.train.inputs)
