"""Read a table from a .csv, .jsonl or .parquet file into a DataFrame.

The separator of a text table is detected. The fields of every record are counted first, because pandas silently fills
short rows with missing values. Numbers with leading zeros (007) stay text, because they are identifiers. Files are
never unpickled, and the metadata that pandas writes to parquet files are ignored.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd

from s2e.data.files import JSON_SUFFIXES, PARQUET_SUFFIX, TABLE_SUFFIXES
from s2e.errors import InvalidInput, UnreadableData, first_line, listed
from s2e.files.json_text import parse_json
from s2e.files.regular import check_size, read_decompressed, unreadable

logger = logging.getLogger(__name__)

SEPARATORS = (",", ";", "\t")
MISSING_VALUES = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "<NA>", "?")
"""Fields that mean a missing value. "None" is not among them: it is a class in many tables."""

SNIFFED_RECORDS = 50
SNIFFED_CHARACTERS = 100_000
PARQUET_MAGIC = b"PAR1"
BYTES_OF_A_VALUE = 8
"""Of every value in memory; in a parquet file, equal ones take almost no space."""

JSON_EXPANSION = 20
"""Values take up to twenty times the memory of their JSON text."""

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
WINDOWS = "cp1252"
CONTROLS = re.compile(r"[\x01-\x08\x0e-\x1f]")
"""Control characters that text has not."""

INDEX_COLUMN = re.compile(r"__index_level_\d+__")


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a table with column names.

    Args:
        path: a .csv or .tsv file, a .jsonl or .ndjson file of one JSON object in each line, each plain or .gz, or a
            .parquet file. Text is UTF-8, UTF-16 with a byte order mark, or Windows-1252, as spreadsheet programs write
            it. Of a .csv, the first record holds the column names; fields are separated by commas, semicolons or tabs.
            With semicolons, numbers have a decimal comma. Blank lines are ignored.

    Returns:
        The rows in the order of the file, numbered from 0. Columns without a name are named as in pandas, "Unnamed: 0"
        for the first.
    """
    path = Path(path)
    name = path.name.lower()
    if not name.endswith(TABLE_SUFFIXES):
        raise InvalidInput(
            f"a table must be a {', '.join(TABLE_SUFFIXES[:-1])} or {TABLE_SUFFIXES[-1]} file, but got {path}; "
            f"save it in one of these formats (in a spreadsheet program: CSV UTF-8)."
        )
    content = read_decompressed(path)
    if not content:
        raise UnreadableData(f"{path} must hold a table, but is empty; write it again.")
    if name.endswith(PARQUET_SUFFIX):
        frame = _read_parquet(content, path)
    elif name.endswith(JSON_SUFFIXES):
        frame = _read_json_lines(content, path)
    else:
        frame = _read_text(content, path)
    if len(frame) == 0:
        raise UnreadableData(f"{path} must hold rows, but holds only the {frame.shape[1]} column names.")
    return frame


# Text


@dataclass(frozen=True)
class _Layout:
    """Properties of a text table that are needed to parse its values."""

    separator: str
    names: list[str]
    zero_padded: set[str]


def _read_text(content: bytes, path: Path) -> pd.DataFrame:
    text = _decoded(content, path)
    if not text.strip():
        raise UnreadableData(f"{path} must hold a table, but is empty; write it again.")
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
            low_memory=False,  # or the type of a long column may change within it
        )
    except (ValueError, OverflowError) as error:  # pandas' ParserError is a ValueError
        raise UnreadableData(f"{path} could not be read as a table ({first_line(error)}); write it again.") from error


def _decoded(content: bytes, path: Path) -> str:
    """Return the text without its byte order mark; the error names the first byte that cannot be read."""
    try:
        text = content.decode("utf-16" if content.startswith(UTF16_MARKS) else "utf-8-sig")
    except UnicodeDecodeError as error:
        text = _from_windows(content, path) or _refuse(content, path, error)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UnreadableData(
            f"{path} must be text, but has a zero byte on line {line}; it is corrupted or of another format: "
            f"save it as CSV UTF-8."
        )
    return text


def _from_windows(content: bytes, path: Path) -> str | None:
    """Return text in the encoding of Western European Windows, as spreadsheet programs write it there, with a warning.

    None where the bytes are none, have control characters as text has not, or begin with a byte order mark.
    """
    try:
        text = content.decode(WINDOWS)
    except UnicodeDecodeError:
        return None
    if content.startswith((*UTF16_MARKS, b"\xef\xbb\xbf")) or CONTROLS.search(text) is not None:
        return None
    changed = next(character for character in text if not character.isascii())
    logger.warning(
        "%s is not UTF-8 and is read as Windows-1252, with characters such as %r; if these are wrong, save it as UTF-8",
        *(path.name, changed),
    )
    return text


