"""Read a table from a .csv or .parquet file into a DataFrame; `tabular.py` says what its columns mean.

Of a text table the separator is found out, every record is counted before pandas sees the file (pandas fills short rows
with missing values in silence), and numbers written with leading zeros (007) stay text, so that identifiers survive.
Nothing in a file is ever run: no pickle, and nothing of the metadata that pandas leaves in parquet files.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from s2e.errors import InvalidInput, UnreadableData, first_line, listed

TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_SUFFIX = ".parquet"
SEPARATORS = (",", ";", "\t")
MISSING_VALUES = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "<NA>", "?")
"""What a field holds that holds no value. "None" is not among them: it is a class in many tables."""

SNIFFED_RECORDS = 50
SNIFFED_CHARACTERS = 100_000
GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
INDEX_COLUMN = re.compile(r"__index_level_\d+__")


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a table whose columns have names.

    Args:
        path: a .csv or .tsv file, plain or .gz, or a .parquet file. Text must be UTF-8, with or without a byte order
            mark; its first record holds the names of the columns, and comma, semicolon or tab separates the fields.
            Where it is the semicolon, numbers may have a decimal comma. Blank lines do not count.

    Returns:
        The rows in the order of the file, numbered from 0. Columns without a name are called as pandas calls them,
        "Unnamed: 0" for the first.
    """
    path = Path(path)
    name = path.name.lower()
    if not name.endswith((*TEXT_SUFFIXES, PARQUET_SUFFIX)):
        raise InvalidInput(
            f"{path} must end in {', '.join(TEXT_SUFFIXES)} or {PARQUET_SUFFIX}, but does not; "
            f"save the table in one of these forms (in a spreadsheet program: CSV UTF-8)."
        )
    content = _read_bytes(path)
    frame = _read_parquet(content, path) if name.endswith(PARQUET_SUFFIX) else _read_text(content, path)
    if len(frame) == 0:
        raise UnreadableData(f"{path} must hold rows, but holds only the names of {frame.shape[1]} columns.")
    return frame


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise UnreadableData(f"{path} must be a file, but is a folder; name a file in it.")
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise UnreadableData(f"{path} does not exist; check the path.") from error
    except OSError as error:
        raise UnreadableData(f"{path} could not be read ({error.strerror}); check the path and its rights.") from error
    if not content:
        raise UnreadableData(f"{path} must hold a table, but is empty; write it again.")
    return content


# Text


@dataclass(frozen=True)
class _Layout:
    """What must be known of a text table before its values are read."""

    separator: str
    names: list[str]
    zero_padded: set[str]


def _read_text(content: bytes, path: Path) -> pd.DataFrame:
    text = _decoded(_unpacked(content, path), path)
    if not text.strip():
        raise UnreadableData(f"{path} must hold a table, but is blank; write it again.")
    layout = _layout(text, path)
    try:
        return pd.read_csv(
            io.StringIO(text, newline=""),
            sep=layout.separator,
            header=0,
            names=layout.names,
            dtype=dict.fromkeys(layout.zero_padded, "str"),
            skipinitialspace=True,
            keep_default_na=False,
            na_values=list(MISSING_VALUES),
            decimal="," if layout.separator == ";" else ".",
            low_memory=False,  # or a long column may be of one type in its first half and of another in its second
        )
    except (ValueError, OverflowError) as error:  # pandas' ParserError is a ValueError
        raise UnreadableData(f"{path} could not be read as a table ({first_line(error)}); write it again.") from error


def _unpacked(content: bytes, path: Path) -> bytes:
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableData(
            f"{path} could not be unpacked ({error}); it is truncated or corrupted: copy or download it again."
        ) from error


