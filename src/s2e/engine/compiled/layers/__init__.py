"""Layers of G networks as one product, where vectorising them operation by operation would be slow.

Inside `vmap` a rule here replaces torch's own for the layers that take the time of a training step; there is one for
the loss, too, which is taken of all networks at once anyway. The rules are plain differentiable operations, written
for a compiler. They see to the order of numbers in memory: gradients come out of their products as what they belong to
lies there, and images have their channels last.

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

__all__ = ["AsOneProduct"]


class AsOneProduct(TorchFunctionMode):
    """While this is active, layers inside `vmap`, and the loss, follow the rules of this module.

    Args:
        narrow: convolutions, and the products that make gradients of shared inputs' weights, multiply in bfloat16 (and
            add in float32); everything else stays in float32.
    """

    def __init__(self, *, narrow: bool) -> None:
        super().__init__()
        self._type = torch.bfloat16 if narrow else torch.float32

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace the calls that have a rule; a rule returns None where it does not hold."""
        given, rule = kwargs or {}, _RULES.get(function)
        replaced = None if rule is None else rule(self._type, *args, **given)
        return function(*args, **given) if replaced is None else replaced


_RULES: dict[Any, Callable[..., Tensor | None]] = {
    functional.linear: linear,
    functional.conv2d: conv2d,
    functional.max_pool2d: max_pool2d,
    functional.batch_norm: batch_norm,
    functional.cross_entropy: cross_entropy,
}
