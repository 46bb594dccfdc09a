"""The suffixes of tables, and of spreadsheets, which are not read."""

from __future__ import annotations

TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
PARQUET_SUFFIX = ".parquet"
TABLE_SUFFIXES = (*TEXT_SUFFIXES, *JSON_SUFFIXES, PARQUET_SUFFIX)
SPREADSHEET_SUFFIXES = (".xlsx", ".xls", ".xlsm", ".ods")
