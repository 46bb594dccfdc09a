"""Tables as inputs and labels: by hand on small ones, the same way for every later table, and every refusal."""

from __future__ import annotations

import copy
import json

import numpy as np
import pandas as pd
import pytest

from s2e.data.table_columns import BooleanColumn, CategoryColumn, NumberColumn
from s2e.data.table_encoding import TableEncoding
from s2e.errors import InvalidInput


def table():
    return pd.DataFrame(
        {
            "key": ["p1", "p2", "p3", "p4"],
            "age": [20.0, np.nan, 40.0, 30.0],
            "smoker": [True, False, True, True],
            "city": ["Rom", "Bonn", None, "Rom"],
            "planet": ["Earth"] * 4,
            "ill": [0.0, 1.0, 1.0, 0.0],
        }
    )


def random_table(generator, rows):
    """Columns of every kind, each with or without missing values, in random order."""
    columns = {
        "whole": generator.integers(-50, 50, rows).astype(float),
        "wide": generator.standard_cauchy(rows) * 10.0 ** generator.integers(-9, 9),
        "written": pd.Series(generator.normal(size=rows).round(3)).astype(str),
        "flag": pd.Series(generator.random(rows) < 0.3).astype(object),
        "few": generator.choice(["a", "b", "c d"], rows),
        "many": generator.choice([f"v{number}" for number in range(45)], rows),
        "kind": pd.Categorical(generator.choice([1, 2, 3], rows)),
        "text": [f"text {generator.integers(10**9)}" for _ in range(rows)],
    }
    frame = pd.DataFrame(columns)
    for name in frame.columns:
        if generator.random() < 0.5:
            frame.loc[generator.random(rows) < 0.2, name] = None
    frame["label"] = generator.choice(["x", "y", "z"], rows)
    return frame[generator.permutation(frame.columns)]


def refusal(call):
    with pytest.raises(InvalidInput) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestByHand:
    def test_a_small_table(self, caplog):
        encoding = TableEncoding.fit(table(), "ill", "key")
        assert encoding.columns == (
            NumberColumn("age", 30.0, 10 / 1.349, missing=True),
            BooleanColumn("smoker", usual=True, missing=False),
            CategoryColumn("city", ("Bonn", "Rom"), other=False, missing=True),
        )
        assert encoding.left_out == {"planet": "it is always Earth"}
        assert caplog.messages == ["column `planet` is left out: it is always Earth"]
        assert encoding.class_names == ("0", "1")
        names = ("age", "age: missing", "smoker", "city = Bonn", "city = Rom", "city: missing")
        assert encoding.feature_names == names
        inputs = encoding.encode(table())
        assert inputs.dtype == np.float32
        by_hand = [[-1.349, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 0], [1.349, 0, 1, 0, 0, 1], [0, 0, 1, 0, 1, 0]]
        np.testing.assert_allclose(inputs, by_hand, rtol=1e-6)
        labels = encoding.labels_of(table())
        assert (labels.dtype, labels.tolist()) == (np.int64, [0, 1, 1, 0])
        assert encoding.ids_of(table()) == ["p1", "p2", "p3", "p4"]

    def test_rows_are_numbered_from_one_without_an_id_column(self):
        assert TableEncoding.fit(table(), "ill").ids_of(table()) == ["1", "2", "3", "4"]

    def test_a_row_whose_id_is_missing_goes_by_its_number(self):
        encoding = TableEncoding.fit(table(), "ill", "key")
        assert encoding.ids_of(table().assign(key=[7.0, None, 8.0, None])) == ["7", "row 2", "8", "row 4"]

    def test_the_names_of_columns_may_be_numbers_or_have_spaces_around_them(self):
        frame = pd.DataFrame({0: [1, 2, 3, 4], " y ": ["a", "b", "a", "b"]})
        encoding = TableEncoding.fit(frame, "y")
        assert encoding.feature_names == ("0",)
        assert encoding.labels_of(frame).tolist() == [0, 1, 0, 1]


