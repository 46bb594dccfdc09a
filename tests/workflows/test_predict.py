"""From a file of one's own to a classifier to predictions of new samples, as a user goes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from command_line import TINY_SEARCH, assert_refused, s2e, save
from s2e.data.input_readers import ArrayReader, ImageReader, reader_from_json
from s2e.errors import InvalidInput, UnreadableData
from s2e.runs.classifier_file import read_classifier
from s2e.runs.directory import Run
from s2e.workflows.predict import predict
from small_tasks import blobs

COLUMNS = ["a", "b", "c", "d", "e", "f"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_table(name="own.csv", *, rows=None, label=True, order=1):
    """The noisy clusters as a table with a name for every row, a category and a gap."""
    data = blobs()
    chosen = range(len(data)) if rows is None else rows
    header = ["name", *COLUMNS[::order], "colour", *(["kind"] if label else [])]
    with Path(name).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for row in chosen:
            numbers = [str(value) for value in data.inputs[row][::order]]
            if row % 10 == 3:
                numbers[0] = ""
            own = [data.class_names[data.labels[row]]] if label else []
            writer.writerow([f"sample {row}", *numbers, "red" if row % 3 else "blue", *own])
    return name


def table(name="predictions.csv"):
    with Path(name).open(newline="") as file:
        return list(csv.DictReader(file))


def train(*arguments):
    result = s2e("search", *arguments, *TINY_SEARCH, "--out", "run")
    assert result.exit_code == 0, result.stderr
    return Run("run")


def test_a_table_becomes_a_classifier_that_predicts_others_like_it():
    train(write_table(), "--label", "kind", "--id", "name")
    write_table("new.csv", rows=range(20, 50), label=False)
    result = s2e("predict", "run", "new.csv", "-o", "out.csv")
    assert result.exit_code == 0, result.stderr
    assert "30 samples: " in result.stdout
    rows = table("out.csv")
    assert [row["id"] for row in rows] == [f"sample {row}" for row in range(20, 50)]
    for row in rows:
        shares = {name: float(row[f"p({name})"]) for name in "abcd"}
        assert row["predicted"] == max(shares, key=shares.get)
        assert float(row["probability"]) == max(shares.values())
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)


def test_what_is_predicted_does_not_depend_on_labels_on_the_order_of_columns_or_on_other_rows():
    train(write_table(), "--label", "kind", "--id", "name")
    run = Run("run")
    whole = predict(run, Path("own.csv"))
    part = predict(run, Path(write_table("new.csv", rows=[7, 21, 40], label=False, order=-1)))
    np.testing.assert_allclose(part.probabilities, whole.probabilities[[7, 21, 40]], atol=1e-6)
    assert part.ids == ["sample 7", "sample 21", "sample 40"]


def test_the_records_of_a_run_name_the_rows_as_their_file_does():
    run = train(write_table(), "--label", "kind", "--id", "name")
    records = run.read_arrays("dynamics.npz")
    assert records["ids"].tolist() == [f"sample {row}" for row in records["rows"]]
    believed = read_classifier(run).probabilities(
        reader_from_json(run.read_json("encoding.json")).read(Path("own.csv")).inputs
    )
    np.testing.assert_allclose(records["probabilities"], believed[:, records["rows"]], atol=2e-3)  # half precision


def test_arrays_predict_arrays():
    data = blobs()
    run = train(save())
    np.savez("new.npz", x=data.inputs[:9])
    result = s2e("predict", "run", "new.npz")
    assert result.exit_code == 0, result.stderr
    rows = table()
    assert [row["id"] for row in rows] == [str(row) for row in range(9)]
    expected = read_classifier(run).probabilities(data.inputs[:9]).mean(axis=0).argmax(axis=1)
    assert [row["predicted"] for row in rows] == [str(label) for label in expected]


def test_bad_files_are_refused_in_one_line():
    train(write_table(), "--label", "kind", "--id", "name")
    Path("new.csv").write_text("name,a,b,c,d,e\nx,1,2,3,4,5\n")
    result = s2e("predict", "run", "new.csv")
    assert result.exit_code == 2
    assert "'f'" in result.stderr
    assert "'colour'" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("predictions.csv").exists()
    for name, mention in (("absent.csv", "does not exist"), ("run", "run")):
        refused = s2e("predict", "run", name)
        assert refused.exit_code == 2
        assert mention in refused.stderr
    refused = s2e("predict", "run", "own.csv", "-o", "no/such/folder.csv")
    assert refused.exit_code == 2
    assert "`output` must be a file to write to" in refused.stderr


def test_a_directory_without_a_run_and_a_run_without_a_classifier_are_refused():
    save()
    assert_refused(s2e("predict", "nothing", "own.npz"), "holds no run")
    Run.create("run", {})
    refused = s2e("predict", "run", "own.npz")
    assert "holds no trained classifier yet" in refused.stderr


@pytest.mark.parametrize(
    "encoding", [ArrayReader((3, 4), pixels=False), ArrayReader((1, 8, 8), pixels=True), ImageReader(32, 3)], ids=str
)
def test_an_encoding_written_and_read_again_is_the_same(encoding):
    assert reader_from_json(encoding.to_json()) == encoding


@pytest.mark.parametrize(
    "written", [{}, {"kind": "sound"}, {"kind": "images", "side": "x"}, {"kind": "table"}], ids=str
)
def test_what_is_no_encoding_is_refused(written):
    with pytest.raises(UnreadableData):
        reader_from_json(written)


def test_arrays_of_another_shape_or_kind_are_refused():
    encoding = ArrayReader((2, 3), pixels=False)
    np.savez("flat.npz", X=np.arange(12.0).reshape(2, 6))  # the same numbers laid out flat will do
    assert encoding.read(Path("flat.npz")).inputs.shape == (2, 2, 3)
    np.savez("long.npz", x=np.zeros((2, 7)))
    with pytest.raises(
        InvalidInput, match=r"shape \(2, 3\) as float32, as in training, but got float64 of shape \(7,\)"
    ):
        encoding.read(Path("long.npz"))
    np.savez("other.npz", images=np.zeros((2, 6)))
    with pytest.raises(InvalidInput, match=r"under the key `x`, but holds images"):
        encoding.read(Path("other.npz"))
    with pytest.raises(InvalidInput, match="uint8"):
        ArrayReader((2, 3), pixels=True).read(Path("flat.npz"))
    Path("bad.npz").write_text("nonsense")
    with pytest.raises(UnreadableData, match="must be an .npz file"):
        encoding.read(Path("bad.npz"))
