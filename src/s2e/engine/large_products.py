"""Batched matrix products on a CPU, of which large ones may be shared by several threads.

How a product is rounded may depend on the number of threads that share it. A member must not depend on how many others
are trained beside it, so each operation on stacked networks is computed by one thread. Large products are an exception:
their result does not depend on the number of threads if all their sizes are multiples of the widest vector, which
`tests/engine/test_large_products.py` holds for the library that the tests run with.

| name | shape | what |
|---|---|---|
| weight, bias | (G, O, I), (G, O) | of all networks |
| features | (G, I, B) | samples are the last axis |
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import torch
from torch import Tensor

from s2e.engine.aligned_rows import ALIGNMENT

LARGE_FLOPS = 2.5e7
"""Floating-point operations of all networks from which a product counts as large: a quarter of a millisecond.

To wake a sleeping thread takes 50 microseconds, as long as half of a product of 8 million operations."""

_allowed = local()


@contextmanager
def threads_for_large_products(count: int) -> Iterator[None]:
    """Let large products that this thread computes use a number of threads."""
    _allowed.threads = count
    try:
        yield
    finally:
        del _allowed.threads


def linear(weight: Tensor, features: Tensor, bias: Tensor | None) -> Tensor:
    """Return weight · features + bias, (G, O, B)."""
    networks, outputs, inputs = weight.shape
    if _allowed_count() > 1 and _is_large(networks, outputs, inputs, features.shape[2]):
        product: Tensor = _LargeLinear.apply(weight, features, bias)  # type: ignore[no-untyped-call]
        return product
    return _linear(weight, features, bias)


def _linear(weight: Tensor, features: Tensor, bias: Tensor | None) -> Tensor:
    return torch.bmm(weight, features) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, features)


class _LargeLinear(torch.autograd.Function):
    """`linear` with all allowed threads in its own products and in those of its derivatives."""

    @staticmethod
    def forward(weight: Tensor, features: Tensor, bias: Tensor | None) -> Tensor:
        with all_allowed_threads():
            return _linear(weight, features, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:  # noqa: ARG004
        weight, features, _ = inputs
        ctx.save_for_backward(weight, features)
        ctx.save_for_forward(weight, features)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        weight, features = ctx.saved_tensors
        with all_allowed_threads():
            of_weight = torch.bmm(gradient, features.mT) if ctx.needs_input_grad[0] else None
            of_features = torch.bmm(weight.mT, gradient) if ctx.needs_input_grad[1] else None
        of_bias = gradient.sum(dim=2) if ctx.needs_input_grad[2] else None
        return of_weight, of_features, of_bias

    @staticmethod
    def jvp(ctx: Any, weight: Tensor | None, features: Tensor | None, bias: Tensor | None) -> Tensor:
        own_weight, own_features = ctx.saved_tensors
        with all_allowed_threads():
            tangent = torch.zeros(len(own_weight), own_weight.shape[1], own_features.shape[2])
            if weight is not None:
                tangent = tangent + torch.bmm(weight, own_features)
            if features is not None:
                tangent = tangent + torch.bmm(own_weight, features)
        return tangent if bias is None else tangent + bias.unsqueeze(2)


def _allowed_count() -> int:
    return getattr(_allowed, "threads", 1)


@contextmanager
def all_allowed_threads() -> Iterator[None]:
    """Use all threads that are allowed for large products; for operations whose result does not depend on them."""
    before, count = torch.get_num_threads(), _allowed_count()
    if count <= before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_large(networks: int, rows: int, inner: int, columns: int) -> bool:
    flops = 2.0 * networks * rows * inner * columns
    return flops >= LARGE_FLOPS and not any(size % ALIGNMENT for size in (rows, inner, columns))
