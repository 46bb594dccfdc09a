"""`s2e search`: its files, its results, its baselines, and runs that are resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from listeners import Log
from s2e import schedules
from s2e.data.preparing import Prepared, prepare
from s2e.data.samples import Splits, fingerprint
from s2e.engine.curves import LAST_EPOCHS
from s2e.networks.factories import reference_network
from s2e.runs import directory
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation
from s2e.schedules.spaces import SPACES
from s2e.specs import DataSpec, SearchOptions, assemble
from s2e.studies import best_trial, open_study
from s2e.workflows import pipeline
from s2e.workflows import search as workflow
from s2e.workflows.pipeline import RELABELLED
from s2e.workflows.search import search
from small_runs import EPOCHS, contents, file_names, result, save_clusters, search_options

ROW_KEYS = {"name", "method", "searched", "valid", "test", "label_precision", "diverged", "validation_of_restarts"}
RESULT_KEYS = {"methods", "epochs", "noise_rate", "validation", "samples", "device", "seconds", "search", "status"} | {
    "classifier",
    "estimated",
    "score",
}
QUICK: dict[str, Any] = {"baselines": False, "restarts": 1, "trials": 2, "epochs": 1, "models": False}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_clusters(tmp_path_factory.mktemp("data") / "own.npz")


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Data of a user: no true labels, no test part."""
    return save_clusters(tmp_path_factory.mktemp("data") / "own.npz", test=False, truth=False)


@pytest.fixture(scope="module")
def logged(data: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Log]:
    log = Log()
    return search(search_options(data), RunLocation(tmp_path_factory.mktemp("searched")), log), log


@pytest.fixture(scope="module")
def searched(logged: tuple[Run, Log]) -> Run:
    return logged[0]


def without_times(found: dict[str, Any]) -> dict[str, Any]:
    """Return a result without the times that were measured."""
    return {**found, "seconds": 0, "classifier": {**found["classifier"], "microseconds_per_sample": 0}}


def splits_of(data: str) -> Splits:
    return prepare(DataSpec(data), "none", 0, Path()).splits


# ------------------------------------------------------------------------------------------------------- the directory


def test_files_are_the_documented_ones(searched: Run) -> None:
    documented = [line.split("|")[1].strip() for line in (directory.__doc__ or "").splitlines() if line[:2] == "| "]
    assert file_names(searched) | {"models.safetensors"} == set(documented) - {"file"}


def test_config_repeats_the_command(searched: Run, data: str) -> None:
    config = searched.read_json(CONFIG)
    assert config["command"] == "search"
    given = search_options(data)
    decided = replace(given, training=replace(given.training, network="mlp:widths=64"))
    assert assemble(SearchOptions, config["options"]) == decided
    assert config["network"] == "mlp:widths=64"
    splits = splits_of(data)
    assert config["data_fingerprint"] == fingerprint(splits.train, splits.valid)


def test_same_options_give_the_same_run_and_another_seed_another(searched: Run, data: str, tmp_path: Path) -> None:
    again = search(search_options(data), RunLocation(tmp_path / "again"))
    other = search(search_options(data, seed=1), RunLocation(tmp_path / "other"))
    for name in ("schedule.json", "model.safetensors"):
        expected = (searched.path / name).read_bytes()
        assert (again.path / name).read_bytes() == expected, name
        assert (other.path / name).read_bytes() != expected, name
    assert result(again)["methods"] == result(searched)["methods"] != result(other)["methods"]


# ---------------------------------------------------------------------------------------------------------- the results


def test_result_has_the_documented_keys(searched: Run) -> None:
    found = result(searched)
    assert found.keys() == RESULT_KEYS
    assert found["search"].keys() == {
        "trials",
        "planned_trials",
        "generation_size",
        "best_trial",
        "validation_accuracy",
    }
    assert found["samples"].keys() == {"train", "valid", "test"}
    for row in found["methods"]:
        assert row.keys() == ROW_KEYS
        assert row["test"].keys() == row["valid"].keys() == {"last_10_epochs", "best_epoch", "at_epoch"}


def test_rows_summarise_the_curves_of_the_selected_restart(searched: Run) -> None:
    stored = searched.read_arrays("curves.npz")
    for row in result(searched)["methods"]:
        for part in ("valid", "test"):
            curve = stored[f"{row['name']}/accuracy_{part}"]
            assert curve.shape == (EPOCHS,)
            assert row[part]["last_10_epochs"] == pytest.approx(curve[-LAST_EPOCHS:].mean())
            assert row[part]["best_epoch"] == curve.max() == curve[row[part]["at_epoch"]]
        precision = stored[f"{row['name']}/label_precision"][-LAST_EPOCHS:].mean()
        assert row["label_precision"] == pytest.approx(precision)
        assert len(row["validation_of_restarts"]) == 3
        assert row["valid"]["last_10_epochs"] == pytest.approx(max(row["validation_of_restarts"]), abs=1e-6)


