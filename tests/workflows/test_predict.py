"""From a table or arrays to a classifier to predictions of other samples."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from s2e.data import load
from s2e.data.input_readers import reader_from_json
from s2e.data.table_files import read_table
from s2e.errors import InvalidInput, UnreadableData
from s2e.runs.classifier_file import read_classifier
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.workflows.predict import predict
from s2e.workflows.train import train
from small_runs import save_clusters, train_options
from small_tasks import blobs


def write_table(path: Path, rows: Iterable[int], *, label: bool = False, reverse: bool = False) -> Path:
    """Write noisy clusters as a table with an ID column, a category and missing values."""
    data, order = blobs(), -1 if reverse else 1
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *list("abcdef")[::order], "colour", *(["kind"] if label else [])])
        for row in rows:
            numbers = ["" if row % 10 == 3 and column == 0 else value for column, value in enumerate(data.inputs[row])]
            own = [data.class_names[data.labels[row]]] if label else []
            writer.writerow([f"sample {row}", *numbers[::order], "red" if row % 3 else "blue", *own])
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("data") / "own.csv", range(192), label=True)


@pytest.fixture(scope="module")
def run(table: Path) -> Run:
    return train(train_options(str(table), label="kind", id_column="name"), RunLocation(table.parent / "run"))


def test_predictions_are_named_and_probabilities_sum_to_1(run: Run, tmp_path: Path) -> None:
    found = predict(run, write_table(tmp_path / "new.csv", range(20, 50)))
    rows = found.table(probabilities=True).to_dict("records")
    assert [row["name"] for row in rows] == [f"sample {row}" for row in range(20, 50)]
    for row in rows:
        shares = {name: row[f"p({name})"] for name in "abcd"}
        assert row["predicted_label"] == max(shares, key=lambda name: shares[name])
        assert row["confidence"] == max(shares.values())
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)


def test_columns_are_kept_and_earlier_predictions_replaced(run: Run, table: Path, tmp_path: Path) -> None:
    columns = ["name", *"abcdef", "colour", "kind"]
    found = predict(run, table).table()
    assert list(found) == [*columns, "predicted_label", "confidence"]
    pd.testing.assert_frame_equal(found[columns], read_table(table))
    found.assign(predicted_label="old").to_csv(tmp_path / "again.csv", index=False)
    again = predict(run, tmp_path / "again.csv").table()
    pd.testing.assert_frame_equal(again, found, check_exact=False, atol=1e-5)


def test_given_labels_are_scored_and_missing_ones_are_not(run: Run, table: Path, tmp_path: Path) -> None:
    found, frame = predict(run, table), read_table(table)
    assert found.labels == frame["kind"].tolist()
    assert found.accuracy == pytest.approx(np.mean(np.array(found.predicted) == frame["kind"].to_numpy()))
    frame.assign(kind=frame["kind"].where(frame.index < 5)).to_csv(tmp_path / "some.csv", index=False)
    some = predict(run, tmp_path / "some.csv")
    assert (some.labelled, predict(run, write_table(tmp_path / "new.csv", range(9))).accuracy) == (5, None)
    assert some.accuracy == pytest.approx(np.mean(np.array(found.predicted[:5]) == frame["kind"].to_numpy()[:5]))


def test_predictions_do_not_depend_on_labels_column_order_or_other_rows(run: Run, table: Path, tmp_path: Path) -> None:
    few = predict(run, write_table(tmp_path / "new.csv", [7, 23, 40], reverse=True))
    np.testing.assert_allclose(few.probabilities, predict(run, table).probabilities[[7, 23, 40]], atol=1e-6)
    assert few.ids == ["sample 7", "sample 23", "sample 40"]


def test_records_have_the_ids_and_predictions_of_their_rows(run: Run, table: Path) -> None:
    records = run.read_arrays("dynamics.npz")
    assert records["ids"].tolist() == [f"sample {row}" for row in records["rows"]]
    inputs = reader_from_json(run.read_json("encoding.json")).read(table).inputs
    predicted = read_classifier(run).probabilities(inputs)
    np.testing.assert_allclose(records["probabilities"], predicted[:, records["rows"]], atol=2e-3)  # half precision


def test_arrays_are_numbered(tmp_path: Path) -> None:
    run = train(train_options(save_clusters(tmp_path / "own.npz"), epochs=1), RunLocation(tmp_path / "run"))
    np.savez(tmp_path / "new.npz", x=blobs().inputs[:9])
    found = predict(run, tmp_path / "new.npz")
    assert found.ids == [str(row) for row in range(9)]
    inputs = load(tmp_path / "own.npz").train.inputs[:9]
    expected = read_classifier(run).probabilities(inputs).mean(axis=0)
    np.testing.assert_allclose(found.probabilities, expected)
    assert found.labels is None
    for labels in (blobs().labels[:9], np.array(blobs().class_names)[blobs().labels[:9]]):  # positions, or names
        np.savez(tmp_path / "labelled.npz", x=blobs().inputs[:9], y=labels)
        assert predict(run, tmp_path / "labelled.npz").labels == [blobs().class_names[c] for c in blobs().labels[:9]]
    np.savez(tmp_path / "empty.npz", x=blobs().inputs[:0])
    with pytest.raises(InvalidInput, match="must hold samples to predict"):
        predict(run, tmp_path / "empty.npz")


def test_missing_columns_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("name,a,b,c,d,e\nx,1,2,3,4,5\n")
    with pytest.raises(InvalidInput, match=r"'f'.*'colour'"):
        predict(run, tmp_path / "new.csv")


def test_run_without_a_classifier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableData, match="holds no trained classifier yet"):
        predict(Run.create(tmp_path / "run", {}), tmp_path / "new.csv")
