"""The ready callbacks, with the real libraries, offline: what is written can be read back."""

from __future__ import annotations

import copy
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import s2e
import wandb_files
from s2e.callbacks import CALLBACKS, MLflowCallback, RunStarted, TensorBoardCallback, WandbCallback, callbacks_of
from s2e.errors import InvalidInput, InvalidType
from small_tasks import blobs, small_mlp

TRAIN, VALID = blobs(), blobs(96, wrong=0.0, seed=1)
SMALL: dict[str, Any] = {"network": small_mlp, "epochs": 3, "batch_size": 32, "learning_rate": 1e-2}
SMALL |= {"trials": 4, "generation_size": 2, "space": "coteaching", "sampler": "random"}
BEST = "search/best_validation_accuracy"


def search(*callbacks: Any) -> s2e.SearchResult:
    return s2e.search(TRAIN, VALID, callbacks=list(callbacks), **SMALL)


def accuracies(found: s2e.SearchResult, member: int) -> list[float]:
    """The validation accuracies of the trials that one member of the population trained, one after the other."""
    trials = found.study.trials[member::2]
    return [accuracy for trial in trials for accuracy in trial.user_attrs["validation_accuracy"]]


def events(directory: Path) -> dict[str, list[tuple[int, float]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    read = EventAccumulator(str(directory))
    read.Reload()
    return {name: [(each.step, each.value) for each in read.Scalars(name)] for name in read.Tags()["scalars"]}


# ------------------------------------------------------------------------------------------------------- TensorBoard


def test_tensorboard_has_the_curves_of_all_trials_and_the_best_accuracy(tmp_path: Path) -> None:
    found = search(TensorBoardCallback(tmp_path))
    written = events(tmp_path)
    for member in (0, 1):
        steps, values = zip(*written[f"search/valid_accuracy/member_{member}"], strict=True)
        assert steps == (1, 2, 3, 4, 5, 6)
        np.testing.assert_allclose(values, accuracies(found, member), atol=1e-6)
    assert [step for step, _ in written[BEST]] == [2, 4]
    assert written[BEST][-1][1] == pytest.approx(found.validation_accuracy)
    assert written["result/validation_accuracy"] == [(0, pytest.approx(found.validation_accuracy))]


def test_a_training_is_one_member(tmp_path: Path) -> None:
    trained = s2e.train(
        TRAIN,
        [1.0, 0.5],
        evaluate={"valid": VALID},
        network=small_mlp,
        batch_size=32,
        callbacks=[f"tensorboard:{tmp_path}"],
    )
    written = events(tmp_path)
    assert [step for step, _ in written["training/loss/member_0"]] == [1, 2]
    np.testing.assert_allclose([loss for _, loss in written["training/loss/member_0"]], trained.curves.loss[0])
    assert written["result/valid_accuracy"][0][1] == pytest.approx(trained.curves.last("valid")[0])


def test_classifier_logs_every_stage(tmp_path: Path) -> None:
    classifier = s2e.S2EClassifier(
        network=small_mlp,
        n_trials=2,
        epochs=2,
        restarts=1,
        generation_size=2,
        random_state=0,
        final_estimator=None,
        callbacks=[TensorBoardCallback(tmp_path)],
    )
    classifier.fit(TRAIN.inputs, TRAIN.labels)
    stages = {name.partition("/")[0] for name in events(tmp_path)}
    assert stages == {"relabelling_validation", "search", "final_training", "result"}
    assert events(tmp_path)["result/validation_accuracy"][0][1] == pytest.approx(classifier.validation_accuracy_)
    assert clone(classifier).callbacks[0].directory == tmp_path
    classifier.save(tmp_path / "saved.safetensors")
    assert s2e.S2EClassifier.load(tmp_path / "saved.safetensors", network=small_mlp).callbacks is None


# ------------------------------------------------------------------------------------------------------------ MLflow


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of MLflow about its own libraries
def test_mlflow_has_parameters_metrics_and_the_status_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    logger = MLflowCallback(uri, run_name="small")
    found = search(logger)
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    run = client.get_run(logger.run_id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "small")
    assert (run.data.params["trials"], run.data.params["sampler"]) == ("4", "random")
    assert run.data.metrics["result/validation_accuracy"] == pytest.approx(found.validation_accuracy)
    history = client.get_metric_history(logger.run_id, "search/valid_accuracy/member_1")
    assert [each.step for each in history] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose([each.value for each in history], accuracies(found, 1), atol=1e-6)
    first = logger.run_id
    with pytest.raises(s2e.TrainingDiverged):
        s2e.search(TRAIN, VALID, callbacks=[logger], **{**SMALL, "learning_rate": 1e35})
    assert logger.run_id != first
    assert client.get_run(logger.run_id).info.status == "FAILED"


# ------------------------------------------------------------------------------------------------- Weights & Biases


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of wandb about its own libraries
def test_wandb_has_configuration_history_and_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    found = search(WandbCallback(mode="offline", directory=tmp_path))
    history, config, summary, code = wandb_files.read(tmp_path)
    assert (config["trials"], config["sampler"], code) == (4, "random", 0)
    member = [row for row in history if "search/valid_accuracy/member_1" in row]
    assert [row["search/epoch"] for row in member] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(
        [row["search/valid_accuracy/member_1"] for row in member], accuracies(found, 1), atol=1e-6
    )
    assert [(row["search/trial"]) for row in history if BEST in row] == [2, 4]
    assert summary["result/validation_accuracy"] == pytest.approx(found.validation_accuracy)


# ------------------------------------------------------------------------------------------------------------ failures


class Failing(TensorBoardCallback):
    """Its disk is full after the first values."""

    def write(self, scalars, axis, step):
        if step > 1:
            raise OSError("No space left on device")
        super().write(scalars, axis, step)


def test_a_logger_that_fails_is_named_once_and_does_not_end_the_search(tmp_path: Path) -> None:
    with pytest.warns(s2e.errors.S2EWarning, match="^Failing failed, nothing more is written to it: No space") as lines:
        found = search(Failing(tmp_path))
    assert found.status is s2e.Status.COMPLETE
    assert len(lines) == 1


@pytest.mark.filterwarnings("ignore")  # those of MLflow about its own libraries
def test_a_record_that_cannot_begin_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"TensorBoardCallback could not begin a record: .*exists"):
        search(TensorBoardCallback(tmp_path / "file"))
    with pytest.raises(InvalidInput, match=r"MLflowCallback could not begin a record: .*nonsense"):
        search(MLflowCallback("nonsense://host"))


@pytest.mark.parametrize("name", list(CALLBACKS))
def test_a_missing_library_is_one_line_with_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidInput, match=rf"pip install 's2e\[{name}\]'"):
        callbacks_of([name])


