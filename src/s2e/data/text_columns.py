"""Free text of a column: TF-IDF of its words and of pieces of words, and projections of these. Pure.

Models of scikit-learn take the TF-IDF of all terms, a sparse matrix; networks take projections of the most frequent
terms on their leading directions. Pieces are runs of three to five characters within a word: they relate inflected and
misspelt words, and hold what words are in languages without spaces.

Letters: N rows, W words, P pieces, Q directions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy import sparse

from s2e.data.column_values import value_texts
from s2e.data.sparse_projection import SparseEncoder
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from s2e.data.samples import Array

MAX_WORDS, MAX_PIECES = 10_000, 20_000
"""Terms of either kind, the most frequent ones."""

MAX_PROJECTED = 2_000
"""Terms of either kind that are projected."""

DIRECTIONS = 64
DIGITS = 6
"""Significant digits of the entries of directions."""

SEED = 0
"""Of the truncated singular value decomposition: the encoding is a function of the table."""

WORDS_OF_TEXT = 3.0
"""Mean number of words from which different texts are text to learn from, and not names or numbers."""

_WORD = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]|\w+")
"""A word, or a character of a script that has no spaces."""

_SHOWN_TEXTS = 1_000


@dataclass(frozen=True)
class TextColumn:
    """Free text.

    Attributes:
        name: name of the column.
        words: W words, the most frequent first.
        weights: W inverse document frequencies.
        pieces: P pieces of words, the most frequent first; none in files of earlier versions.
        piece_weights: P inverse document frequencies.
        directions: Q right singular vectors of the projected terms, one after the other; empty if these are inputs.
        scale: root mean square of the unscaled inputs in training.
        missing: whether texts were missing in training, and an indicator is an input.
    """

    kind: ClassVar = "text"
    name: str
    words: tuple[str, ...]
    weights: tuple[float, ...]
    pieces: tuple[str, ...]
    piece_weights: tuple[float, ...]
    directions: tuple[float, ...]
    scale: float
    missing: bool

    @property
    def terms(self) -> int:
        """W + P."""
        return len(self.words) + len(self.pieces)

    @property
    def feature_names(self) -> list[str]:
        """Names of the terms or numbers of the directions, and of the indicator."""
        projected = [*self.words[:MAX_PROJECTED], *self.pieces[:MAX_PROJECTED]]
        count = len(self.directions) // len(projected)
        inputs = [f"direction {index}" for index in range(count)] if count else projected
        return [f"{self.name}: {each}" for each in (*inputs, *(["missing"] if self.missing else []))]

    @property
    def encoding(self) -> str:
        """What became of the column, in words."""
        count = len(self.feature_names) - self.missing
        pieces = f" and {len(self.pieces)} pieces of words" if self.pieces else ""
        reduced = f", reduced to {count} directions" if self.directions else ""
        indicator = "; indicator of missing values" if self.missing else ""
        return f"TF-IDF of {len(self.words)} words{pieces}{reduced}{indicator}"

    def tf_idf(self, values: pd.Series) -> sparse.csr_matrix:
        """Return the TF-IDF of all terms, float32 (N, W + P)."""
        codes, texts = value_texts(values, self.name)
        given = [*texts, ""]  # code -1, of missing values, is the last
        parts = [_weighted(_words, self.words, self.weights, given)]
        if self.pieces:
            parts.append(_weighted(_pieces, self.pieces, self.piece_weights, given))
        return sparse.hstack(parts).tocsr()[codes].astype(np.float32)

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, Q) or (N, projected terms), and an indicator."""
        inputs = self._projection.encode(self._projected(self.tf_idf(values))).astype(np.float64)
        if not self.missing:
            return inputs
        codes, _ = value_texts(values, self.name)
        return np.concatenate([inputs, (codes < 0)[:, None]], axis=1)

    def _projected(self, terms: sparse.csr_matrix) -> sparse.csr_matrix:
        """Return the columns of the terms that are projected."""
        first, second = min(len(self.words), MAX_PROJECTED), min(len(self.pieces), MAX_PROJECTED)
        return terms[:, np.r_[:first, len(self.words) : len(self.words) + second]]

    @cached_property
    def _projection(self) -> SparseEncoder:
        projected = len(self.words[:MAX_PROJECTED]) + len(self.pieces[:MAX_PROJECTED])
        rows = np.array(self.directions, dtype=np.float32).reshape(-1, projected)  # (Q, projected)
        return SparseEncoder(rows if len(rows) else None, self.scale)

    @classmethod
    def from_json(cls, written: Fields) -> TextColumn:
        """Return the column whose fields were written to a file."""
        words, weights = written.texts("words"), written.numbers("weights")
        has_pieces = bool(written.values.get("pieces"))
        pieces = written.texts("pieces") if has_pieces else ()
        piece_weights = written.numbers("piece_weights") if has_pieces else ()
        directions = written.numbers("directions") if written.values.get("directions") else ()
        for name, terms, own in (("weights", words, weights), ("piece_weights", pieces, piece_weights)):
            if len(own) != len(terms) or len(set(terms)) < len(terms) or (name == "weights" and not terms):
                raise written.error(name, f"{len(terms)} numbers, one for each of different terms", own)
        projected = len(words[:MAX_PROJECTED]) + len(pieces[:MAX_PROJECTED])
        if len(directions) % projected:
            raise written.error("directions", f"rows of {projected} numbers", directions)
        scale = written.number("scale", least=np.nextafter(0, 1))
        name, missing = written.text("name"), written.flag("missing")
        return cls(name, words, weights, pieces, piece_weights, directions, scale, missing)


