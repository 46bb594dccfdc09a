"""The labels to look at first: the most doubtful ones, with the samples they belong to.

The data are read once more, as the run read them. Where they are no longer what the run was made from, IDs and labels
stay, and one line says why there are no pictures or rows.

Letters: N samples, C channels, H and W sides.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.audit.run_audit import AuditedRun
from s2e.data import loading
from s2e.data.preparing import DataOptions, Prepared, corrupt_and_split
from s2e.data.samples import Source, fingerprint
from s2e.errors import S2EError, UnreadableData

FEWEST = 12
"""So many are shown even if fewer labels are probably wrong: a reader sees where doubt ends."""

LARGEST_SIDE = 80
"""Of a thumbnail, in pixels; larger images are made smaller."""

SMALLEST_SIDE = 4
"""Arrays with a shorter side are numbers, not pictures."""


@dataclass(frozen=True)
class Sample:
    """One doubtful label.

    Attributes:
        id: what its file calls it.
        given: the label it has.
        suggested: the label it should probably have.
        probability: that the suggested label is right.
        quality: probability that the given label is right.
        issue: whether the given label is more likely wrong than right.
        true: the true label, where it is known.
        picture: a data: address of a thumbnail; "" where there is none.
        cells: of its row in the table it comes from.
        ranks: its place in the order by each of `SORTED_BY`.
    """

    id: str
    given: str
    suggested: str
    probability: float
    quality: float
    issue: bool
    true: str | None
    picture: str
    cells: tuple[str, ...]
    ranks: Mapping[str, int]

    @property
    def wrong(self) -> bool:
        """Whether the given label is known to be wrong."""
        return self.true is not None and self.true != self.given


SORTED_BY = ("quality", "given", "suggested", "id")


@dataclass(frozen=True)
class Gallery:
    """The most doubtful labels of a run, the most doubtful first.

    Attributes:
        samples: those shown.
        columns: names of the cells, where the data are a table.
        size: width and height of the pictures in pixels; (0, 0) where there are none.
        problem: why there are neither pictures nor rows; "" where there is nothing to explain.
    """

    samples: tuple[Sample, ...]
    columns: tuple[str, ...] = ()
    size: tuple[int, int] = (0, 0)
    problem: str = ""

    @property
    def pictures(self) -> bool:
        """Whether the samples are images."""
        return self.size != (0, 0)

    def classes(self, which: str) -> list[str]:
        """Return the classes that occur as `given` or as `suggested`, in order."""
        ordered = sorted(self.samples, key=lambda sample: sample.ranks[which])
        return list(dict.fromkeys(getattr(sample, which) for sample in ordered))


@dataclass(frozen=True, eq=False)
class Contents:
    """What the samples are, by their rows in the source: one of pictures and cells, or neither."""

    pictures: Mapping[int, str]
    size: tuple[int, int]
    columns: tuple[str, ...]
    cells: Mapping[int, tuple[str, ...]]
    true: Mapping[int, str]
    problem: str = ""


NOTHING = Contents({}, (0, 0), (), {}, {})


def gallery(audited: AuditedRun, config: Mapping[str, Any], data_root: Path | None, most: int) -> Gallery:
    """Choose the most doubtful labels, at most so many, and find the samples they belong to.

    Args:
        audited: the verdicts.
        config: the run's configuration.
        data_root: where published data lie; None for where the run found them.
        most: how many to show.
    """
    found = audited.verdicts
    shown = min(most, max(int(found.issues.sum()), FEWEST))
    chosen = np.argsort(found.quality, kind="stable")[:shown]  # as the audit's own table has them
    rows = audited.rows[chosen].tolist()
    try:
        contents = _contents(rows, config, data_root)
    except (S2EError, KeyError) as problem:
        contents = Contents({}, (0, 0), (), {}, {}, f"The samples cannot be shown: {problem}")
    names = audited.class_names
    ids = [audited.ids[at] for at in chosen]
    ranks = {
        "quality": np.arange(shown),
        "given": _ranks(audited.labels[chosen].tolist()),
        "suggested": _ranks(found.suggested[chosen].tolist()),
        "id": _ranks([natural(one) for one in ids]),
    }
    samples = tuple(
        Sample(
            id=ids[place],
            given=names[audited.labels[at]],
            suggested=names[found.suggested[at]],
            probability=float(found.probability[at]),
            quality=float(found.quality[at]),
            issue=bool(found.issues[at]),
            true=contents.true.get(rows[place]),
            picture=contents.pictures.get(rows[place], ""),
            cells=contents.cells.get(rows[place], ()),
            ranks={name: int(order[place]) for name, order in ranks.items()},
        )
        for place, at in enumerate(chosen.tolist())
    )
    return Gallery(samples, contents.columns, contents.size, contents.problem)


def _ranks(keys: Sequence[Any]) -> NDArray[np.int64]:
    """Return the place of each in their order; equals stay as they are."""
    order = sorted(range(len(keys)), key=lambda place: (keys[place], place))
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.arange(len(keys))
    return ranks


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key under which row 2 comes before row 10."""
    pieces = re.findall(r"[0-9]+|[^0-9]+", text)
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces]


