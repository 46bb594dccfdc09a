"""Networks, epochs, batches and trials that depend on the data."""

from __future__ import annotations

import numpy as np
import pytest

from s2e.data import LabelledData
from s2e.errors import InvalidInput
from s2e.networks import factory_of
from s2e.specs import SizedTrainingSpec, TrainingSpec, flatten
from s2e.workflows.defaults import batch_size_for, default_generations, epochs_for, longest, network_for, sized


@pytest.mark.parametrize(
    ("samples", "batch"), [(1, 1), (10, 10), (40, 16), (319, 16), (320, 32), (1279, 64), (1280, 128), (60_000, 128)]
)
def test_a_batch_leaves_ten_steps_where_the_samples_are_that_many(samples, batch):
    assert batch_size_for(samples) == batch


@pytest.mark.parametrize(
    ("samples", "batch", "epochs"), [(5, 16, 100), (1000, 64, 100), (6_400, 128, 80), (60_000, 128, 40)]
)
def test_epochs_give_about_4000_steps(samples, batch, epochs):
    assert epochs_for(samples, batch) == epochs


def of_size(samples, shape=(3,)):
    inputs = np.zeros((samples, *shape), dtype=np.float32)
    return LabelledData(inputs, np.arange(samples) % 2, ("a", "b"))


@pytest.mark.parametrize(
    ("samples", "network"), [(30, "mlp:widths=64"), (2_001, "mlp:widths=128"), (10_001, "mlp:widths=256")]
)
def test_width_depends_on_the_number_of_samples(samples, network):
    assert network_for(of_size(samples)) == network
    factory_of(network, (3,), 2)


def test_images_in_colour_have_a_convolutional_network():
    assert network_for(of_size(4, (3, 32, 32))) == "cifar10-cnn"


def test_given_numbers_are_kept():
    given = TrainingSpec("linear", 7, 5, 0.5)
    for data in ("", "mnist"):
        assert flatten(sized(given, of_size(1000), data)) == flatten(given) == flatten(longest(given))


def test_numbers_that_are_not_given_depend_on_the_data():
    found = sized(TrainingSpec(), of_size(1000))
    assert (found.epochs, found.batch_size) == (epochs_for(1000, 64), 64)
    assert sized(TrainingSpec(batch_size=10), of_size(1000)).epochs == epochs_for(1000, 10)
    assert default_generations("table.csv") == 5


def test_published_data_sets_keep_the_numbers_of_the_paper():
    for data in ("mnist", "cifar100"):
        found = sized(TrainingSpec(), of_size(54_000), data)
        assert (found.epochs, found.batch_size, found.network) == (200, 128, "auto")
        assert default_generations(data) == 10


def test_digits_are_sized_like_own_data():
    assert sized(TrainingSpec(), of_size(1150), "digits") == sized(TrainingSpec(), of_size(1150))
    assert default_generations("digits") == 5


def test_a_sized_specification_has_no_undecided_number():
    with pytest.raises(InvalidInput, match="`epochs` must be an integer of at least 1, but got None"):
        SizedTrainingSpec(epochs=None)