def _decoded(content: bytes, path: Path) -> str:
    """Return the text without its byte order mark, or say which byte is not UTF-8 and how to convert the file."""
    name = path.name.removesuffix(".gz")
    if content.startswith(UTF16_MARKS):
        raise UnreadableData(
            f"{path} must be UTF-8 text, but is UTF-16; convert it: iconv -f UTF-16 -t UTF-8 {name} > utf8-{name}"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        marked = len(content) - len(content.removeprefix(b"\xef\xbb\xbf"))  # positions are counted after the mark
        position = marked + error.start
        line = content.count(b"\n", 0, position) + 1
        raise UnreadableData(
            f"{path} must be UTF-8 text, but has the byte 0x{content[position]:02x} on line {line} (byte {position + 1}"
            f" of the file); if it comes from Windows: iconv -f WINDOWS-1252 -t UTF-8 {name} > utf8-{name}"
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UnreadableData(
            f"{path} must be text, but has a zero byte on line {line}; it is corrupted or of another kind: "
            f"save it as CSV UTF-8."
        )
    return text


def _layout(text: str, path: Path) -> _Layout:
    """Find separator and names, and check every record against them."""
    separator = _separator(text)
    watch_for_zeros = _may_hold_leading_zeros(text, separator)  # looking at every field takes time few files need
    records = _records(text, separator, path)
    _, header = next(records)
    names = [name.strip() or f"Unnamed: {position}" for position, name in enumerate(header)]
    zero_padded: set[str] = set()
    wrong_lengths = []
    for line, record in records:
        if len(record) != len(names):
            wrong_lengths.append(f"line {line} has {len(record)}")
        elif watch_for_zeros:
            zero_padded.update(
                name
                for name, field in zip(names, record, strict=True)
                if field.strip().removeprefix("0").isdigit() and field.strip().startswith("0")
            )
    problems = []
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        problems.append(f"columns must have different names, but got twice: {listed(twice)}; rename them.")
    if wrong_lengths:
        problems.append(
            f"every row must have {len(names)} fields as the names of the columns do, but {listed(wrong_lengths)}; "
            f'put fields that hold a separator into "quotes".'
        )
    if problems:
        raise UnreadableData(f"{path}: {' '.join(problems)}")
    return _Layout(separator, names, zero_padded)


def _records(text: str, separator: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the records that are not blank, each with the line on which it begins."""
    if '"' not in text:  # then every line is a record, and reading them is three times as fast
        for line, fields in enumerate(_line_ends_alike(text).split("\n"), start=1):
            if separator in fields or fields.strip():
                yield line, fields.split(separator)
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
    line = 1
    try:
        for record in reader:
            if len(record) > 1 or (record and record[0].strip()):
                yield line, record
            line = reader.line_num + 1
    except csv.Error as error:
        raise UnreadableData(
            f"{path}: quotes must be closed, and doubled inside of quotes, but in the record that begins on line "
            f"{line} they are not ({error}); correct that line."
        ) from error


def _line_ends_alike(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _may_hold_leading_zeros(text: str, separator: str) -> bool:
    """Tell whether some field can begin with a zero and another digit, from what stands before them."""
    content = np.frombuffer(text.encode(), dtype=np.uint8)
    before = np.isin(content[:-2], np.frombuffer(f'{separator}\r\n" '.encode(), dtype=np.uint8))
    first = np.flatnonzero(before) + 1
    digits = (content[first + 1] >= ord("0")) & (content[first + 1] <= ord("9"))
    return bool(((content[first] == ord("0")) & digits).any())


def _separator(text: str) -> str:
    """Return the separator under which the first records agree best in length, and among those the finest."""
    found: dict[str, tuple[float, int]] = {}
    for separator in SEPARATORS:
        lines = io.StringIO(text[:SNIFFED_CHARACTERS], newline="")
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        widths = [len(record) for record in islice(reader, SNIFFED_RECORDS) if record]
        if widths and widths[0] > 1:
            found[separator] = (widths.count(widths[0]) / len(widths), widths[0])
    return max(found, key=lambda separator: found[separator], default=SEPARATORS[0])


# Parquet


def _read_parquet(content: bytes, path: Path) -> pd.DataFrame:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise UnreadableData(
            f"{path} needs pyarrow to be read, which is not installed; run `pip install pyarrow`, "
            f"or save the table as .csv."
        ) from error
    if not (content.startswith(PARQUET_MAGIC) and content.endswith(PARQUET_MAGIC)):
        raise UnreadableData(
            f"{path} must be a parquet file, which begins and ends with PAR1, but it begins with "
            f"{content[:4].hex(' ')} and ends with {content[-4:].hex(' ')}; it is truncated or of another kind: "
            f"write it with DataFrame.to_parquet."
        )
    try:
        file = parquet.ParquetFile(pa.BufferReader(content))
        twice = [name for name, count in Counter(file.schema_arrow.names).items() if count > 1]
        if twice:
            raise UnreadableData(
                f"{path}: columns must have different names, but got twice: {listed(twice)}; rename them."
            )
        # Without pandas' own metadata a named index is a column like the others; one without a name is left behind.
        frame = file.read().to_pandas(ignore_metadata=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, UnreadableData):
            raise
        raise UnreadableData(
            f"{path} could not be read ({first_line(error)}); it is truncated or corrupted: write it again."
        ) from error
    return frame[[name for name in frame.columns if not INDEX_COLUMN.fullmatch(name)]]


# Sentences
