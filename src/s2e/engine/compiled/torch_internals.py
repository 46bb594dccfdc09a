"""Everything this package uses of torch that torch does not document: reached from here alone.

`tests/engine/compiled/test_torch_internals.py` fails when torch changes one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.optim.adam import adam


def fused_adam_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    first_moments: Sequence[Tensor],
    second_moments: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """Update parameters, moments and step counts (0-d float tensors) in place, with the kernel of `Adam(fused=True)`."""
    adam(
        list(parameters),
        list(gradients),
        list(first_moments),
        list(second_moments),
        [],
        list(steps),
        fused=True,
        amsgrad=False,
        beta1=beta1,
        beta2=beta2,
        lr=learning_rate,
        weight_decay=0.0,
        eps=epsilon,
        maximize=False,
    )


def set_module_tensor(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Make any tensor the parameter or buffer of a dotted name, without wrapping it in `nn.Parameter`."""
    path, _, own = name.rpartition(".")
    holder = module.get_submodule(path)
    held = holder._parameters if own in holder._parameters else holder._buffers
    held[own] = tensor  # type: ignore[assignment]
