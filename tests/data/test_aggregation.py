"""The consensus of several annotators: labels, probabilities, annotators, and tables with a consensus."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest

import s2e
from crowds import confusion_of, labelled_by
from s2e.data.loading import load
from s2e.errors import InvalidInput
from s2e.specs import DataSpec

TRUTH = np.random.default_rng(3).integers(3, size=300)
ACCURACIES = np.array([0.95, 0.7, 0.6, 0.5])
LABELS = labelled_by(TRUTH, np.stack([confusion_of(each, 3) for each in ACCURACIES]), gaps=0.2)
LABELS = np.where((LABELS < 0).all(axis=1, keepdims=True), TRUTH[:, None], LABELS)


def test_the_consensus_is_better_than_the_majority_and_names_the_best_annotator():
    found = s2e.aggregate_labels(LABELS)
    majority = np.stack([(label == LABELS).sum(axis=1) for label in range(3)], axis=1).argmax(axis=1)
    assert (found.labels == TRUTH).mean() > (majority == TRUTH).mean() + 0.03
    np.testing.assert_array_equal(found.labels, found.classes[found.posterior.argmax(axis=1)])
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1)
    assert found.annotators.columns.tolist() == ["annotator", "labels", "accuracy", "accuracy_low", "accuracy_high"]
    assert found.annotators["accuracy"].to_numpy() == pytest.approx(ACCURACIES, abs=0.08)
    assert (found.annotators["accuracy_low"] < found.annotators["accuracy"]).all()
    assert (found.annotators["accuracy_high"] > found.annotators["accuracy"]).all()
    assert found.converged
    assert "labels of 300 items by 4 annotators, 3 classes; two labels of an item agree in" in found.message


def test_labels_have_the_type_of_the_annotations():
    names = np.array(["no", "maybe", "yes"])
    found = s2e.aggregate_labels(pd.DataFrame(names[LABELS], columns=list("pqrs")).mask(LABELS < 0))
    assert found.classes.tolist() == ["maybe", "no", "yes"]
    assert (found.labels == names[TRUTH]).mean() > 0.85
    matrix = found.confusion("p")
    assert matrix.loc["no", "no"] > 0.8
    assert matrix.sum(axis=1).to_numpy() == pytest.approx(1)
    with pytest.raises(InvalidInput, match="`annotator` must be one of"):
        found.confusion("z")


def test_the_table_has_a_row_for_each_item():
    found = s2e.aggregate_labels(LABELS)
    table = found.table()
    assert table.columns.tolist() == ["item", "label", "probability", "annotators", "agreement"]
    np.testing.assert_array_equal(table["annotators"], (LABELS >= 0).sum(axis=1))
    equal = (found.labels[:, None] == LABELS).sum(axis=1)
    np.testing.assert_allclose(table["agreement"], equal / (LABELS >= 0).sum(axis=1))


def test_items_without_labels_are_left_out_with_a_line(caplog):
    gaps = LABELS.copy()
    gaps[[4, 9]] = -1
    with caplog.at_level(logging.WARNING):
        found = s2e.aggregate_labels(gaps)
    assert "2 of 300 items have no label of any annotator and are left out: 4, 9" in caplog.text
    np.testing.assert_array_equal(found.items, np.delete(np.arange(300), [4, 9]))
    assert len(found.labels) == 298


def test_single_labels_are_the_consensus_and_say_nothing_about_annotators():
    single = np.where(np.arange(4) == (np.arange(300) % 4)[:, None], TRUTH[:, None], -1)
    found = s2e.aggregate_labels(single)
    np.testing.assert_array_equal(found.labels, TRUTH)
    assert found.annotators[["accuracy", "accuracy_low", "accuracy_high"]].isna().all().all()
    assert found.annotators["labels"].tolist() == [75] * 4
    assert "no item has labels of two annotators, so their accuracy cannot be estimated" in found.message


# Tables


def write_tables(folder):
    """Write a wide table, and the same labels as a table of items and a long table."""
    names = np.array(["ant", "bee", "cow", ""])
    inputs = pd.DataFrame({"item": [f"i{row}" for row in range(300)], "x": np.linspace(-1, 1, 300), "z": TRUTH})
    labels = pd.DataFrame(names[LABELS], columns=list("pqrs"))
    labels.iloc[[5, 6]] = ""
    pd.concat([inputs, labels], axis=1).to_csv(folder / "wide.csv", index=False)
    inputs.to_csv(folder / "items.csv", index=False)
    long = labels.assign(item=inputs["item"]).melt("item", var_name="annotator", value_name="label")
    long[long["label"] != ""].to_csv(folder / "labels.tsv", index=False, sep="\t")


def test_wide_and_long_tables_are_loaded_alike(tmp_path, caplog):
    write_tables(tmp_path)
    wide = load(tmp_path / "wide.csv", id_column="item", annotators=list("pqrs"))
    assert "2 of 300 rows have no label and are left out: row 6, 7" in caplog.text
    long = load(tmp_path / "items.csv", id_column="item", annotations=str(tmp_path / "labels.tsv"))
    for source in (wide, long):
        assert source.train.class_names == ("ant", "bee", "cow")
        assert source.train.inputs.shape == (298, 2)
        np.testing.assert_array_equal(source.train.rows, np.delete(np.arange(300), [5, 6]))
        assert (source.train.labels == TRUTH[source.train.rows]).mean() > 0.85
        assert source.train.annotations.counts().tolist() == (LABELS >= 0).sum(axis=1)[source.train.rows].tolist()
        assert source.ids[7] == "i7"
    np.testing.assert_array_equal(wide.train.labels, long.train.labels)
    np.testing.assert_array_equal(wide.train.annotations.triples(), long.train.annotations.triples())
    pd.testing.assert_frame_equal(wide.crowd.annotators, long.crowd.annotators)


def test_a_part_of_the_samples_keeps_its_annotations(tmp_path):
    write_tables(tmp_path)
    train = load(tmp_path / "wide.csv", id_column="item", annotators=list("pqrs")).train
    part = train.take(np.array([3, 200]))
    assert part.annotations.counts().tolist() == (LABELS >= 0).sum(axis=1)[part.rows].tolist()


def test_the_consensus_may_have_another_name_but_not_that_of_a_column(tmp_path):
    write_tables(tmp_path)
    source = load(tmp_path / "wide.csv", label="kind", id_column="item", annotators=list("pqrs"))
    assert source.reader.label == "kind"
    with pytest.raises(InvalidInput, match=r"`label` must be the name of a new column.* has a column 'z'"):
        load(tmp_path / "wide.csv", label="z", annotators=list("pqrs"))


@pytest.mark.parametrize("name", ["digits", "own.npz", "folder", "hf:owner/name"])
def test_annotators_are_for_tables_only(name):
    with pytest.raises(InvalidInput, match=r"`annotators` must be given for tables only|`name_or_path` must be one of"):
        load(name, annotators=["p", "q"])
    with pytest.raises(
        InvalidInput, match=r"`annotations` must be given for tables only|`name_or_path` must be one of"
    ):
        load(name, annotations="labels.csv")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"annotators": ("p",)}, "`annotators` must be two or more different columns, but got p."),
        ({"annotators": ("p", "p")}, "`annotators` must be two or more different columns, but got p, p."),
        ({"annotators": ("p", "q"), "annotations": "a.csv", "id_column": "i"}, "must not both be given"),
        ({"annotations": "a.csv"}, "`annotations` must be used with `id_column`"),
        ({"annotations": "a.csv", "id_column": "i", "annotation_columns": ("a",)}, "must be three columns"),
        ({"annotation_columns": ("a", "b", "c")}, "must be three columns of `annotations`"),
    ],
    ids=str,
)
def test_contradictory_options_are_refused(values, message):
    with pytest.raises(InvalidInput) as caught:
        DataSpec("table.csv", **values)
    assert message in str(caught.value)
