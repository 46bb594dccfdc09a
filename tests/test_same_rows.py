"""The same rows give the same inputs and the same result through every door: files, tables and arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from sklearn.datasets import load_wine
from torch.utils.data import Dataset

import s2e
from s2e import S2EClassifier
from s2e.data import load, prepare
from s2e.errors import InvalidInput
from s2e.runs import RunLocation
from s2e.specs import DataSpec, SearchOptions, SearchSpec, TrainingSpec
from s2e.workflows.predict import predict
from s2e.workflows.search import search

pytestmark = [
    pytest.mark.filterwarnings("ignore::s2e.errors.S2EWarning"),  # of columns left out
    pytest.mark.usefixtures("few_trees"),
]

FILES = ("rows.npz", "rows.csv", "rows.tsv", "rows.csv.gz", "rows.jsonl", "rows.ndjson.gz", "rows.parquet")
QUICK = {"n_trials": 2, "epochs": 3, "restarts": 1, "random_state": 0, "final_estimator": None}
POOL = {**QUICK, "final_estimator": "auto"}


@pytest.fixture(scope="module")
def rows() -> tuple[pd.DataFrame, np.ndarray]:
    """Wine with missing values, and a constant column."""
    X, y = load_wine(return_X_y=True)
    X[::7, 2] = np.nan
    X = np.column_stack([X, np.full(len(X), 7.0)])
    return pd.DataFrame(X, columns=[f"x{index}" for index in range(X.shape[1])]), y


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory) -> Path:
    frame, y = rows
    folder = tmp_path_factory.mktemp("rows")
    table = frame.assign(label=y)
    np.savez(folder / "rows.npz", x=frame.to_numpy(), y=y)
    for name in ("rows.csv", "rows.csv.gz"):
        table.to_csv(folder / name, index=False)
    table.to_csv(folder / "rows.tsv", index=False, sep="\t")
    for name in ("rows.jsonl", "rows.ndjson.gz"):
        table.to_json(folder / name, orient="records", lines=True, double_precision=15)
    table.to_parquet(folder / "rows.parquet")
    return folder


def loaded(folder: Path, name: str):
    return load(folder / name, label=None if name.endswith(".npz") else "label")


@pytest.mark.parametrize("name", FILES[1:])
def test_inputs_and_labels_do_not_depend_on_the_format(folder, name):
    expected, found = loaded(folder, FILES[0]).train, loaded(folder, name).train
    np.testing.assert_array_equal(found.inputs, expected.inputs)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.class_names == expected.class_names


def test_tables_and_arrays_in_python_give_the_inputs_of_files(rows, folder):
    frame, y = rows
    expected = loaded(folder, "rows.csv").train.inputs
    for samples in (frame, frame.to_numpy(), frame.to_numpy().tolist()):
        classifier = S2EClassifier(**QUICK).fit(samples, y)
        np.testing.assert_array_equal(classifier._inputs(samples), expected)


def test_a_whole_fit_is_equal_for_tables_and_arrays(rows):
    frame, y = rows
    expected = S2EClassifier(**POOL).fit(frame, y).predict_proba(frame)
    found = S2EClassifier(**POOL).fit(frame.to_numpy(), y).predict_proba(frame.to_numpy())
    np.testing.assert_array_equal(found, expected)


def test_tables_of_other_libraries_give_the_fit_of_pandas(rows):
    frame, y = rows
    polars, datasets = pytest.importorskip("polars"), pytest.importorskip("datasets")
    labelled = frame.assign(label=y)
    expected = S2EClassifier(**QUICK).fit(frame, y).predict_proba(frame)
    for convert in (polars.from_pandas, pyarrow.Table.from_pandas, datasets.Dataset.from_pandas):
        table = convert(labelled)
        found = S2EClassifier(**QUICK).fit(table, "label")
        np.testing.assert_array_equal(found.predict_proba(convert(frame)), expected)
    named = S2EClassifier(**QUICK).fit(polars.from_pandas(frame), polars.Series(y), X_val=labelled, y_val="label")
    assert named.validation_ == "clean"
    with pytest.raises(InvalidInput, match="`y` must be one of"):
        S2EClassifier(**QUICK).fit(labelled, "lable")


class Samples(Dataset):
    """Images with labels, as dictionaries."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, object]:
        return {"image": torch.from_numpy(self.images[index]), "label": int(self.labels[index])}


