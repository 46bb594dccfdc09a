"""What `s2e search` and `s2e train` do: the run they leave, and what its figures mean."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from populations import tell_before_a_search_trains
from s2e import schedules
from s2e.data.preparing import Prepared, prepare
from s2e.data.samples import LabelledData, Splits, fingerprint
from s2e.engine.curves import LAST_EPOCHS
from s2e.engine.task import Task
from s2e.errors import InvalidInput, RunConflict
from s2e.networks.factories import reference_network
from s2e.runs.directory import CONFIG, Run
from s2e.runs.session import RunLocation
from s2e.schedules.spaces import SPACES
from s2e.studies import loop, storage
from s2e.workflows import search as commands
from s2e.workflows.search import SearchOptions, TrainOptions
from small_tasks import blobs
from watches import Log

EPOCHS = 12
ROW_KEYS = {"name", "method", "valid", "label_precision", "diverged", "validation_of_restarts"}
RESULT_KEYS = {"methods", "epochs", "noise_rate", "validation", "samples", "device", "seconds"}
FILES = {
    "config.json",
    "schedule.json",
    "curves.npz",
    "dynamics.npz",
    "encoding.json",
    "model.safetensors",
    "result.json",
    ".lock",
}


def save(path: Path, *, test: bool = True, truth: bool = True) -> str:
    """Write clusters to a file: noisy training labels, with the truth and a test part where asked for."""
    data = blobs()
    arrays: dict[str, Any] = {"x_train": data.inputs, "y_train": data.labels, "class_names": list(data.class_names)}
    if truth:
        arrays["y_train_clean"] = data.clean_labels
    if test:
        unseen = blobs(96, wrong=0.0, seed=2)
        arrays |= {"x_test": unseen.inputs, "y_test": unseen.labels}
    np.savez(path, **arrays)
    return str(path)


def search_options(data: str, **changes: Any) -> SearchOptions:
    tiny: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 32, "trials": 4, "generation": 2, "learning_rate": 1e-2}
    return SearchOptions(data, **{**tiny, **changes})


def train_options(data: str, **changes: Any) -> TrainOptions:
    tiny: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 32, "learning_rate": 1e-2, "schedule": "coteaching:0.3"}
    return TrainOptions(data, **{**tiny, **changes})


def result(run: Run) -> dict[str, Any]:
    content: dict[str, Any] = run.read_json("result.json")
    return content


def curves(run: Run) -> dict[str, np.ndarray]:
    with np.load(run.path / "curves.npz", allow_pickle=False) as stored:
        return dict(stored)


def names(run: Run) -> set[str]:
    return {entry.name for entry in run.path.iterdir()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(tmp_path_factory.mktemp("data") / "own.npz")


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Data as users have them: no truth, no test part."""
    return save(tmp_path_factory.mktemp("data") / "own.npz", test=False, truth=False)


@pytest.fixture(scope="module")
def searched(data: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Log]:
    log = Log()
    return commands.search(search_options(data), RunLocation(tmp_path_factory.mktemp("searched")), log), log


@pytest.fixture(scope="module")
def trained(data: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Log]:
    log = Log()
    return commands.train(train_options(data), RunLocation(tmp_path_factory.mktemp("trained")), log), log


# The run directory


def test_a_search_leaves_exactly_the_documented_files(searched: tuple[Run, Log]) -> None:
    assert names(searched[0]) == FILES | {"study.db"}


def test_a_training_leaves_the_same_files_without_a_study(trained: tuple[Run, Log]) -> None:
    assert names(trained[0]) == FILES


def test_the_files_are_those_the_module_documents(searched: tuple[Run, Log]) -> None:
    from s2e.runs import directory as runs

    rows = [line.split("|")[1].strip() for line in (runs.__doc__ or "").splitlines() if line.startswith("| ")]
    assert set(rows) - {"file"} == names(searched[0])


def test_a_study_kept_elsewhere_is_not_in_the_run(data: str, tmp_path: Path) -> None:
    place = RunLocation(tmp_path / "run", storage=f"sqlite:///{tmp_path}/elsewhere.db")
    run = commands.search(search_options(data), place, Log())
    assert names(run) == FILES
    study = storage.open_study(place.storage, "run", run.read_json(CONFIG)["options"])
    assert len(loop.finished(study)) == 4


def test_the_config_says_everything_needed_to_repeat_the_command(searched: tuple[Run, Log], data: str) -> None:
    config = searched[0].read_json(CONFIG)
    assert config["command"] == "search"
    assert SearchOptions(**config["options"]) == search_options(data)
    assert config["network"] == "mlp"
    prepared = prepare(search_options(data), Path())
    assert config["data_fingerprint"] == fingerprint(prepared.splits.train, prepared.splits.valid)
    assert config["versions"]["torch"] == torch.__version__
    assert set(config["versions"]) == {"s2e", "python", "torch", "optuna", "numpy"}


