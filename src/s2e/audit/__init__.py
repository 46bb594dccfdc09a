"""Which given labels are probably wrong, estimated from the records of a training, and relabelling."""

from s2e.audit.cross_fitting import FOLDS, stratified_folds
from s2e.audit.evidence import Evidence, probabilities_out_of_fold, records_of
from s2e.audit.label_issues import find_label_issues, issues_table, summary_of
from s2e.audit.label_model import AMBIGUOUS, MAX_TRANSITION_CLASSES, WEAK, Interval, LabelAudit, audit, belief_of
from s2e.audit.original_samples import (
    MOST_VALUABLE,
    Originals,
    is_image,
    read_samples,
    stored_samples,
    write_samples,
)
from s2e.audit.relabelling import relabelled_validation, with_validation_labels
from s2e.audit.review_order import order_by_doubt, order_by_value
from s2e.audit.run_audit import ISSUES, RECORDS, AuditedRun, audit_run, evidence_of, write_audit

__all__ = [
    "AMBIGUOUS",
    "FOLDS",
    "ISSUES",
    "MAX_TRANSITION_CLASSES",
    "MOST_VALUABLE",
    "RECORDS",
    "WEAK",
    "AuditedRun",
    "Evidence",
    "Interval",
    "LabelAudit",
    "Originals",
    "audit",
    "audit_run",
    "belief_of",
    "evidence_of",
    "find_label_issues",
    "is_image",
    "issues_table",
    "order_by_doubt",
    "order_by_value",
    "probabilities_out_of_fold",
    "read_samples",
    "records_of",
    "relabelled_validation",
    "stored_samples",
    "stratified_folds",
    "summary_of",
    "with_validation_labels",
    "write_audit",
    "write_samples",
]
