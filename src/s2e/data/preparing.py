"""Prepare data for training: load → corrupt → split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from s2e.data import loading
from s2e.data.noise import NoiseSpec, achieved_rate, apply_noise, parse_noise
from s2e.data.npz import load_npz
from s2e.data.reviewed import hold_out_with_decisions, matched, read_decisions, with_decisions
from s2e.data.samples import LabelledData, Source, Splits, at_most, default_share, hold_out
from s2e.errors import InvalidInput, class_title, listed
from s2e.seeds import derive
from s2e.specs import AUTO, DATA_HELP, DataSpec

VALIDATIONS = (AUTO, "clean", "noisy")
"""Values of `validation` other than a file."""


@dataclass(frozen=True)
class Prepared:
    """Data ready to train on.

    Attributes:
        splits: training, validation and test.
        validation: "clean" or "noisy".
        noise_rate: share of wrong training labels, None if unknown.
        source: the data as loaded; None unless the caller loaded them by their specification.
    """

    splits: Splits
    validation: str
    noise_rate: float | None
    source: Source | None = None


def check_preparation(spec: DataSpec, noises: Sequence[str]) -> None:
    """Raise for an empty data name, invalid noise, or unusable files of validation or decisions; load no data."""
    if not spec.data:
        raise InvalidInput(f"`data` must be given: {DATA_HELP}.")
    if not noises or len({str(parse_noise(noise)) for noise in noises}) < len(noises):
        raise InvalidInput(f"`noise` must name each noise setting once, but got {', '.join(noises) or 'none'}.")
    if (spec.annotators or spec.annotations) and any(parse_noise(noise).kind != "none" for noise in noises):
        raise InvalidInput(f"`noise` must be none for labels of several annotators, but got {', '.join(noises)}.")
    if spec.annotations and not Path(spec.annotations).is_file():
        raise InvalidInput(f"`annotations` must be a file that exists, but got {spec.annotations!r}.")
    if spec.validation not in VALIDATIONS and not Path(spec.validation).is_file():
        raise InvalidInput(
            f"`validation` must be {', '.join(VALIDATIONS)} or a file that exists, but got {spec.validation!r}."
        )
    read_decisions(spec.reviewed)


def load_source(spec: DataSpec, root: Path, *, download: bool = True) -> Source:
    """Load the data that a specification names."""
    return loading.load(
        spec.data,
        root,
        download=download,
        label=spec.label,
        id_column=spec.id_column,
        image_size=spec.image_size,
        drop=spec.drop,
        text=spec.text,
        annotators=spec.annotators,
        annotations=spec.annotations,
        annotation_columns=spec.annotation_columns,
    )


def with_at_most(source: Source, samples: int | None, seed: int) -> Source:
    """Return a source with at most this many training samples, and as many test samples; None for all."""
    train = at_most(source.train, samples, np.random.default_rng(derive(seed, "samples", "train")))
    test = source.test
    if test is not None:
        test = at_most(test, samples, np.random.default_rng(derive(seed, "samples", "test")))
    return replace(source, train=train, test=test)


def prepare(spec: DataSpec, noise: str, seed: int, root: Path) -> Prepared:
    """Load, corrupt and split; arguments are those of `corrupt_and_split`."""
    source = load_source(spec, root)
    return replace(corrupt_and_split(source, spec, noise, seed, root), source=source)


def corrupt_and_split(source: Source, spec: DataSpec, noise: str, seed: int, root: Path, *, draw: int = 0) -> Prepared:
    """Corrupt and split loaded data.

    Clean validation is held out before noise is added; noisy validation is held out of the noisy samples. Reviewed
    labels replace the noisy ones (`reviewed`).

    Args:
        source: the data as loaded.
        spec: where validation comes from.
        noise: noise to add, in the form of `parse_noise`; "none" leaves the labels unchanged.
        seed: seed of the noise and the split.
        root: directory of the human labels.
        draw: index of the draw of the noise; the split does not depend on it if validation is clean.
    """
    parsed = parse_noise(noise)
    given, kind = _given_validation(spec, source, parsed)
    decisions = matched(read_decisions(spec.reviewed), source.train, source.ids)

    share = default_share(len(source.train)) if spec.validation_share is None else spec.validation_share
    generator = np.random.default_rng(derive(seed, "split"))

    def corrupted(data: LabelledData) -> LabelledData:
        return _corrupt(data, parsed, spec.data, seed, root, draw)

    if given is not None:
        train, valid = with_decisions(corrupted(source.train), decisions), given
    elif kind == "clean":
        rest, held = hold_out(source.train, share, generator)
        train, valid = with_decisions(corrupted(rest), decisions), _with_true_labels(held)
    else:
        train, valid = hold_out_with_decisions(corrupted(source.train), decisions, share, generator)
    return Prepared(Splits(train, valid, source.test), kind, achieved_rate(train))


def _given_validation(spec: DataSpec, source: Source, noise: NoiseSpec) -> tuple[LabelledData | None, str]:
    """Return validation data of the source or of a file, if any, and whether validation is clean or noisy."""
    validation = spec.validation
    has_clean_labels = noise.kind != "none" or source.train.clean_labels is not None
    if validation == AUTO:
        validation = "clean" if source.valid is not None or has_clean_labels else "noisy"
    if validation == "noisy":
        return None, "noisy"
    if validation != "clean":
        return _from_file(validation, source), "clean"
    if source.valid is None and not has_clean_labels:
        raise InvalidInput(
            f"`validation` clean needs clean labels, but {spec.data} has none and no noise is added; "
            f"pass an .npz file of clean samples, or noisy."
        )
    return source.valid, "clean"


def _from_file(path: str, source: Source) -> LabelledData:
    """Read validation data from an .npz file, or from a table if the training data are one."""
    from s2e.data.table_reader import TableReader

    train, reader = source.train, source.reader
    if isinstance(reader, TableReader) and not path.endswith(".npz"):
        return reader.read_labelled(Path(path))
    if not path.endswith(".npz"):
        raise InvalidInput(
            f"`validation` must be {', '.join(VALIDATIONS)}, an .npz file, or a table if the data are one, "
            f"but got {path!r}."
        )
    valid = load_npz(Path(path), getattr(reader, "encoder", None)).train
    expected, found = (f"{data.inputs.dtype} of shape {data.sample_shape}" for data in (train, valid))
    if expected != found or not set(valid.class_names) <= set(train.class_names):
        raise InvalidInput(
            f"`validation` must hold samples of {expected} and classes of the training data, but {path!r} holds "
            f"{found} and the classes {listed(map(class_title, valid.class_names), 10)}."
        )
    index = np.array([train.class_names.index(name) for name in valid.class_names], dtype=np.int64)
    return replace(valid, labels=index[valid.labels], class_names=train.class_names)


def with_noise(
    clean: LabelledData, spec: DataSpec, noise: str, seed: int, root: Path, *, draw: int = 0
) -> LabelledData:
    """Return a clean validation part with the noise of a training part: drawn apart from it, or the labels of people.

    Instance-dependent noise then depends on other features of the samples than that of the training part.
    """
    return _corrupt(clean, parse_noise(noise), spec.data, seed, root, draw, stream="validation noise")


def _corrupt(
    data: LabelledData, noise: NoiseSpec, name: str, seed: int, root: Path, draw: int, *, stream: str = "noise"
) -> LabelledData:
    if noise.kind == "human":
        labels = loading.human_labels(name, noise.source or "", root)
        if len(labels) <= data.rows.max():
            raise InvalidInput(f"the human labels must cover all samples of {name}, but got only {len(labels)}.")
        return data.with_noisy_labels(labels[data.rows])
    path = (stream, draw) if draw else (stream,)
    return apply_noise(noise, data, np.random.default_rng(derive(seed, *path)))


def _with_true_labels(data: LabelledData) -> LabelledData:
    return data if data.clean_labels is None else replace(data, labels=data.clean_labels)
