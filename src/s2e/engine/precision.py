"""Number formats of the products in a training; weights, optimizer states, losses and records are always float32.

| name | on a CPU | on a GPU |
|---|---|---|
| auto | float32 | tf32; in compiled steps bfloat16 in convolutions and in gradients of weights by shared inputs |
| float32 | float32 | float32 |
| bfloat16 | linear layers and convolutions in bfloat16, and activations between them | the same |

"auto" minus float32, in points of accuracy, mean ± standard error, on MNIST with 50 % symmetric noise and one H200
(`benchmarks/speed.py agreement`): 0.003 ± 0.009 (MLP, 20 epochs, 100 seeds), −0.059 ± 0.036 (CNN, 4 epochs, ten seeds).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from s2e.engine.process_setting import ProcessSetting
from s2e.errors import unknown_name

PRECISIONS = ("auto", "float32", "bfloat16")


def check_precision(precision: str) -> str:
    """Return the name of a precision; raise `InvalidInput` for any other."""
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    return precision


@contextmanager
def product_precision(precision: str) -> Iterator[None]:
    """Set the format in which a GPU multiplies float32 matrices; without effect on a CPU."""
    full = precision == "float32"
    with _TF32.kept():
        _set_tf32(("highest" if full else "high", not full))
        yield


def _tf32() -> tuple[str, bool]:
    """Return the format of matrix products, and whether convolutions use tf32."""
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def _set_tf32(setting: tuple[str, bool]) -> None:
    torch.set_float32_matmul_precision(setting[0])
    torch.backends.cudnn.allow_tf32 = setting[1]


_TF32 = ProcessSetting(_tf32, _set_tf32, RLock())


def forward_precision(
    precision: str, device: torch.device, *, vectorized: bool = False
) -> AbstractContextManager[object]:
    """Return the context of a forward pass in a precision, of one network or of `vectorized` ones inside vmap."""
    if precision != "bfloat16":
        return nullcontext()
    if vectorized:
        return Bfloat16Layers()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)  # weights change in every step


class Bfloat16Layers(TorchFunctionMode):
    """While active, products are computed in bfloat16, and normalisation and softmax in float32.

    It is the part of torch's autocast that networks need, for operations inside vmap, which autocast does not reach.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Cast the arguments of calls that need a format; normalisation returns the format of its inputs."""
        named = kwargs or {}
        dtype = torch.bfloat16 if function in _PRODUCTS else torch.float32 if function in _IN_FLOAT32 else None
        if dtype is None:
            return function(*args, **named)
        own = {name: _cast(value, dtype) for name, value in named.items()}
        output = function(*(_cast(value, dtype) for value in args), **own)
        return output.to(args[0].dtype) if function in _NORMALISATIONS else output


_PRODUCTS = {
    functional.linear,
    functional.conv1d,
    functional.conv2d,
    functional.conv3d,
    functional.scaled_dot_product_attention,
    torch.bmm,
    torch.matmul,
    torch.mm,
    Tensor.matmul,
    Tensor.__matmul__,
}
_NORMALISATIONS = {functional.batch_norm, functional.group_norm, functional.instance_norm, functional.layer_norm}
_IN_FLOAT32 = _NORMALISATIONS | {functional.softmax, functional.log_softmax, torch.softmax, torch.log_softmax}


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
