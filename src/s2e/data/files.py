"""The suffixes of tables."""

from __future__ import annotations

TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_SUFFIX = ".parquet"
