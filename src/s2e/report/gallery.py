"""The labels to review first: the most doubtful ones of a run, with their samples.

The data are loaded again, as the run loaded them. If they are missing or have changed, IDs and labels are shown without
images and table rows, and a message gives the reason.

Letters: n samples shown, C channels, H and W height and width.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2e.audit import AuditedRun
from s2e.data import Prepared, Source, corrupt_and_split, fingerprint, load_source, natural_key
from s2e.errors import S2EError, UnreadableData
from s2e.specs import DataSpec, assemble

MIN_SHOWN = 12
"""Labels shown even if there are fewer issues, so that labels that are probably correct are shown too."""

MAX_SIDE = 80
"""Larger side of a thumbnail in pixels; larger images are scaled down."""

MIN_IMAGE_SIDE = 4
"""Arrays with a shorter side are not shown as images."""

SORT_KEYS = ("quality", "given", "suggested", "id")


@dataclass(frozen=True)
class Sample:
    """A label to review.

    Attributes:
        id: ID of the sample.
        given: given label.
        suggested: suggested label.
        confidence: probability that the suggested label is correct.
        quality: probability that the given label is correct.
        issue: whether the given label is more likely wrong than correct.
        true: true label; None if unknown.
        image: data URL of a thumbnail; "" if there is none.
        cells: cells of its row in a table.
        ranks: rank by each of `SORT_KEYS`.
    """

    id: str
    given: str
    suggested: str
    confidence: float
    quality: float
    issue: bool
    true: str | None
    image: str
    cells: tuple[str, ...]
    ranks: Mapping[str, int]

    @property
    def wrong(self) -> bool:
        """Whether the given label is known to be wrong."""
        return self.true is not None and self.true != self.given


@dataclass(frozen=True)
class Gallery:
    """The most doubtful labels of a run, most doubtful first.

    Attributes:
        samples: samples shown.
        columns: names of the cells, if the data are a table.
        size: width and height of the images in pixels; (0, 0) if there are none.
        problem: why there are neither images nor table rows; "" if there is no problem.
    """

    samples: tuple[Sample, ...]
    columns: tuple[str, ...] = ()
    size: tuple[int, int] = (0, 0)
    problem: str = ""

    @property
    def images(self) -> bool:
        """Whether the samples are images."""
        return self.size != (0, 0)

    def classes(self, which: str) -> list[str]:
        """Return the classes among the `given` or the `suggested` labels, in order."""
        ordered = sorted(self.samples, key=lambda sample: sample.ranks[which])
        return list(dict.fromkeys(getattr(sample, which) for sample in ordered))


@dataclass(frozen=True, eq=False)
class Contents:
    """The contents of samples by their rows in the source: images, cells of a table, or neither."""

    images: Mapping[int, str] = field(default_factory=dict)
    size: tuple[int, int] = (0, 0)
    columns: tuple[str, ...] = ()
    cells: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    true: Mapping[int, str] = field(default_factory=dict)
    problem: str = ""


def gallery(audited: AuditedRun, config: Mapping[str, Any], data_root: Path | None, max_samples: int) -> Gallery:
    """Collect the most doubtful labels with their samples.

    Args:
        audited: label audit of the run.
        config: configuration of the run.
        data_root: folder of the published data sets; None for the folder that the run used.
        max_samples: maximum number of labels.
    """
    found = audited.audit
    shown = min(max_samples, max(int(found.issues.sum()), MIN_SHOWN))
    chosen = np.argsort(found.quality, kind="stable")[:shown]  # the order of label_issues.csv
    rows = audited.rows[chosen].tolist()
    try:
        contents = _contents(rows, config, data_root)
    except (S2EError, KeyError) as error:
        contents = Contents(problem=f"The samples cannot be shown: {error}")
    names = audited.class_names
    ids = [audited.ids[index] for index in chosen]
    ranks = {
        "quality": np.arange(shown),
        "given": _ranks(audited.labels[chosen].tolist()),
        "suggested": _ranks(found.suggested[chosen].tolist()),
        "id": _ranks([natural_key(sample_id) for sample_id in ids]),
    }
    samples = tuple(
        Sample(
            id=ids[rank],
            given=names[audited.labels[index]],
            suggested=names[found.suggested[index]],
            confidence=float(found.confidence[index]),
            quality=float(found.quality[index]),
            issue=bool(found.issues[index]),
            true=contents.true.get(rows[rank]),
            image=contents.images.get(rows[rank], ""),
            cells=contents.cells.get(rows[rank], ()),
            ranks={key: int(order[rank]) for key, order in ranks.items()},
        )
        for rank, index in enumerate(chosen.tolist())
    )
    return Gallery(samples, contents.columns, contents.size, contents.problem)


def _ranks(keys: Sequence[Any]) -> NDArray[np.int64]:
    """Return the rank of each key; equal keys keep their order."""
    order = sorted(range(len(keys)), key=lambda index: keys[index])
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.arange(len(keys))
    return ranks


# The data


def _contents(rows: Sequence[int], config: Mapping[str, Any], data_root: Path | None) -> Contents:
    options = config["options"]
    spec = assemble(DataSpec, options)
    root = Path(config["data_root"]) if data_root is None else data_root
    source = load_source(spec, root, download=False)
    prepared = corrupt_and_split(source, spec, options["noise"], options["seed"], root)
    if fingerprint(prepared.splits.train, prepared.splits.valid) != config["data_fingerprint"]:
        raise UnreadableData(f"{spec.data} has changed since the run was made.")
    index = {row: index for index, row in enumerate(source.train.rows.tolist())}
    inputs = source.train.inputs[[index[row] for row in rows]]  # (n, ...)
    true = _true_labels(prepared)
    if is_image(source.train.sample_shape):
        images, size = thumbnails(inputs)
        return Contents(images=dict(zip(rows, images, strict=True)), size=size, true=true)
    columns, cells = _table_cells(source, spec, rows)
    return Contents(columns=columns, cells=cells, true=true)


def _true_labels(prepared: Prepared) -> dict[int, str]:
    """Return the known true labels by row."""
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
    source: Source, spec: DataSpec, rows: Sequence[int]
) -> tuple[tuple[str, ...], dict[int, tuple[str, ...]]]:
    """Return the names of a table's columns and the cells of these rows; both are empty if the data are no table."""
    from s2e.data.hub import PREFIX, HubTable, load_hub
    from s2e.data.table_files import read_table
    from s2e.data.table_reader import TableReader

    if not isinstance(source.reader, TableReader):
        return (), {}
    if spec.data.startswith(PREFIX):
        loaded = load_hub(spec.data, label=spec.label or None)
        frame = loaded.train if isinstance(loaded, HubTable) else None
    else:
        frame = read_table(spec.data)
    if frame is None:
        return (), {}
    not_inputs = (source.reader.label, source.reader.id_column)
    frame = frame.drop(columns=[name for name in frame.columns if str(name) in not_inputs])
    columns = tuple(str(name) for name in frame.columns)
    return columns, {row: tuple(_cell(value) for value in frame.iloc[row].tolist()) for row in rows}


def _cell(value: Any) -> str:
    """Format a cell as in its file; a missing value is empty."""
    if value is None or value != value:  # NaN is not equal to itself
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)


# Images


def is_image(shape: Sequence[int]) -> bool:
    """Return whether samples of a shape are images: (H, W), or (C, H, W) with 1, 3 or 4 channels."""
    channels = shape[0] if len(shape) == 3 else 1
    return len(shape) in (2, 3) and channels in (1, 3, 4) and min(shape[-2:]) >= MIN_IMAGE_SIDE


def thumbnails(inputs: NDArray[Any]) -> tuple[list[str], tuple[int, int]]:
    """Return images (n, H, W) or (n, C, H, W) as data URLs of PNG files, and their width and height.

    uint8 values are used as they are, floats in [0, 1] are multiplied by 255, other values are scaled to their range.
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
