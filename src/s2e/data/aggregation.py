"""One label for each item from the labels of several annotators, and how reliable each annotator is.

Letters: N items, A annotators, C classes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from s2e.data.annotations import MISSING, Annotations, annotations_of, annotations_of_rows
from s2e.data.dawid_skene import DawidSkene, annotator_accuracy, dawid_skene
from s2e.data.table_encoding import with_text_names
from s2e.data.table_files import read_table
from s2e.errors import InvalidInput, listed, unknown_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class AggregatedLabels:
    """The consensus of the annotators for the N items that have a label.

    Attributes:
        items: (N,) IDs of a long table, the index of a wide DataFrame, or row numbers from 0.
        labels: (N,) the most probable class; among equally probable ones the first.
        posterior: (N, C) probability of every class.
        classes: (C,) the distinct labels, in the order of the columns.
        counts: (N,) number of labels of the item.
        agreement: (N,) share of its labels that equal the consensus.
        annotators: a DataFrame with a row for each annotator: `annotator`, `labels` (their number), `accuracy` with the
            bounds of its 95% interval, `accuracy_low` and `accuracy_high`. NaN where no item has labels of two
            annotators: then accuracies cannot be estimated.
        converged: whether the estimate has settled.
        message: one line about the outcome.
    """

    items: NDArray[Any]
    labels: NDArray[Any]
    posterior: NDArray[np.float64]
    classes: NDArray[Any]
    counts: NDArray[np.int64]
    agreement: NDArray[np.float64]
    annotators: pd.DataFrame
    converged: bool
    message: str
    _annotations: Annotations
    _model: DawidSkene

    def confusion(self, annotator: str) -> pd.DataFrame:
        """Return the confusion matrix of an annotator, (C, C): probability of a label (column) by class (row)."""
        names = self._annotations.annotator_names
        if annotator not in names:
            raise unknown_name("annotator", annotator, names, 10)
        matrix = self._model.confusion(names.index(annotator))
        return pd.DataFrame(
            matrix, index=pd.Index(self.classes, name="class"), columns=pd.Index(self.classes, name="label")
        )

    def annotations_of(self, classes: Sequence[str]) -> Annotations:
        """Return the labels of the annotators as indices into these names of classes."""
        return self._annotations.recoded(classes)

    def table(self) -> pd.DataFrame:
        """Return a row for each item: `item`, `label`, `probability`, `annotators` (number of labels), `agreement`."""
        return pd.DataFrame(
            {
                "item": self.items,
                "label": self.labels,
                "probability": self.posterior.max(axis=1),
                "annotators": self.counts,
                "agreement": self.agreement,
            }
        )


def aggregate_labels(
    annotations: Any,
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    missing: Any = MISSING,
) -> AggregatedLabels:
    """Estimate the true label of every item from the labels of several annotators (Dawid & Skene 1979).

    Every annotator has a confusion matrix, which is estimated together with the true labels. Annotators with few labels
    are shrunk to all others. Items without any label are left out.

    Args:
        annotations: (N, A) labels, an array or a DataFrame with a column for each annotator; or a long DataFrame with a
            row for each label and the columns item, annotator and label.
        item: column of the items of a long DataFrame; detected by its name when None, as the two others.
        annotator: column of the annotators.
        label: column of the labels.
        missing: a label that means a gap, like NaN, None and `pd.NA`; None for no other.
    """
    given = annotations_of(annotations, item=item, annotator=annotator, label=label, missing=missing)
    return aggregate(labelled_only(given))


def labelled_only(annotations: Annotations) -> Annotations:
    """Leave items without labels out."""
    counts = annotations.counts()
    without = np.flatnonzero(counts == 0)
    if not len(without):
        return annotations
    logger.warning(
        "%d of %d items have no label of any annotator and are left out: %s",
        len(without),
        len(counts),
        listed(annotations.ids[without].tolist()),
    )
    return annotations.take(np.flatnonzero(counts > 0))


def aggregate(annotations: Annotations) -> AggregatedLabels:
    """Aggregate labels; every item has one."""
    found = dawid_skene(annotations.items, annotations.annotators, annotations.labels, annotations.shape)
    consensus = found.posterior.argmax(axis=1)
    counts, agreement = annotations.counts(), annotations.agreement(consensus)
    return AggregatedLabels(
        items=annotations.ids,
        labels=annotations.classes[consensus],
        posterior=found.posterior,
        classes=annotations.classes,
        counts=counts,
        agreement=agreement,
        annotators=_annotator_table(annotations, found, estimable=bool(found.compared.any())),
        converged=found.converged,
        message=_message(annotations, found, counts),
        _annotations=annotations,
        _model=found,
    )


def with_consensus(
    frame: pd.DataFrame,
    origin: str,
    label: str,
    id_column: str | None,
    annotators: Sequence[str],
    annotations: str,
    columns: Sequence[str],
) -> tuple[pd.DataFrame, AggregatedLabels]:
    """Return a table with the consensus in a new column, empty where a row has no label; and the consensus.

    Args:
        frame: N rows.
        origin: their file, for messages.
        label: name of the new column.
        id_column: column that identifies the rows.
        annotators: columns with the labels of the annotators, which are removed; or
        annotations: path of a long table of labels.
        columns: its columns of items, annotators and labels.
    """
    frame = with_text_names(frame)
    table = read_table(annotations) if annotations else None
    given = annotations_of_rows(frame, origin, annotators=annotators, table=table, columns=columns, id_column=id_column)
    frame = frame.drop(columns=list(annotators))
    if label in frame.columns:
        raise InvalidInput(
            f"`label` must be the name of a new column, for the consensus of the annotators, but {origin} has a column "
            f"{label!r}; remove it, or give another name."
        )
    rows = np.flatnonzero(given.counts() > 0)
    crowd = aggregate(given.take(rows))
    logger.info("%s", crowd.message)
    column = pd.Series(np.nan, index=frame.index, dtype=object)
    column.iloc[rows] = crowd.labels
    return frame.assign(**{label: column}), crowd


def _annotator_table(annotations: Annotations, found: DawidSkene, *, estimable: bool) -> pd.DataFrame:
    names = annotations.annotator_names
    correct = found.posterior[annotations.items, annotations.labels]
    estimates = annotator_accuracy(annotations.items, annotations.annotators, correct, annotations.shape)
    accuracy, low, high = estimates if estimable else (np.full(len(names), np.nan),) * 3
    given = np.bincount(annotations.annotators, minlength=len(names))
    return pd.DataFrame(
        {"annotator": names, "labels": given, "accuracy": accuracy, "accuracy_low": low, "accuracy_high": high}
    )


def _agreement_of_pairs(annotations: Annotations, counts: NDArray[np.int64]) -> float:
    """Return the share of equal ones among all pairs of labels of an item, of which there is one."""
    cells = np.unique(annotations.items * len(annotations.classes) + annotations.labels, return_counts=True)[1]
    return float((cells * (cells - 1)).sum() / (counts * (counts - 1)).sum())


def _message(annotations: Annotations, found: DawidSkene, counts: NDArray[np.int64]) -> str:
    items, annotators, classes = annotations.shape
    head = f"{len(annotations.items)} labels of {items} items by {annotators} annotators, {classes} classes"
    if not found.compared.any():
        return f"{head}; no item has labels of two annotators, so their accuracy cannot be estimated"
    settled = "" if found.converged else f"; the estimate has not settled after {found.iterations} iterations"
    return f"{head}; two labels of an item agree in {_agreement_of_pairs(annotations, counts):.1%}{settled}"
