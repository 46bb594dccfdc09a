"""Several noise settings over the same inputs, with clean validation and a separate test part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparisons import save
from s2e.data import load
from s2e.data.preparing import prepare
from s2e.data.samples import LabelledData
from s2e.engine.task import VALIDATION
from s2e.errors import InvalidInput
from s2e.runs.session import RunLocation
from s2e.specs import DataSpec, TrainingSpec
from s2e.workflows.shared_inputs import SharedInputs, load_shared_inputs
from small_tasks import blobs

NOISES = ("pair:0.4", "symmetric:0.3", "pair:0.1")
LOCATION = RunLocation(Path("unused"), device="cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(tmp_path_factory.mktemp("data") / "own.npz")


def made(data: str, noises: tuple[str, ...] = NOISES, **changes: Any) -> SharedInputs:
    return load_shared_inputs(data, noises, TrainingSpec(epochs=3, batch_size=32), LOCATION, **{"seed": 5, **changes})


def samples_of(data: LabelledData) -> set[bytes]:
    return {sample.tobytes() for sample in data.inputs}


def test_each_setting_has_the_labels_it_has_alone(data: str) -> None:
    shared, reversed_order = made(data), made(data, NOISES[::-1])
    assert list(shared.labels) == list(NOISES)
    for noise in NOISES:
        alone = prepare(DataSpec(data, validation="clean"), noise, 5, Path()).splits
        np.testing.assert_array_equal(shared.labels[noise], alone.train.labels)
        np.testing.assert_array_equal(reversed_order.labels[noise], alone.train.labels)
        np.testing.assert_array_equal(shared.task.train.inputs, alone.train.inputs)
        np.testing.assert_array_equal(shared.task.evaluate[VALIDATION].labels, alone.valid.labels)


def test_task_has_the_labels_of_the_first_setting(data: str) -> None:
    for noises in (NOISES, NOISES[::-1]):
        shared = made(data, noises)
        np.testing.assert_array_equal(shared.task.train.labels, shared.labels[noises[0]])


def test_labels_are_wrong_at_the_given_rates(data: str) -> None:
    shared = made(data)
    for noise, share in zip(NOISES, (0.4, 0.3, 0.1), strict=True):
        assert np.mean(shared.labels[noise] != shared.task.train.clean_labels) == pytest.approx(share, abs=0.1)


def test_task_has_train_and_clean_validation_and_no_test_sample(data: str) -> None:
    shared, everything = made(data), load(data).train
    assert shared.test is not None
    assert list(shared.task.evaluate) == [VALIDATION]
    valid = shared.task.evaluate[VALIDATION]
    assert shared.task.clean is valid
    assert not samples_of(shared.test) & samples_of(everything)
    assert not samples_of(shared.task.train) & samples_of(valid)
    assert samples_of(shared.task.train) | samples_of(valid) == samples_of(everything)
    true = {sample.tobytes(): label for sample, label in zip(everything.inputs, blobs().clean_labels, strict=True)}
    assert all(true[sample.tobytes()] == label for sample, label in zip(valid.inputs, valid.labels, strict=True))


def test_data_without_a_test_part_give_none(tmp_path: Path) -> None:
    assert made(save(tmp_path / "own.npz", x_test=None, y_test=None)).test is None


def test_fingerprint_depends_on_the_labels_of_every_setting(data: str) -> None:
    assert made(data).fingerprint() == made(data).fingerprint() != made(data, seed=6).fingerprint()
    assert made(data).fingerprint() != made(data, ("pair:0.4", "symmetric:0.2", "pair:0.1")).fingerprint()


@pytest.mark.parametrize("noises", [(), ("pair:0.4", "pair:0.40"), ("nonsense:0.2",)])
def test_bad_noise_settings_are_refused(noises: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput, match="`noise` must"):
        made("absent.npz", noises)
