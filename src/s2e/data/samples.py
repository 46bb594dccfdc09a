"""Labelled samples, and their split into training, validation and test. Pure: arrays in, arrays out.

Letters: N samples, C classes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from s2e.errors import InvalidInput, class_title, listed, raise_all

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from s2e.data.aggregation import AggregatedLabels
    from s2e.data.annotations import Annotations
    from s2e.data.model_samples import ModelSamples

    Array = NDArray[Any]
    Labels = NDArray[np.int64]


def default_share(samples: int) -> float:
    """Return the share to hold out for validation: 1/10, or up to 1/5 of small data, for 500 samples."""
    return min(0.2, max(0.1, 500 / samples))


@dataclass(frozen=True, eq=False)
class LabelledData:
    """N samples with one label each.

    Attributes:
        inputs: (N, ...), uint8 (pixels, scaled by 1/255 as inputs of a network) or float32.
        labels: (N,) int64 in [0, C): the given labels, possibly wrong.
        class_names: C names, in the order of the labels.
        clean_labels: (N,) int64, the true labels where they are known (benchmarks), else None.
        rows: (N,) int64, row of each sample in its source.
        annotations: labels of several annotators for these samples, whose consensus the labels are; else None.
        reviewed: (N,) bool, labels that were reviewed and are trusted; None for none.
        model_samples: the samples as models of scikit-learn take them; None where these take the inputs.
    """

    inputs: Array
    labels: Labels
    class_names: tuple[str, ...]
    clean_labels: Labels | None = None
    rows: Labels = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    annotations: Annotations | None = None
    reviewed: NDArray[np.bool_] | None = None
    model_samples: ModelSamples | None = None

    def __post_init__(self) -> None:
        if self.rows.size == 0 and len(self.inputs) > 0:
            object.__setattr__(self, "rows", np.arange(len(self.inputs), dtype=np.int64))
        raise_all(self._problems())

    def _problems(self) -> list[str]:
        """Return all problems with the arrays."""
        n, c = len(self.inputs), len(self.class_names)
        problems = []
        if n == 0:
            problems.append("`inputs` must hold at least one sample, but got none.")
        elif self.inputs.size == 0:
            problems.append(f"`inputs` must hold numbers, but got samples of shape {self.inputs.shape[1:]}.")
        if len(set(self.class_names)) < c:
            problems.append("`class_names` must be unique, but got duplicates.")
        if c < 2:
            problems.append(f"`class_names` must name at least two classes, but got {c}.")
        if self.inputs.dtype not in (np.uint8, np.float32):
            problems.append(f"`inputs` must be uint8 or float32, but got {self.inputs.dtype}.")
        elif self.inputs.dtype == np.float32 and not np.isfinite(self.inputs).all():
            bad = int((~np.isfinite(self.inputs.reshape(n, -1)).all(axis=1)).sum())
            problems.append(f"`inputs` must be finite, but {bad} of {n} samples hold NaN or infinite values.")
        for name, labels in (("labels", self.labels), ("clean_labels", self.clean_labels), ("rows", self.rows)):
            if labels is None:
                continue
            if labels.dtype.kind != "i":
                problems.append(f"`{name}` must be integers, but got {labels.dtype}.")
            elif labels.shape != (n,):
                problems.append(f"`{name}` must have one entry for each of the {n} inputs, but got {labels.shape}.")
            elif name != "rows" and n and (labels.min() < 0 or labels.max() >= c):
                found = f"{labels.min()}..{labels.max()}"
                problems.append(f"`{name}` must lie in 0..{c - 1} for {c} classes, but got {found}.")
        if self.reviewed is not None and (self.reviewed.dtype != bool or self.reviewed.shape != (n,)):
            found = f"{self.reviewed.dtype} of shape {self.reviewed.shape}"
            problems.append(f"`reviewed` must be a boolean for each of the {n} inputs, but got {found}.")
        return problems

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def classes(self) -> int:
        """C, the number of classes."""
        return len(self.class_names)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.inputs.shape[1:])

    def take(self, index: Labels) -> LabelledData:
        """Return the samples at these indices."""
        clean = None if self.clean_labels is None else self.clean_labels[index]
        annotations = None if self.annotations is None else self.annotations.take(index)
        reviewed = None if self.reviewed is None else self.reviewed[index]
        model_samples = None if self.model_samples is None else self.model_samples[index]
        return replace(
            self,
            inputs=self.inputs[index],
            labels=self.labels[index],
            clean_labels=clean,
            rows=self.rows[index],
            annotations=annotations,
            reviewed=reviewed,
            model_samples=model_samples,
        )

    def with_noisy_labels(self, noisy: Labels) -> LabelledData:
        """Return the same samples with other labels; the current labels become the clean ones if these are unknown."""
        clean = self.labels if self.clean_labels is None else self.clean_labels
        return replace(self, labels=noisy, clean_labels=clean)


class Samples(NamedTuple):
    """Inputs without labels, and an ID for each."""

    inputs: Array  # (N, ...)
    ids: list[str]  # N
    model_samples: ModelSamples | None = None  # as models of scikit-learn take them, if not the inputs


@dataclass(frozen=True)
class ColumnUse:
    """What became of a column of a table.

    Attributes:
        name: name of the column.
        kind: number, boolean, category, date, text, left out, label or ID.
        encoding: what was done, or why the column is left out, in words.
        inputs: number of inputs of the network made of it.
    """

    name: str
    kind: str
    encoding: str
    inputs: int


class InputReader(Protocol):
    """Reads the inputs of later files the way the training data were read."""

    @property
    def columns(self) -> tuple[ColumnUse, ...]:
        """What became of every column of the training data; empty for images."""

    def read(self, path: Path) -> Samples:
        """Read a file, or a folder."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""


