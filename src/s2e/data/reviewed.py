"""Reviewed labels: decisions of people on given labels, which replace these and are trusted.

The page of `s2e report` writes decisions as comma-separated text with the columns of `COLUMNS`, one sample in each row:

| column | content |
|---|---|
| id | ID of the sample |
| row | its row in the source, from 0 |
| given_label | the label it had |
| decision | `right`, `wrong` or `unsure` |
| label | the correct class; empty if unsure |

A sample is found by its row, or by its ID where the row holds another ID: rows of a table may have moved. `id` or
`row`, and `decision` or `label`, may be missing in a file that was written by other means. Letters: N samples.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from s2e.data.samples import LabelledData, hold_out
from s2e.errors import InvalidInput, UnreadableData, unknown_name
from s2e.files.csv_cells import plain_text
from s2e.files.regular import read_content, unreadable

COLUMNS = ("id", "row", "given_label", "decision", "label")
RIGHT, WRONG, UNSURE = "right", "wrong", "unsure"
DECISIONS = (RIGHT, WRONG, UNSURE)
SEPARATORS = ",;\t"

MAX_BYTES = 2**26
MAX_SHOWN = 60
"""Characters of a cell that a message shows."""

MIN_REVIEWED = 10
"""Decisions of every class from which on some of them are moved to the validation part."""


@dataclass(frozen=True)
class Decision:
    """The decision on one label.

    Attributes:
        label: name of the correct class.
        origin: where it is written, for messages.
        row: row of the sample in its source; None if unknown.
        id: ID of the sample; None if unknown.
        given: name of the label it had; None if unknown.
    """

    label: str
    origin: str
    row: int | None = None
    id: str | None = None
    given: str | None = None


def read_decisions(paths: Sequence[str | Path]) -> list[Decision]:
    """Read files of decisions; those that are unsure are left out."""
    return [decision for path in paths for decision in _read(Path(path))]


def _read(path: Path) -> list[Decision]:
    try:
        text = read_content(path, MAX_BYTES).decode("utf-8-sig")
        first = text.partition("\n")[0]
        separator = max(SEPARATORS, key=first.count)  # a spreadsheet may have replaced commas
        records = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except UnicodeDecodeError as problem:
        raise unreadable(path, "it must be UTF-8 text, but is not") from problem
    except csv.Error as problem:
        raise unreadable(path, f"it is not comma-separated text ({problem})") from problem
    header = [name.strip().casefold() for name in records[0]] if records else []
    if not {"id", "row"} & set(header) or not {"decision", "label"} & set(header):
        raise UnreadableData(
            f"{str(path)!r} must hold decisions with the columns {', '.join(COLUMNS)}, but its first line is "
            f"{_shown(first.strip())}; download them from the page of s2e report."
        )
    found = []
    for number, record in enumerate(records[1:], start=2):
        origin = f"row {number} of {str(path)!r}"
        if len(record) not in (0, len(header)):
            raise UnreadableData(f"{origin} must have {len(header)} fields, but has {len(record)}.")
        cells = {name: plain_text(cell) for name, cell in zip(header, record, strict=False)}
        if any(cells.values()):
            found.append(_decision(cells, origin))
    return [decision for decision in found if decision is not None]


def _decision(cells: Mapping[str, str], origin: str) -> Decision | None:
    """Return one decision; None if it is unsure."""
    given = cells.get("given_label") or None
    label = cells.get("label", "")
    decision = cells.get("decision", RIGHT if label == given else WRONG).strip().casefold()
    if decision not in DECISIONS:
        raise InvalidInput(f"{origin}: `decision` must be right, wrong or unsure, but got {_shown(decision)}.")
    if decision == UNSURE:
        return None
    if decision == RIGHT:
        label = label or given or ""
        if given is not None and label != given:
            raise InvalidInput(
                f"{origin}: `label` must be the given label {_shown(given)} where the decision is right, "
                f"but got {_shown(label)}."
            )
    if not label:
        raise InvalidInput(f"{origin}: `label` must be the correct class, but is empty.")
    if decision == WRONG and label == given:
        raise InvalidInput(f"{origin}: `label` must differ from the given label where the decision is wrong.")
    row = cells.get("row", "").strip()
    if row and not (row.isascii() and row.isdecimal() and len(row) < 19):
        raise InvalidInput(f"{origin}: `row` must be an integer of at least 0, but got {_shown(row)}.")
    if not row and not cells.get("id"):
        raise InvalidInput(f"{origin}: `id` or `row` must name the sample, but both are empty.")
    return Decision(label, origin, int(row) if row else None, cells.get("id") or None, given)


def matched(decisions: Sequence[Decision], data: LabelledData, ids: Sequence[str] | None) -> dict[int, Decision]:
    """Return the decisions by the rows of their samples; refuse those that are not about these data, and conflicts.

    Args:
        decisions: decisions from one file or several.
        data: all samples that may have been reviewed.
        ids: IDs, indexed by the rows of the data; None where the rows are the IDs.
    """
    if not decisions:
        return {}
    rows = set(data.rows.tolist())
    names = {_as_written(name): name for name in data.class_names}
    ids = None if ids is None else [_as_written(each) for each in ids]
    row_of = {} if ids is None else {ids[row]: row for row in rows}
    duplicates = (
        set() if ids is None else {each for each, count in Counter(ids[row] for row in rows).items() if count > 1}
    )
    found: dict[int, Decision] = {}
    for decision in decisions:
        row = decision.row
        if ids is not None and decision.id is not None:
            known = _as_written(decision.id)
            if row is None or row not in rows or ids[row] != known:
                row = None if known in duplicates else row_of.get(known)
        elif row is None and decision.id is not None and decision.id.isascii() and decision.id.isdecimal():
            row = int(decision.id[:18])
        if row is None or row not in rows:
            name = _shown(decision.id if decision.id is not None else decision.row)
            raise InvalidInput(
                f"{decision.origin} must be about a labelled sample of the data, but there is none {name}; "
                "is it a file of another data set?"
            )
        label = _as_written(decision.label)
        if label not in names:
            raise InvalidInput(f"{decision.origin}: {unknown_name('label', decision.label, data.class_names, 5)}")
        given = None if decision.given is None else names.get(_as_written(decision.given), decision.given)
        decision = replace(decision, label=names[label], given=given)
        before = found.setdefault(row, decision)
        if before.label != decision.label:
            raise InvalidInput(
                f"decisions on one sample must agree, but {before.origin} says {_shown(before.label)} and "
                f"{decision.origin} says {_shown(decision.label)}; remove one of them."
            )
    return found


def with_decisions(data: LabelledData, decisions: Mapping[int, Decision]) -> LabelledData:
    """Return the samples with the reviewed labels; refuse decisions on other labels than the given ones.

    Args:
        data: samples, perhaps only some of the source.
        decisions: decisions by row, from `matched`.
    """
    if not decisions:
        return data
    labels, reviewed = data.labels.copy(), np.zeros(len(data), dtype=bool)
    other = []
    for index, row in enumerate(data.rows.tolist()):
        decision = decisions.get(row)
        if decision is None:
            continue
        given = data.class_names[labels[index]]
        if decision.given not in (None, given) and decision.label != given:
            other.append((decision, given))
        labels[index] = data.class_names.index(decision.label)
        reviewed[index] = True
    if other:
        decision, given = other[0]
        raise InvalidInput(
            f"{decision.origin} must be about the given label {_shown(given)}, but is about {_shown(decision.given)}"
            f"{f' (and {len(other) - 1} more are about other labels)' if len(other) > 1 else ''}; is it a file of "
            "another data set, noise or seed?"
        )
    return replace(data, labels=labels, reviewed=reviewed)


def hold_out_with_decisions(
    data: LabelledData, decisions: Mapping[int, Decision], share: float, generator: np.random.Generator
) -> tuple[LabelledData, LabelledData]:
    """Hold out a validation part and apply decisions; with enough of them, it has half of the reviewed labels or more.

    The samples are split by their given labels, as `hold_out` does, so that decisions do not change the split. Where
    every class has `MIN_REVIEWED` reviewed labels, every second one that would be trained on is held out too: schedules
    are then compared on trusted labels, among them hard samples. The others are trained on.
    """
    reviewed = with_decisions(data, decisions)
    train, valid = hold_out(data, share, generator)
    if reviewed.reviewed is None:
        return train, valid
    held = np.isin(data.rows, valid.rows)
    if np.bincount(reviewed.labels[reviewed.reviewed], minlength=data.classes).min() >= MIN_REVIEWED:
        for label in range(data.classes):
            left = np.flatnonzero(reviewed.reviewed & ~held & (reviewed.labels == label))
            held[left[1::2]] = True
    return reviewed.take(np.flatnonzero(~held)), reviewed.take(np.flatnonzero(held))


def _as_written(text: str) -> str:
    """Return a name as files and pages hold it: bytes that are not UTF-8 as \\udcXX, line breaks as \\n."""
    return text.encode(errors="backslashreplace").decode().replace("\r\n", "\n").replace("\r", "\n")


def _shown(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…")
