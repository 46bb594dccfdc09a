"""Label issues as a table: of any predictions of held-out samples, or of an audit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from s2e.audit.evidence import Evidence
from s2e.audit.label_model import LabelAudit, audit
from s2e.errors import InvalidInput


def find_label_issues(labels: Any, pred_probs: ArrayLike, *, class_names: ArrayLike | None = None) -> pd.DataFrame:
    """Find labels that are probably wrong, from the predictions of any classifier for samples it was not trained on.

    Such predictions are those of `sklearn.model_selection.cross_val_predict(…, method="predict_proba")`. They need not
    be calibrated.

    Args:
        labels: (N,) given labels of any type.
        pred_probs: (N, C) probabilities of the classes, or (M, N, C) of M classifiers, of which the mean is used.
        class_names: (C,) the label of each column; when None, the distinct labels in sorted order, or 0..C-1 for
            integer labels of which some do not occur.

    Returns:
        A row for each label, in the order of `labels`, with the index of `labels` if that is a Series:
        `is_label_issue`, whether another label is more probable; `label_quality`, the probability that the label is
        correct; `given_label`; `suggested_label`, the most probable label; and `confidence`, its probability.

        Its `.attrs` hold `noise_rate`, the estimated share of wrong labels, `transition`, rows of the estimated
        probabilities that a sample of a class was given each label, `accuracy`, the estimated accuracy of the
        classifier, and the 90% intervals of these (`…_interval`), of which that of the accuracy is not reliable: it
        held the test accuracy in 62 of 75 fits (docs/results/own-data); `class_names`; `doubtful_classes`, which the
        classifier has probably not learnt; and `message`, which says where the audit is not reliable.
    """
    probabilities = np.asarray(pred_probs, dtype=np.float64)
    if probabilities.ndim == 2:
        probabilities = probabilities[None]
    given = np.asarray(labels)
    if probabilities.ndim != 3 or given.ndim != 1 or probabilities.shape[1] != len(given):
        raise InvalidInput(
            "`pred_probs` must be (N, C) or (M, N, C), with one row for each of the N labels, but got "
            f"{np.shape(pred_probs)} for labels of shape {given.shape}."
        )
    classes = _classes(given, probabilities.shape[2], class_names)
    order = np.argsort(classes, kind="stable")
    codes = order[np.searchsorted(classes, given, sorter=order)].astype(np.int64)
    unseen = np.zeros(len(given)), np.empty((0, len(given)))
    found = audit(Evidence(codes, probabilities, *unseen))
    return issues_table(found, codes, classes, labels.index if isinstance(labels, pd.Series) else None)


def issues_table(
    found: LabelAudit, labels: NDArray[np.int64], classes: NDArray[Any], index: pd.Index | None = None
) -> pd.DataFrame:
    """Return the table of an audit; see `find_label_issues`.

    Args:
        found: the audit.
        labels: (N,) given labels, as positions in `classes`.
        classes: (C,) the label of each class.
        index: (N,) index of the table.
    """
    table = pd.DataFrame(
        {
            "is_label_issue": found.issues,
            "label_quality": found.quality,
            "given_label": classes[labels],
            "suggested_label": classes[found.suggested],
            "confidence": found.confidence,
        },
        index=index,
    )
    table.attrs = {**summary_of(found), "class_names": classes.tolist()}
    table.attrs["doubtful_classes"] = classes[found.doubtful].tolist()
    return table


def summary_of(found: LabelAudit) -> dict[str, Any]:
    """Return the estimates of an audit as JSON holds them; None for an accuracy that is unknown."""
    known = bool(np.isfinite(found.accuracy))
    return {
        "issues": int(found.issues.sum()),
        "noise_rate": found.noise_rate,
        "noise_rate_interval": list(found.noise_rate_interval),
        "transition": found.transition.tolist(),
        "transition_interval": found.transition_interval.tolist(),
        "accuracy": found.accuracy if known else None,
        "accuracy_interval": list(found.accuracy_interval) if known else None,
        "message": found.message,
    }


def _classes(given: NDArray[Any], count: int, names: ArrayLike | None) -> NDArray[Any]:
    """Return the label of each of the C columns."""
    present = np.unique(given)
    if names is not None:
        classes = np.asarray(names)
        if classes.shape != (count,) or len(np.unique(classes)) != count:
            raise InvalidInput(f"`class_names` must be {count} different labels, but got {names!r:.60}.")
        unknown = np.setdiff1d(present, classes)
        if len(unknown):
            raise InvalidInput(f"`labels` must be among the `class_names`, but got {unknown[:5].tolist()} too.")
        return classes
    if len(present) == count:
        return present
    if given.dtype.kind in "iu" and len(present) and present[0] >= 0 and present[-1] < count:
        return np.arange(count)
    raise InvalidInput(
        f"`labels` must hold one distinct label for each of the {count} columns of `pred_probs`, but got "
        f"{len(present)}; pass `class_names`, the label of each column."
    )
