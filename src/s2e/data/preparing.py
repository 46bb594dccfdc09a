"""From a name or a path to data ready to train on: load → corrupt → split."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from s2e.data import loading, noise
from s2e.data.input_readers import OfTables
from s2e.data.samples import LabelledData, Source, Splits, default_share, hold_out
from s2e.errors import InvalidInput
from s2e.seeds import derive


@dataclass(frozen=True)
class DataOptions:
    """Which data, how corrupted, and how split.

    Attributes:
        data: name or path of the data.
        noise: noise to add, as `noise.parse_noise` reads it; "none" for data whose labels are doubtful as they are.
        validation: "clean", "noisy", a file (.npz; of a table another one), or "auto": clean where clean labels are to
            be had, else noisy.
        validation_share: part of the training samples held out where validation does not come from a file; None for
            `default_share`.
        seed: decides the noise and the split (and, in what builds on this, everything else that is drawn).
        label: the column of a table that holds the labels; "" for data that are no table.
        id_column: the column of a table that names its rows; "" to number them.
    """

    data: str
    noise: str = "none"
    validation: str = "auto"
    validation_share: float | None = None
    seed: int = 0
    label: str = field(default="", kw_only=True)
    id_column: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Prepared:
    """Data ready to train on.

    Attributes:
        splits: training, validation and test.
        validation: "clean" or "noisy".
        noise_rate: achieved share of wrong training labels, None where nobody knows.
        source: the data as loaded, where there was one.
    """

    splits: Splits
    validation: str
    noise_rate: float | None
    source: Source | None = None


def prepare(options: DataOptions, root: Path) -> Prepared:
    """Load, corrupt and split."""
    source = loading.load(options.data, root, label=options.label, id_column=options.id_column)
    return replace(corrupt_and_split(source, options, root), source=source)


def corrupt_and_split(source: Source, options: DataOptions, root: Path, *, draw: int = 0) -> Prepared:
    """Corrupt and split what was loaded.

    Clean validation is held out before noise is added; noisy validation is held out of the noisy samples.

    Args:
        source: the data as loaded.
        options: how to corrupt and to split.
        root: where human labels lie.
        draw: which of many draws of the same noise; the split does not depend on it where validation is clean.
    """
    spec = noise.parse_noise(options.noise)
    given, kind = _given_validation(options, source, spec)
    if given is not None:
        train = _corrupt(source.train, spec, options, root, draw)
        return _prepared(train, given, source.test, kind)
    if kind == "clean":
        rest, held = _hold_out(source.train, options)
        train, held = _corrupt(rest, spec, options, root, draw), _with_true_labels(held)
    else:
        train, held = _hold_out(_corrupt(source.train, spec, options, root, draw), options)
    return _prepared(train, held, source.test, kind)


def _given_validation(options: DataOptions, source: Source, spec: noise.NoiseSpec) -> tuple[LabelledData | None, str]:
    """Return validation data that came in a file, if any, and whether validation is clean or noisy."""
    wish = options.validation
    has_clean_labels = spec.kind != "none" or source.train.clean_labels is not None
    if wish == "auto":
        wish = "clean" if source.valid is not None or has_clean_labels else "noisy"
    if wish == "noisy":
        return None, "noisy"
    if wish != "clean":
        return _from_file(wish, source), "clean"
    if source.valid is None and not has_clean_labels:
        raise InvalidInput(
            f"`validation` clean needs clean labels, but {options.data} has none and no noise was asked for; "
            f"give a .npz file of clean samples instead, or use noisy."
        )
    return source.valid, "clean"


def _from_file(path: str, source: Source) -> LabelledData:
    """Read validation data: an .npz file, or, for a table, another table with the same columns."""
    train, encoding = source.train, source.encoding
    if isinstance(encoding, OfTables) and not path.endswith(".npz"):
        from s2e.data.table_files import read_table

        return encoding.columns.samples_of(read_table(path))
    if not path.endswith(".npz"):
        raise InvalidInput(
            f"`validation` must be auto, clean, noisy, a .npz file, or a table where the data are one, "
            f"but got {path!r}."
        )
    valid = loading.load(path).train
    wanted, found = (f"{data.inputs.dtype} of shape {data.sample_shape}" for data in (train, valid))
    if wanted != found or not set(valid.class_names) <= set(train.class_names):
        raise InvalidInput(
            f"`validation` must hold samples of {wanted} and classes of the training data, but {path!r} holds {found} "
            f"and the classes {', '.join(valid.class_names[:10])}."
        )
    codes = np.array([train.class_names.index(name) for name in valid.class_names], dtype=np.int64)
    return replace(valid, labels=codes[valid.labels], class_names=train.class_names)


def _corrupt(data: LabelledData, spec: noise.NoiseSpec, options: DataOptions, root: Path, draw: int) -> LabelledData:
    if spec.kind == "human":
        labels = loading.human_labels(options.data, spec.source or "", root)
        if len(labels) <= data.rows.max():
            raise InvalidInput(f"the human labels must cover all of {options.data}, but there are only {len(labels)}.")
        return data.with_noisy_labels(labels[data.rows])
    path = ("noise", draw) if draw else ("noise",)
    return noise.apply(spec, data, np.random.default_rng(derive(options.seed, *path)))


def _hold_out(data: LabelledData, options: DataOptions) -> tuple[LabelledData, LabelledData]:
    share = default_share(len(data)) if options.validation_share is None else options.validation_share
    return hold_out(data, share, np.random.default_rng(derive(options.seed, "split")))


def _with_true_labels(data: LabelledData) -> LabelledData:
    return data if data.clean_labels is None else replace(data, labels=data.clean_labels)


def _prepared(train: LabelledData, valid: LabelledData, test: LabelledData | None, validation: str) -> Prepared:
    return Prepared(Splits(train, valid, test), validation, noise.achieved_rate(train))
