"""Callbacks of searches and trainings: the interface, and ready ones for TensorBoard, MLflow and Weights & Biases."""

from s2e.callbacks.interface import Callback, FunctionCallback, RunEnded, RunStarted
from s2e.callbacks.metric_logger import MetricLogger
from s2e.callbacks.mlflow import MLflowCallback
from s2e.callbacks.names import CALLBACKS, callbacks_of
from s2e.callbacks.scalars import result_scalars
from s2e.callbacks.tensorboard import TensorBoardCallback
from s2e.callbacks.wandb import WandbCallback

__all__ = [
    "CALLBACKS",
    "Callback",
    "FunctionCallback",
    "MLflowCallback",
    "MetricLogger",
    "RunEnded",
    "RunStarted",
    "TensorBoardCallback",
    "WandbCallback",
    "callbacks_of",
    "result_scalars",
]
