"""The population engine: trains members in lockstep, on a CPU or a GPU. All training in this package uses it."""

from s2e.engine.augmentation import Augmentation, augmentation_of, channel_statistics, check_images
from s2e.engine.checkpoints import Checkpoints
from s2e.engine.curves import LAST_EPOCHS, Curves, Dynamics
from s2e.engine.devices import resolve_device, resolve_devices
from s2e.engine.epoch_timing import epoch_seconds
from s2e.engine.inference import Classifier, parts_of, predictions
from s2e.engine.learning_rates import LearningRatePlan, check_plan, plan_of
from s2e.engine.onnx_export import export_onnx
from s2e.engine.optimizers import Optimizer, StackedOptimizer, optimizer_of
from s2e.engine.precision import check_precision
from s2e.engine.restarts import FinalTraining, SelectedRestart, train_restarts
from s2e.engine.scores import ACCURACY, BALANCED_ACCURACY, SCORES, Score, score_of
from s2e.engine.step_timing import MAX_SLOWDOWN, step_seconds
from s2e.engine.task import VALIDATION, EpochFinished, Executor, Member, Task, Trained, check_task, modules_of
from s2e.engine.training import Trainer, leaves_threads_idle, train_population
from s2e.engine.two_stage import stages_needed, train_in_two_stages

__all__ = [
    "ACCURACY",
    "BALANCED_ACCURACY",
    "LAST_EPOCHS",
    "MAX_SLOWDOWN",
    "SCORES",
    "VALIDATION",
    "Augmentation",
    "Checkpoints",
    "Classifier",
    "Curves",
    "Dynamics",
    "EpochFinished",
    "Executor",
    "FinalTraining",
    "LearningRatePlan",
    "Member",
    "Optimizer",
    "Score",
    "SelectedRestart",
    "StackedOptimizer",
    "Task",
    "Trained",
    "Trainer",
    "augmentation_of",
    "channel_statistics",
    "check_images",
    "check_plan",
    "check_precision",
    "check_task",
    "epoch_seconds",
    "export_onnx",
    "leaves_threads_idle",
    "modules_of",
    "optimizer_of",
    "parts_of",
    "plan_of",
    "predictions",
    "resolve_device",
    "resolve_devices",
    "score_of",
    "stages_needed",
    "step_seconds",
    "train_in_two_stages",
    "train_population",
    "train_restarts",
]
