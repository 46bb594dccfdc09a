"""Encoding of whole tables: by hand on a small one, and the same way for later ones."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from s2e.data.table_columns import BooleanColumn, CategoryColumn, LeftOut, NumberColumn
from s2e.data.table_encoding import TableEncoder
from s2e.errors import InvalidInput
from s2e.files.fields import Fields
from tables import random_table, small_table


def refusal(call):
    with pytest.raises(InvalidInput) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def table():
    return small_table().drop(columns=["key", "ill"])


@pytest.fixture
def encoder(table):
    return TableEncoder.fit(table)


def test_a_small_table_by_hand(table, caplog):
    encoder = TableEncoder.fit(table)
    assert encoder.columns == (
        NumberColumn("age", 30.0, 10 / 1.349, missing=True),
        BooleanColumn("smoker", usual=True, missing=False),
        CategoryColumn("city", ("Bonn", "Rom"), other=False, missing=True),
        LeftOut("planet", "it is always Earth"),
    )
    assert encoder.left_out == {"planet": "it is always Earth"}
    assert not caplog.messages
    assert [(use.name, use.kind, use.inputs) for use in encoder.uses] == [
        ("age", "number", 2),
        ("smoker", "boolean", 1),
        ("city", "category", 3),
        ("planet", "left out", 0),
    ]
    assert encoder.uses[-1].encoding == "it is always Earth"
    assert encoder.feature_names == ("age", "age: missing", "smoker", "city = Bonn", "city = Rom", "city: missing")
    inputs = encoder.encode(table)
    assert inputs.dtype == np.float32
    by_hand = [[-1.349, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 0], [1.349, 0, 1, 0, 0, 1], [0, 0, 1, 0, 1, 0]]
    np.testing.assert_allclose(inputs, by_hand, rtol=1e-6)


def test_rows_are_encoded_independently_of_order():
    generator = np.random.default_rng(0)
    for rows in (60, 200):
        frame = random_table(generator, rows).drop(columns="label")
        encoder = TableEncoder.fit(frame)
        order, names = generator.permutation(rows), generator.permutation(frame.columns)
        inputs = encoder.encode(frame)
        assert np.isfinite(inputs).all()
        assert inputs.shape == (rows, len(encoder.feature_names))
        np.testing.assert_array_equal(encoder.encode(frame.iloc[order][names]), inputs[order])


def test_fitting_to_a_shuffled_table_only_permutes_inputs():
    generator = np.random.default_rng(1)
    for _ in range(5):
        frame = random_table(generator, 80).drop(columns="label")
        shuffled = frame.iloc[generator.permutation(80)][generator.permutation(frame.columns)]
        first, second = TableEncoder.fit(frame), TableEncoder.fit(shuffled)
        assert second.left_out == first.left_out
        assert sorted(second.feature_names) == sorted(first.feature_names)
        order = [second.feature_names.index(name) for name in first.feature_names]
        np.testing.assert_allclose(second.encode(frame)[:, order], first.encode(frame), rtol=1e-6)


def test_values_as_text_are_encoded_alike(table, encoder):
    texts = table.astype(object).map(lambda value: None if pd.isna(value) else str(value))
    np.testing.assert_array_equal(encoder.encode(texts), encoder.encode(table))


def test_column_names_are_stripped_text():
    frame = pd.DataFrame({0: [1, 2, 3, 4], " y ": ["a", "b", "a", "b"]})
    assert TableEncoder.fit(frame).feature_names == ("0", "y = a", "y = b")
    with pytest.raises(InvalidInput, match="got more than once: '0'; rename"):
        TableEncoder.fit(frame.rename(columns={" y ": " 0"}))


def test_unknown_columns_are_ignored_with_a_warning(table, encoder, caplog):
    caplog.clear()
    np.testing.assert_array_equal(encoder.encode(table.assign(new=1)), encoder.encode(table))
    assert caplog.messages == ["unknown columns are ignored: 'new'"]
    assert encoder.encode(table[:0]).shape == (0, 6)


def test_missing_columns_are_named_together(table, encoder):
    message = refusal(lambda: encoder.encode(table.rename(columns={"age": "Age", "city": "town"})))
    assert "column 'age' is missing; unknown columns: 'Age', 'town'." in message
    assert "column 'city' is missing" in message
    assert "smoker" not in message


def test_wrong_values_are_named_together(table, encoder):
    message = refusal(lambda: encoder.encode(table.assign(age="old", smoker="maybe")))
    assert "column `age` must hold numbers, but got 'old' (first in row 1)" in message
    assert "column `smoker` must hold booleans, but got 'maybe'" in message


def test_tables_without_information_are_refused(table):
    message = refusal(lambda: TableEncoder.fit(table[["planet"]]))
    assert "must have a column to learn from, but all are left out: 'planet'" in message
    assert "but got none" in refusal(lambda: TableEncoder.fit(table[[]]))
    message = refusal(lambda: TableEncoder.fit(table.assign(pairs=[(1, [2])] * 4, lists=[[1]] * 4)))
    assert "column `pairs` must hold one value in each row, but got a tuple" in message
    assert "column `lists` must hold one value in each row, but got a list" in message


def test_named_columns_are_dropped_or_read_as_text(table):
    words = ["red fox", "grey wolf", "red wolf", None]
    encoder = TableEncoder.fit(table.assign(seen=words), drop=["age"], text=["seen"])
    assert encoder.left_out["age"] == "it is named in `drop`"
    assert [name for name in encoder.feature_names if name.startswith("seen")][-1] == "seen: missing"
    assert "age" not in encoder.feature_names
    restored = TableEncoder.from_json(Fields(json.loads(json.dumps(encoder.to_json())), "encoding.json"))
    assert restored == encoder
    assert "`drop` must be one of" in refusal(lambda: TableEncoder.fit(table, drop=["Age"]))
    assert "must name different columns" in refusal(lambda: TableEncoder.fit(table, drop=["age"], text=["age"]))


def test_columns_left_out_by_earlier_versions_are_read(encoder):
    written = json.loads(json.dumps(encoder.to_json()))
    earlier = {"columns": written["columns"][:-1], "left_out": {"planet": "it is always Earth"}}
    assert TableEncoder.from_json(Fields(earlier, "encoding.json")) == encoder


def test_a_restored_encoder_is_equal():
    generator = np.random.default_rng(2)
    for _ in range(3):
        frame = random_table(generator, 60).drop(columns="label")
        encoder = TableEncoder.fit(frame)
        restored = TableEncoder.from_json(Fields(json.loads(json.dumps(encoder.to_json())), "encoding.json"))
        assert restored == encoder
        np.testing.assert_array_equal(restored.encode(frame), encoder.encode(frame))
