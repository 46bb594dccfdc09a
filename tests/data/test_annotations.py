"""Labels of several annotators from arrays, wide and long tables, with gaps; and what is refused."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest

from s2e.data.annotations import annotations_of, annotations_of_rows
from s2e.errors import InvalidInput

ROWS = [[0, 1, -1], [-1, 1, 1], [2, -1, -1], [-1, -1, -1], [0, 0, 2]]
"""Labels of five items by three annotators."""

NAMES = np.array(["ant", "bee", "cow", None], dtype=object)  # -1 is the last


def wide_frame(**options):
    return pd.DataFrame(ROWS, columns=["ann1", "ann2", "ann10"], **options)


def long_frame():
    return pd.DataFrame(
        [(item, f"a{annotator}", NAMES[label]) for item, row in enumerate(ROWS) for annotator, label in enumerate(row)],
        columns=["item", "worker", "answer"],
    )


def refusal(call, *args, **options):
    with pytest.raises(InvalidInput) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def triples(found):
    return {
        (found.ids[item], found.annotator_names[annotator], found.classes[label])
        for item, annotator, label in found.triples()
    }


# Forms


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        np.array(ROWS),
        np.array(ROWS, dtype=np.int8),
        np.where(np.array(ROWS) < 0, np.nan, ROWS),
        np.where(np.array(ROWS) < 0, None, ROWS),
        wide_frame().astype("Int64").mask(wide_frame() < 0),
        wide_frame().astype("category"),
    ],
    ids=["list", "int64", "int8", "NaN", "None", "NA", "category"],
)
def test_gaps_of_any_kind_give_the_same_labels(given):
    found = annotations_of(given)
    np.testing.assert_array_equal(found.items, [0, 0, 1, 1, 2, 4, 4, 4])
    np.testing.assert_array_equal(found.annotators, [0, 1, 1, 2, 0, 0, 1, 2])
    np.testing.assert_array_equal(found.labels, [0, 1, 1, 1, 2, 0, 0, 2])
    assert found.shape == (5, 3, 3)
    assert found.classes.dtype == np.int64
    assert found.counts().tolist() == [2, 2, 1, 0, 3]


@pytest.mark.parametrize("missing", ["?", None])
def test_another_label_may_mean_a_gap(missing):
    rows = np.where(np.array(ROWS) < 0, missing, NAMES[np.array(ROWS)])
    found = annotations_of(rows, missing=missing)
    assert found.classes.tolist() == ["ant", "bee", "cow"]
    assert len(found.items) == 8


@pytest.mark.parametrize(
    ("values", "classes"),
    [([True, False], [False, True]), ([1.5, 0.5], [0.5, 1.5]), (["b", "a"], ["a", "b"]), ([-1, 1], [-1, 1])],
    ids=["booleans", "fractions", "texts", "signs"],
)
def test_classes_keep_their_type(values, classes):
    found = annotations_of(np.array([values, values[::-1], values]), missing=None)
    assert found.classes.tolist() == classes
    assert type(found.classes.tolist()[0]) is type(classes[0])


def test_a_long_table_equals_the_wide_one():
    found = annotations_of(long_frame())
    wide = annotations_of(pd.DataFrame(NAMES[np.array(ROWS)], columns=["a0", "a1", "a2"]))
    assert triples(found) == triples(wide)
    shuffled = annotations_of(long_frame().sample(frac=1, random_state=0))
    assert triples(shuffled) == triples(wide)
    assert shuffled.annotator_names == ("a0", "a1", "a2")
    assert (np.diff(shuffled.items) >= 0).all()


def test_columns_of_a_long_table_may_be_named():
    frame = long_frame().set_axis(["where", "who", "what"], axis=1)
    found = annotations_of(frame, item="where", annotator="who", label="what")
    assert triples(found) == triples(annotations_of(long_frame()))
    assert "`item` must be one of who, what, where, but got 'w'" in refusal(annotations_of, frame, item="w")
    assert "`label` must name the columns" in refusal(annotations_of, frame, item="where")


def test_repeated_labels_all_count():
    frame = pd.concat([long_frame(), long_frame()])
    assert annotations_of(frame).counts().tolist() == [4, 4, 2, 0, 6]


def test_the_index_of_a_wide_table_names_the_items():
    assert annotations_of(wide_frame(index=list("vwxyz"))).ids.tolist() == list("vwxyz")


def test_annotators_without_labels_are_left_out():
    found = annotations_of(wide_frame().assign(nothing=-1))
    assert found.annotator_names == ("ann1", "ann2", "ann10")


# Parts


@pytest.mark.parametrize("index", [[4, 0], [1, 1, 3], [], [0, 1, 2, 3, 4]], ids=str)
def test_a_part_has_the_labels_of_its_items(index):
    whole = annotations_of(ROWS)
    part = whole.take(np.array(index, dtype=np.int64))
    expected = [
        (row, annotator, label)
        for row, item in enumerate(index)
        for annotator, label in enumerate(ROWS[item])
        if label >= 0
    ]
    assert [tuple(each) for each in part.triples().tolist()] == expected
    assert part.shape == (len(index), 3, 3)


def test_labels_are_recoded_to_other_classes_and_others_left_out():
    found = annotations_of(ROWS).recoded(["2", "0"])
    assert found.triples().tolist() == [[0, 0, 1], [2, 0, 0], [4, 0, 1], [4, 1, 1], [4, 2, 0]]


def test_agreement_is_the_share_of_labels_that_equal_the_consensus():
    np.testing.assert_allclose(annotations_of(ROWS).agreement(np.array([0, 1, 0, 0, 0])), [0.5, 1, 0, np.nan, 2 / 3])


# Of the rows of a table


def test_wide_columns_of_a_file_hold_texts_with_gaps():
    frame = pd.DataFrame({"x": range(3), "p": ["a ", "b", None], "q": [" a", None, "b"]})
    found = annotations_of_rows(frame, "t.csv", annotators=("p", "q"))
    assert found.classes.tolist() == ["a", "b"]
    assert found.triples().tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 1], [2, 1, 1]]
    numbers = pd.DataFrame({"p": [10.0, 2.0, np.nan], "q": [10, -1, 2]})
    assert annotations_of_rows(numbers, "t.csv", annotators=("p", "q")).classes.tolist() == ["2", "10"]
    assert "`annotators` must be one of q, p, but got 'z'" in refusal(
        annotations_of_rows, numbers, "t.csv", annotators=("p", "z")
    )


def test_items_of_a_long_table_are_matched_by_their_ids(caplog):
    frame = pd.DataFrame({"key": [7, 3, 5, 9]})
    table = pd.DataFrame(
        {"key": ["3", "7", "3", "8"], "annotator": ["b", "a", "a", "a"], "label": ["x", "y", "x", "y"]}
    )
    with caplog.at_level(logging.WARNING):
        found = annotations_of_rows(frame, "t.csv", table=table, id_column="key")
    assert found.triples().tolist() == [[0, 0, 1], [1, 1, 0], [1, 0, 0]]
    assert found.counts().tolist() == [1, 2, 0, 0]
    assert "1 of 4 labels are of items that are not in the table" in caplog.text


def test_tables_of_labels_that_do_not_fit_are_refused():
    frame = pd.DataFrame({"key": [7, 3, 3]})
    table = pd.DataFrame({"key": [1, 2], "annotator": ["b", "a"], "label": ["x", "x"]})
    assert "must identify every row, but got more than once: '3'" in refusal(
        annotations_of_rows, frame, "t.csv", table=table, id_column="key"
    )
    assert "must be IDs of the rows, such as '7', '4', but none is; got '1', '2'" in refusal(
        annotations_of_rows, pd.DataFrame({"key": [7, 4]}), "t.csv", table=table, id_column="key"
    )
    assert "`id_column` must be one of key" in refusal(
        annotations_of_rows, frame, "t.csv", table=table, id_column="other"
    )
    assert (
        "`annotation_columns` must name the columns of items, annotators and labels, which were not detected"
        in refusal(annotations_of_rows, frame.iloc[:2], "t.csv", table=table[["key", "label"]], id_column="key")
    )


# Refusals


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 1, 2], "`annotations` must have the shape (N, annotators), but got (3,)"),
        ([[0], [1]], "at least two annotators, but got only '0'"),
        ([[-1, -1]], "at least two annotators, but got none"),
        ([[1, 1], [1, -1]], "at least two classes, but got only 1; -1 means no label"),
        ([["a", 1], [1, "a"]], "labels of one type, but got int and str"),
        ([["a", "A"], ["b", "B"]], "no label is used by two of them: '0' uses 'a', 'b'; '1' uses 'A', 'B'"),
    ],
    ids=["one axis", "one annotator", "no label", "one class", "types", "other spelling"],
)
def test_labels_that_cannot_be_aggregated_are_refused(given, message):
    assert message in refusal(annotations_of, np.array(given, dtype=object))


def test_labels_without_an_item_or_annotator_are_refused():
    frame = long_frame().assign(worker=lambda each: each["worker"].where(each.index != 3))
    assert "column `worker` must hold a value in every row, but row 4 has none" in refusal(annotations_of, frame)
    assert "must be different columns" in refusal(
        annotations_of, long_frame(), item="item", annotator="item", label="answer"
    )
