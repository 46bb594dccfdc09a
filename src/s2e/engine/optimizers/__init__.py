"""Optimizers over stacked parameters, one file each behind one interface: Adam, AdamW, SGD and RMSProp."""

from s2e.engine.optimizers.adam import Adam
from s2e.engine.optimizers.adamw import AdamW
from s2e.engine.optimizers.interface import Optimizer, Rows, StackedOptimizer, StoredOptimizer
from s2e.engine.optimizers.names import OPTIMIZERS, optimizer_of
from s2e.engine.optimizers.rmsprop import RMSProp
from s2e.engine.optimizers.row_optimizer import build_together, check_optimizers
from s2e.engine.optimizers.sgd import SGD

__all__ = [
    "OPTIMIZERS",
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "RMSProp",
    "Rows",
    "StackedOptimizer",
    "StoredOptimizer",
    "build_together",
    "check_optimizers",
    "optimizer_of",
]