def test_the_same_options_give_the_same_run_and_another_seed_another(
    searched: tuple[Run, Log], data: str, tmp_path: Path
) -> None:
    again = commands.search(search_options(data), RunLocation(tmp_path / "again"), Log())
    other = commands.search(search_options(data, seed=1), RunLocation(tmp_path / "other"), Log())
    for name in ("schedule.json", "model.safetensors"):
        expected = (searched[0].path / name).read_bytes()
        assert (again.path / name).read_bytes() == expected, name
        assert (other.path / name).read_bytes() != expected, name
    assert result(again)["methods"] == result(searched[0])["methods"] != result(other)["methods"]


# The figures


def test_a_result_has_the_documented_keys(searched: tuple[Run, Log], trained: tuple[Run, Log]) -> None:
    found = result(searched[0])
    assert found.keys() == RESULT_KEYS | {"search"}
    assert result(trained[0]).keys() == RESULT_KEYS
    assert found["search"].keys() == {"trials", "generation", "best_trial", "validation_accuracy"}
    assert found["samples"].keys() == {"train", "valid", "test"}
    for row in found["methods"]:
        assert row.keys() == ROW_KEYS | {"test"}
        assert row["test"].keys() == row["valid"].keys() == {"last_10_epochs", "best_epoch", "at_epoch"}


def test_accuracies_are_those_of_the_curves(searched: tuple[Run, Log]) -> None:
    stored = curves(searched[0])
    for row in result(searched[0])["methods"]:
        for part in ("valid", "test"):
            curve = stored[f"{row['name']}/accuracy_{part}"]
            assert curve.shape == (EPOCHS,)
            assert row[part]["last_10_epochs"] == pytest.approx(curve[-LAST_EPOCHS:].mean())
            assert row[part]["best_epoch"] == curve.max() == curve[row[part]["at_epoch"]]
        kept_right = stored[f"{row['name']}/label_precision"][-LAST_EPOCHS:].mean()
        assert row["label_precision"] == pytest.approx(kept_right)


def test_the_stored_model_has_the_test_accuracy_of_the_last_epoch(searched: tuple[Run, Log], data: str) -> None:
    test = prepare(search_options(data), Path()).splits.test
    assert test is not None
    weights = load_file(searched[0].path / "model.safetensors")
    accuracies = []
    for which in ("network0.", "network1."):
        network = reference_network("mlp", test.sample_shape, test.classes)()
        network.load_state_dict({k.removeprefix(which): w for k, w in weights.items() if k.startswith(which)})
        predicted = network(torch.from_numpy(test.inputs)).argmax(dim=1).numpy()
        accuracies.append(np.mean(predicted == test.labels))
    assert curves(searched[0])["S2E/accuracy_test"][-1] == pytest.approx(np.mean(accuracies))


def test_the_schedule_is_the_best_trial_of_the_study_decoded(searched: tuple[Run, Log], data: str) -> None:
    run = searched[0]
    study = storage.open_study(run.storage, "search", run.read_json(CONFIG)["options"])
    found = result(run)["search"]
    assert found["trials"] == len(study.trials) == 4
    assert found["best_trial"] == study.best_trial.number
    assert found["validation_accuracy"] == pytest.approx(1 - study.best_value)
    stored = run.read_json("schedule.json")
    decoded = loop.best(study, SPACES["s2e"], EPOCHS).schedule
    np.testing.assert_array_equal(stored["keep_rates"], decoded)
    # and can be trained with again
    np.testing.assert_array_equal(schedules.parse_schedule(str(run.path / "schedule.json"), EPOCHS), decoded)


def test_the_dynamics_name_the_rows_and_labels_they_are_about(searched: tuple[Run, Log], data: str) -> None:
    train = prepare(search_options(data), Path()).splits.train
    with np.load(searched[0].path / "dynamics.npz", allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["rows"], train.rows)
        np.testing.assert_array_equal(stored["labels"], train.labels)
        assert stored["kept"].shape == stored["agreed"].shape == (len(train),)
        assert stored["seen"].shape == stored["loss"].shape == (min(10, EPOCHS), len(train))


def test_of_several_restarts_the_best_by_validation_stands_for_all(searched: tuple[Run, Log]) -> None:
    for row in result(searched[0])["methods"]:
        assert len(row["validation_of_restarts"]) == 3
        assert row["valid"]["last_10_epochs"] == pytest.approx(max(row["validation_of_restarts"]), abs=1e-6)


