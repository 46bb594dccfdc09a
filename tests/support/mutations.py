"""Files that were damaged or tampered with: seeded mutations of bytes, JSON, arrays, tensors and databases."""

from __future__ import annotations

import copy
import io
import json
import math
import random
import sqlite3
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Mutate = Callable[[bytes, random.Random], bytes]

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


# ---------------------------------------------------------------------------------------------------------------- bytes


def mutated_bytes(content: bytes, generator: random.Random) -> bytes:
    """Flip bits, overwrite, cut, swap, repeat or insert blocks, one to three times."""
    changed = bytearray(content)
    for _ in range(generator.randint(1, 3)):
        if not changed:
            break
        here, there = (generator.randrange(len(changed)) for _ in range(2))
        size = generator.randint(1, min(64, len(changed)))
        match generator.randrange(7):
            case 0 | 1:
                changed[here] ^= 1 << generator.randrange(8)
            case 2:
                del changed[here:]
            case 3:
                changed[here : here + size] = generator.randbytes(size)
            case 4:
                first, second = bytes(changed[here : here + size]), bytes(changed[there : there + size])
                changed[there : there + size], changed[here : here + size] = first, second
            case 5:
                changed[there:there] = changed[here : here + size]
            case _:
                changed[here : here + size] = generator.choice([bytes(size), b"\xff" * size])
    return bytes(changed)


# ----------------------------------------------------------------------------------------------------------------- JSON


def mutated_json(content: bytes, generator: random.Random) -> bytes:
    """Damage the text, nest it deeply, or replace, remove, rename or repeat values in it."""
    kind = generator.random()
    if kind < 0.25:
        return mutated_bytes(content, generator)
    if kind < 0.3:
        return generator.choice(
            [b"[" * DEPTH, b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH, b"", b"null", b"[]", b"1"]
        )
    value = json.loads(content)
    if kind < 0.33:
        return _deep_inside(value, generator)
    for _ in range(generator.randint(1, 3)):
        value = mutated_value(value, generator)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def mutated_value(value: Any, generator: random.Random) -> Any:
    """Return a JSON value with a change at a random position."""
    containers = list(_containers(value))
    if not containers or generator.random() < 0.03:
        return hostile_value(generator)
    container = generator.choice(containers)
    keys = list(container) if isinstance(container, dict) else list(range(len(container)))
    if not keys:
        return hostile_value(generator)
    key = generator.choice(keys)
    match generator.randrange(8):
        case 0 if isinstance(container, dict):
            container[f"{key}x"] = container.pop(key)
        case 0 | 1:
            del container[key]
        case 2 if isinstance(container, list):
            container.extend(container[: generator.randint(1, 5)])
        case 3:
            container[key] = [container[key]]
        case 4 if isinstance(container[key], (int, float)):
            container[key] = str(container[key])
        case _:
            container[key] = hostile_value(generator)
    return value


def hostile_value(generator: random.Random) -> Any:
    return copy.deepcopy(generator.choice(HOSTILE_VALUES))  # further mutations change it


def _containers(value: Any) -> Any:
    """Yield all arrays and objects in a JSON value."""
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _containers(inner)


def _deep_inside(value: Any, generator: random.Random) -> bytes:
    """Replace a value by one that is nested hundreds or thousands of times."""
    marker, depth = "here it is deep", generator.choice([150, 900, DEPTH])
    containers = [each for each in _containers(value) if each]
    if containers:
        container = generator.choice(containers)
        container[generator.choice(list(container) if isinstance(container, dict) else range(len(container)))] = marker
    return json.dumps(value).replace(f'"{marker}"', "[" * depth + "]" * depth).encode()


# --------------------------------------------------------------------------------------------------------------- arrays


