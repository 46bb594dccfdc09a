"""Free text of a column as inputs: TF-IDF of its words, projected on the leading directions if there are many. Pure.

Letters: N rows, W words, Q directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from s2e.data.column_values import value_texts
from s2e.data.sparse_projection import SparseEncoder
from s2e.files.fields import Fields

if TYPE_CHECKING:
    from s2e.data.samples import Array

MAX_WORDS = 2_000
DIRECTIONS = 64
SEED = 0
"""Of the truncated singular value decomposition: the encoding is a function of the table."""


@dataclass(frozen=True)
class TextColumn:
    """Free text.

    Attributes:
        name: name of the column.
        words: the W most frequent words.
        weights: W inverse document frequencies.
        directions: (Q, W) right singular vectors, row by row; empty if every word is an input.
        scale: root mean square of the unscaled inputs in training.
        missing: whether texts were missing in training, and an indicator is an input.
    """

    kind: ClassVar = "text"
    name: str
    words: tuple[str, ...]
    weights: tuple[float, ...]
    directions: tuple[float, ...]
    scale: float
    missing: bool

    @property
    def feature_names(self) -> list[str]:
        """Names of the words or numbers of the directions, and of the indicator."""
        count = len(self.directions) // len(self.words)
        inputs = [f"direction {index}" for index in range(count)] if count else self.words
        return [f"{self.name}: {each}" for each in (*inputs, *(["missing"] if self.missing else []))]

    @property
    def encoding(self) -> str:
        """What became of the column, in words."""
        count = len(self.directions) // len(self.words)
        reduced = f", reduced to {count} directions" if count else ""
        return f"TF-IDF of {len(self.words)} words{reduced}{'; indicator of missing values' if self.missing else ''}"

    @cached_property
    def _projection(self) -> SparseEncoder:
        rows = np.array(self.directions, dtype=np.float32).reshape(-1, len(self.words))  # (Q, W)
        return SparseEncoder(rows if len(rows) else None, self.scale)

    def encode(self, values: pd.Series) -> Array:
        """Return the column's inputs, float64 (N, Q) or (N, W), and an indicator."""
        codes, texts = value_texts(values, self.name)
        vectorizer = _vectorizer(vocabulary=self.words)
        vectorizer.idf_ = np.array(self.weights)
        inputs = self._projection.encode(vectorizer.transform([*texts, ""]))[codes].astype(np.float64)
        return np.concatenate([inputs, (codes < 0)[:, None]], axis=1) if self.missing else inputs

    @classmethod
    def from_json(cls, written: Fields) -> TextColumn:
        """Return the column whose fields were written to a file."""
        words, weights = written.texts("words"), written.numbers("weights")
        directions = written.numbers("directions") if written.values.get("directions") else ()
        if not words or len(weights) != len(words) or len(set(words)) < len(words):
            raise written.error("weights", f"{len(words)} numbers, one for each of different words", weights)
        if len(directions) % len(words):
            raise written.error("directions", f"rows of {len(words)} numbers", directions)
        scale = written.number("scale", least=np.nextafter(0, 1))
        return cls(written.text("name"), words, weights, directions, scale, written.flag("missing"))


def fit_text(name: str, values: pd.Series) -> TextColumn | None:
    """Fit a column of text; None if it holds no words."""
    codes, texts = value_texts(values, name)
    vectorizer = _vectorizer(max_features=MAX_WORDS)
    try:
        counted = vectorizer.fit_transform([texts[code] if code >= 0 else "" for code in codes])  # (N, W)
    except ValueError:  # there are no words
        return None
    projection = SparseEncoder.fit(counted, min(DIRECTIONS, max(1, len(codes) - 1)), SEED)
    directions = () if projection.directions is None else tuple(map(float, projection.directions.ravel().tolist()))
    words = tuple(vectorizer.get_feature_names_out().tolist())
    return TextColumn(
        name, words, tuple(vectorizer.idf_.tolist()), directions, projection.scale, bool((codes < 0).any())
    )


def _vectorizer(**options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", **options)