class TestLaterTables:
    def test_other_rows_in_another_order_of_columns_are_encoded_alike(self):
        generator = np.random.default_rng(0)
        for rows in (60, 200):
            frame = random_table(generator, rows)
            encoding = TableEncoding.fit(frame, "label")
            order, names = generator.permutation(rows), generator.permutation(frame.columns)
            inputs = encoding.encode(frame)
            assert np.isfinite(inputs).all()
            assert inputs.shape == (rows, len(encoding.feature_names))
            np.testing.assert_array_equal(encoding.encode(frame.iloc[order][names]), inputs[order])
            np.testing.assert_array_equal(
                encoding.labels_of(frame.iloc[order][names]), encoding.labels_of(frame)[order]
            )

    def test_learning_from_shuffled_rows_and_columns_only_moves_the_features(self):
        generator = np.random.default_rng(1)
        for _ in range(10):
            frame = random_table(generator, 80)
            shuffled = frame.iloc[generator.permutation(80)][generator.permutation(frame.columns)]
            ours, theirs = TableEncoding.fit(frame, "label"), TableEncoding.fit(shuffled, "label")
            assert theirs.class_names == ours.class_names
            assert theirs.left_out == ours.left_out
            assert sorted(theirs.feature_names) == sorted(ours.feature_names)
            places = [theirs.feature_names.index(name) for name in ours.feature_names]
            np.testing.assert_allclose(theirs.encode(frame)[:, places], ours.encode(frame), rtol=1e-6)

    def test_a_table_in_other_types_is_encoded_alike(self):
        encoding = TableEncoding.fit(table(), "ill", "key")
        texts = table().astype(object).map(lambda value: None if pd.isna(value) else str(value))
        np.testing.assert_array_equal(encoding.encode(texts), encoding.encode(table()))

    def test_label_and_id_are_not_needed_and_no_rows_are_fine(self, caplog):
        encoding = TableEncoding.fit(table(), "ill", "key")
        caplog.clear()
        alone = table()[["city", "age", "smoker"]]
        np.testing.assert_array_equal(encoding.encode(alone), encoding.encode(table()))
        assert encoding.encode(alone[:0]).shape == (0, 6)
        assert not caplog.records

    def test_columns_never_seen_are_ignored_and_the_log_says_so(self, caplog):
        encoding = TableEncoding.fit(table(), "ill", "key")
        caplog.clear()
        np.testing.assert_array_equal(encoding.encode(table().assign(new=1)), encoding.encode(table()))
        assert caplog.messages == ["columns that the encoding does not know are ignored: 'new'"]

    def test_all_missing_columns_are_named_with_the_nearest_new_ones(self):
        encoding = TableEncoding.fit(table(), "ill", "key")
        message = refusal(lambda: encoding.encode(table().rename(columns={"age": "Age", "city": "town"})))
        assert "must have the column 'age', but has not; nearest of 2: 'Age', 'town'." in message
        assert "must have the column 'city', but has not; nearest of 2:" in message
        assert "smoker" not in message

    def test_all_columns_of_another_kind_are_told_at_once(self):
        encoding = TableEncoding.fit(table(), "ill", "key")
        message = refusal(lambda: encoding.encode(table().assign(age="old", smoker="maybe")))
        assert "column `age` must hold numbers, but got 'old' (first in row 1)" in message
        assert "column `smoker` must hold true and false, but got 'maybe'" in message

    def test_samples_are_the_rows_with_a_label(self, caplog):
        frame = table().assign(ill=["no", None, "yes", " "])
        encoding = TableEncoding.fit(frame, "ill", "key")
        caplog.clear()
        samples = encoding.samples_of(frame)
        assert samples.rows.tolist() == [0, 2]
        assert samples.labels.tolist() == [0, 1]
        assert samples.class_names == ("no", "yes")
        np.testing.assert_array_equal(samples.inputs, encoding.encode(frame)[[0, 2]])
        assert caplog.messages[0] == "2 of 4 rows have no label and are left out: row 2, 4"