def test_other_objects_are_refused() -> None:
    cases: list[tuple[Any, str]] = [
        ("tensorboard", "`callbacks` must be a list of callbacks, but got str"),
        (s2e.Callback(), "must be a list of callbacks, but got Callback"),
        ([s2e.Callback], "objects of s2e.Callback, but got the class Callback"),
        ([print], "objects of s2e.Callback, but got builtin_function_or_method"),
    ]
    for given, message in cases:
        with pytest.raises(InvalidType, match=message):
            callbacks_of(given)
    with pytest.raises(InvalidInput, match=r"`log` must be one of tensorboard, .*, but got 'tensorbord'"):
        callbacks_of(["tensorbord:x"], "log")
    with pytest.raises(InvalidInput, match="`callbacks` must be NAME or NAME:WHERE, but got 'mlflow:'"):
        callbacks_of(["mlflow:"])


def test_a_callback_by_name_gets_the_text_after_the_colon() -> None:
    (logger,) = callbacks_of(["mlflow:http://user@host:5000/path"])
    assert isinstance(logger, MLflowCallback)
    assert logger.tracking_uri == "http://user@host:5000/path"
    (plain,) = callbacks_of(["wandb"])
    assert isinstance(plain, WandbCallback)
    assert plain.project == "s2e"


def test_loggers_can_be_copied_before_and_after_a_run(tmp_path: Path) -> None:
    logger = TensorBoardCallback(tmp_path)
    for _ in range(2):
        for copied in (copy.deepcopy(logger), pickle.loads(pickle.dumps(logger))):
            assert copied.directory == tmp_path
        s2e.train(TRAIN, [1.0], network=small_mlp, batch_size=32, callbacks=[logger])


def test_in_python_the_directory_is_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    logger = TensorBoardCallback()
    logger.on_start(RunStarted("train", {"seed": 0}))
    logger.on_stage("training", 1)
    logger.on_end(s2e.RunEnded())
    assert list((tmp_path / "tensorboard").iterdir())
