"""`s2e train`: one training with a given schedule."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from frequent_checkpoints import Killed, in_every_run, kill_at
from listeners import Log
from s2e.callbacks import FunctionCallback
from s2e.errors import InvalidInput
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.workflows.progress import CallbackListener
from s2e.workflows.train import train
from small_runs import EPOCHS, file_names, result, save_clusters, train_options
from small_tasks import TRANSITION, blobs

FILES = {
    "config.json",
    "schedule.json",
    "curves.npz",
    "dynamics.npz",
    "columns.json",
    "encoding.json",
    "model.safetensors",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_clusters(tmp_path_factory.mktemp("data") / "own.npz")


def networks_in(run: Run) -> set[str]:
    return {key.partition(".")[0] for key in load_file(run.path / "model.safetensors")}


def test_training_is_one_stage_and_leaves_no_study(data: str, tmp_path: Path) -> None:
    log = Log()
    run = train(train_options(data, epochs=12), RunLocation(tmp_path), log)
    assert file_names(run) == FILES | {"result.json", ".lock"}
    assert log.stages == [("training", 12)]
    assert [progress.epoch for progress in log.epochs] == list(range(1, 13))
    (row,) = result(run)["methods"]
    assert (row["name"], row["method"], row["searched"]) == ("coteaching", "coteaching", False)
    assert row["test"]["last_10_epochs"] > 0.5
    assert networks_in(run) == {"network0", "network1"}
    np.testing.assert_allclose(run.read_json("schedule.json")["keep_rates"][:2], [1, 0.97])


def test_method_without_a_keep_rate_needs_no_schedule(data: str, tmp_path: Path) -> None:
    run = train(train_options(data, method="standard", schedule=""), RunLocation(tmp_path))
    assert run.read_json("schedule.json")["keep_rates"] == [1.0] * EPOCHS
    assert networks_in(run) == {"network0"}


def test_transition_matrix_is_given_or_estimated(data: str, tmp_path: Path) -> None:
    np.savetxt(tmp_path / "matrix.csv", TRANSITION, delimiter=",")
    given = {"method": "f-correction", "schedule": ""}
    exact = train(train_options(data, transition=str(tmp_path / "matrix.csv"), **given), RunLocation(tmp_path / "one"))
    log = Log()
    estimated = train(train_options(data, **given), RunLocation(tmp_path / "two"), log)
    assert log.stages == [("training", 2 * EPOCHS)]
    stored = [np.loadtxt(run.path / "transition.csv", delimiter=",") for run in (exact, estimated)]
    np.testing.assert_allclose(stored[0], TRANSITION)
    np.testing.assert_allclose(stored[1].sum(axis=1), 1)


def test_noisy_validation_samples_are_recorded_for_the_audit(data: str, tmp_path: Path) -> None:
    run = train(train_options(data, validation="noisy", epochs=1), RunLocation(tmp_path))
    assert len(run.read_arrays("dynamics.npz")["labels"]) == sum(
        result(run)["samples"][part] for part in ("train", "valid")
    )


def test_divergence_is_reported_in_valid_json(data: str, tmp_path: Path) -> None:
    run = train(train_options(data, learning_rate=1e35), RunLocation(tmp_path))
    (row,) = result(run)["methods"]
    assert (row["diverged"], result(run)["status"]) == (True, "some members diverged")
    assert row["test"]["last_10_epochs"] == row["valid"]["last_10_epochs"] == 0

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    json.loads((run.path / "result.json").read_text(), parse_constant=refuse)


def test_all_problems_of_the_data_are_reported_at_once(tmp_path: Path) -> None:
    few = blobs(24)
    np.savez(tmp_path / "few.npz", X=few.inputs, y=few.labels, class_names=["a", "b", "c", "d", "empty"])
    with pytest.raises(InvalidInput, match=r"`batch_size` must not exceed.*every class must have.*empty"):
        train(train_options(str(tmp_path / "few.npz")), RunLocation(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_killed_training_resumes_where_it_was(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_every_run(monkeypatch)
    whole = train(train_options(data), RunLocation(tmp_path / "whole"))
    log, location = Log(), RunLocation(tmp_path / "run")
    with pytest.raises(Killed):
        train(train_options(data), location, CallbackListener([FunctionCallback(on_epoch=kill_at(3))]))
    assert len(list(location.checkpoints.directory.iterdir())) == 1
    run = train(train_options(data), location, log, resume=True)
    assert [record.args for record in caplog.records] == [(1, 2, EPOCHS)]
    assert [progress.epoch for progress in log.epochs] == list(range(1, EPOCHS + 1))
    assert file_names(run) == file_names(whole)
    for name in ("model.safetensors", "schedule.json", "curves.npz"):
        assert (run.path / name).read_bytes() == (whole.path / name).read_bytes(), name
    np.testing.assert_equal(run.read_arrays("dynamics.npz"), whole.read_arrays("dynamics.npz"))
