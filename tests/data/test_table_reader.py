"""Labels and IDs of tables, and reading later tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from s2e.data.input_readers import reader_from_json
from s2e.data.table_reader import TableReader
from s2e.errors import InvalidInput
from tables import random_table, small_table


def fit(**columns):
    return TableReader.fit(small_table().assign(**columns), "ill", "key")


def refusal(call):
    with pytest.raises(InvalidInput) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_column_names_of_many_lines_are_listed_in_one_line():
    frame = small_table().rename(columns={"ill": "il\nll", "key": "key" * 1000})
    message = refusal(lambda: TableReader.fit(frame, "ill"))
    assert "`label` must be one of il\\nll, " in message
    assert len(message) < 500


# Labels


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([10, 2, 2, 10], ("2", "10")),
        ([10.0, 2.0, None, 10.0], ("2", "10")),
        (["-1", "1", "-10", "0.5"], ("-10", "-1", "0.5", "1")),
        (["c10", "c2", "C1", "c"], ("c", "C1", "c2", "c10")),
        ([True, False, True, False], ("False", "True")),
        (["cat ", "cat", " dog", "dog"], ("cat", "dog")),
        (pd.Categorical(["b", "a", "b", "a"], categories=["z", "b", "a"]), ("a", "b")),
        (["2a", "10", "x", "9"], ("2a", "9", "10", "x")),
    ],
)
def test_classes_are_text_in_natural_order(labels, names):
    frame = small_table().assign(ill=labels)
    reader = TableReader.fit(frame, "ill", "key")
    assert reader.class_names == names
    samples = reader.samples_of(frame)
    texts = [str(label).strip().removesuffix(".0") for label in frame["ill"].iloc[samples.rows]]
    assert [names[label] for label in samples.labels] == texts


def test_rows_without_a_label_are_left_out(caplog):
    frame = small_table().assign(ill=["no", None, "yes", " "])
    reader = TableReader.fit(frame, "ill", "key")
    assert reader == TableReader.fit(frame.iloc[[0, 2]], "ill", "key")
    caplog.clear()
    samples = reader.samples_of(frame)
    assert samples.rows.tolist() == [0, 2]
    assert samples.labels.tolist() == [0, 1]
    assert samples.labels.dtype == np.int64
    assert samples.class_names == ("no", "yes")
    inputs = frame.drop(columns=["key", "ill"])
    np.testing.assert_array_equal(samples.inputs, reader.encoder.encode(inputs)[[0, 2]])
    assert caplog.messages[0] == "2 of 4 rows have no label and are left out: row 2, 4"


def test_unknown_classes_are_refused():
    message = refusal(lambda: fit().samples_of(small_table().assign(ill=["1", None, "sick", "2"])))
    assert "only classes of the training data ('0', '1'), but got '2', 'sick';" in message


def test_a_class_with_one_row_is_logged(caplog):
    fit(ill=["a", "a", "b", "a"])
    assert "classes with a single row cannot be both trained on and validated: 'b'" in caplog.messages


def test_fewer_than_two_classes_are_refused():
    assert "`ill` must hold at least two classes, but got only 'a';" in refusal(lambda: fit(ill=["a"] * 4))
    assert "at least two classes, but got none;" in refusal(lambda: fit(ill=[None] * 4))
    assert "at least two classes, but got none" in refusal(lambda: TableReader.fit(small_table()[:0], "ill"))


def test_labels_with_too_many_values_are_refused():
    def fit_labels(labels):
        return TableReader.fit(pd.DataFrame({"x": np.arange(len(labels)) % 7, "y": labels}), "y")

    message = refusal(lambda: fit_labels((np.arange(100) % 21) / 4))
    assert "column `y` must hold classes, but got 21 different numbers such as '0', '0.25'" in message
    assert "regression" in message
    assert len(fit_labels((np.arange(100) % 20) / 4).class_names) == 20
    assert "at most 1000 classes" in refusal(lambda: fit_labels(np.arange(4000) % 1001))
    assert len(fit_labels(np.arange(4000) % 1000).class_names) == 1000
    message = refusal(lambda: fit_labels([f"c{row % 21}" for row in range(41)]))
    assert "got 21 classes in 41 rows, such as 'c0', 'c1'" in message
    assert len(fit_labels([f"c{row % 20}" for row in range(41)]).class_names) == 20


# IDs and names of columns


def test_ids_are_values_or_row_numbers():
    frame = small_table()
    assert TableReader.fit(frame, "ill").ids_of(frame) == ["1", "2", "3", "4"]
    reader = fit()
    assert reader.ids_of(frame) == ["p1", "p2", "p3", "p4"]
    assert reader.ids_of(frame.assign(key=[7.0, None, 8.0, None])) == ["7", "row 2", "8", "row 4"]
    dates = ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]
    assert fit(key=dates).ids_of(frame.assign(key=dates)) == dates


def test_unknown_columns_are_refused_with_the_nearest():
    message = refusal(lambda: TableReader.fit(small_table(), "il", "kye"))
    assert "`label` must be one of ill," in message
    assert "`id_column` must be one of key," in message
    assert "both are 'ill'" in refusal(lambda: TableReader.fit(small_table(), "ill", "ill"))
    assert "but got 'ill'" in refusal(lambda: fit().samples_of(small_table().drop(columns="ill")))
    assert "but got 'key'" in refusal(lambda: fit().ids_of(small_table().drop(columns="key")))


def test_problems_of_labels_and_columns_are_reported_together():
    message = refusal(lambda: fit(ill="a", seen=[[1]] * 4))
    assert "column `ill` must hold at least two classes" in message
    assert "column `seen` must hold one value in each row" in message


def test_repeated_ids_are_logged(caplog):
    reader = fit(key=["a", "b", "a", "c"])
    assert reader.ids_of(small_table().assign(key=["a", "b", "a", "c"])) == ["a", "b", "a", "c"]
    assert "column `key` must identify the rows, but has the same value in several: 'a'" in caplog.messages


def test_label_and_id_are_among_the_columns():
    assert [(use.name, use.kind) for use in fit().columns][:2] == [("ill", "label"), ("key", "ID")]


# Later tables


def test_later_tables_need_neither_labels_nor_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog):
    monkeypatch.chdir(tmp_path)
    small_table().to_csv("whole.csv", index=False)
    small_table()[["city", "age", "smoker"]].to_csv("inputs.csv", index=False)
    reader = fit()
    caplog.clear()
    whole, inputs = reader.read(Path("whole.csv")), reader.read(Path("inputs.csv"))
    np.testing.assert_array_equal(whole.inputs, inputs.inputs)
    assert (whole.ids, inputs.ids) == (["p1", "p2", "p3", "p4"], ["1", "2", "3", "4"])
    assert not caplog.records
    np.testing.assert_array_equal(reader.read_labelled(Path("whole.csv")).labels, [0, 1, 1, 0])


def test_a_restored_reader_is_equal():
    frame = random_table(np.random.default_rng(2), 60)
    reader = TableReader.fit(frame, "label", "text")
    restored = reader_from_json(json.loads(json.dumps(reader.to_json())))
    assert restored == reader
    np.testing.assert_array_equal(restored.samples_of(frame).inputs, reader.samples_of(frame).inputs)
