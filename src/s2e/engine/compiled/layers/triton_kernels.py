"""The kernels of `at_once`, for a GPU.

The pixels of all images of a network are the rows of a matrix (rows, C). What an output sees at one place of the window
is that matrix, moved by a number of rows that is the same for every output, with zeros where the window leaves the
image. So a convolution is a product over places and channels, and nothing is ever copied.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BYTES_AT_ONCE = 128
"""Of a row of each side that a product takes in before it goes on to the next."""
ENOUGH_TILES = 512
"""Products in one call that keep a GPU busy."""
FEWEST_PIXELS = 1024
"""Of a part that is added up by itself."""


def forward(inputs: Tensor, weight: Tensor) -> Tensor:
    """Convolve inputs (G or 1, B, H, W, C) with weights (G, h, w, C, O); contiguous, C and O multiples of 16."""
    shared, batch, height, width, channels = inputs.shape
    networks, *window, _, outputs = weight.shape
    rows = batch * height * width
    made = inputs.new_empty(networks, *inputs.shape[1:-1], outputs)
    tile = (128, _side(outputs, most=256), _side(channels, most=BYTES_AT_ONCE // inputs.itemsize))
    grid = (triton.cdiv(rows, tile[0]), triton.cdiv(outputs, tile[1]), networks)
    _forward[grid](
        inputs, weight, made, rows, shared == 1, height, width, channels, outputs, *window, *tile,
        num_warps=8 if tile[1] > 128 else 4, num_stages=_stages(inputs, (tile[0] + tile[1]) * tile[2], most=3),
    )  # fmt: skip
    return made


def gradient_of_weights(inputs: Tensor, gradient: Tensor, height: int, width: int) -> Tensor:
    """Return the gradient of the weights, (G, O, C, height, width), by that of the outputs (G, B, H, W, O)."""
    shared, batch, rows, columns, channels = inputs.shape
    networks, outputs = len(gradient), gradient.shape[-1]
    pixels = batch * rows * columns
    tile = (_side(channels, most=128), _side(outputs, most=128), BYTES_AT_ONCE // inputs.itemsize)
    tiles = (height * width * triton.cdiv(channels, tile[0]), triton.cdiv(outputs, tile[1]))
    parts = _parts(tiles[0] * tiles[1] * networks, pixels)
    size = (parts, networks, height, width, channels, outputs)
    made = torch.empty(size, dtype=torch.float32, device=inputs.device)
    _gradient_of_weights[(*tiles, networks * parts)](
        inputs, gradient, made, pixels, triton.cdiv(pixels, parts), networks, shared == 1, rows, columns,
        channels, outputs, height, width, *tile,
        num_warps=4, num_stages=_stages(inputs, (tile[0] + tile[1]) * tile[2], most=4),
    )  # fmt: skip
    return made.sum(dim=0).permute(0, 4, 3, 1, 2).contiguous()


def sums_over_pixels(values: Tensor) -> Tensor:
    """Add up (G, B, H, W, O) over the pixels of all images, (G, O) in float32."""
    networks, outputs = len(values), values.shape[-1]
    pixels = values.shape[1:4].numel()
    parts = _parts(networks, pixels)
    made = torch.empty((parts, networks, outputs), dtype=torch.float32, device=values.device)
    columns = triton.next_power_of_2(outputs)
    _sums_over_pixels[(networks, parts)](
        values, made, pixels, triton.cdiv(pixels, parts), outputs, columns, max(1, 8192 // columns), num_warps=8
    )
    return made.sum(dim=0)


def _parts(tiles: int, pixels: int) -> int:
    """In how many parts to add up over pixels, so that every processor has something to do."""
    parts = 1
    while tiles * parts < ENOUGH_TILES and pixels >= 2 * parts * FEWEST_PIXELS:
        parts *= 2
    return parts


def _stages(inputs: Tensor, elements: int, *, most: int) -> int:
    """How many steps ahead to fetch, each so many elements, where they go into a processor's own memory."""
    device = torch.cuda.get_device_properties(inputs.device)
    room = int(
        getattr(device, "shared_memory_per_block_optin", device.shared_memory_per_block)
    )  # not every torch has it
    return max(1, min(most, room // (elements * inputs.itemsize)))


def _side(length: int, *, most: int) -> int:
    """A power of two that covers a side, or a part of it."""
    power: int = triton.next_power_of_2(length)
    return min(most, power)


@triton.jit
def _forward(
    inputs, weight, made, rows, SHARED: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, N: tl.constexpr, h: tl.constexpr, w: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    network = tl.program_id(2).to(tl.int64)
    if not SHARED:
        inputs += network * rows * C
    weight += network * (h * w * C * N)
    made += network * rows * N
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    y, x = row // W % H, row % W
    chunks: tl.constexpr = (C + CHANNELS - 1) // CHANNELS
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(h * w * chunks):
        place = step // chunks
        channel = step % chunks * CHANNELS + tl.arange(0, CHANNELS)
        down, right = place // w - h // 2, place % w - w // 2
        seen = (row < rows) & (y + down >= 0) & (y + down < H) & (x + right >= 0) & (x + right < W)
        left_side = tl.load(
            inputs + (row + down * W + right)[:, None] * C + channel[None, :],
            mask=seen[:, None] & (channel < C)[None, :],
            other=0.0,
        )
        right_side = tl.load(
            weight + (place * C + channel)[:, None] * N + column[None, :],
            mask=(channel < C)[:, None] & (column < N)[None, :],
            other=0.0,
        )
        total = tl.dot(left_side, right_side, total, input_precision="ieee")  # of float32
    tl.store(
        made + row[:, None] * N + column[None, :],
        total.to(made.dtype.element_ty),
        mask=(row < rows)[:, None] & (column < N)[None, :],
    )


@triton.jit
def _gradient_of_weights(
    inputs, gradient, made, rows, rows_of_part, networks, SHARED: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, N: tl.constexpr, h: tl.constexpr, w: tl.constexpr,
    CHANNELS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    blocks: tl.constexpr = (C + CHANNELS - 1) // CHANNELS
    place = tl.program_id(0) // blocks
    channel = tl.program_id(0) % blocks * CHANNELS + tl.arange(0, CHANNELS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    network = (tl.program_id(2) % networks).to(tl.int64)
    first = tl.program_id(2) // networks * rows_of_part
    if not SHARED:
        inputs += network * rows * C
    gradient += network * rows * N
    down, right = place // w - h // 2, place % w - w // 2
    total = tl.zeros((CHANNELS, COLUMNS), dtype=tl.float32)
    last = tl.minimum(first + rows_of_part, rows)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        y, x = row // W % H, row % W
        seen = (row < last) & (y + down >= 0) & (y + down < H) & (x + right >= 0) & (x + right < W)
        left_side = tl.load(
            inputs + (row + down * W + right)[:, None] * C + channel[None, :],
            mask=seen[:, None] & (channel < C)[None, :],
            other=0.0,
        )
        right_side = tl.load(
            gradient + row[:, None] * N + column[None, :],
            mask=(row < last)[:, None] & (column < N)[None, :],
            other=0.0,
        )
        total = tl.dot(left_side.trans(), right_side, total, input_precision="ieee")
    made += tl.program_id(2).to(tl.int64) * (h * w * C * N)
    tl.store(
        made + (place * C + channel)[:, None] * N + column[None, :],
        total,
        mask=(channel < C)[:, None] & (column < N)[None, :],
    )


@triton.jit
def _sums_over_pixels(
    values, made, rows, rows_of_part, N: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    network, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    values += network * rows * N
    column = tl.arange(0, COLUMNS)
    first = part * rows_of_part
    last = tl.minimum(first + rows_of_part, rows)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        total += tl.load(
            values + row[:, None] * N + column[None, :],
            mask=(row < last)[:, None] & (column < N)[None, :],
            other=0.0,
        ).to(tl.float32)
    tl.store(made + (part * tl.num_programs(0) + network) * N + column, tl.sum(total, axis=0), mask=column < N)
