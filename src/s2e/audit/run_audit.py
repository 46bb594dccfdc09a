"""`s2e audit` without parsing or printing: audit the labels of a run from its records, write the result.

| file | content |
|---|---|
| label_issues.csv | every sample, also held-out ones with noisy labels: ID, given and suggested label, quality |
| audit.json | number of issues, estimated noise rate and transition matrix |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.audit.evidence import Evidence
from s2e.audit.label_model import LabelAudit, audit
from s2e.errors import UnreadableData
from s2e.methods import ForwardCorrection
from s2e.runs import CONFIG, Run, csv_text, read_classifier

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
    """

    ids: list[str]
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    audit: LabelAudit

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each sample, the label of lowest quality first."""
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
            for index in np.argsort(found.quality, kind="stable").tolist()
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
    evidence = Evidence.from_records(records)
    if run.read_json(CONFIG)["options"]["method"] == ForwardCorrection.name:
        # Its losses are those of the corrected predictions, not of the given labels.
        evidence = replace(evidence, loss=np.full_like(evidence.loss, np.nan))
    rows = records["rows"]
    ids = records["ids"].tolist() if "ids" in records else [str(row) for row in rows.tolist()]
    return AuditedRun(ids, rows, evidence.labels, read_classifier(run).class_names, audit(evidence))


def write_audit(run: Run, audited: AuditedRun) -> None:
    """Write the result of the audit into the run."""
    run.write_text(ISSUES, csv_text(audited.table()))
    run.write_json(SUMMARY, audited.summary())