def test_stored_model_has_the_test_accuracy_of_the_last_epoch(searched: Run, data: str) -> None:
    test = splits_of(data).test
    assert test is not None
    weights = load_file(searched.path / "model.safetensors")
    accuracies = []
    for which in ("network0.", "network1."):
        network = reference_network("mlp:widths=64", test.sample_shape, test.classes)()
        network.load_state_dict({k.removeprefix(which): w for k, w in weights.items() if k.startswith(which)})
        predicted = network(torch.from_numpy(test.inputs)).argmax(dim=1).numpy()
        accuracies.append(np.mean(predicted == test.labels))
    assert searched.read_arrays("curves.npz")["S2E/accuracy_test"][-1] == pytest.approx(np.mean(accuracies))


def test_schedule_is_the_best_trial_decoded_and_can_be_trained_with(searched: Run) -> None:
    study = open_study(searched.storage, "search", fixed_options(searched))
    found = result(searched)["search"]
    assert found["trials"] == len(study.trials) == 4
    assert found["best_trial"] == study.best_trial.number
    assert found["validation_accuracy"] == pytest.approx(1 - study.best_value)
    expected = best_trial(study, SPACES["coteaching"], EPOCHS).schedule
    np.testing.assert_array_equal(searched.read_json("schedule.json")["keep_rates"], expected)
    np.testing.assert_array_equal(schedules.parse_schedule(str(searched.path / "schedule.json"), EPOCHS), expected)


def fixed_options(run: Run) -> dict[str, Any]:
    """Return the settings that a study is opened with: options that may not change on resume, and the data."""
    config = run.read_json(CONFIG)
    left_out = SearchOptions.MUTABLE_ON_RESUME | {"data", "reviewed"}
    options = {name: value for name, value in config["options"].items() if name not in left_out}
    return {**options, "data_fingerprint": config["data_fingerprint"]}


def test_records_have_the_rows_and_labels_of_the_training_part(searched: Run, data: str) -> None:
    train, stored = splits_of(data).train, searched.read_arrays("dynamics.npz")
    np.testing.assert_array_equal(stored["rows"], train.rows)
    np.testing.assert_array_equal(stored["labels"], train.labels)
    assert stored["seen"].shape == stored["loss"].shape == (EPOCHS, len(train))


def test_fewer_restarts_are_the_first_of_more(searched: Run, data: str, tmp_path: Path) -> None:
    one = search(search_options(data, restarts=1, baselines=False, models=False), RunLocation(tmp_path))
    (row,) = result(one)["methods"]
    three = result(searched)["methods"][-1]["validation_of_restarts"]
    assert len(set(three)) > 1
    assert row["validation_of_restarts"] == three[:1]


# ------------------------------------------------------------------------------------------------------------ baselines


def test_baselines_are_standard_and_coteaching_with_the_true_noise_rate(searched: Run) -> None:
    found, stored = result(searched), searched.read_arrays("curves.npz")
    assert [row["name"] for row in found["methods"]] == ["Standard", "Co-teaching", "S2E"]
    assert [row["method"] for row in found["methods"]] == ["standard", "coteaching", "coteaching"]
    assert [row["searched"] for row in found["methods"]] == [False, False, True]
    np.testing.assert_array_equal(stored["Standard/kept"], 1)
    expected = schedules.keep_counts(schedules.coteaching(found["noise_rate"], EPOCHS), 32) / 32
    np.testing.assert_allclose(stored["Co-teaching/kept"], expected)


def test_without_a_known_noise_rate_coteaching_gets_an_assumed_one(unknown: str, tmp_path: Path) -> None:
    run = search(search_options(unknown, **{**QUICK, "baselines": True}), RunLocation(tmp_path))
    found = result(run)
    assert [row["name"] for row in found["methods"]] == ["Standard", "Co-teaching (assumed noise rate 20%)", "S2E"]
    assert (found["noise_rate"], found["validation"]) == (None, "relabelled")
    assert found["samples"].keys() == {"train", "valid"}
    for row in found["methods"]:
        assert row.keys() == ROW_KEYS - {"test"}
        assert row["label_precision"] is None
    assert "test" not in "".join(run.read_arrays("curves.npz"))


def test_another_method_is_searched_without_baselines(data: str, tmp_path: Path) -> None:
    run = search(search_options(data, method="mentornet", **QUICK), RunLocation(tmp_path))
    assert [(row["name"], row["method"]) for row in result(run)["methods"]] == [("S2E", "mentornet")]
    assert {name.partition(".")[0] for name in load_file(run.path / "model.safetensors")} == {
        f"network{which}" for which in range(result(run)["classifier"]["networks"])
    }


# -------------------------------------------------------------------------------------------------- test part, progress


