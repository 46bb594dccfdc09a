"""The run directory: written atomically, read back, locked, resumed."""

from s2e.runs.classifier_file import read_classifier, with_weights, write_classifier
from s2e.runs.csv_files import csv_text
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation, Session, stored_options

__all__ = [
    "CONFIG",
    "Run",
    "RunLocation",
    "Session",
    "csv_text",
    "read_classifier",
    "stored_options",
    "with_weights",
    "write_classifier",
]