def test_restarts_differ_and_one_more_leaves_the_earlier_ones_as_they_were(data: str, tmp_path: Path) -> None:
    scores = []
    for restarts in (1, 3):
        options = search_options(data, restarts=restarts, baselines=False)
        run = commands.search(options, RunLocation(tmp_path / str(restarts)), Log())
        scores.append(result(run)["methods"][0]["validation_of_restarts"])
    assert len(set(scores[1])) > 1
    assert scores[0] == scores[1][:1]


def test_baselines_are_standard_and_coteaching_told_the_true_rate(searched: tuple[Run, Log]) -> None:
    found = result(searched[0])
    assert [row["name"] for row in found["methods"]] == ["Standard", "Co-teaching", "S2E"]
    assert [row["method"] for row in found["methods"]] == ["standard", "coteaching", "coteaching"]
    stored, rate = curves(searched[0]), found["noise_rate"]
    np.testing.assert_array_equal(stored["Standard/kept"], 1)
    expected = schedules.keep_counts(schedules.coteaching(rate, EPOCHS), 32) / 32
    np.testing.assert_allclose(stored["Co-teaching/kept"], expected)


def test_without_known_noise_coteaching_is_told_a_usual_guess_and_says_so(unknown: str, tmp_path: Path) -> None:
    run = commands.search(search_options(unknown), RunLocation(tmp_path), Log())
    found = result(run)
    assert [row["name"] for row in found["methods"]] == ["Standard", "Co-teaching (guessing 20%)", "S2E"]
    assert found["noise_rate"] is None
    assert found["validation"] == "relabelled"
    assert found["samples"].keys() == {"train", "valid"}
    for row in found["methods"]:
        assert row.keys() == ROW_KEYS  # nothing is called test where there is none
        assert row["label_precision"] is None
    assert "test" not in "".join(curves(run))


def test_baselines_can_be_left_out(data: str, tmp_path: Path) -> None:
    run = commands.search(search_options(data, baselines=False), RunLocation(tmp_path), Log())
    assert [row["name"] for row in result(run)["methods"]] == ["S2E"]


@pytest.mark.parametrize("name", ["standard", "mentornet", "coteaching"])
def test_every_method_trains_with_a_given_schedule(name: str, data: str, tmp_path: Path) -> None:
    run = commands.train(train_options(data, method=name), RunLocation(tmp_path), Log())
    (row,) = result(run)["methods"]
    assert row["name"] == row["method"] == name
    assert row["test"]["last_10_epochs"] > 0.4
    networks = {key.split(".")[0] for key in load_file(run.path / "model.safetensors")}
    assert networks == ({"network0", "network1"} if name == "coteaching" else {"network0"})


def test_mentornet_can_be_searched_beside_its_baselines(data: str, tmp_path: Path) -> None:
    log = Log()
    run = commands.search(search_options(data, method="mentornet", restarts=1), RunLocation(tmp_path), log)
    assert [row["method"] for row in result(run)["methods"]] == ["standard", "coteaching", "mentornet"]
    assert log.stages[1] == ("final training", EPOCHS)
    assert set(load_file(run.path / "model.safetensors")) == {
        f"network0.{layer}.{kind}" for layer in (1, 3) for kind in ("weight", "bias")
    }


def test_a_training_that_diverges_is_reported_as_such_and_as_json(data: str, tmp_path: Path) -> None:
    run = commands.train(train_options(data, learning_rate=1e35), RunLocation(tmp_path), Log())
    (row,) = result(run)["methods"]
    assert row["diverged"] is True
    assert row["test"]["last_10_epochs"] == row["valid"]["last_10_epochs"] == 0

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    json.loads((run.path / "result.json").read_text(), parse_constant=refuse)


# The test part


def test_the_search_is_never_handed_the_test_part(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Task] = []
    tell_before_a_search_trains(lambda task, _: seen.append(task), monkeypatch)
    commands.search(search_options(data), RunLocation(tmp_path), Log())
    assert len(seen) == 2
    assert all(task.evaluate.keys() == {"valid"} for task in seen)


