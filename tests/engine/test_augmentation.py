"""Augmentations: each equals a loop over images, and all members of a step are given the same."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from populations import assert_same, stop_after
from s2e.engine import training
from s2e.engine.augmentation import (
    BatchAugmentation,
    Crop,
    Cutout,
    Flip,
    augmentation_of,
    channel_statistics,
    check_augmentation,
    draw_all,
)
from s2e.engine.checkpoints import Checkpoints
from s2e.engine.compiled.trace import trace_function
from s2e.engine.inference import predictions
from s2e.engine.step import GroupNetworks
from s2e.engine.training import Trainer, train_population
from s2e.errors import InvalidInput, InvalidType
from s2e.methods import Coteaching, Reweight, Standard
from s2e.networks import ChannelStatistics, NormalisedFactory
from small_images import SHAPE, images, small_cnn
from small_tasks import member, task
from user_objects import Rotate

EVERY = (Crop(2), Flip(), Cutout(3), Rotate())


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def image_task(method=None, **changes):
    settings = {"network": small_cnn, "augmentation": EVERY, "clean": images(48, wrong=0.0, seed=1)}
    return task(images(), method or Coteaching(), **{**settings, **changes})


# Each augmentation


def cropped(image, draws, padding):
    channels, height, width = image.shape
    padded = np.zeros((channels, height + 2 * padding, width + 2 * padding), dtype=np.float32)
    padded[:, padding : padding + height, padding : padding + width] = image
    row, column = draws
    return padded[:, row : row + height, column : column + width]


def flipped(image, draws):
    return image[:, :, ::-1] if draws[0] else image


def cut_out(image, draws, size):
    result = image.copy()
    row, column = (centre - size // 2 for centre in draws)
    result[:, max(row, 0) : row + size, max(column, 0) : column + size] = 0
    return result


@pytest.mark.parametrize(
    ("augmentation", "of_one_image"),
    [
        (Crop(1), lambda image, draws: cropped(image, draws, 1)),
        (Crop(5), lambda image, draws: cropped(image, draws, 5)),
        (Flip(), flipped),
        (Cutout(1), lambda image, draws: cut_out(image, draws, 1)),
        (Cutout(4), lambda image, draws: cut_out(image, draws, 4)),
        (Cutout(5), lambda image, draws: cut_out(image, draws, 5)),
    ],
    ids=lambda each: "" if callable(each) else repr(each),
)
def test_equals_a_loop_over_images(augmentation, of_one_image):
    inputs = torch.rand(200, *SHAPE, generator=generator()) + 1
    before, draws = inputs.clone(), augmentation.draw(200, SHAPE, generator())
    changed = augmentation.apply(inputs, draws)
    expected = [of_one_image(image, own) for image, own in zip(inputs.numpy(), draws.tolist(), strict=True)]
    np.testing.assert_array_equal(changed, np.stack(expected))
    assert torch.equal(inputs, before)
    assert not torch.equal(changed, inputs)


def test_draws_cover_all_positions():
    draws = draw_all((Crop(2), Flip(), Cutout(2)), 4000, SHAPE, generator())
    assert draws.shape == (4000, 5)
    for column, count in zip(draws.T, (5, 5, 2, SHAPE[1], SHAPE[2]), strict=True):
        share = column.bincount() / 4000
        torch.testing.assert_close(share, torch.full((count,), 1 / count), rtol=0, atol=0.04)
    assert torch.equal(draws, draw_all((Crop(2), Flip(), Cutout(2)), 4000, SHAPE, generator()))


def test_neutral_draws_change_nothing():
    inputs = torch.rand(3, *SHAPE, generator=generator())
    batches = BatchAugmentation((Crop(2), Flip()), SHAPE, 3, 2, torch.device("cpu"))
    batches.begin_epoch(torch.tensor([[2, 2, 0]] * 3 + [[1, 3, 1]] * 3))
    assert torch.equal(batches.augmented(inputs), inputs)
    assert not torch.equal(batches.augmented(inputs), inputs)


def test_traced_steps_follow_the_draws():
    """A trace is what is compiled on a GPU: it must not hold values of the step in which it was recorded."""
    inputs, outputs = torch.rand(3, *SHAPE, generator=generator()), torch.zeros(3, *SHAPE)
    traced, plain = (BatchAugmentation(EVERY, SHAPE, 3, 4, torch.device("cpu")) for _ in range(2))
    draws = draw_all(EVERY, 12, SHAPE, generator())
    for batches in (traced, plain):
        batches.begin_epoch(draws)

    def step():
        outputs.copy_(traced.augmented(inputs))

    graph, tensors = trace_function(step)
    plain.augmented(inputs)
    for _ in range(3):
        graph(*tensors)
        assert torch.equal(outputs, plain.augmented(inputs))


# In a training


def test_member_alone_equals_member_in_population():
    members = [member(0.5, seed=1), member(0.9, seed=2, learning_rate=3e-3), member(0.2, seed=3)]
    together = train_population(image_task(), members)
    for index, one in enumerate(members):
        assert_same(together.take([index]), train_population(image_task(), [one]))


@pytest.mark.parametrize("changes", [{"stream": True}, {"chunk": 1}], ids=str)
@pytest.mark.parametrize("method", [Coteaching(), Reweight()], ids=lambda method: method.name)
def test_streamed_and_chunked_equal_resident(method, changes):
    members = [member(seed=1), member(seed=2)]
    assert_same(train_population(image_task(method), members), train_population(image_task(method, **changes), members))


def test_stopped_and_reused_populations_equal_others():
    members = [member(seed=1), member(seed=2), member(seed=3)]
    trainer = Trainer(image_task())
    whole = trainer.train(members)
    stopped = train_population(image_task(), members, stop=stop_after({0: 2}))
    assert_same(whole.take([1, 2]), stopped.take([1, 2]))
    assert_same(whole, trainer.train(members))


def test_resumed_training_repeats_the_draws(tmp_path):
    stored = image_task(checkpoints=Checkpoints(tmp_path, interval=0.0, max_share=math.inf))

    def kill(progress):
        if progress.epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_population(stored, [member()], on_epoch=kill)
    assert list(tmp_path.iterdir())
    assert_same(train_population(stored, [member()]), train_population(image_task(), [member()]))


def test_only_training_batches_are_augmented(monkeypatch):
    """Evaluation, predictions and clean samples are the same for any augmentation if networks never change."""
    clean_batches, create = [], GroupNetworks.__init__

    def spy(self, networks, group, inputs, clean_inputs, clean_labels):
        clean_batches.append(clean_inputs.clone())
        create(self, networks, group, inputs, clean_inputs, clean_labels)

    monkeypatch.setattr(GroupNetworks, "__init__", spy)
    found = []
    for augmentation in (EVERY, ()):
        frozen = image_task(Reweight(), augmentation=augmentation, evaluate={"valid": images(64, seed=2)}, epochs=1)
        trained = train_population(frozen, [member(epochs=1, learning_rate=1e-30)])
        found.append((trained.curves, predictions(frozen, trained.state), torch.stack(clean_batches)))
        clean_batches.clear()
    (curves, predicted, clean), (plain_curves, plain_predicted, plain_clean) = found
    assert torch.equal(clean, plain_clean)
    np.testing.assert_array_equal(predicted, plain_predicted)
    np.testing.assert_array_equal(curves.accuracy["valid"], plain_curves.accuracy["valid"])
    assert not np.array_equal(curves.loss, plain_curves.loss)


def test_draws_depend_on_seed_and_epoch_only():
    first = training.augmentation_draws(image_task(), 0, 96)
    assert torch.equal(first, training.augmentation_draws(image_task(device=torch.device("cpu"), batch_size=16), 0, 96))
    assert not torch.equal(first, training.augmentation_draws(image_task(), 1, 96))
    assert not torch.equal(first, training.augmentation_draws(image_task(seed=1), 0, 96))


# Names and checks


@pytest.mark.parametrize(
    ("augment", "expected"),
    [
        ("none", ((), False)),
        ((), ((), False)),
        ("crop,flip", ((Crop(4), Flip()), False)),
        ("cutout:size=16, normalize, crop:padding=2", ((Cutout(16), Crop(2)), True)),
        (["normalize"], ((), True)),
        (Rotate(), ((Rotate(),), False)),
        ((Rotate(), "flip", Crop(1)), ((Rotate(), Flip(), Crop(1)), False)),
    ],
)
def test_augmentation_by_name_or_object(augment, expected):
    assert augmentation_of(augment) == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("crop,flop", r"`augment` must be one of flip, .*, but got 'flop'"),
        ("none,crop", r"`augment` must be none or a list of others, but got 'none,crop'"),
        ("", r"`augment` must be written as NAME"),
        ("crop:pad=4", r"options of `augment` crop must be one of padding, but got 'pad'"),
        ("flip:p=0.5", r"options of `augment` flip must not be given, but got 'p'"),
        ("normalize:mean=0", r"options of `augment` normalize must not be given"),
        (
            "crop:padding=0",
            r"`padding` of augment crop must be an integer of at least 1 and at most 1,000,000",
        ),
        ("cutout:size=1.5", r"`size` of augment cutout must be an integer of at least 1"),
    ],
)
def test_wrong_names_are_refused(wrong, message):
    with pytest.raises(InvalidInput, match=message):
        augmentation_of(wrong)


@pytest.mark.parametrize("wrong", [None, Crop, lambda inputs: inputs, [Flip(), 3]])
def test_other_objects_are_refused(wrong):
    with pytest.raises(InvalidType, match=r"`s2e.Augmentation`, such as Crop\(\) of .*, but got"):
        augmentation_of(wrong)


@pytest.mark.parametrize(
    ("augmentation", "shape", "message"),
    [
        (Flip(), (13,), r"`augment` must be none for data that are not images .*, but samples have the shape \(13,\)"),
        (Crop(6), SHAPE, r"`padding` of crop must be less than the shorter side of the images, 6 pixels, but got 6"),
        (Cutout(7), SHAPE, r"`size` of cutout must not exceed the shorter side of the images, 6 pixels, but got 7"),
    ],
)
def test_unsuitable_images_are_refused(augmentation, shape, message):
    with pytest.raises(InvalidInput, match=message):
        check_augmentation([augmentation], shape)


def test_objects_that_break_the_interface_are_refused():
    class Doubling(Rotate):
        def apply(self, inputs, draws):
            return super().apply(inputs, draws).repeat(2, 1, 1, 1)

    class Fractions(Rotate):
        def draw(self, count, shape, generator):
            return torch.rand(count, shape[0], generator=generator)

    class Nothing(Rotate):
        def apply(self, inputs, draws):
            super().apply(inputs, draws)

    class Undrawn(Rotate):
        def draw(self, count, shape, generator):
            super().draw(count, shape, generator)

    for wrong, message in (
        (Doubling(), r"`apply` .* must return float32"),
        (Fractions(), r"`draw` .* int64"),
        (Nothing(), r"`apply` .* must return float32 .*, but got NoneType\."),
        (Undrawn(), r"`draw` .* int64 .*, but got NoneType for 2 images"),
    ):
        with pytest.raises(InvalidInput, match=message):
            train_population(image_task(Standard(), augmentation=(wrong,)), [member()])


# Normalisation


def test_statistics_equal_those_of_all_pixels(monkeypatch):
    monkeypatch.setattr("s2e.engine.augmentation.SAMPLES_PER_CHUNK", 7)
    pixels = images().inputs
    statistics = channel_statistics(pixels)
    np.testing.assert_allclose(statistics.mean, (pixels / 255).mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(statistics.std, (pixels / 255).std(axis=(0, 2, 3)))


def test_constant_channels_are_not_divided_by_zero():
    pixels = images().inputs.copy()
    pixels[:, 1] = 37
    statistics = channel_statistics(pixels)
    assert statistics.std[1] == 1.0
    trained = train_population(image_task(network=NormalisedFactory(small_cnn, statistics)), [member()])
    assert not trained.curves.diverged.any()


@pytest.mark.parametrize("vectorize", [True, False], ids=["vectorized", "looped"])
def test_normalised_networks_equal_networks_of_normalised_images(vectorize):
    statistics = channel_statistics(images().inputs)
    mean, std = (np.array(each, dtype=np.float32)[:, None, None] for each in statistics)
    data = replace(images(), inputs=((images().inputs / 255).astype(np.float32) - mean) / std)
    normalised = NormalisedFactory(small_cnn, ChannelStatistics(*statistics))
    inside = image_task(network=normalised, augmentation=(Flip(),), vectorize=vectorize)
    outside = replace(image_task(augmentation=(Flip(),), vectorize=vectorize), train=data)
    one, other = (train_population(each, [member(seed=1), member(seed=2)]) for each in (inside, outside))
    for name, tensor in other.state.items():
        torch.testing.assert_close(one.state[f"network.{name}"], tensor, rtol=1e-3, atol=1e-4)
