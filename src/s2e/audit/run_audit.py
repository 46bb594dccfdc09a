"""`s2e audit` without parsing or printing: audit the labels of a run from its records, write the result.

| file | content |
|---|---|
| label_issues.csv | every sample, also held-out ones with noisy labels: ID, given and suggested label, quality |
| audit.json | number of issues, estimated noise rate and transition matrix |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.audit.evidence import Evidence
from s2e.audit.label_model import LabelAudit, audit
from s2e.audit.review_order import order_by_doubt
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
    """

    ids: list[str]
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    audit: LabelAudit
    kept: NDArray[np.float64]
    reviewed: NDArray[np.bool_]
    true: NDArray[np.int64] | None = None

    @property
    def order(self) -> NDArray[np.int64]:
        """All samples, (N,), the most doubtful label first."""
        return order_by_doubt(self.audit, self.kept)

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each sample, the most doubtful label first."""
        found = self.audit
        return [
            {
                "id": self.ids[index],
                "given": self.class_names[self.labels[index]],
                "suggested": self.class_names[found.suggested[index]],
                "probability": float(found.probability[index]),
                "quality": float(found.quality[index]),
                "issue": "yes" if found.issues[index] else "no",
            }
            for index in self.order.tolist()
        ]

    def summary(self) -> dict[str, Any]:
        """Return the summary of the audit, ready for JSON."""
        found = self.audit
        return {
            "samples": len(self.ids),
            "issues": int(found.issues.sum()),
            "threshold": found.threshold,
            "noise_rate": found.noise_rate,
            "class_names": list(self.class_names),
            "transition": found.transition.tolist(),
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
    true = records.get("clean_labels")
    return AuditedRun(ids, rows, evidence.labels, class_names, audit(evidence), evidence.kept, reviewed, true)


def evidence_of(records: Mapping[str, NDArray[Any]], method: str) -> Evidence:
    """Return the evidence in the records of a training by a method."""
    evidence = Evidence.from_records(records)
    if method == ForwardCorrection.name:  # its losses are those of the corrected predictions, not of the given labels
        return replace(evidence, loss=np.full_like(evidence.loss, np.nan))
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
    }
    true = records.get("clean_labels")
    if true is not None and true.dtype.kind == "i" and true.size and true.max() >= records["probabilities"].shape[-1]:
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
