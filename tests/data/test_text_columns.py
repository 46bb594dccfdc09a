"""Free text as inputs: against scikit-learn, and restored."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from s2e.data.table_columns import column_from_json
from s2e.data.text_columns import DIRECTIONS, fit_text
from s2e.errors import UnreadableData
from s2e.files.fields import Fields


def texts(rows: int, words: int) -> pd.Series:
    generator = np.random.default_rng(0)
    return pd.Series([" ".join(f"word{index}" for index in generator.integers(0, words, 8)) for _ in range(rows)])


def test_few_words_are_tf_idf_up_to_a_factor():
    values = texts(80, 30)
    oracle = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode").fit_transform(values).toarray()
    inputs = fit_text("note", values).encode(values)
    np.testing.assert_allclose(inputs / inputs.max(), oracle / oracle.max(), rtol=1e-5)


def test_many_words_are_projected_on_directions():
    values = texts(200, 500)
    column = fit_text("note", values)
    assert column.encode(values).shape == (200, DIRECTIONS)
    assert f"reduced to {DIRECTIONS} directions" in column.encoding
    assert len(column.feature_names) == DIRECTIONS


def test_missing_texts_have_an_indicator_and_unknown_words_no_input():
    column = fit_text("note", pd.Series(["red fox", None, "grey fox"]))
    inputs = column.encode(pd.Series(["blue owl", None]))
    assert (inputs[:, :-1] == 0).all()
    assert inputs[:, -1].tolist() == [0, 1]


def test_texts_without_words_have_no_encoding():
    assert fit_text("note", pd.Series(["!", "?"])) is None


@pytest.mark.parametrize("rows", [40, 200])
def test_a_restored_column_gives_the_same_inputs(rows):
    values = texts(rows, 500)
    column = fit_text("note", values)
    written = json.loads(
        json.dumps({"kind": "text", **{name: getattr(column, name) for name in column.__match_args__}})
    )
    np.testing.assert_array_equal(column_from_json(Fields(written, "f")).encode(values), column.encode(values))
    for change in ({"weights": [1.0]}, {"directions": [1.0]}, {"scale": 0}, {"words": []}):
        with pytest.raises(UnreadableData):
            column_from_json(Fields({**written, **change}, "f"))