def is_text(texts: Sequence[str]) -> bool:
    """Return whether different texts, at least one, are text to learn from: of three words or more on average."""
    some = texts[:: max(1, len(texts) // _SHOWN_TEXTS)]
    return sum(len(_WORD.findall(text)) for text in some) >= WORDS_OF_TEXT * len(some)


def fit_text(name: str, values: pd.Series) -> TextColumn | None:
    """Fit a column of text; None if it holds no words."""
    codes, texts = value_texts(values, name)
    given = [texts[code] if code >= 0 else "" for code in codes]
    try:
        words, weights = _terms(_words(max_features=MAX_WORDS), given)
        pieces, piece_weights = _terms(_pieces(max_features=MAX_PIECES), given)
    except ValueError:  # there are no words
        return None
    missing = bool((codes < 0).any())
    column = TextColumn(name, words, weights, pieces, piece_weights, (), 1.0, missing)
    projected = column._projected(column.tf_idf(values))
    found = SparseEncoder.fit(projected, min(DIRECTIONS, max(1, len(codes) - 1)), SEED)
    entries = [] if found.directions is None else found.directions.ravel().tolist()
    directions = tuple(float(f"{entry:.{DIGITS}g}") for entry in entries)
    return TextColumn(name, words, weights, pieces, piece_weights, directions, found.scale, missing)


def _terms(vectorizer: Any, texts: list[str]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the terms of texts, the most frequent first, and their inverse document frequencies."""
    vectorizer.fit(texts)
    terms, weights = vectorizer.get_feature_names_out(), vectorizer.idf_
    order = np.argsort(weights, kind="stable")
    return tuple(terms[order].tolist()), tuple(weights[order].tolist())


def _weighted(make: Any, terms: tuple[str, ...], weights: tuple[float, ...], texts: list[str]) -> sparse.csr_matrix:
    """Return the TF-IDF of some terms, rows of length 1 or 0."""
    vectorizer = make(vocabulary=terms)
    vectorizer.idf_ = np.array(weights)
    return vectorizer.transform(texts)


def _words(**options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", **options)


def _pieces(**options: Any) -> Any:
    return _words(analyzer="char_wb", ngram_range=(3, 5), **options)
