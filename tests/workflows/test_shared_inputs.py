"""Several noise settings over the same inputs, and the task that is trained: train and validation, never test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import save
from s2e.data.preparing import DataOptions, Prepared, prepare
from s2e.data.samples import LabelledData
from s2e.engine.task import VALIDATION
from s2e.errors import InvalidInput
from s2e.networks.factories import default_network
from s2e.workflows.bench import Bench, TrainingOptions, bench, network_name, task_of
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("work")

NOISES = ("pair:0.4", "symmetric:0.3", "pair:0.1")


@pytest.fixture
def data() -> str:
    """Clusters with right labels and a test part."""
    unseen = blobs(96, wrong=0.0, seed=2)
    return save(y_train=blobs().clean_labels, x_test=unseen.inputs, y_test=unseen.labels)


def options(data: str, **changes: Any) -> TrainingOptions:
    return TrainingOptions(**{"data": data, "epochs": 3, "batch_size": 32, "seed": 5, **changes})


def made(data: str, noises: tuple[str, ...] = NOISES, **changes: Any) -> Bench:
    return bench(options(data, **changes), noises, Path("data"), "cpu")


def prepared(data: str, noise: str, seed: int = 5) -> Prepared:
    return prepare(DataOptions(data, noise, "clean", None, seed), Path("data"))


def rows_of(data: LabelledData) -> set[bytes]:
    return {sample.tobytes() for sample in data.inputs}


def test_each_setting_has_the_labels_it_has_alone_over_the_same_inputs(data: str) -> None:
    on = made(data)
    assert list(on.labels) == list(NOISES)
    for noise in NOISES:
        alone = prepared(data, noise).splits
        np.testing.assert_array_equal(on.labels[noise], alone.train.labels)
        np.testing.assert_array_equal(on.task.train.inputs, alone.train.inputs)
        np.testing.assert_array_equal(on.task.evaluate[VALIDATION].inputs, alone.valid.inputs)
        np.testing.assert_array_equal(on.task.evaluate[VALIDATION].labels, alone.valid.labels)


def test_settings_differ_in_their_labels_and_are_wrong_about_as_often_as_they_say(data: str) -> None:
    on = made(data)
    true = on.task.train.clean_labels
    assert true is not None
    for noise, share in zip(NOISES, (0.4, 0.3, 0.1), strict=True):
        assert np.mean(on.labels[noise] != true) == pytest.approx(share, abs=0.1)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert (on.labels[NOISES[first]] != on.labels[NOISES[second]]).any()


def test_the_labels_of_a_setting_do_not_depend_on_the_others_or_on_their_order(data: str) -> None:
    on, backwards = made(data), made(data, NOISES[::-1])
    for noise in NOISES:
        np.testing.assert_array_equal(on.labels[noise], backwards.labels[noise])
        np.testing.assert_array_equal(on.labels[noise], made(data, (noise,)).labels[noise])


def test_the_task_has_the_labels_of_the_first_setting(data: str) -> None:
    for noises in (NOISES, NOISES[::-1]):
        on = made(data, noises)
        np.testing.assert_array_equal(on.task.train.labels, on.labels[noises[0]])


def test_the_noise_of_the_options_is_not_looked_at(data: str) -> None:
    for noise in NOISES:
        np.testing.assert_array_equal(
            made(data, noise="symmetric:0.9").labels[noise], made(data, noise="none").labels[noise]
        )


def test_another_seed_draws_other_noise(data: str) -> None:
    on, other = made(data), made(data, seed=6)
    assert all((on.labels[noise] != other.labels[noise]).any() for noise in NOISES)


def test_validation_is_clean_whatever_the_options_ask_for(data: str) -> None:
    on = made(data, validation="noisy")
    valid, everything = on.task.evaluate[VALIDATION], blobs()
    right = {sample.tobytes(): label for sample, label in zip(everything.inputs, everything.clean_labels, strict=True)}
    assert all(right[sample.tobytes()] == label for sample, label in zip(valid.inputs, valid.labels, strict=True))
    assert on.task.clean is valid


def test_the_task_is_handed_train_and_validation_and_no_sample_of_test(data: str) -> None:
    on = made(data)
    assert on.test is not None
    np.testing.assert_array_equal(on.test.inputs, blobs(96, wrong=0.0, seed=2).inputs)
    assert list(on.task.evaluate) == [VALIDATION]
    valid = on.task.evaluate[VALIDATION]
    assert not rows_of(on.test) & (rows_of(on.task.train) | rows_of(valid))
    assert not rows_of(on.task.train) & rows_of(valid)
    assert rows_of(on.task.train) | rows_of(valid) == rows_of(blobs())


def test_data_without_a_test_part_have_a_bench_without_one() -> None:
    assert made(save(y_train=blobs().clean_labels)).test is None


@pytest.mark.parametrize(
    ("noises", "said"), [((), "none"), (("pair:0.4", "symmetric:0.3", "pair:0.4"), "pair:0.4, symmetric:0.3, pair:0.4")]
)
def test_settings_given_twice_or_not_at_all_are_refused(data: str, noises: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidInput, match=f"`noise` must name each noise setting once, but got {said}"):
        made(data, noises)


def test_a_setting_nobody_knows_is_refused(data: str) -> None:
    with pytest.raises(InvalidInput, match="nonsense"):
        made(data, ("pair:0.4", "nonsense:0.2"))


def test_the_task_is_what_the_options_say(data: str) -> None:
    given = options(data, method="mentornet", epochs=7, batch_size=16, network="mlp")
    task = task_of(given, prepared(data, "pair:0.4"), "cpu")
    assert (task.epochs, task.batch_size, task.method.name, task.device.type) == (7, 16, "mentornet", "cpu")
    others = task_of(given, prepared(data, "pair:0.4"), "cpu", order="other batches")
    assert others.seed != task.seed
    assert task_of(given, prepared(data, "pair:0.4"), "cpu").seed == task.seed


def test_noisy_validation_is_not_handed_on_as_clean_samples(data: str) -> None:
    noisy = prepare(DataOptions(data, "pair:0.4", "noisy", None, 5), Path("data"))
    assert task_of(options(data), noisy, "cpu").clean is None


def test_what_cannot_be_trained_is_refused_before_anything_is_trained(data: str) -> None:
    with pytest.raises(InvalidInput):
        task_of(options(data, batch_size=100_000), prepared(data, "pair:0.4"), "cpu")


def test_the_network_is_named_as_given_or_by_the_data() -> None:
    train = blobs()
    assert network_name("mlp", train) == "mlp"
    assert network_name("auto", train) == default_network(train.sample_shape, train.classes)
