"""Which given labels are probably wrong, estimated from the records of a training, and relabelling."""

from s2e.audit.evidence import Evidence, records_of
from s2e.audit.label_model import LabelAudit, audit
from s2e.audit.relabelling import relabelled_validation, with_validation_labels
from s2e.audit.run_audit import ISSUES, RECORDS, AuditedRun, audit_run, write_audit

__all__ = [
    "ISSUES",
    "RECORDS",
    "AuditedRun",
    "Evidence",
    "LabelAudit",
    "audit",
    "audit_run",
    "records_of",
    "relabelled_validation",
    "with_validation_labels",
    "write_audit",
]
