"""Batch sources return the batches of an order, whether inputs are resident or streamed."""

from __future__ import annotations

import pytest
import torch

from s2e.engine.batches import ResidentBatches, StreamedBatches, batch_source, scaled

CPU = torch.device("cpu")
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["resident", "streamed"])


def batches_of_epoch(source, order, steps):
    """All batches of an epoch, copied: a streamed batch is overwritten by the next one."""
    source.begin_epoch(order)
    batches = []
    for _ in range(steps):
        source.advance()
        inputs, index = source.batch()
        batches.append((inputs.clone(), index.clone()))
    return batches


@BOTH
@pytest.mark.parametrize(("samples", "batch_size", "shape"), [(23, 5, (3, 4)), (5, 5, (6,)), (3, 1, (6,)), (7, 4, ())])
def test_batches_follow_the_order(stream, samples, batch_size, shape):
    inputs = torch.randn(samples, *shape, generator=torch.Generator().manual_seed(0))
    source, unchanged, steps = (
        batch_source(inputs, batch_size, CPU, stream=stream),
        inputs.clone(),
        samples // batch_size,
    )
    for epoch in range(3):
        shuffled = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch))
        order = shuffled[: steps * batch_size]
        batches = batches_of_epoch(source, order.clone(), steps)
        for (batch, index), expected in zip(batches, order.split(batch_size), strict=True):
            assert torch.equal(index, expected)
            assert torch.equal(batch, inputs[expected])
    assert torch.equal(inputs, unchanged)


@BOTH
def test_incomplete_epoch_does_not_affect_the_next(stream):
    source = batch_source(torch.arange(12.0).unsqueeze(1), 4, CPU, stream=stream)
    batches_of_epoch(source, torch.arange(12), steps=1)
    batches = batches_of_epoch(source, torch.arange(12).flip(0), steps=3)
    assert torch.cat([index for _, index in batches]).tolist() == list(range(11, -1, -1))


@BOTH
def test_pixels_become_floats_in_the_unit_interval(stream):
    inputs = torch.tensor([[0, 51], [255, 102]], dtype=torch.uint8)
    ((batch, _),) = batches_of_epoch(batch_source(inputs, 2, CPU, stream=stream), torch.arange(2), steps=1)
    assert batch.dtype == torch.float32
    torch.testing.assert_close(batch, torch.tensor([[0.0, 0.2], [1.0, 0.4]]))
    assert inputs.tolist() == [[0, 51], [255, 102]]


def test_scaling_maps_all_pixels_and_no_floats():
    torch.testing.assert_close(scaled(torch.arange(256, dtype=torch.uint8)), torch.linspace(0, 1, 256))
    floats = torch.tensor([-300.0, 0.5, 255.0, 1e6])
    assert scaled(floats) is floats


def test_inputs_are_resident_on_a_cpu_by_default():
    inputs = torch.zeros(4, 1)
    assert isinstance(batch_source(inputs, 2, CPU), ResidentBatches)
    assert isinstance(batch_source(inputs, 2, CPU, stream=True), StreamedBatches)