class TestLabels:
    @pytest.mark.parametrize(
        ("labels", "names"),
        [
            ([10, 2, 2, 10], ("2", "10")),
            ([10.0, 2.0, None, 10.0], ("2", "10")),
            (["-1", "1", "-10", "0.5"], ("-10", "-1", "0.5", "1")),
            (["c10", "c2", "C1", "b"], ("b", "C1", "c2", "c10")),
            ([True, False, True, False], ("False", "True")),
            (["cat ", "cat", " dog", "dog"], ("cat", "dog")),
            (pd.Categorical(["b", "a", "b", "a"], categories=["z", "b", "a"]), ("a", "b")),
            (["2a", "10", "x", "9"], ("2a", "9", "10", "x")),
        ],
    )
    def test_classes_are_named_as_written_and_in_natural_order(self, labels, names):
        frame = table().assign(ill=labels)
        encoding = TableEncoding.fit(frame, "ill", "key")
        assert encoding.class_names == names
        rows = encoding.labelled_rows(frame)
        texts = [str(label).strip().removesuffix(".0") for label in frame["ill"].iloc[rows]]
        assert [names[label] for label in encoding.labels_of(frame.iloc[rows])] == texts

    def test_rows_without_a_label_are_not_learnt_from(self):
        frame = table().assign(ill=["a", "b", None, "a"])
        assert TableEncoding.fit(frame, "ill") == TableEncoding.fit(frame.dropna(subset="ill"), "ill")

    def test_unknown_classes_and_rows_without_a_label_are_refused_together(self):
        encoding = TableEncoding.fit(table(), "ill", "key")
        message = refusal(lambda: encoding.labels_of(table().assign(ill=["1", None, "sick", "2"])))
        assert "must hold a label in every row, but not in row 2;" in message
        assert "only classes known from training ('0', '1'), but got '2', 'sick';" in message

    def test_a_class_with_one_row_is_told(self, caplog):
        TableEncoding.fit(table().assign(ill=["a", "a", "b", "a"]), "ill", "key")
        assert "classes with one row only cannot be both learnt and checked: 'b'" in caplog.messages

    @pytest.mark.parametrize(("labels", "got"), [(["a"] * 4, "only 'a'"), ([None] * 4, "none")])
    def test_fewer_than_two_classes_are_refused(self, labels, got):
        message = refusal(lambda: TableEncoding.fit(table().assign(ill=labels), "ill", "key"))
        assert f"column `ill` must hold at least two classes, but got {got};" in message

    def test_many_fractions_are_refused_as_a_quantity(self):
        frame = pd.DataFrame({"x": np.arange(100) % 7, "y": (np.arange(100) % 21) / 4})
        message = refusal(lambda: TableEncoding.fit(frame, "y"))
        assert "column `y` must hold classes, but got 21 different numbers such as '0', '0.25'" in message
        assert "regression" in message
        assert len(TableEncoding.fit(frame.assign(y=(np.arange(100) % 20) / 4), "y").class_names) == 20

    def test_too_many_classes_are_refused(self):
        frame = pd.DataFrame({"x": np.arange(4000) % 7, "y": np.arange(4000) % 1001})
        assert "at most 1000 classes" in refusal(lambda: TableEncoding.fit(frame, "y"))
        assert len(TableEncoding.fit(frame.assign(y=np.arange(4000) % 1000), "y").class_names) == 1000

    def test_classes_that_hardly_recur_are_refused(self):
        frame = pd.DataFrame({"x": np.arange(41) % 7, "y": [f"c{row % 21}" for row in range(41)]})
        assert "got 21 in 41 rows, such as 'c0', 'c1'" in refusal(lambda: TableEncoding.fit(frame, "y"))
        assert len(TableEncoding.fit(frame.assign(y=[f"c{row % 20}" for row in range(41)]), "y").class_names) == 20


class TestRefusedTables:
    def test_names_of_no_column_with_the_nearest_ones(self):
        message = refusal(lambda: TableEncoding.fit(table(), "il", "kye"))
        assert "`label` must be the name of a column of the table, but got 'il'; nearest of 6: 'ill'," in message
        assert "`id_column` must be the name of a column of the table, but got 'kye'; nearest of 6: 'key'," in message

    @pytest.mark.parametrize(("method", "column"), [("labels_of", "ill"), ("samples_of", "ill"), ("ids_of", "key")])
    def test_a_later_table_without_label_or_id(self, method, column):
        encoding = TableEncoding.fit(table(), "ill", "key")
        message = refusal(lambda: getattr(encoding, method)(table().drop(columns=column)))
        assert f"but got '{column}'; nearest of 5:" in message

    def test_one_column_for_label_and_id(self):
        assert "both are 'ill'" in refusal(lambda: TableEncoding.fit(table(), "ill", "ill"))

    def test_names_that_stand_twice(self):
        frame = table().rename(columns={"age": "city"})
        assert "got twice: 'city'; rename" in refusal(lambda: TableEncoding.fit(frame, "ill"))

    def test_nothing_to_learn_from(self):
        message = refusal(lambda: TableEncoding.fit(table()[["planet", "ill"]], "ill"))
        assert "must have a column to learn from beside 'ill', but all others are left out: 'planet'" in message
        assert "there are no others" in refusal(lambda: TableEncoding.fit(table()[["key", "ill"]], "ill", "key"))

    def test_no_rows(self):
        assert "at least two classes, but got none" in refusal(lambda: TableEncoding.fit(table()[:0], "ill"))

    def test_all_problems_are_told_at_once(self):
        frame = table().assign(ill="a", seen=["2020-01-01"] * 4, parts=[[1]] * 4)
        message = refusal(lambda: TableEncoding.fit(frame, "ill", "key"))
        assert "column `ill` must hold at least two classes" in message
        assert "column `seen` must hold numbers or categories, but got dates or times such as '2020-01-01'" in message
        assert "column `parts` must hold one value in each row, but got a list" in message

    def test_dates_may_be_ids(self):
        frame = table().assign(key=["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"])
        assert TableEncoding.fit(frame, "ill", "key").ids_of(frame)[1] == "2020-01-02"


