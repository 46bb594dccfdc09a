"""Files that were damaged or tampered with: Hypothesis strategies for bytes, JSON, arrays, tensors and databases.

A strategy takes the content of a valid file. What it makes shrinks to one change, near the beginning of the file; the
changes of a failing example are printed.
"""

from __future__ import annotations

import copy
import io
import json
import math
import sqlite3
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from hypothesis.internal.conjecture import providers
from hypothesis.strategies import DrawFn, SearchStrategy

# Hypothesis also draws constants of the tested code, of all modules that are loaded at that moment, which depends on
# the tests that ran before. Without them, a strategy makes the same files in every run.
assert callable(providers.is_local_module_file)
providers.is_local_module_file = lambda path: False  # noqa: ARG005

Mutate = Callable[[bytes], SearchStrategy[bytes]]
T = TypeVar("T")

DEPTH = 100_000
"""Nested arrays of a JSON text that no parser of limited depth can read."""

HOSTILE_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    2**31,
    2**63,
    -(2**64),
    10**400,
    0.5,
    -0.0,
    1e308,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "x",
    "none",
    "search",
    "a" * 5000,
    "\ud800",
    "\x00\r\n\x1b[31m",
    "../../etc/passwd",
    "=1+1",
    [],
    {},
    [[]],
    [1, 2, 3],
    [0.5] * 100,
    ["a", None],
    {"a": 1},
    {"": {}},
)


def element(draw: DrawFn, values: Sequence[T]) -> T:
    """Draw an element of a sequence; the first one is the simplest."""
    return values[draw(st.integers(0, len(values) - 1))]


def weighted(**weights: int) -> SearchStrategy[str]:
    """Draw a name with a probability in proportion to its weight; the first one is the simplest."""
    return st.sampled_from([name for name, weight in weights.items() for _ in range(weight)])


# ---------------------------------------------------------------------------------------------------------------- bytes

BYTE_CHANGES = weighted(flip=8, cut=4, fill=4, repeat=4, swap=4, overwrite=4, replace=1)


