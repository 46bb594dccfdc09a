"""Free text as inputs: against scikit-learn, and restored."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from s2e.data.table_columns import column_from_json, fit_column
from s2e.data.text_columns import DIRECTIONS, fit_text, is_text
from s2e.errors import UnreadableData
from s2e.files.fields import Fields


def texts(rows: int, words: int) -> pd.Series:
    generator = np.random.default_rng(0)
    return pd.Series([" ".join(f"word{index}" for index in generator.integers(0, words, 8)) for _ in range(rows)])


def oracle(values: pd.Series, **options) -> np.ndarray:
    """The TF-IDF of all terms, those of the largest document frequency first."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", **options)
    found = vectorizer.fit_transform(values).toarray()
    return found[:, np.argsort(vectorizer.idf_, kind="stable")]


def test_terms_are_the_tf_idf_of_words_and_of_pieces_of_words():
    values = texts(80, 30)
    column = fit_text("note", values)
    pieces = oracle(values, analyzer="char_wb", ngram_range=(3, 5))
    np.testing.assert_allclose(
        column.tf_idf(values).toarray(), np.hstack([oracle(values), pieces]), rtol=1e-5, atol=1e-6
    )
    assert column.terms == len(column.words) + len(column.pieces)


def test_few_terms_are_inputs_up_to_a_factor():
    values = pd.Series(["ab cd", "cd ef", "ab ef"] * 10)
    column = fit_text("note", values)
    inputs, terms = column.encode(values), column.tf_idf(values).toarray()
    np.testing.assert_allclose(inputs / inputs.max(), terms / terms.max(), rtol=1e-5)
    assert len(column.feature_names) == inputs.shape[1] == column.terms


def test_misspelt_words_are_near_the_right_ones():
    generator = np.random.default_rng(1)
    topics = {"refund": ["invoice", "payment", "charged"], "crash": ["software", "computer", "restart"]}
    values = pd.Series([" ".join(generator.choice(topics[topic], 3)) for topic in topics for _ in range(60)])
    first, second, misspelt = fit_text("note", values).encode(
        pd.Series(["invoice payment", "software computer", "invoyce paymnet"])
    )
    assert np.linalg.norm(misspelt - first) < np.linalg.norm(misspelt - second)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["the parcel came late", "please call me back"], True),
        (["Anna Schmidt", "Li Wei"], False),
        (["ab12", "x-9"], False),
        (["商品很好但是物流太慢", "包装坏了"], True),
    ],
)
def test_text_has_three_words_on_average(texts, expected):
    assert is_text(texts) is expected


def test_columns_of_different_texts_are_learned_from_without_being_named():
    assert fit_column("note", texts(40, 30)).kind == "text"
    assert fit_column("name", pd.Series([f"person {index}" for index in range(40)])).kind == "left out"


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
    np.testing.assert_array_equal(
        column_from_json(Fields(written, "f")).tf_idf(values).toarray(), column.tf_idf(values).toarray()
    )
    for change in ({"weights": [1.0]}, {"piece_weights": [1.0]}, {"directions": [1.0]}, {"scale": 0}, {"words": []}):
        with pytest.raises(UnreadableData):
            column_from_json(Fields({**written, **change}, "f"))
