"""Reading what Weights & Biases wrote in offline mode: a log of records in LevelDB's format."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADER, BLOCK, RECORD_HEADER, LAST_TYPES = 7, 32768, 7, (1, 4)


def records(path: Path) -> Iterator[bytes]:
    """Return the records of a log; a record may be split at the borders of blocks."""
    content, position, parts = path.read_bytes(), HEADER, b""
    while position + RECORD_HEADER <= len(content):
        if BLOCK - position % BLOCK < RECORD_HEADER:
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + RECORD_HEADER])
        parts += content[position + RECORD_HEADER : position + RECORD_HEADER + length]
        position += RECORD_HEADER + length
        if kind in LAST_TYPES:
            yield parts
            parts = b""


def read(directory: Path) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any], int]:
    """Return the history, the configuration, the summary and the exit code of the only run in a directory."""
    from wandb.proto import wandb_internal_pb2

    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    history: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    code = -1
    for content in records(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        if record.HasField("history"):
            history.append({_key(item): json.loads(item.value_json) for item in record.history.item})
        elif record.HasField("run"):
            config |= {_key(item): json.loads(item.value_json) for item in record.run.config.update}
        elif record.HasField("summary"):
            summary |= {_key(item): json.loads(item.value_json) for item in record.summary.update}
        elif record.HasField("exit"):
            code = record.exit.exit_code
    return history, config, summary, code


def _key(item: Any) -> str:
    return item.key or "/".join(item.nested_key)
