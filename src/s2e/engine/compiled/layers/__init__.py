"""Layers of G networks as one batched product, where vectorising them operation by operation is slow.

Inside `vmap`, rules of this package replace torch's own for the layers that dominate a training step. There is one for
the loss as well, which is computed for all networks at once outside `vmap`. The rules are differentiable operations,
written for a compiler. They control the memory layout: a gradient has the layout of its parameter, and images have
their channels last.

| name | shape | what |
|---|---|---|
| inputs | (B, I), (B, C, H, W) | of one network, or shared by all |
| weight | (G, O, I), (G, O, C, h, w) | of all networks |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from s2e.engine.compiled.layers.convolution import conv2d
from s2e.engine.compiled.layers.linear import linear
from s2e.engine.compiled.layers.losses import cross_entropy
from s2e.engine.compiled.layers.normalisation import batch_norm
from s2e.engine.compiled.layers.pooling import max_pool2d

__all__ = ["BatchedLayers"]


class BatchedLayers(TorchFunctionMode):
    """While active, layers inside `vmap`, and the loss, are computed by the rules of this package.

    Args:
        bfloat16: multiply in bfloat16 (and add in float32) in convolutions, and in the products that compute gradients
            of weights from shared inputs; everything else stays in float32.
    """

    def __init__(self, *, bfloat16: bool) -> None:
        super().__init__()
        self._product_dtype = torch.bfloat16 if bfloat16 else torch.float32

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace calls that have a rule; a rule returns None where it does not apply."""
        named, rule = kwargs or {}, _RULES.get(function)
        output = None if rule is None else rule(self._product_dtype, *args, **named)
        return function(*args, **named) if output is None else output


_RULES: dict[Any, Callable[..., Tensor | None]] = {
    functional.linear: linear,
    functional.conv2d: conv2d,
    functional.max_pool2d: max_pool2d,
    functional.batch_norm: batch_norm,
    functional.cross_entropy: cross_entropy,
}