class TestWrittenEncodings:
    def test_what_is_read_back_encodes_alike(self):
        generator = np.random.default_rng(2)
        for _ in range(10):
            frame = random_table(generator, 60)
            encoding = TableEncoding.fit(frame, "label", "text")
            again = TableEncoding.from_json(json.loads(json.dumps(encoding.to_json())))
            assert again == encoding
            np.testing.assert_array_equal(again.encode(frame), encoding.encode(frame))
            np.testing.assert_array_equal(again.labels_of(frame), encoding.labels_of(frame))
            assert again.ids_of(frame) == encoding.ids_of(frame)

    @pytest.mark.parametrize(
        ("written", "got"),
        [({"version": 2}, "version 2"), ({}, "version None"), ({"version": True}, "version True"), ([], "list")],
    )
    def test_another_version_is_refused(self, written, got):
        message = refusal(lambda: TableEncoding.from_json(written))
        assert f"must be of version 1, but got {got}; learn it again" in message

    @pytest.mark.parametrize(
        ("path", "value", "problem"),
        [
            (["label"], 3, "'label' of the encoding must be a text, but got '3'."),
            (["id_column"], 3, "'id_column' of the encoding must be a text or null"),
            (["class_names"], ["a"], "'class_names' of the encoding must be a list of two or more different texts"),
            (["class_names"], ["a", "a"], "two or more different texts"),
            (["class_names"], "ab", "two or more different texts"),
            (["columns"], [], "'columns' of the encoding must be a list of one or more columns"),
            (["columns"], {}, "one or more columns"),
            (["left_out"], {"a": 1}, "'left_out' of the encoding must be texts under texts"),
            (["surprise"], 1, "the encoding must not hold 'surprise'."),
            (["columns", 0, "scale"], 0, "'scale' of column 0 must be a positive number, but got '0'."),
            (["columns", 0, "scale"], True, "'scale' of column 0 must be a positive number"),
            (["columns", 0, "scale"], "1", "'scale' of column 0 must be a positive number"),
            (["columns", 0, "median"], float("nan"), "'median' of column 0 must be a number, but got 'nan'."),
            (["columns", 0, "median"], 10**400, "'median' of column 0 must be a number"),
            (["columns", 0, "missing"], 1, "'missing' of column 0 must be true or false"),
            (["columns", 1, "usual"], None, "'usual' of column 1 must be true or false"),
            (
                ["columns", 1, "kind"],
                "boolen",
                "column 1 must be of the kind number, boolean, category, but got 'boolen'",
            ),
            (["columns", 1], "smoker", "column 1 must be of the kind"),
            (["columns", 2, "categories"], [], "'categories' of column 2 must be a list of different texts"),
            (["columns", 2, "categories"], [1], "'categories' of column 2 must be a list of different texts"),
            (["columns", 2, "other"], "no", "'other' of column 2 must be true or false"),
            (["columns", 2, "extra"], 0, "column 2 must not hold 'extra'."),
            (["columns", 2, "name"], "age", "must differ from each other"),
            (["columns", 2, "name"], "ill", "must differ from each other"),
            (["id_column"], "age", "must differ from each other"),
        ],
    )
    def test_another_shape_is_refused_and_named(self, path, value, problem):
        written = TableEncoding.fit(table(), "ill", "key").to_json()
        inner = written
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        message = refusal(lambda: TableEncoding.from_json(written))
        assert message.startswith("a written encoding cannot be used: ")
        assert problem in message

    def test_whatever_is_not_there_is_named(self):
        whole = TableEncoding.fit(table(), "ill").to_json()
        for key in set(whole) - {"version"}:
            written = {other: value for other, value in whole.items() if other != key}
            assert f"the encoding must hold '{key}', but does not." in refusal(
                lambda written=written: TableEncoding.from_json(written)
            )
        for position, column in enumerate(whole["columns"]):
            for key in set(column) - {"kind"}:
                written = copy.deepcopy(whole)
                del written["columns"][position][key]
                assert f"column {position} must hold '{key}', but does not." in refusal(
                    lambda written=written: TableEncoding.from_json(written)
                )