# The data


def _contents(rows: Sequence[int], config: Mapping[str, Any], data_root: Path | None) -> Contents:
    given = config["options"]
    options = DataOptions(**{item.name: given[item.name] for item in fields(DataOptions) if item.name in given})
    root = Path(config["data_root"]) if data_root is None else data_root
    source = loading.load(options.data, root, download=False, label=options.label, id_column=options.id_column)
    prepared = corrupt_and_split(source, options, root)
    if fingerprint(prepared.splits.train, prepared.splits.valid) != config["data_fingerprint"]:
        raise UnreadableData(f"{options.data} has changed since the run was made.")
    place = {row: at for at, row in enumerate(source.train.rows.tolist())}
    inputs = source.train.inputs[[place[row] for row in rows]]  # (n, ...)
    true = _true_labels(prepared)
    if is_picture(source.train.sample_shape):
        pictures, size = thumbnails(inputs)
        return Contents(dict(zip(rows, pictures, strict=True)), size, (), {}, true)
    columns, cells = _table_cells(source, options, rows)
    return Contents({}, (0, 0), columns, cells, true)


def _true_labels(prepared: Prepared) -> dict[int, str]:
    """Return the true labels by row, where they are known."""
    parts = [prepared.splits.train]
    if prepared.validation == "noisy":
        parts.append(prepared.splits.valid)
    return {
        row: part.class_names[label]
        for part in parts
        if part.clean_labels is not None
        for row, label in zip(part.rows.tolist(), part.clean_labels.tolist(), strict=True)
    }


def _table_cells(
    source: Source, options: DataOptions, rows: Sequence[int]
) -> tuple[tuple[str, ...], dict[int, tuple[str, ...]]]:
    """Return the names of a table's columns and the cells of these rows; nothing where the data are no table."""
    from s2e.data.hub import PREFIX, HubTable, load_hub
    from s2e.data.input_readers import OfTables
    from s2e.data.table_files import read_table

    if not isinstance(source.encoding, OfTables):
        return (), {}
    if options.data.startswith(PREFIX):
        loaded = load_hub(options.data, label=options.label or None)
        frame = loaded.train if isinstance(loaded, HubTable) else None
    else:
        frame = read_table(options.data)
    if frame is None:
        return (), {}
    table = source.encoding.columns
    frame = frame.drop(columns=[name for name in frame.columns if str(name) in (table.label, table.id_column)])
    columns = tuple(str(name) for name in frame.columns)
    return columns, {row: tuple(_cell(value) for value in frame.iloc[row].tolist()) for row in rows}


def _cell(value: Any) -> str:
    """Write a cell as its file would, nothing where it holds nothing."""
    if value is None or value != value:  # NaN is not itself
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)


# Pictures


def is_picture(shape: Sequence[int]) -> bool:
    """Tell whether samples of a shape are pictures: (H, W), or (C, H, W) with 1, 3 or 4 channels."""
    sides = shape[-2:]
    channels = shape[0] if len(shape) == 3 else 1
    return len(shape) in (2, 3) and channels in (1, 3, 4) and min(sides) >= SMALLEST_SIDE


def thumbnails(inputs: NDArray[Any]) -> tuple[list[str], tuple[int, int]]:
    """Return pictures (n, H, W) or (n, C, H, W) as data: addresses of PNG files, and their width and height.

    uint8 is taken as it is, floats in [0, 1] as shares of full brightness, others from their least to their greatest.
    """
    from PIL import Image

    pixels = inputs
    if pixels.dtype != np.uint8:
        low, high = (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 1.0)
        low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
        pixels = (255 * (pixels - low) / max(high - low, 1e-12)).round().astype(np.uint8)
    if pixels.ndim == 4:
        pixels = np.moveaxis(pixels, 1, -1)  # (n, H, W, C)
        pixels = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    height, width = pixels.shape[1:3]
    shrink = min(1.0, LARGEST_SIDE / max(height, width))
    size = max(1, round(shrink * width)), max(1, round(shrink * height))
    found = []
    for each in pixels:
        image = Image.fromarray(np.ascontiguousarray(each))
        if shrink < 1:
            image = image.resize(size, Image.Resampling.LANCZOS)
        file = io.BytesIO()
        image.save(file, "PNG", optimize=True)
        found.append("data:image/png;base64," + base64.b64encode(file.getvalue()).decode())
    return found, size
