"""What `s2e audit` does, without parsing or printing: judge the labels of a run from its records, write the verdicts.

| file | what |
|---|---|
| label_issues.csv | every row, also those held out with doubtful labels: ID, given and suggested label, quality |
| audit.json | how many, the estimated share of wrong labels, and how classes are mistaken for each other |
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
from s2e.runs.classifier_file import read_classifier
from s2e.runs.csv_files import csv_text
from s2e.runs.directory import CONFIG, Run

RECORDS = "dynamics.npz"
ISSUES, SUMMARY = "label_issues.csv", "audit.json"


@dataclass(frozen=True, eq=False)
class AuditedRun:
    """The verdicts on the training labels of a run.

    Attributes:
        ids: N names of the training rows, as their file has them.
        rows: (N,) where they stand in their file, from 0.
        labels: (N,) the labels given.
        class_names: C names.
        verdicts: on every label.
    """

    ids: list[str]
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    verdicts: LabelAudit

    def table(self) -> list[dict[str, Any]]:
        """One row for each training row, the most doubtful label first."""
        found = self.verdicts
        return [
            {
                "id": self.ids[at],
                "given": self.class_names[self.labels[at]],
                "suggested": self.class_names[found.suggested[at]],
                "probability": float(found.probability[at]),
                "quality": float(found.quality[at]),
                "issue": "yes" if found.issues[at] else "no",
            }
            for at in np.argsort(found.quality, kind="stable").tolist()
        ]

    def summary(self) -> dict[str, Any]:
        """The verdict as a whole, ready for JSON."""
        found = self.verdicts
        return {
            "samples": len(self.ids),
            "issues": int(found.issues.sum()),
            "threshold": found.threshold,
            "noise_rate": found.noise_rate,
            "class_names": list(self.class_names),
            "transition": found.transition.tolist(),
            "doubtful_classes": [name for name, doubt in zip(self.class_names, found.doubtful, strict=True) if doubt],
        }


def audit_run(run: Run) -> AuditedRun:
    """GenerationPruner the training labels of a run."""
    records = run.read_arrays(RECORDS)
    if "probabilities" not in records:
        what = "holds no finished training" if not records else "was made by a version that kept too few records"
        raise UnreadableData(f"{str(run.path)!r} {what}: its labels cannot be judged; finish it or train it again.")
    evidence = Evidence.from_records(records)
    if run.read_json(CONFIG)["options"]["method"] == ForwardCorrection.name:
        # Its losses say how well corrected labels are explained, not how likely the given ones are.
        evidence = replace(evidence, loss=np.full_like(evidence.loss, np.nan))
    rows = records["rows"]
    ids = records["ids"].tolist() if "ids" in records else [str(row) for row in rows.tolist()]
    return AuditedRun(ids, rows, evidence.labels, read_classifier(run).class_names, audit(evidence))


def write_audit(run: Run, audited: AuditedRun) -> None:
    """Write the verdicts into the run."""
    run.write_text(ISSUES, csv_text(audited.table()))
    run.write_json(SUMMARY, audited.summary())
