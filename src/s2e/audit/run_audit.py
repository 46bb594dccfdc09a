"""`s2e audit` without parsing or printing: audit the labels of a run from its records, write the result.

| file | content |
|---|---|
| label_issues.csv | every sample, also held-out ones with noisy labels: ID, given and suggested label, quality |
| audit.json | number of issues; estimated noise rate, transition matrix and accuracy, with intervals |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.audit.evidence import Evidence
from s2e.audit.label_issues import summary_of
from s2e.audit.label_model import LabelAudit, audit
from s2e.audit.review_order import order_by_doubt
from s2e.data.annotations import label_agreement
from s2e.errors import UnreadableData
from s2e.methods import ForwardCorrection
from s2e.runs import Run, all_options, csv_text, read_classifier, read_configuration

RECORDS = "dynamics.npz"
ISSUES, SUMMARY = "label_issues.csv", "audit.json"


@dataclass(frozen=True, eq=False)
class AuditedRun:
    """The audited labels of a run.

    Attributes:
        ids: N names of the samples, as in their file.
        rows: (N,) their rows in the file, from 0.
        labels: (N,) the given labels.
        class_names: C names.
        audit: the result of the audit.
        kept: (N,) share of the times a sample was in a batch that a network was trained on it.
        reviewed: (N,) bool, labels that were reviewed before the training.
        true: (N,) the true labels; None if they are unknown.
        annotations: (L, 3) sample, annotator and label, where several annotators labelled the samples; else None.
    """

    ids: list[str]
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    audit: LabelAudit
    kept: NDArray[np.float64]
    reviewed: NDArray[np.bool_]
    true: NDArray[np.int64] | None = None
    annotations: NDArray[np.int64] | None = None

    @property
    def order(self) -> NDArray[np.int64]:
        """All samples, (N,), the most doubtful label first."""
        return order_by_doubt(self.audit, self.kept)

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each sample, the most doubtful label first.

        Where several annotators labelled the samples, the given label is their consensus, and a row has the number of
        labels and the share of them that equal it.
        """
        found, crowd = self.audit, self._agreement()
        return [
            {
                "id": self.ids[index],
                "given_label": self.class_names[self.labels[index]],
                "suggested_label": self.class_names[found.suggested[index]],
                "confidence": float(found.confidence[index]),
                "label_quality": float(found.quality[index]),
                "is_label_issue": bool(found.issues[index]),
                **{name: values[index] for name, values in crowd.items()},
            }
            for index in self.order.tolist()
        ]

    def _agreement(self) -> dict[str, list[Any]]:
        """Return further columns about the annotators."""
        if self.annotations is None:
            return {}
        samples, _, labels = self.annotations.T
        counts = np.bincount(samples, minlength=len(self.ids))
        agreement = label_agreement(samples, labels, self.labels)
        return {"annotators": counts.tolist(), "agreement": agreement.tolist()}

    def summary(self) -> dict[str, Any]:
        """Return the summary of the audit, ready for JSON."""
        found = self.audit
        return {
            "samples": len(self.ids),
            "threshold": found.threshold,
            **summary_of(found),
            "class_names": list(self.class_names),
            "doubtful_classes": [self.class_names[index] for index in np.flatnonzero(found.doubtful)],
        }


def audit_run(run: Run) -> AuditedRun:
    """Audit the labels of a run."""
    records = run.read_arrays(RECORDS)
    if "probabilities" not in records:
        reason = "records of an older version" if records else "no records of a finished search or training"
        raise UnreadableData(f"{str(run.path)!r} holds {reason}, so its labels cannot be audited.")
    _check_records(records, run.path / RECORDS)
    evidence = evidence_of(records, str(all_options(run, read_configuration(run)).get("method")))
    rows, class_names = records["rows"], read_classifier(run).class_names
    if len(class_names) != evidence.classes:
        raise UnreadableData(
            f"{str(run.path)!r} is damaged: its records are of {evidence.classes} classes, but its classifier is of "
            f"{len(class_names)}."
        )
    ids = records["ids"].tolist() if "ids" in records else [str(row) for row in rows.tolist()]
    reviewed = records.get("reviewed", np.zeros(len(rows), dtype=bool))
    true, annotations, kept = records.get("clean_labels"), evidence.annotations, evidence.kept
    return AuditedRun(ids, rows, evidence.labels, class_names, audit(evidence), kept, reviewed, true, annotations)


def evidence_of(records: Mapping[str, NDArray[Any]], method: str) -> Evidence:
    """Return the evidence in the records of a training by a method."""
    evidence = Evidence.from_records(records)
    if method == ForwardCorrection.name:  # its losses are those of the corrected predictions, not of the given labels
        return evidence.without_losses()
    return evidence


def _check_records(records: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Raise unless all records are there, with the types and shapes that `records_of` gives them."""
    samples = records["probabilities"].shape[1] if records["probabilities"].ndim == 3 else -1
    intervals = len(records["seen"]) if "seen" in records and records["seen"].ndim else -1
    expected = {
        "probabilities": ("f", records["probabilities"].shape if samples > 0 else ("M", "N", "C")),
        "seen": ("iu", (intervals, samples)),
        "kept": ("iuf", (samples,)),
        "loss": ("f", (intervals, samples)),
        "rows": ("i", (samples,)),
        "labels": ("i", (samples,)),
        **{
            name: (kind, (samples,))
            for name, kind in (("ids", "U"), ("reviewed", "b"), ("clean_labels", "i"))
            if name in records
        },
        **({"out_of_fold": ("f", records["probabilities"].shape[1:])} if "out_of_fold" in records else {}),
        **({"trusted": ("i", ())} if "trusted" in records else {}),
        **({"annotations": ("i", (records["annotations"].size // 3, 3))} if "annotations" in records else {}),
    }
    true, classes = records.get("clean_labels"), (records["probabilities"].shape or (0,))[-1]
    if true is not None and true.dtype.kind == "i" and true.size and true.max() >= classes:
        raise UnreadableData(f"{str(path)!r} is damaged: `clean_labels` must be classes, but got {true.max()}.")
    for name, (kinds, shape) in expected.items():
        if name not in records:
            raise UnreadableData(f"{str(path)!r} is damaged: `{name}` is missing.")
        array = records[name]
        if array.dtype.kind not in kinds or array.shape != shape:
            raise UnreadableData(
                f"{str(path)!r} is damaged: `{name}` must have the shape ({', '.join(map(str, shape))}), but got "
                f"{array.dtype} of shape {array.shape}."
            )
        if array.dtype.kind in "iu" and array.size and array.min() < 0:
            raise UnreadableData(f"{str(path)!r} is damaged: `{name}` must not be negative, but got {array.min()}.")


def write_audit(run: Run, audited: AuditedRun) -> None:
    """Write the result of the audit into the run."""
    run.write_text(ISSUES, csv_text(audited.table()))
    run.write_json(SUMMARY, audited.summary())