def test_datasets_of_dictionaries_give_the_fit_of_arrays():
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, size=(40, 1, 6, 6), dtype=np.uint8), np.arange(40) % 2
    expected = S2EClassifier(**QUICK).fit(images, labels).predict_proba(images)
    dataset = Samples(images, labels)
    np.testing.assert_array_equal(S2EClassifier(**QUICK).fit(dataset).predict_proba(dataset), expected)
    datasets = pytest.importorskip("datasets")
    stored = datasets.Dataset.from_dict({"image": images, "label": labels}).with_format("numpy", dtype=np.uint8)
    np.testing.assert_array_equal(S2EClassifier(**QUICK).fit(stored).predict_proba(stored), expected)


def test_tables_in_search_and_train_are_encoded_as_files_are(rows, folder):
    frame, y = rows
    labelled = frame.assign(label=y)
    options = {"epochs": 2, "trials": 2, "generation_size": 2, "device": "cpu"}
    expected = s2e.search(
        (loaded(folder, "rows.csv").train.inputs, y), (loaded(folder, "rows.csv").train.inputs, y), **options
    )
    found = s2e.search(labelled, labelled, label="label", **options)
    np.testing.assert_array_equal(found.schedule, expected.schedule)
    trained = s2e.train(labelled, [1.0, 0.9], evaluate={"valid": labelled}, device="cpu")
    assert trained.class_names == ("0", "1", "2")
    np.testing.assert_array_equal(trained.encoder.encode(frame), loaded(folder, "rows.csv").train.inputs)
    with pytest.raises(InvalidInput, match="but got a module, Linear; every training needs its own"):
        s2e.search(labelled, labelled, network=torch.nn.Linear(3, 3))


def test_the_command_and_the_estimator_give_the_same_result(rows, folder, tmp_path):
    frame, y = rows
    small = DataSpec(str(folder / "rows.csv"), label="label")
    options = SearchOptions(small, training=TrainingSpec(epochs=3), search=SearchSpec(trials=2, generation_size=2))
    run = search(options, RunLocation(tmp_path / "run", device="cpu"))
    classifier = S2EClassifier(**{**POOL, "restarts": 3}).fit(frame, y)
    np.testing.assert_array_equal(classifier.schedule_, run.read_json("schedule.json")["keep_rates"])
    stored = run.read_json("config.json")["options"]
    assert (stored["epochs"], stored["batch_size"]) == (classifier.epochs_, classifier.batch_size_)
    predictions = predict(run, folder / "rows.csv").probabilities
    np.testing.assert_allclose(classifier.predict_proba(frame), predictions, rtol=1e-5)


@pytest.mark.parametrize("count", [8, 30])
def test_few_rows_are_enough(rows, tmp_path, count):
    frame, _ = rows
    table = frame[:count].assign(label=np.arange(count) % 2)
    table.to_csv(tmp_path / "few.csv", index=False)
    quick = {"training": TrainingSpec(epochs=2), "search": SearchSpec(trials=2, generation_size=2), "restarts": 1}
    run = search(
        SearchOptions(DataSpec(str(tmp_path / "few.csv"), label="label"), **quick), RunLocation(tmp_path / "run")
    )
    assert run.read_json("config.json")["options"]["batch_size"] <= count


def test_trusted_rows_do_not_depend_on_the_format(folder):
    training = str(folder / "rows.csv")
    specs = [DataSpec(training, label="label", validation=str(folder / name)) for name in ("rows.csv", "rows.npz")]
    specs.append(DataSpec(str(folder / "rows.npz"), validation=str(folder / "rows.npz")))
    expected, *others = (prepare(spec, "none", 0, folder).splits.valid for spec in specs)
    for found in others:
        np.testing.assert_array_equal(found.inputs, expected.inputs)
        np.testing.assert_array_equal(found.labels, expected.labels)


def test_a_whole_search_is_equal_for_files(folder, tmp_path):
    results = []
    for name in ("rows.npz", "rows.csv", "rows.parquet"):
        options = SearchOptions(
            DataSpec(str(folder / name), label="" if name.endswith(".npz") else "label"),
            training=TrainingSpec(epochs=3, batch_size=32),
            search=SearchSpec(trials=2, generation_size=2),
            restarts=1,
        )
        run = search(options, RunLocation(tmp_path / name, device="cpu"))
        results.append((run.read_json("schedule.json"), run.read_json("result.json")["methods"]))
    assert results[0] == results[1] == results[2]
