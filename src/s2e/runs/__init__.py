"""The run directory: written atomically, read back, locked, resumed."""

from s2e.runs.classifier_file import (
    described,
    normalisation_to_json,
    read_classifier,
    read_votes,
    restored_networks,
    votes_to_json,
    with_normalisation,
    write_classifier,
)
from s2e.runs.configuration import all_options, read_configuration
from s2e.runs.csv_files import csv_text, plain_text
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation, Session, is_finished, stored_options
from s2e.runs.table_formats import check_pyarrow, encoded_table, table_suffix

__all__ = [
    "CONFIG",
    "Run",
    "RunLocation",
    "Session",
    "all_options",
    "check_pyarrow",
    "csv_text",
    "described",
    "encoded_table",
    "is_finished",
    "normalisation_to_json",
    "plain_text",
    "read_classifier",
    "read_configuration",
    "read_votes",
    "restored_networks",
    "stored_options",
    "table_suffix",
    "votes_to_json",
    "with_normalisation",
    "write_classifier",
]
