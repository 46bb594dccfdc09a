"""The labels to review: the most doubtful ones of a run, and those worth most, with their original samples.

The samples are those that the run has stored, or the data are loaded again, as the run loaded them. If they are missing
or have changed, IDs and labels are shown without images and table rows, and a message gives the reason.

Letters: n samples shown, C channels, H and W height and width.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.audit import MOST_VALUABLE, AuditedRun, Originals, order_by_value, read_samples, stored_samples
from s2e.data import corrupt_and_split, fingerprint, load_source, natural_key
from s2e.errors import S2EError, UnreadableData
from s2e.runs import Run
from s2e.specs import DataSpec, assemble

log = logging.getLogger(__name__)

MIN_SHOWN = 12
"""Labels shown even if there are fewer issues, so that labels that are probably correct are shown too."""

MAX_SIDE = 80
"""Larger side of a thumbnail in pixels; larger images are scaled down."""

LONG_CELL = 48
"""Characters from which on a cell has a line of its own."""

LINK = re.compile(r"https?://[^\s<>\"'\\^`{|}]+")
SORT_KEYS = ("quality", "worth", "given", "suggested", "id")


@dataclass(frozen=True)
class Cell:
    """A cell of a table row."""

    name: str
    value: str

    @property
    def long(self) -> bool:
        """Whether the cell has a line of its own."""
        return len(self.value) > LONG_CELL

    @property
    def link(self) -> bool:
        """Whether the cell is the address of a page, which a reviewer may open."""
        return LINK.fullmatch(self.value) is not None


@dataclass(frozen=True)
class Sample:
    """A label to review.

    Attributes:
        id: ID of the sample.
        row: its row in the source.
        given: given label.
        suggested: suggested label.
        alternative: most probable label other than the given one.
        confidence: probability that the suggested label is correct.
        quality: probability that the given label is correct.
        issue: whether the given label is more likely wrong than correct.
        worth: rank among the labels worth most to review, from 1; None if it is not among them.
        true: true label; None if unknown.
        image: data URL of a thumbnail; "" if there is none.
        cells: cells of its row in a table, empty ones left out.
        ranks: rank by each of `SORT_KEYS`.
    """

    id: str
    row: int
    given: str
    suggested: str
    alternative: str
    confidence: float
    quality: float
    issue: bool
    worth: int | None
    true: str | None
    image: str
    cells: tuple[Cell, ...]
    ranks: Mapping[str, int]

    @property
    def wrong(self) -> bool:
        """Whether the given label is known to be wrong."""
        return self.true is not None and self.true != self.given


@dataclass(frozen=True)
class Gallery:
    """Labels to review of a run, most doubtful first.

    Attributes:
        samples: samples shown.
        class_names: names of all classes.
        key: identifies the run and its labels; decisions are kept under it in the browser.
        size: width and height of the images in pixels; (0, 0) if there are none.
        problem: why there are neither images nor table rows; "" if there is no problem.
    """

    samples: tuple[Sample, ...]
    class_names: tuple[str, ...] = ()
    key: str = ""
    size: tuple[int, int] = (0, 0)
    problem: str = ""

    @property
    def images(self) -> bool:
        """Whether the samples are images."""
        return self.size != (0, 0)

    @property
    def visible(self) -> bool:
        """Whether there is something of the samples to look at."""
        return any(sample.image or sample.cells for sample in self.samples)

    @property
    def doubtful(self) -> int:
        """Number of labels shown that are more likely wrong than correct."""
        return sum(sample.issue for sample in self.samples)

    @property
    def valuable(self) -> int:
        """Number of labels shown that are worth most to review."""
        return sum(sample.worth is not None for sample in self.samples)

    def classes(self, which: str) -> list[str]:
        """Return the classes among the `given` or the `suggested` labels, in order."""
        ordered = sorted(self.samples, key=lambda sample: sample.ranks[which])
        return list(dict.fromkeys(getattr(sample, which) for sample in ordered))


@dataclass(frozen=True, eq=False)
class Contents:
    """The contents of samples by their rows in the source: images, cells of a table, or neither."""

    images: Mapping[int, str] = field(default_factory=dict)
    size: tuple[int, int] = (0, 0)
    cells: Mapping[int, tuple[Cell, ...]] = field(default_factory=dict)
    problem: str = ""


def gallery(
    run: Run, audited: AuditedRun, config: Mapping[str, Any], data_root: Path | None, max_samples: int
) -> Gallery:
    """Collect the most doubtful labels, and those worth most to review, with their samples.

    Args:
        run: the run.
        audited: its label audit.
        config: its configuration.
        data_root: folder of the published data sets; None for the folder that the run used.
        max_samples: maximum number of labels of each kind.
    """
    found, names = audited.audit, audited.class_names
    shown = min(max_samples, max(int(found.issues.sum()), MIN_SHOWN))
    order = audited.order[~audited.reviewed[audited.order]]  # reviewed labels need no further look
    worth = {int(index): rank for rank, index in enumerate(order_by_value(found, audited.labels, MOST_VALUABLE))}
    worth = {index: rank for index, rank in worth.items() if rank < max_samples and not audited.reviewed[index]}
    chosen = [int(index) for place, index in enumerate(order) if place < shown or int(index) in worth]
    rows = audited.rows[chosen].tolist()
    contents = _contents(run, rows, config, data_root)
    ids = [audited.ids[index] for index in chosen]
    ranks = {
        "quality": np.arange(len(chosen)),
        "worth": _ranks([worth.get(index, len(worth) + place) for place, index in enumerate(chosen)]),
        "given": _ranks(audited.labels[chosen].tolist()),
        "suggested": _ranks(found.suggested[chosen].tolist()),
        "id": _ranks([natural_key(sample_id) for sample_id in ids]),
    }
    samples = tuple(
        Sample(
            id=ids[place],
            row=rows[place],
            given=names[audited.labels[index]],
            suggested=names[found.suggested[index]],
            alternative=names[found.alternative[index]],
            confidence=float(found.confidence[index]),
            quality=float(found.quality[index]),
            issue=bool(found.issues[index]),
            worth=worth[index] + 1 if index in worth else None,
            true=None if audited.true is None else names[audited.true[index]],
            image=contents.images.get(rows[place], ""),
            cells=contents.cells.get(rows[place], ()),
            ranks={key: int(each[place]) for key, each in ranks.items()},
        )
        for place, index in enumerate(chosen)
    )
    return Gallery(samples, names, _key(audited, config), contents.size, contents.problem)


def _key(audited: AuditedRun, config: Mapping[str, Any]) -> str:
    """Return what identifies a run wherever its directory is: its options, its data and its labels."""
    digest = hashlib.sha256(json.dumps([config["command"], config["options"]], sort_keys=True).encode())
    digest.update(str(config.get("data_fingerprint")).encode())
    digest.update(np.ascontiguousarray(audited.rows).data)
    digest.update(np.ascontiguousarray(audited.labels).data)
    return digest.hexdigest()[:16]


def _ranks(keys: Sequence[Any]) -> NDArray[np.int64]:
    """Return the rank of each key; equal keys keep their order."""
    order = sorted(range(len(keys)), key=lambda index: keys[index])
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.arange(len(keys))
    return ranks


# The data


def _contents(run: Run, rows: Sequence[int], config: Mapping[str, Any], data_root: Path | None) -> Contents:
    """Return the contents of samples: those stored in the run, or, if some are missing there, those of the data."""
    stored = Originals()
    try:
        stored = stored_samples(run)
    except S2EError as error:
        log.warning("%s", error)
    if stored.have(rows):
        return _shown(stored, rows)
    try:
        return _shown(_loaded(rows, config, data_root), rows)
    except (S2EError, KeyError) as error:
        problem = f"The samples cannot be shown: {error}"
    known = [row for row in rows if row in stored.inputs or row in stored.cells]
    if known:
        problem = f"{problem} {len(known)} of {len(rows)} are shown, which the run has stored."
    return _shown(stored, known, problem)


def _loaded(rows: Sequence[int], config: Mapping[str, Any], data_root: Path | None) -> Originals:
    """Load the data again; raise if they have changed."""
    options = config["options"]
    spec = assemble(DataSpec, options)
    root = Path(config["data_root"]) if data_root is None else data_root
    source = load_source(spec, root, download=False)
    prepared = corrupt_and_split(source, spec, options["noise"], options["seed"], root)
    if fingerprint(prepared.splits.train, prepared.splits.valid) != config["data_fingerprint"]:
        raise UnreadableData(f"{spec.data} has changed since the run was made.")
    return read_samples(source, spec.data, spec.label, rows)


def _shown(originals: Originals, rows: Sequence[int], problem: str = "") -> Contents:
    if originals.inputs and rows:
        images, size = thumbnails(np.stack([originals.inputs[row] for row in rows]))
        return Contents(dict(zip(rows, images, strict=True)), size, problem=problem)
    cells = {
        row: tuple(
            Cell(name, value) for name, value in zip(originals.columns, originals.cells[row], strict=True) if value
        )
        for row in rows
        if row in originals.cells
    }
    return Contents(cells=cells, problem=problem)


# Images


def thumbnails(inputs: NDArray[Any]) -> tuple[list[str], tuple[int, int]]:
    """Return images (n, H, W) or (n, C, H, W) as data URLs of PNG files, and their width and height.

    uint8 values are used as they are, floats in [0, 1] are multiplied by 255, other values are scaled to their range.
    """
    from PIL import Image

    pixels = inputs
    if pixels.dtype != np.uint8:
        low, high = (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 1.0)
        low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
        pixels = (255 * (pixels.astype(np.float64) - low) / max(high - low, 1e-12)).round().astype(np.uint8)
    if pixels.ndim == 4:
        pixels = np.moveaxis(pixels, 1, -1)  # (n, H, W, C)
        pixels = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    height, width = pixels.shape[1:3]
    scale = min(1.0, MAX_SIDE / max(height, width))
    size = max(1, round(scale * width)), max(1, round(scale * height))
    urls = []
    for sample in pixels:
        image = Image.fromarray(np.ascontiguousarray(sample))
        if scale < 1:
            image = image.resize(size, Image.Resampling.LANCZOS)
        file = io.BytesIO()
        image.save(file, "PNG", optimize=True)
        urls.append("data:image/png;base64," + base64.b64encode(file.getvalue()).decode())
    return urls, size
