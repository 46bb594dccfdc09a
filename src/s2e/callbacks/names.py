"""Callbacks by name, as the command line takes them: `tensorboard:DIR`, `mlflow:URI`, `wandb:PROJECT`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from s2e.callbacks.interface import Callback
from s2e.callbacks.mlflow import MLflowCallback
from s2e.callbacks.tensorboard import TensorBoardCallback
from s2e.callbacks.wandb import WandbCallback
from s2e.errors import InvalidInput, InvalidType, unknown_name

CALLBACKS: dict[str, Callable[..., Callback]] = {
    "tensorboard": TensorBoardCallback,
    "mlflow": MLflowCallback,
    "wandb": WandbCallback,
}
"""The ready callbacks; the text after a colon is their first argument."""


def callbacks_of(given: Sequence[str | Callback] | None, parameter: str = "callbacks") -> list[Callback]:
    """Return callbacks given by name or as objects; a library that is missing is reported here.

    Args:
        given: names such as "tensorboard" or "mlflow:sqlite:///mlflow.db", and objects.
        parameter: name of the parameter, for messages.
    """
    if given is None:
        return []
    if isinstance(given, (str, Callback)) or not isinstance(given, Sequence):
        raise InvalidType(f"`{parameter}` must be a list of callbacks, but got {type(given).__name__}.")
    return [_callback(each, parameter) for each in given]


def _callback(given: str | Callback, parameter: str) -> Callback:
    if isinstance(given, Callback):
        return given
    if not isinstance(given, str):
        kind = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise InvalidType(f"`{parameter}` must hold names and objects of s2e.Callback, but got {kind}.")
    name, colon, argument = given.partition(":")
    if name not in CALLBACKS:
        raise unknown_name(parameter, name, CALLBACKS)
    if colon and not argument:
        raise InvalidInput(f"`{parameter}` must be NAME or NAME:WHERE, but got {given!r}.")
    return CALLBACKS[name](argument) if colon else CALLBACKS[name]()
