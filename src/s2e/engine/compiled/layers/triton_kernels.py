"""Triton kernels of `same_convolution`.

The pixels of all images of a network are the rows of a matrix (rows, C). The inputs of all outputs at one offset of the
window are that matrix shifted by a number of rows, the same for every output, with zeros where the window leaves the
image. So a convolution is a product over offsets and channels, and no patches are copied.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from s2e.engine.compiled.layers.same_convolution import TILE_SIDE, parts_of_sum

BYTES_PER_STEP = 128
"""Bytes of each operand's row that a product loads in one step of its inner loop."""


def convolve(inputs: Tensor, weight: Tensor) -> Tensor:
    """Convolve inputs (G or 1, B, H, W, C) with weights (G, h, w, C, O); contiguous, C and O multiples of 16."""
    batches, batch, height, width, channels = inputs.shape
    networks, *window, _, outputs = weight.shape
    rows = batch * height * width
    product = inputs.new_empty(networks, *inputs.shape[1:-1], outputs)
    tile = (128, _tile_side(outputs, largest=256), _tile_side(channels, largest=BYTES_PER_STEP // inputs.itemsize))
    grid = (triton.cdiv(rows, tile[0]), triton.cdiv(outputs, tile[1]), networks)
    _convolve[grid](
        inputs, weight, product, rows, batches == 1, height, width, channels, outputs, *window, *tile,
        num_warps=8 if tile[1] > 128 else 4, num_stages=_stages(inputs, (tile[0] + tile[1]) * tile[2], largest=3),
    )  # fmt: skip
    return product


def weight_gradient_parts(inputs: Tensor, gradient: Tensor, height: int, width: int, parts: int) -> Tensor:
    """Return parts of the gradient of the weights, (parts, G, h, w, C, O), from that of the outputs (G, B, H, W, O)."""
    batches, batch, rows, columns, channels = inputs.shape
    networks, outputs = len(gradient), gradient.shape[-1]
    pixels = batch * rows * columns
    sides = (_tile_side(channels, largest=TILE_SIDE), _tile_side(outputs, largest=TILE_SIDE))
    tile = (*sides, BYTES_PER_STEP // inputs.itemsize)
    tiles = (height * width * triton.cdiv(channels, tile[0]), triton.cdiv(outputs, tile[1]))
    size = (parts, networks, height, width, channels, outputs)
    partial_sums = torch.empty(size, dtype=torch.float32, device=inputs.device)
    _weight_gradient[(*tiles, networks * parts)](
        inputs, gradient, partial_sums, pixels, triton.cdiv(pixels, parts), networks, batches == 1, rows, columns,
        channels, outputs, height, width, *tile,
        num_warps=4, num_stages=_stages(inputs, (tile[0] + tile[1]) * tile[2], largest=4),
    )  # fmt: skip
    return partial_sums


def sum_over_pixels(values: Tensor) -> Tensor:
    """Sum (G, B, H, W, O) over the pixels of all images, (G, O) in float32."""
    networks, outputs = len(values), values.shape[-1]
    pixels = values.shape[1:4].numel()
    parts = parts_of_sum(networks, pixels)
    partial_sums = torch.empty((parts, networks, outputs), dtype=torch.float32, device=values.device)
    columns = triton.next_power_of_2(outputs)
    _sum_over_pixels[(networks, parts)](
        values, partial_sums, pixels, triton.cdiv(pixels, parts), outputs, columns, max(1, 8192 // columns),
        num_warps=8,
    )  # fmt: skip
    return partial_sums.sum(dim=0)


def _stages(inputs: Tensor, elements: int, *, largest: int) -> int:
    """Return how many steps of the inner loop to prefetch, given the elements of one and the shared memory."""
    device = torch.cuda.get_device_properties(inputs.device)
    shared_memory = int(
        getattr(device, "shared_memory_per_block_optin", device.shared_memory_per_block)
    )  # older versions of torch lack the first
    return max(1, min(largest, shared_memory // (elements * inputs.itemsize)))


def _tile_side(length: int, *, largest: int) -> int:
    """Return the power of two that covers a side, or the largest allowed."""
    power: int = triton.next_power_of_2(length)
    return min(largest, power)


@triton.jit
def _convolve(
    inputs, weight, product, rows, SHARED: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OUT: tl.constexpr, h: tl.constexpr, w: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    network = tl.program_id(2).to(tl.int64)
    if not SHARED:
        inputs += network * rows * C
    weight += network * (h * w * C * OUT)
    product += network * rows * OUT
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    y, x = row // W % H, row % W
    channel_blocks: tl.constexpr = (C + CHANNELS - 1) // CHANNELS
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(h * w * channel_blocks):
        offset = step // channel_blocks
        channel = step % channel_blocks * CHANNELS + tl.arange(0, CHANNELS)
        down, right = offset // w - h // 2, offset % w - w // 2
        inside = (row < rows) & (y + down >= 0) & (y + down < H) & (x + right >= 0) & (x + right < W)
        pixels = tl.load(
            inputs + (row + down * W + right)[:, None] * C + channel[None, :],
            mask=inside[:, None] & (channel < C)[None, :],
            other=0.0,
        )
        kernel = tl.load(
            weight + (offset * C + channel)[:, None] * OUT + column[None, :],
            mask=(channel < C)[:, None] & (column < OUT)[None, :],
            other=0.0,
        )
        total = tl.dot(pixels, kernel, total, input_precision="ieee")  # float32 is not rounded to TF32
    tl.store(
        product + row[:, None] * OUT + column[None, :],
        total.to(product.dtype.element_ty),
        mask=(row < rows)[:, None] & (column < OUT)[None, :],
    )


@triton.jit
def _weight_gradient(
    inputs, gradient, partial_sums, rows, rows_per_part, networks, SHARED: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OUT: tl.constexpr, h: tl.constexpr, w: tl.constexpr,
    CHANNELS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    channel_blocks: tl.constexpr = (C + CHANNELS - 1) // CHANNELS
    offset = tl.program_id(0) // channel_blocks
    channel = tl.program_id(0) % channel_blocks * CHANNELS + tl.arange(0, CHANNELS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    network = (tl.program_id(2) % networks).to(tl.int64)
    first = tl.program_id(2) // networks * rows_per_part
    if not SHARED:
        inputs += network * rows * C
    gradient += network * rows * OUT
    down, right = offset // w - h // 2, offset % w - w // 2
    total = tl.zeros((CHANNELS, COLUMNS), dtype=tl.float32)
    last = tl.minimum(first + rows_per_part, rows)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        y, x = row // W % H, row % W
        inside = (row < last) & (y + down >= 0) & (y + down < H) & (x + right >= 0) & (x + right < W)
        pixels = tl.load(
            inputs + (row + down * W + right)[:, None] * C + channel[None, :],
            mask=inside[:, None] & (channel < C)[None, :],
            other=0.0,
        )
        output_gradient = tl.load(
            gradient + row[:, None] * OUT + column[None, :],
            mask=(row < last)[:, None] & (column < OUT)[None, :],
            other=0.0,
        )
        total = tl.dot(pixels.trans(), output_gradient, total, input_precision="ieee")
    partial_sums += tl.program_id(2).to(tl.int64) * (h * w * C * OUT)
    tl.store(
        partial_sums + (offset * C + channel)[:, None] * OUT + column[None, :],
        total,
        mask=(channel < C)[:, None] & (column < OUT)[None, :],
    )


@triton.jit
def _sum_over_pixels(
    values, partial_sums, rows, rows_per_part, OUT: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    network, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    values += network * rows * OUT
    column = tl.arange(0, COLUMNS)
    first = part * rows_per_part
    last = tl.minimum(first + rows_per_part, rows)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        total += tl.load(
            values + row[:, None] * OUT + column[None, :],
            mask=(row < last)[:, None] & (column < OUT)[None, :],
            other=0.0,
        ).to(tl.float32)
    tl.store(
        partial_sums + (part * tl.num_programs(0) + network) * OUT + column, tl.sum(total, axis=0), mask=column < OUT
    )