def test_another_test_part_changes_nothing_but_the_test_figures(
    searched: tuple[Run, Log], data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_test_labels_rolled(*arguments: Any) -> Prepared:
        prepared = prepare(*arguments)
        test = prepared.splits.test
        assert test is not None
        rolled = replace(test, labels=(test.labels + 1) % test.classes)
        return replace(prepared, splits=Splits(prepared.splits.train, prepared.splits.valid, rolled))

    monkeypatch.setattr(commands, "prepare", with_test_labels_rolled)
    run = commands.search(search_options(data), RunLocation(tmp_path), Log())
    for name in ("schedule.json", "model.safetensors"):
        assert (run.path / name).read_bytes() == (searched[0].path / name).read_bytes()
    for row, before in zip(result(run)["methods"], result(searched[0])["methods"], strict=True):
        assert row.pop("test") != before.pop("test")
        assert row == before


# What the watch is told


def test_the_watch_is_told_of_stages_generations_and_as_many_epochs_as_announced(searched: tuple[Run, Log]) -> None:
    log = searched[1]
    assert log.stages == [("search", 2 * EPOCHS), ("final training", EPOCHS)]
    assert len(log.epochs) == sum(epochs for _, epochs in log.stages)
    assert [(done.finished, done.trials) for done in log.generations] == [(2, 4), (4, 4)]


def test_a_training_is_one_stage(trained: tuple[Run, Log]) -> None:
    assert trained[1].stages == [("training", EPOCHS)]
    assert [progress.epoch for progress in trained[1].epochs] == list(range(1, EPOCHS + 1))


# Refusals


def test_a_method_that_needs_a_schedule_is_not_trained_without_one(data: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="`schedule` must be given for mentornet"):
        commands.train(train_options(data, method="mentornet", schedule=""), RunLocation(tmp_path / "run"), Log())
    commands.train(train_options(data, method="standard", schedule=""), RunLocation(tmp_path / "run"), Log())


@pytest.mark.parametrize(
    "changes",
    [{"method": "standard"}, {"restarts": 0}, {"trials": 0}, {"generation": 0}, {"network": "resnet"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_search_that_is_refused_leaves_no_run_behind(changes: dict[str, Any], data: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"`{next(iter(changes))}` must"):
        commands.search(search_options(data, **changes), RunLocation(tmp_path / "run"), Log())
    assert not (tmp_path / "run").exists()


def test_data_that_cannot_be_trained_on_are_refused_all_problems_at_once(tmp_path: Path) -> None:
    few: LabelledData = blobs(24)
    np.savez(tmp_path / "few.npz", X=few.inputs, y=few.labels, class_names=["a", "b", "c", "d", "nobody"])
    with pytest.raises(InvalidInput, match=r"`batch_size` must not exceed.*every class must have.*nobody"):
        commands.train(train_options(str(tmp_path / "few.npz")), RunLocation(tmp_path / "run"), Log())
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_overwritten(trained: tuple[Run, Log], data: str) -> None:
    run = trained[0]
    before = {name: (run.path / name).read_bytes() for name in names(run)}
    with pytest.raises(RunConflict, match="already holds a run"):
        commands.train(train_options(data), RunLocation(run.path), Log())
    with pytest.raises(RunConflict, match="already holds a run"):
        commands.search(search_options(data), RunLocation(run.path), Log())
    assert {name: (run.path / name).read_bytes() for name in names(run)} == before


def test_a_training_is_not_continued_as_a_search(trained: tuple[Run, Log], data: str) -> None:
    with pytest.raises(RunConflict, match="it was made by s2e train"):
        commands.search(search_options(data), RunLocation(trained[0].path), Log(), resume=True)


def test_a_run_may_be_resumed_before_it_exists(data: str, tmp_path: Path) -> None:
    run = commands.search(search_options(data), RunLocation(tmp_path / "new"), Log(), resume=True)
    assert result(run)["search"]["trials"] == 4


def test_two_runs_share_a_storage_under_their_own_names(data: str, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/shared.db"
    for name, seed in (("one", 0), ("two", 1)):
        run = commands.search(search_options(data, seed=seed), RunLocation(tmp_path / name, storage=storage), Log())
        assert result(run)["search"]["trials"] == 4


def test_a_storage_with_a_study_of_that_name_and_other_settings_is_refused(data: str, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/shared.db"
    commands.search(search_options(data), RunLocation(tmp_path / "one" / "run", storage=storage), Log())
    with pytest.raises(RunConflict, match="other settings; use another storage or name"):
        commands.search(search_options(data, seed=1), RunLocation(tmp_path / "two" / "run", storage=storage), Log())


def test_noisy_validation_is_mended_once_and_given_back_when_a_run_is_continued(unknown: str, tmp_path: Path) -> None:
    options = search_options(unknown, trials=2)
    first, again = Log(), Log()
    run = commands.search(options, RunLocation(tmp_path), first)
    assert first.stages[0][0] == "relabelling validation"
    labels = run.read_arrays(commands.MENDED)["labels"]
    commands.search(search_options(unknown, trials=4), RunLocation(tmp_path), again, resume=True)
    assert "relabelling validation" not in [name for name, _ in again.stages]
    np.testing.assert_array_equal(run.read_arrays(commands.MENDED)["labels"], labels)


def test_noisy_validation_stays_as_it_is_on_demand(unknown: str, tmp_path: Path) -> None:
    run = commands.search(search_options(unknown, relabel=False), RunLocation(tmp_path), Log())
    assert result(run)["validation"] == "noisy"
    assert not run.read_arrays(commands.MENDED)
