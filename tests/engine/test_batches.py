"""Feeds hand out every batch of the order, the same ones whichever way the inputs travel."""

from __future__ import annotations

import pytest
import torch

from s2e.engine.batches import ResidentFeed, StreamedFeed, feed, scaled

CPU = torch.device("cpu")
FEEDS = pytest.mark.parametrize("stream", [False, True], ids=["resident", "streamed"])


def epoch_of(source, order, steps):
    """All batches of an epoch, copied: a streamed batch is overwritten by the next one."""
    source.begin_epoch(order)
    batches = []
    for _ in range(steps):
        source.advance()
        inputs, index = source.batch()
        batches.append((inputs.clone(), index.clone()))
    return batches


def drawn_order(samples, batch_size, seed=0):
    steps = samples // batch_size
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
    return order[: steps * batch_size], steps


@FEEDS
@pytest.mark.parametrize(("samples", "batch_size"), [(12, 4), (13, 4), (5, 5), (3, 1), (7, 4)])
def test_every_sample_is_handed_out_at_most_once_an_epoch(stream, samples, batch_size):
    inputs = torch.arange(samples, dtype=torch.float32).unsqueeze(1)
    source = feed(inputs, batch_size, CPU, stream=stream)
    for epoch in range(3):
        order, steps = drawn_order(samples, batch_size, seed=epoch)
        batches = epoch_of(source, order, steps)
        seen = torch.cat([index for _, index in batches])
        assert len(seen.unique()) == len(seen) == steps * batch_size
        assert all(len(index) == batch_size for _, index in batches)


@FEEDS
@pytest.mark.parametrize("shape", [(6,), (3, 4, 5)])
def test_batches_follow_the_order_and_hold_the_inputs_at_their_index(stream, shape):
    inputs = torch.randn(23, *shape, generator=torch.Generator().manual_seed(0))
    source = feed(inputs, 5, CPU, stream=stream)
    for epoch in range(3):
        order, steps = drawn_order(23, 5, seed=epoch)
        for (batch, index), expected in zip(epoch_of(source, order, steps), order.split(5), strict=True):
            assert torch.equal(index, expected)
            assert torch.equal(batch, inputs[expected])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_resident_and_streamed_inputs_make_identical_batches(dtype):
    inputs = torch.randint(0, 256, (50, 3, 4), generator=torch.Generator().manual_seed(0)).to(dtype)
    resident, streamed = (feed(inputs, 8, CPU, stream=stream) for stream in (False, True))
    for epoch in range(3):
        order, steps = drawn_order(50, 8, seed=epoch)
        for one, other in zip(epoch_of(resident, order, steps), epoch_of(streamed, order, steps), strict=True):
            assert torch.equal(one[0], other[0])
            assert torch.equal(one[1], other[1])


@FEEDS
def test_an_epoch_cut_short_does_not_leak_into_the_next(stream):
    inputs = torch.arange(12.0).unsqueeze(1)
    source = feed(inputs, 4, CPU, stream=stream)
    epoch_of(source, torch.arange(12), steps=1)
    batches = epoch_of(source, torch.arange(12).flip(0), steps=3)
    assert torch.cat([index for _, index in batches]).tolist() == list(range(11, -1, -1))


@FEEDS
def test_a_feed_leaves_the_inputs_and_the_order_as_they_were(stream):
    inputs = torch.randint(0, 256, (12, 2), dtype=torch.uint8)
    order = torch.randperm(12)
    before = inputs.clone(), order.clone()
    epoch_of(feed(inputs, 4, CPU, stream=stream), order, steps=3)
    assert torch.equal(inputs, before[0])
    assert torch.equal(order, before[1])


@FEEDS
def test_pixels_come_as_floats_in_the_unit_interval(stream):
    inputs = torch.tensor([[0, 51], [255, 102]], dtype=torch.uint8)
    ((batch, _),) = epoch_of(feed(inputs, 2, CPU, stream=stream), torch.arange(2), steps=1)
    assert batch.dtype == torch.float32
    torch.testing.assert_close(batch, torch.tensor([[0.0, 0.2], [1.0, 0.4]]))


def test_scaling_maps_all_256_pixels_evenly_onto_the_unit_interval_and_keeps_the_original():
    pixels = torch.arange(256, dtype=torch.uint8)
    floats = scaled(pixels)
    torch.testing.assert_close(floats, torch.linspace(0, 1, 256))
    assert floats[0] == 0
    assert floats[-1] == 1
    assert torch.equal(pixels, torch.arange(256, dtype=torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_floats_are_left_untouched(dtype):
    inputs = torch.tensor([-300.0, 0.5, 255.0, 1e6], dtype=dtype)
    assert scaled(inputs) is inputs
    assert inputs.tolist() == [-300.0, 0.5, 255.0, 1e6]


def test_inputs_stay_resident_on_a_cpu_unless_told_otherwise():
    inputs = torch.zeros(4, 1)
    assert isinstance(feed(inputs, 2, CPU), ResidentFeed)
    assert isinstance(feed(inputs, 2, CPU, stream=False), ResidentFeed)
    assert isinstance(feed(inputs, 2, CPU, stream=True), StreamedFeed)
