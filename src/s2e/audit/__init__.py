"""Which given labels are probably wrong, estimated from the records of a training, and relabelling."""

from s2e.audit.cross_fitting import FOLDS, stratified_folds
from s2e.audit.evidence import Evidence, records_of
from s2e.audit.label_issues import find_label_issues, issues_table, summary_of
from s2e.audit.label_model import WEAK, Interval, LabelAudit, audit
from s2e.audit.relabelling import relabelled_validation, with_validation_labels
from s2e.audit.run_audit import ISSUES, RECORDS, AuditedRun, audit_run, write_audit

__all__ = [
    "FOLDS",
    "ISSUES",
    "RECORDS",
    "WEAK",
    "AuditedRun",
    "Evidence",
    "Interval",
    "LabelAudit",
    "audit",
    "audit_run",
    "find_label_issues",
    "issues_table",
    "records_of",
    "relabelled_validation",
    "stratified_folds",
    "summary_of",
    "with_validation_labels",
    "write_audit",
]