def test_another_test_part_changes_only_the_test_accuracies(
    searched: Run, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_other_test_labels(*arguments: Any) -> Prepared:
        prepared = prepare(*arguments)
        test = prepared.splits.test
        assert test is not None
        rolled = replace(test, labels=(test.labels + 1) % test.classes)
        return replace(prepared, splits=replace(prepared.splits, test=rolled))

    monkeypatch.setattr(workflow, "prepare", with_other_test_labels)
    run = search(search_options(data), RunLocation(tmp_path))
    for name in ("schedule.json", "model.safetensors"):
        assert (run.path / name).read_bytes() == (searched.path / name).read_bytes()
    for row, before in zip(result(run)["methods"], result(searched)["methods"], strict=True):
        assert row.pop("test") != before.pop("test")
        assert row == before


def test_stages_announce_the_epochs_that_are_trained(logged: tuple[Run, Log]) -> None:
    log = logged[1]
    assert log.stages == [("search", 2 * EPOCHS), ("final training", EPOCHS)]
    assert len(log.epochs) == 3 * EPOCHS
    assert [(done.finished, done.trials) for done in log.generations] == [(2, 4), (4, 4)]


def test_chosen_generation_size_is_announced_and_stored(data: str, tmp_path: Path) -> None:
    log = Log()
    run = search(search_options(data, **{**QUICK, "generation_size": "auto"}), RunLocation(tmp_path), log)
    assert log.stage_names[0] == "search, 2 at a time"
    assert run.read_json(CONFIG)["options"]["generation_size"] == result(run)["search"]["generation_size"] == 2


# ------------------------------------------------------------------------------------------------------ resume, storage


def test_existing_run_is_not_overwritten(searched: Run, data: str) -> None:
    before = contents(searched)
    with pytest.raises(Exception, match="already holds a run"):
        search(search_options(data), RunLocation(searched.path))
    assert contents(searched) == before


def test_resumed_search_with_more_trials_equals_one_without_a_break(data: str, tmp_path: Path) -> None:
    location = RunLocation(tmp_path / "run")
    search(search_options(data, **QUICK), location, resume=True)  # a run may be resumed before it exists
    resumed = search(search_options(data, **{**QUICK, "trials": 4}), location, resume=True)
    whole = search(search_options(data, **{**QUICK, "trials": 4}), RunLocation(tmp_path / "whole"))
    for name in ("schedule.json", "model.safetensors", CONFIG):
        assert (resumed.path / name).read_bytes() == (whole.path / name).read_bytes()
    assert without_times(result(resumed)) == without_times(result(whole))


def test_noisy_validation_is_relabelled_once(unknown: str, tmp_path: Path) -> None:
    first, again = Log(), Log()
    run = search(search_options(unknown, **QUICK), RunLocation(tmp_path), first)
    labels = run.read_arrays(RELABELLED)["labels"]
    search(search_options(unknown, **{**QUICK, "trials": 4}), RunLocation(tmp_path), again, resume=True)
    assert first.stage_names[:3] == ["relabelling validation", "search", "final training"]
    assert again.stage_names[:2] == ["search", "final training"]
    np.testing.assert_array_equal(run.read_arrays(RELABELLED)["labels"], labels)


def test_study_in_another_storage_has_the_name_of_the_run(data: str, tmp_path: Path) -> None:
    location = RunLocation(tmp_path / "run", storage=f"sqlite:///{tmp_path}/elsewhere.db")
    run = search(search_options(data, **QUICK), location)
    assert "study.db" not in file_names(run)
    assert len(open_study(location.storage, "run", fixed_options(run)).trials) == 2


# ---------------------------------------------------------------------------------------------- the end of a search


def test_a_search_ends_early_and_a_resumed_one_at_the_same_trial(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "is_long_enough", lambda study, *_: len(study.trials) >= 4)
    options, log = search_options(data, trials=6, baselines=False, restarts=1, models=False), Log()
    done = search(options, RunLocation(tmp_path / "run"), log)
    stored = done.read_json(CONFIG)["options"]
    assert result(done)["search"]["trials"] == 4 < stored["trials"]
    assert result(done)["status"] == "complete"
    assert pipeline.ENOUGH in log.notes
    expected = done.read_json("schedule.json")
    (done.path / "result.json").unlink()  # as if killed in the final training
    again = search(assemble(SearchOptions, stored), RunLocation(tmp_path / "run"), resume=True)
    assert result(again)["search"]["trials"] == 4
    assert again.read_json("schedule.json") == expected


def test_a_search_trains_all_trials_without_stop_early(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "is_long_enough", lambda *_: True)
    options = search_options(data, stop_early=False, baselines=False, restarts=1, models=False)
    assert result(search(options, RunLocation(tmp_path / "run")))["search"]["trials"] == 4