def mutated_npz(content: bytes, generator: random.Random) -> bytes:
    """Damage the archive, or write a valid one with other arrays, headers or members."""
    kind = generator.random()
    if kind < 0.35:
        return mutated_bytes(content, generator)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if kind < 0.65:  # the checksums hold, the contents do not
        name = generator.choice(list(members))
        members[name] = generator.choice([mutated_bytes, mutated_header])(members[name], generator)
    else:
        for _ in range(generator.randint(1, 2)):
            if members:
                _mutate_members(members, generator)
    written = io.BytesIO()
    compression = generator.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with warnings.catch_warnings(), zipfile.ZipFile(written, "w", compression) as archive:
        warnings.simplefilter("ignore", UserWarning)  # two members of one name
        for name, member in members.items():
            archive.writestr(name, member)
            if generator.random() < 0.01:
                archive.writestr(name, member[: len(member) // 2])
    return written.getvalue()


def mutated_header(content: bytes, generator: random.Random) -> bytes:
    """Return an array of the .npy format with another type, shape or order in its header."""
    array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=True)
    shape: Any = array.shape
    match generator.randrange(4):
        case 0:
            shape = generator.choice(
                ["()", "(-1,)", "(2**60,)", f"({10**12},)", "(0,)", "(1, 1, 1)", "(3, 10**9)", "x"]
            )
    types = [array.dtype.str, "<f8", "<i8", "|b1", "<U4", "|S3", "|O", "<M8[ns]", "<c16", "|V8", "<f2", ">i4", "junk"]
    described = generator.choice([repr(generator.choice(types)), "[('a', '<f8')]", "None", repr("<U1000000000")])
    order = generator.choice(["False", "False", "True", "None"])
    text = f"{{'descr': {described}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    data = content[-array.nbytes :] if array.nbytes else b""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def _mutate_members(members: dict[str, bytes], generator: random.Random) -> None:
    name = generator.choice(list(members))
    array = np.lib.format.read_array(io.BytesIO(members[name]), allow_pickle=True)
    match generator.randrange(4):
        case 0:
            del members[name]
        case 1:
            members[generator.choice([f"{name}x", "x.npy", "../x.npy", "junk", " "])] = members.pop(name)
        case _:
            members[name] = written_array(mutated_array(array, generator))


def written_array(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


def mutated_array(array: np.ndarray, generator: random.Random) -> np.ndarray:
    """Return an array with other values, type or shape."""
    match generator.randrange(6):
        case 0:
            numbers = [0, 1, -1, 300, 1e9, 1e300, np.nan, np.inf]
            return np.full(array.shape, generator.choice([*numbers, "a", "\ud800"]))
        case 1:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dtype = generator.choice(["f8", "f2", "i1", "u8", "c16", "U3", "?", "O", "S2", "M8[s]", "f4"])
                try:
                    return array.astype(dtype)
                except (ValueError, TypeError, OverflowError):
                    return array[:0]
        case 2:
            return (
                array[generator.choice([slice(0), slice(1), slice(None, None, 2), slice(-1)])] if array.ndim else array
            )
        case 3:
            return generator.choice([array.T, array[None], array.reshape(-1), array[..., None]])
        case 4:
            return np.concatenate([array, array]) if array.ndim else array.reshape(1)
        case _:
            changed = array.copy().reshape(-1)
            if changed.size and changed.dtype.kind in "fiu":
                whole = [0, 1, -1, 100, 127]
                value = generator.choice([*whole, 2.5, np.nan, np.inf, -1e30] if changed.dtype.kind == "f" else whole)
                with np.errstate(all="ignore"):
                    changed[generator.randrange(changed.size)] = np.array(value).astype(changed.dtype)
            elif changed.size and changed.dtype.kind == "U":
                changed.view(np.uint32)[generator.randrange(changed.view(np.uint32).size)] = generator.choice(
                    [0, 0xD800, 0x110000, 0xFFFFFFFF, 27, 10]
                )
            return changed.reshape(array.shape)


def mutated_npy(content: bytes, generator: random.Random) -> bytes:
    kind = generator.random()
    if kind < 0.3:
        return mutated_bytes(content, generator)
    if kind < 0.6:
        return mutated_header(content, generator)
    return written_array(mutated_array(np.lib.format.read_array(io.BytesIO(content)), generator))


# -------------------------------------------------------------------------------------------------------------- tensors


def mutated_safetensors(content: bytes, generator: random.Random) -> bytes:
    """Damage the file, its header, the JSON in its metadata, or the numbers."""
    kind = generator.random()
    if kind < 0.2:
        return mutated_bytes(content, generator)
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    metadata = header.get("__metadata__", {})
    if kind < 0.7 and metadata:
        key = generator.choice(list(metadata))
        metadata[key] = mutated_json(metadata[key].encode(), generator).decode("utf-8", "replace")
    elif kind < 0.8:
        header = mutated_value(header, generator)
    elif kind < 0.9:
        names = [name for name in header if name != "__metadata__"]
        entry = header[generator.choice(names)]
        match generator.randrange(3):
            case 0:
                entry["shape"] = generator.choice([entry["shape"][::-1], [math.prod(entry["shape"])], [0], [2**62, 8]])
            case 1:
                entry["dtype"] = generator.choice(["F32", "I32", "F64", "I64", "BOOL", "U8", "BF16", "F8_E4M3"])
            case _:
                one, other = (generator.choice(names) for _ in range(2))
                header[one], header[other] = header[other], header[one]
    else:
        data = mutated_bytes(data, generator)[: len(data)].ljust(len(data), b"\xff")
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + data


# ------------------------------------------------------------------------------------------------------------ databases


def mutated_sqlite(content: bytes, generator: random.Random) -> bytes:
    """Damage the pages, or change cells, rows, columns and tables by SQL."""
    if generator.random() < 0.4:
        return mutated_bytes(content, generator)
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        file.write(content)
        file.flush()
        database = sqlite3.connect(file.name)
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        filled = [name for name in tables if database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]]
        for _ in range(generator.randint(1, 3)):
            table = generator.choice(filled if generator.random() < 0.9 else tables)
            try:
                _change_table(database, table, generator)
            except sqlite3.Error:
                continue  # a constraint of the table refused it
        database.commit()
        database.close()
        return Path(file.name).read_bytes()


def _change_table(database: sqlite3.Connection, table: str, generator: random.Random) -> None:
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    if not columns:  # dropped before
        return
    column = generator.choice(columns)
    where = generator.choice(["", " WHERE rowid = (SELECT min(rowid) FROM {0})", " WHERE rowid % 2 = 0"]).format(table)
    match generator.randrange(10):
        case 0:
            database.execute(f"DELETE FROM {table}{where}")
        case 1:
            database.execute(f"DROP TABLE {table}")
        case 2:
            database.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO renamed")
        case _:
            values = [None, -1, 0, 7, 2**62, 1.5, 1e300, "", "x", "[1, 2", "[" * 5000, '{"a": 1}', "NaN", b"\xff\x00"]
            database.execute(f"UPDATE OR REPLACE {table} SET {column} = ?{where}", [generator.choice(values)])