@dataclass(frozen=True, eq=False)
class Source:
    """A data set as loaded, before noise and splitting.

    Attributes:
        name: name of the data set.
        train: training samples; validation samples are held out of them if `valid` is None.
        valid: validation samples, if the data set has them.
        test: test samples, if the data set has them.
        ids: IDs of the training samples, indexed by `LabelledData.rows`; None for row numbers.
        reader: reads later files; None for arrays.
        crowd: the consensus that the training labels are, where several annotators labelled the samples.
    """

    name: str
    train: LabelledData
    valid: LabelledData | None = None
    test: LabelledData | None = None
    ids: tuple[str, ...] | None = None
    reader: InputReader | None = None
    crowd: AggregatedLabels | None = None


@dataclass(frozen=True, eq=False)
class Splits:
    """Data of one run. `test` is used once, to evaluate the final classifier."""

    train: LabelledData
    valid: LabelledData
    test: LabelledData | None


def fingerprint(*datasets: LabelledData) -> str:
    """Return a digest of inputs and labels, which identifies the data of a run."""
    digest = hashlib.sha256()
    for data in datasets:
        digest.update(np.ascontiguousarray(data.inputs).data)
        digest.update(np.ascontiguousarray(data.labels).data)
    return digest.hexdigest()[:16]


def hold_out(data: LabelledData, share: float, generator: np.random.Generator) -> tuple[LabelledData, LabelledData]:
    """Split the samples by class: return the remaining samples, and those held out, `share` of every class.

    Every class with at least two samples has at least one in each part.
    """
    if not 0 < share < 1:
        raise InvalidInput(f"`share` must lie strictly between 0 and 1, but got {share}.")
    held = np.zeros(len(data), dtype=bool)
    for label in range(data.classes):
        of_class = generator.permutation(np.flatnonzero(data.labels == label))
        count = round(share * len(of_class))
        if len(of_class) >= 2:
            count = min(max(count, 1), len(of_class) - 1)
        held[of_class[:count]] = True
    if not held.any() or held.all():
        raise InvalidInput(
            f"`share` must leave samples in both parts, but got {share} for {len(data)} samples; "
            "at least two samples of one class are needed to hold one out."
        )
    return data.take(np.flatnonzero(~held)), data.take(np.flatnonzero(held))


def in_rows(test: LabelledData, rows: range) -> LabelledData:
    """Return the test samples in some rows of their source."""
    index = np.flatnonzero((test.rows >= rows.start) & (test.rows < rows.stop))
    if not len(index):
        raise InvalidInput(
            f"`test_part` must name test samples, which are in rows {test.rows.min()} to {test.rows.max()}, but got "
            f"{rows.start}-{rows.stop - 1}."
        )
    return test.take(index)


def at_most(data: LabelledData, samples: int | None, generator: np.random.Generator) -> LabelledData:
    """Return at most this many samples, about the same share of every class, in their order; None for all."""
    if samples is None or samples >= len(data):
        return data
    return hold_out(data, samples / len(data), generator)[1]


def check_trainable(train: LabelledData, batch_size: int) -> None:
    """Raise for training data smaller than one batch, or with a class without samples."""
    problems = []
    if batch_size < 1:
        problems.append(f"`batch_size` must be at least 1, but got {batch_size}.")
    elif len(train) < batch_size:
        problems.append(
            f"`batch_size` must not exceed the number of training samples, but got {batch_size} for {len(train)}; "
            f"pass a smaller batch size."
        )
    counts = np.bincount(train.labels, minlength=train.classes)
    empty = [train.class_names[label] for label in np.flatnonzero(counts == 0)]
    if empty:
        problems.append(
            f"every class must have training samples, but {len(empty)} of {train.classes} "
            f"{'has' if len(empty) == 1 else 'have'} none: {listed(map(class_title, empty))}; remove the empty classes."
        )
    raise_all(problems)