@st.composite
def mutated_bytes(draw: DrawFn, content: bytes) -> bytes:
    """Flip bits, overwrite, cut, swap, repeat or insert blocks, one to three times."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        if not changed:
            break
        kind, here = draw(BYTE_CHANGES), draw(st.integers(0, len(changed) - 1))
        note(f"{kind} at byte {here} of {len(changed)}")
        if kind == "flip":
            changed[here] ^= 1 << draw(st.integers(0, 7))
            continue
        if kind == "cut":
            del changed[here:]
            continue
        if kind == "replace":
            changed = bytearray(draw(st.binary(max_size=64)))
            continue
        size = draw(st.integers(1, min(64, len(changed))))
        match kind:
            case "fill":
                changed[here : here + size] = draw(st.sampled_from([b"\x00", b"\xff"])) * size
            case "repeat":
                there = draw(st.integers(0, len(changed)))
                changed[there:there] = changed[here : here + size]
            case "swap":
                there = draw(st.integers(0, len(changed) - 1))
                first, second = bytes(changed[here : here + size]), bytes(changed[there : there + size])
                changed[there : there + size], changed[here : here + size] = first, second
            case "overwrite":
                changed[here : here + size] = draw(st.binary(min_size=size, max_size=size))
    return bytes(changed)


# ----------------------------------------------------------------------------------------------------------------- JSON

OTHER_TEXTS = (b"", b"null", b"[]", b"1", b"[" * DEPTH, b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH)
JSON_CHANGES = weighted(values=13, text=5, depth=1, other=1)
VALUE_CHANGES = weighted(delete=2, rename=1, repeat=1, nest=1, write=1, replace=5)

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
hostile_values: SearchStrategy[Any] = st.one_of(
    *[st.sampled_from(HOSTILE_VALUES).map(copy.deepcopy)] * 4,  # further mutations change it
    json_values,
)


@st.composite
def mutated_json(draw: DrawFn, content: bytes) -> bytes:
    """Damage the text, nest it deeply, or replace, remove, rename or repeat values in it."""
    kind = draw(JSON_CHANGES)
    if kind == "text":
        return draw(mutated_bytes(content))
    if kind == "other":
        return draw(st.sampled_from(OTHER_TEXTS))
    value = json.loads(content)
    if kind == "depth":
        return _deep_inside(draw, value)
    for _ in range(draw(st.integers(1, 3))):
        value = mutated_value(draw, value)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def mutated_value(draw: DrawFn, value: Any) -> Any:
    """Return a JSON value, which may be changed, with a change at one position."""
    containers = [each for each in _containers(value) if each]
    if not containers or draw(st.integers(0, 40)) == 40:
        return draw(hostile_values)
    container = element(draw, containers)
    key = element(draw, list(container) if isinstance(container, dict) else range(len(container)))
    kind = draw(VALUE_CHANGES)
    note(f"{kind} {key!a} of {'an object' if isinstance(container, dict) else 'an array'}")
    match kind:
        case "rename" if isinstance(container, dict):
            container[f"{key}x"] = container.pop(key)
        case "delete" | "rename":
            del container[key]
        case "repeat" if isinstance(container, list):
            container.extend(container[: draw(st.integers(1, 5))])
        case "nest":
            container[key] = [container[key]]
        case "write" if isinstance(container[key], (int, float)):
            container[key] = str(container[key])
        case _:
            container[key] = draw(hostile_values)
    return value


def _containers(value: Any) -> Any:
    """Yield all arrays and objects in a JSON value."""
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _containers(inner)


def _deep_inside(draw: DrawFn, value: Any) -> bytes:
    """Replace a value by one that is nested hundreds or thousands of times."""
    marker, depth = "here it is deep", draw(st.sampled_from([150, 900, DEPTH]))
    containers = [each for each in _containers(value) if each]
    if containers:
        container = element(draw, containers)
        container[element(draw, list(container) if isinstance(container, dict) else range(len(container)))] = marker
    note(f"nested {depth} times")
    return json.dumps(value).replace(f'"{marker}"', "[" * depth + "]" * depth).encode()


# --------------------------------------------------------------------------------------------------------------- arrays

ARCHIVE_CHANGES = weighted(members=7, contents=6, bytes=7)
MEMBER_CHANGES = weighted(array=2, delete=1, rename=1)
ARRAY_CHANGES = weighted(value=2, fill=2, type=2, cut=2, shape=2, repeat=2, other=1)
TYPES = ("<f8", "<i8", "|b1", "<U4", "|S3", "|O", "<M8[ns]", "<c16", "|V8", "<f2", ">i4", "junk")
SHAPES = ("()", "(-1,)", "(2**60,)", f"({10**12},)", "(0,)", "(1, 1, 1)", "(3, 10**9)", "x")


@st.composite
def mutated_npz(draw: DrawFn, content: bytes) -> bytes:
    """Damage the archive, or write a valid one with other arrays, headers or members."""
    kind = draw(ARCHIVE_CHANGES)
    if kind == "bytes":
        return draw(mutated_bytes(content))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if kind == "contents":  # the checksums hold, the contents do not
        name = element(draw, list(members))
        note(f"contents of {name}")
        members[name] = draw(mutated_bytes(members[name]) | mutated_header(members[name]))
    else:
        for _ in range(draw(st.integers(1, 2))):
            if members:
                _mutate_members(draw, members)
    written = io.BytesIO()
    compression = draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
    twice = draw(st.sampled_from([False] * 40 + [True]))
    with warnings.catch_warnings(), zipfile.ZipFile(written, "w", compression) as archive:
        warnings.simplefilter("ignore", UserWarning)  # two members of one name
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member, compression)  # the date of the entry is not that of today
            if twice:
                archive.writestr(zipfile.ZipInfo(name), member[: len(member) // 2], compression)
    return written.getvalue()


@st.composite
def mutated_header(draw: DrawFn, content: bytes) -> bytes:
    """Return an array of the .npy format with another type, shape or order in its header."""
    array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=True)
    shape: Any = draw(st.sampled_from([array.shape] * 24 + [*SHAPES]))
    described = draw(
        st.sampled_from([array.dtype.str, *TYPES]).map(repr)
        | st.sampled_from(["[('a', '<f8')]", "None", repr("<U1000000000")])
    )
    order = draw(st.sampled_from(["False", "False", "True", "None"]))
    header = f"{{'descr': {described}, 'fortran_order': {order}, 'shape': {shape}, }}"
    note(f"header {header}")
    text = f"{header}\n".encode()
    data = content[-array.nbytes :] if array.nbytes else b""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def _mutate_members(draw: DrawFn, members: dict[str, bytes]) -> None:
    name, kind = element(draw, list(members)), draw(MEMBER_CHANGES)
    note(f"{kind} of {name}")
    match kind:
        case "delete":
            del members[name]
        case "rename":
            members[draw(st.sampled_from([f"{name}x", "x.npy", "../x.npy", "junk", " "]))] = members.pop(name)
        case _:
            array = np.lib.format.read_array(io.BytesIO(members[name]), allow_pickle=True)
            members[name] = written_array(draw(mutated_array(array)))


def written_array(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


def other_arrays() -> SearchStrategy[np.ndarray]:
    """Return arrays of any type and of up to three dimensions."""
    shapes = arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    return arrays_of.arrays(arrays_of.scalar_dtypes(), shapes)


@st.composite
def mutated_array(draw: DrawFn, array: np.ndarray) -> np.ndarray:
    """Return an array with other values, type or shape."""
    kind = draw(ARRAY_CHANGES)
    note(f"{kind} of an array of {array.dtype} {array.shape}")
    match kind:
        case "fill":
            values = [0, 1, -1, 300, 1e9, 1e300, np.nan, np.inf, "a", "\ud800"]
            return np.full(array.shape, draw(st.sampled_from(values)))
        case "type":
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dtype = draw(st.sampled_from(["f8", "f4", "f2", "i1", "u8", "c16", "?", "U3", "S2", "O", "M8[s]"]))
                try:
                    return array.astype(dtype)
                except (ValueError, TypeError, OverflowError):
                    return array[:0]
        case "cut" if array.ndim:
            return array[draw(st.sampled_from([slice(0), slice(1), slice(None, None, 2), slice(-1)]))]
        case "cut":
            return array
        case "shape":
            return element(draw, [array.reshape(-1), array.T, array[None], array[..., None]])
        case "repeat":
            return np.concatenate([array, array]) if array.ndim else array.reshape(1)
        case "other":
            return draw(other_arrays())
        case _:
            return _with_one_value(draw, array)


def _with_one_value(draw: DrawFn, array: np.ndarray) -> np.ndarray:
    changed = array.copy().reshape(-1)
    if changed.size and changed.dtype.kind in "fiu":
        whole = [0, 1, -1, 100, 127]
        value = draw(st.sampled_from([*whole, 2.5, np.nan, np.inf, -1e30] if changed.dtype.kind == "f" else whole))
        with np.errstate(all="ignore"):
            changed[draw(st.integers(0, changed.size - 1))] = np.array(value).astype(changed.dtype)
    elif changed.size and changed.dtype.kind == "U" and changed.itemsize:
        codes = changed.view(np.uint32)
        codes[draw(st.integers(0, codes.size - 1))] = draw(st.sampled_from([0, 10, 27, 0xD800, 0x110000, 0xFFFFFFFF]))
    return changed.reshape(array.shape)


def mutated_npy(content: bytes) -> SearchStrategy[bytes]:
    """Damage the file, its header, or its values."""
    array = np.lib.format.read_array(io.BytesIO(content))
    return mutated_array(array).map(written_array) | mutated_header(content) | mutated_bytes(content)


# -------------------------------------------------------------------------------------------------------------- tensors

TENSOR_FILE_CHANGES = weighted(metadata=5, bytes=2, header=1, tensors=1, data=1)
TENSOR_TYPES = ("F32", "I32", "F64", "I64", "BOOL", "U8", "BF16", "F8_E4M3")


@st.composite
def mutated_safetensors(draw: DrawFn, content: bytes) -> bytes:
    """Damage the file, its header, the JSON in its metadata, or the numbers."""
    kind = draw(TENSOR_FILE_CHANGES)
    if kind == "bytes":
        return draw(mutated_bytes(content))
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    metadata = header.get("__metadata__", {})
    match kind:
        case "metadata" if metadata:
            key = element(draw, list(metadata))
            note(f"metadata {key}")
            metadata[key] = draw(mutated_json(metadata[key].encode())).decode("utf-8", "replace")
        case "metadata" | "header":
            header = mutated_value(draw, header)
        case "tensors":
            _mutate_tensors(draw, header)
        case _:
            data = draw(mutated_bytes(data))[: len(data)].ljust(len(data), b"\xff")
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + data


def _mutate_tensors(draw: DrawFn, header: dict[str, Any]) -> None:
    names = [name for name in header if name != "__metadata__"]
    one, kind = element(draw, names), draw(weighted(shape=1, type=1, swap=1))
    note(f"{kind} of the tensor {one}")
    match kind:
        case "shape":
            shape = header[one]["shape"]
            header[one]["shape"] = element(draw, [[math.prod(shape)], shape[::-1], [0], [2**62, 8]])
        case "type":
            header[one]["dtype"] = draw(st.sampled_from(TENSOR_TYPES))
        case _:
            other = element(draw, names)
            header[one], header[other] = header[other], header[one]


# ------------------------------------------------------------------------------------------------------------ databases

DATABASE_CHANGES = weighted(cells=3, bytes=2)
TABLE_CHANGES = weighted(cells=7, delete=1, drop=1, rename=1)
HOSTILE_CELLS = (None, -1, 0, 7, 2**62, 1.5, 1e300, "", "x", "[1, 2", "[" * 5000, '{"a": 1}', "NaN", b"\xff\x00")
cells = st.one_of(
    st.sampled_from(HOSTILE_CELLS),
    st.sampled_from(HOSTILE_CELLS),
    st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=20) | st.binary(max_size=20),
)


@st.composite
def mutated_sqlite(draw: DrawFn, content: bytes) -> bytes:
    """Damage the pages, or change cells, rows, columns and tables by SQL."""
    if draw(DATABASE_CHANGES) == "bytes":
        return draw(mutated_bytes(content))
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        file.write(content)
        file.flush()
        database = sqlite3.connect(file.name)
        database.execute("PRAGMA synchronous = OFF")
        try:
            tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            filled = [name for name in tables if database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]]
            for _ in range(draw(st.integers(1, 3))):
                _change_table(draw, database, element(draw, filled if draw(st.integers(0, 9)) < 9 else tables))
            database.commit()
        finally:
            database.close()
        return Path(file.name).read_bytes()


def _change_table(draw: DrawFn, database: sqlite3.Connection, table: str) -> None:
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    if not columns:  # dropped before
        return
    column, kind = element(draw, columns), draw(TABLE_CHANGES)
    where = draw(st.sampled_from([" WHERE rowid = (SELECT min(rowid) FROM {0})", " WHERE rowid % 2 = 0", ""]))
    statement, values = {
        "cells": (f"UPDATE OR REPLACE {table} SET {column} = ?{where.format(table)}", 1),
        "delete": (f"DELETE FROM {table}{where.format(table)}", 0),
        "drop": (f"DROP TABLE {table}", 0),
        "rename": (f"ALTER TABLE {table} RENAME COLUMN {column} TO renamed", 0),
    }[kind]
    given = [draw(cells) for _ in range(values)]
    note(f"{statement} {given!a}"[:300])
    try:
        database.execute(statement, given)
    except sqlite3.Error:
        return  # a constraint of the table refused it
