"""Samples as models take them: the parts of tables with free text, against scikit-learn, and their concatenation."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from s2e.data.model_samples import TextSamples, concatenated
from s2e.data.table_encoding import TableEncoder

WORDS = np.array(["red", "fox", "grey", "owl", "runs", "sleeps", "slowly", "today"])


def table(rows: int, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    notes = [" ".join(WORDS[generator.integers(0, len(WORDS), 6)]) + f" {row}" for row in range(rows)]
    return pd.DataFrame({"note": notes, "size": generator.normal(size=rows)})


def fitted(frame: pd.DataFrame) -> tuple[TableEncoder, TextSamples]:
    encoder = TableEncoder.fit(frame)
    found = encoder.model_samples(frame, encoder.encode(frame))
    assert found is not None
    return encoder, found


def test_linear_models_receive_other_columns_and_the_tf_idf_of_all_terms() -> None:
    frame = table(60)
    encoder, found = fitted(frame)
    words = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode").fit_transform(frame["note"])
    pieces = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", analyzer="char_wb", ngram_range=(3, 5))
    oracle = sparse.hstack([words, pieces.fit_transform(frame["note"])]).toarray()
    size = encoder.encode(frame)[:, [encoder.feature_names.index("size")]]
    got = found.linear.toarray()
    np.testing.assert_array_equal(got[:, :1], size)
    np.testing.assert_allclose(np.sort(got[:, 1:], axis=1), np.sort(oracle, axis=1), atol=1e-6)
    assert found.plain == 1
    np.testing.assert_array_equal(found.inputs[:, :1], size)


def test_tables_without_text_have_none() -> None:
    frame = table(60)[["size"]]
    encoder = TableEncoder.fit(frame)
    assert encoder.model_samples(frame, encoder.encode(frame)) is None


def test_selected_rows_put_together_are_the_samples() -> None:
    _, found = fitted(table(40))
    again = concatenated([found[np.arange(15)], found[np.arange(15, 40)]])
    assert isinstance(again, TextSamples)
    assert again.shape == found.shape == (40, found.inputs.shape[1] + found.terms.shape[1])
    np.testing.assert_array_equal(again.inputs, found.inputs)
    np.testing.assert_array_equal(again.linear.toarray(), found.linear.toarray())
    matrix = sparse.random(12, 5, 0.5, random_state=0).tocsr()
    np.testing.assert_array_equal(concatenated([matrix[:5], matrix[5:]]).toarray(), matrix.toarray())