def _refuse(content: bytes, path: Path, error: UnicodeDecodeError) -> NoReturn:
    name = path.name.removesuffix(".gz")
    if content.startswith(UTF16_MARKS):
        raise UnreadableData(f"{path} must be UTF-16 text, as it begins, but ends within a character; write it again.")
    mark = len(content) - len(content.removeprefix(b"\xef\xbb\xbf"))  # the error does not count the mark
    position = mark + error.start
    line = content.count(b"\n", 0, position) + 1
    raise UnreadableData(
        f"{path} must be UTF-8 text, but has the byte 0x{content[position]:02x} on line {line} (byte {position + 1} of "
        f"the file); convert it from its encoding, ENCODING: iconv -f ENCODING -t UTF-8 {name} > utf8-{name}"
    ) from error


def _layout(text: str, path: Path) -> _Layout:
    """Detect the separator and the names, and check the length of every record."""
    separator = _separator(text)
    check_zeros = _may_have_leading_zeros(text, separator)  # checking every field is slow
    records = _records(text, separator, path)
    _, header = next(records)
    names = [name.strip() or f"Unnamed: {position}" for position, name in enumerate(header)]
    zero_padded: set[str] = set()
    wrong_lengths = []
    for line, record in records:
        if len(record) != len(names):
            wrong_lengths.append(f"line {line} has {len(record)}")
        elif check_zeros:
            zero_padded.update(
                name
                for name, field in zip(names, record, strict=True)
                if field.strip().removeprefix("0").isdigit() and field.strip().startswith("0")
            )
    problems = []
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        problems.append(f"column names must be unique, but got more than once: {listed(duplicates)}; rename them.")
    if wrong_lengths:
        problems.append(
            f"every row must have {len(names)} fields like the header, but {listed(wrong_lengths)}; "
            f'put fields that contain a separator into "quotes".'
        )
    if problems:
        raise UnreadableData(f"{path}: {' '.join(problems)}")
    return _Layout(separator, names, zero_padded)


def _records(text: str, separator: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the records that are not blank, with the number of their first line."""
    if '"' not in text:  # every line is a record, and splitting it is three times faster
        for line, fields in enumerate(_with_unix_line_ends(text).split("\n"), start=1):
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
            f"{path}: quotes must be closed, and doubled inside quotes, but the record that begins on line {line} "
            f"is malformed ({error}); correct that line."
        ) from error


def _with_unix_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _may_have_leading_zeros(text: str, separator: str) -> bool:
    """Return whether a zero and another digit follow a separator, space, quote or line end anywhere."""
    content = np.frombuffer(text.encode(), dtype=np.uint8)
    before = np.isin(content[:-2], np.frombuffer(f'{separator}\r\n" '.encode(), dtype=np.uint8))
    first = np.flatnonzero(before) + 1
    digits = (content[first + 1] >= ord("0")) & (content[first + 1] <= ord("9"))
    return bool(((content[first] == ord("0")) & digits).any())


def _separator(text: str) -> str:
    """Return the separator with which the first records agree best in length; ties go to more fields."""
    found: dict[str, tuple[float, int]] = {}
    for separator in SEPARATORS:
        lines = io.StringIO(text[:SNIFFED_CHARACTERS], newline="")
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        widths = [len(record) for record in islice(reader, SNIFFED_RECORDS) if record]
        if widths and widths[0] > 1:
            found[separator] = (widths.count(widths[0]) / len(widths), widths[0])
    return max(found, key=lambda separator: found[separator], default=SEPARATORS[0])


# JSON lines


def _read_json_lines(content: bytes, path: Path) -> pd.DataFrame:
    """Read one object of each line; a field that an object lacks is missing."""
    check_size(path, JSON_EXPANSION * len(content))
    rows: list[dict[str, object]] = []
    names: dict[str, None] = {}
    for number, line in enumerate(_with_unix_line_ends(_decoded(content, path)).split("\n"), start=1):
        if not line.strip():
            continue
        row = parse_json(line, f"{path}, line {number}")
        if not isinstance(row, dict):
            raise unreadable(
                path, f"line {number} must hold an object with named fields, but holds {line.strip()[:40]!r}"
            )
        rows.append(row)
        names |= dict.fromkeys(row)
        check_size(path, len(rows) * len(names) * BYTES_OF_A_VALUE)  # few objects may have many different fields
    return pd.DataFrame({name: [row.get(name) for row in rows] for name in names}, index=range(len(rows)))


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
            f"{content[:4].hex(' ')} and ends with {content[-4:].hex(' ')}; it is truncated or of another format: "
            f"write it with DataFrame.to_parquet."
        )
    try:
        file = parquet.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        duplicates = [name for name, count in Counter(file.schema_arrow.names).items() if count > 1]
        if duplicates:
            raise UnreadableData(
                f"{path}: column names must be unique, but got more than once: {listed(duplicates)}; rename them."
            )
        check_size(path, file.metadata.num_rows * max(file.metadata.num_columns, 1) * BYTES_OF_A_VALUE)
        # Without the metadata of pandas a named index is a column like the others; an unnamed index is dropped.
        table = file.read()
        table.validate(full=True)  # also that text is UTF-8
        frame = table.to_pandas(ignore_metadata=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, UnreadableData):
            raise
        raise UnreadableData(
            f"{path} could not be read ({first_line(error)}); it is truncated or corrupted: write it again."
        ) from error
    return frame[[name for name in frame.columns if not INDEX_COLUMN.fullmatch(name)]]
