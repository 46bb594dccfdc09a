"""The Python interface: names or objects, arrays, tensors or datasets; results with a status."""

from __future__ import annotations

import inspect
import os
import pydoc
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import s2e
from s2e.errors import InvalidInput, RunConflict, S2EError, UnreadableData
from s2e.methods import MentorNet, Need, Objective, sample_cross_entropy, selected_mean, smallest
from s2e.schedules.spaces import SPACES
from s2e.workflows import pipeline, time_budget
from small_tasks import TRANSITION, blobs, small_mlp

TRAIN, VALID = blobs(), blobs(96, wrong=0.0, seed=1)
SMALL: dict[str, Any] = {"network": small_mlp, "epochs": 3, "batch_size": 32, "learning_rate": 1e-2}
SMALL |= {"trials": 4, "generation_size": 2, "space": "coteaching", "sampler": "random"}
TRAINING: dict[str, Any] = {"network": small_mlp, "batch_size": 32, "learning_rate": 1e-2}


class ConstantSpace(s2e.Space):
    """Constant keep rates."""

    name = "constant"
    names = ("rate",)

    def unclipped(self, points, t, epochs):  # noqa: ARG002
        return np.repeat(points, len(t), axis=1)


@dataclass(frozen=True)
class SmallLoss:
    """MentorNet, written by a user."""

    name: str = "small-loss"
    networks: int = 1
    needs: frozenset[Need] = frozenset({Need.SCHEDULE})
    may_select_nothing: bool = False

    def objective(self, batch):
        losses = sample_cross_entropy(batch)
        selected = smallest(losses, batch.keep.unsqueeze(1))
        return Objective(selected_mean(losses, selected, batch.keep.unsqueeze(1)), losses.detach(), selected)


def search(**changes: Any) -> s2e.SearchResult:
    return s2e.search(TRAIN, VALID, **{**SMALL, **changes})


# ------------------------------------------------------------------------------------------------------- public names


def test_public_names_are_importable_and_documented() -> None:
    for name in s2e.__all__:
        found = getattr(s2e, name)
        if name != "__version__":
            assert len(inspect.getdoc(found) or "") > 20, name
    assert {"LabelledData", "S2EClassifier", "SearchResult", "TrainResult", "Status"} <= set(s2e.__all__)
    assert {"Curves", "Dynamics", "EpochFinished", "GenerationFinished", "Method", "Space"} <= set(s2e.__all__)
    assert {"S2EError", "InvalidInput", "UnreadableData", "RunConflict", "search", "train"} <= set(s2e.__all__)


def test_the_docstring_of_the_package_names_everything_that_is_public() -> None:
    named = set(re.findall(r"`(\w+)`", s2e.__doc__ or ""))
    assert named == set(s2e.__all__) - {"__version__"}


def test_help_shows_the_public_names() -> None:
    shown = pydoc.render_doc(s2e, renderer=pydoc.plaintext)
    _, _, contents = shown.partition("CLASSES")
    assert set(s2e.__all__) - {"__version__"} <= set(re.findall(r"\w+", contents.partition("DATA")[0]))
    assert set(s2e.__all__) <= set(dir(s2e))
    with pytest.raises(AttributeError, match="no_such_name"):
        s2e.no_such_name  # noqa: B018


def test_every_argument_is_documented() -> None:
    for function in (s2e.search, s2e.train):
        text = inspect.getdoc(function) or ""
        assert all(f"\n    {name}: " in text for name in inspect.signature(function).parameters)


@pytest.mark.slow
def test_import_is_lazy() -> None:
    code = "import sys, s2e; assert 'torch' not in sys.modules and 'optuna' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --------------------------------------------------------------------------------------------------------------- data


def test_arrays_tensors_datasets_and_labelled_data_give_the_same_search() -> None:
    def tensors(data):
        return torch.from_numpy(data.inputs), torch.from_numpy(data.labels)

    kinds = (
        lambda data: (data.inputs, data.labels),
        tensors,
        lambda data: TensorDataset(*tensors(data)),
        lambda data: s2e.LabelledData(data.inputs, data.labels, data.class_names),
    )
    first, *others = [s2e.search(kind(TRAIN), kind(VALID), **SMALL) for kind in kinds]
    for other in others:
        np.testing.assert_array_equal(first.schedule, other.schedule)
        assert first.validation_accuracy == other.validation_accuracy


def test_found_schedule_can_be_trained_with() -> None:
    trained = s2e.train(TRAIN, search().schedule, evaluate={"test": VALID}, **TRAINING)
    assert [network.training for network in trained.networks] == [False, False]
    inputs, labels = torch.from_numpy(VALID.inputs), torch.from_numpy(VALID.labels)
    with torch.no_grad():
        accuracy = [(network(inputs).argmax(dim=1) == labels).double().mean() for network in trained.networks]
    assert torch.stack(accuracy).mean().item() == pytest.approx(trained.curves.accuracy["test"][0, -1])


def test_bad_data_are_refused() -> None:
    for data, message in (
        (5, r"must be \(inputs, labels\) or a dataset"),
        ((TRAIN.inputs, TRAIN.labels[:-1]), "one entry for each of the 192 inputs"),
        ((TRAIN.inputs * np.nan, TRAIN.labels), "`inputs` must be finite"),
    ):
        with pytest.raises(InvalidInput, match=message):
            s2e.search(data, VALID, **SMALL)
    with pytest.raises(InvalidInput, match=r"'valid' must hold samples of shape \(6,\) like the training data"):
        s2e.search(TRAIN, (VALID.inputs[:, :3], VALID.labels), **SMALL)


# ------------------------------------------------------------------------------------------------------------ objects


def test_objects_of_registered_names_give_the_same_search() -> None:
    by_name = search(method="mentornet", sampler="curve")
    by_object = search(method=MentorNet(), space=SPACES["coteaching"], sampler="curve")
    np.testing.assert_array_equal(by_name.schedule, by_object.schedule)


def test_search_accepts_a_users_space_sampler_and_method() -> None:
    found = search(space=ConstantSpace(), sampler=optuna.samplers.RandomSampler(seed=3), method=SmallLoss())
    assert np.ptp(found.schedule) == 0
    assert {tuple(trial.params) for trial in found.study.trials} == {("rate",)}
    drawn = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
    expected = [drawn.ask({"rate": optuna.distributions.FloatDistribution(0, 1)}).params for _ in range(4)]
    assert [trial.params for trial in found.study.trials] == expected


def test_train_accepts_a_users_method() -> None:
    own, expected = (s2e.train(TRAIN, [1.0, 0.5], method=method, **TRAINING) for method in (SmallLoss(), "mentornet"))
    np.testing.assert_array_equal(own.curves.loss, expected.curves.loss)


def test_classifier_accepts_objects() -> None:
    classifier = s2e.S2EClassifier(
        network=lambda: nn.Linear(6, 4),
        space=ConstantSpace(),
        sampler=optuna.samplers.RandomSampler(seed=3),
        method=SmallLoss(),
        epochs=2,
        n_trials=2,
        generation_size=2,
        restarts=1,
        random_state=0,
        final_estimator=None,
    )
    classifier.fit(TRAIN.inputs, TRAIN.labels)
    assert np.ptp(classifier.schedule_) == 0


def test_the_network_is_chosen_by_the_data() -> None:
    trained = s2e.train(TRAIN, [1.0], method="standard", batch_size=32)
    assert sum(p.numel() for p in trained.networks[0].parameters()) == (6 * 64 + 64) + (64 * 4 + 4)


# ------------------------------------------------------------------------------------------------------------- status


def test_complete_search() -> None:
    found = search()
    assert found.status is s2e.Status.COMPLETE
    best = f"{found.validation_accuracy:.2%} with trial {found.study.best_trial.number}"
    assert found.message == f"complete: 4 trials, 0 of them diverged; best validation accuracy {best}"


def test_search_stopped_by_on_generation() -> None:
    seen: list[s2e.GenerationFinished] = []
    found = search(on_generation=lambda done: bool(seen.append(done)) or done.finished == 2)
    assert (found.status, len(found.study.trials), len(seen)) == (s2e.Status.STOPPED_EARLY, 2, 1)
    assert found.message.startswith("stopped early: 2 trials")
    at_the_end = search(on_generation=lambda done: done.finished == done.trials)
    assert at_the_end.status is s2e.Status.COMPLETE


def test_search_whose_members_all_diverge_ends_with_advice() -> None:
    with pytest.raises(s2e.TrainingDiverged, match=r"all 2 trainings diverged.* lower the learning rate"):
        search(learning_rate=1e35)


def test_complete_training() -> None:
    trained = s2e.train(TRAIN, [1.0, 0.5], evaluate={"valid": VALID}, **TRAINING)
    assert trained.status is s2e.Status.COMPLETE
    accuracy = f"{trained.curves.accuracy['valid'].mean():.2%}"
    assert trained.message == f"complete: 2 of 2 epochs; accuracy over the last 2 epochs: valid {accuracy}"
    assert s2e.train(TRAIN, [1.0], **TRAINING).message == "complete: 1 of 1 epochs"


@pytest.mark.parametrize("method", ["coteaching", "f-correction"])
def test_training_stopped_by_on_epoch(method: str) -> None:
    trained = s2e.train(TRAIN, np.ones(5), method=method, on_epoch=lambda done: done.epoch == 2, **TRAINING)
    assert trained.status is s2e.Status.STOPPED_EARLY
    assert trained.message.startswith(f"stopped early: {int(trained.curves.epochs[0])} of 5 epochs")
    assert int(trained.curves.epochs[0]) <= 2


def test_stop_after_the_last_epoch_is_complete() -> None:
    trained = s2e.train(TRAIN, np.ones(2), on_epoch=lambda done: done.epoch == 2, **TRAINING)
    assert trained.status is s2e.Status.COMPLETE


def test_diverged_training() -> None:
    with pytest.warns(s2e.S2EWarning, match="all trainings diverged"):
        trained = s2e.train(TRAIN, np.ones(3), evaluate={"valid": VALID}, **{**TRAINING, "learning_rate": 1e35})
    assert trained.status is s2e.Status.SOME_DIVERGED
    assert "valid 0.00%" in trained.message


def test_transition_is_given_or_estimated() -> None:
    given = s2e.train(TRAIN, [1.0], method="f-correction", transition=TRANSITION, **TRAINING)
    np.testing.assert_array_equal(given.transition, TRANSITION)
    estimated = s2e.train(TRAIN, [1.0], method="f-correction", **TRAINING)
    np.testing.assert_allclose(estimated.transition.sum(axis=1), 1)
    assert s2e.train(TRAIN, [1.0], method="standard", **TRAINING).transition is None


# ------------------------------------------------------------------------------------------------------ stored studies


def test_stored_study_is_resumed_and_must_have_the_same_settings(tmp_path: Any) -> None:
    storage = f"sqlite:///{tmp_path}/study.db"
    first = [trial.params for trial in search(storage=storage).study.trials]
    more = search(storage=storage, trials=6)
    assert [trial.params for trial in more.study.trials[:4]] == first
    assert len(more.study.trials) == 6
    for changes in ({"epochs": 4}, {"network": lambda: nn.Linear(6, 4)}, {"space": ConstantSpace()}):
        with pytest.raises(RunConflict, match="other settings"):
            search(storage=storage, **changes)


def test_chosen_generation_size_is_kept_when_the_study_is_resumed(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, ...]] = []

    def choose(task, kinds, sizes):
        given.append(tuple(sizes))
        return sizes[-1]

    stored = {"storage": f"sqlite:///{tmp_path}/study.db", "generation_size": "auto", "epochs": 1}
    monkeypatch.setattr(pipeline, "choose_generation_size", choose)
    first = search(trials=10, **stored)
    assert (first.generation_size, given) == (2, [(2,)])
    monkeypatch.setattr(pipeline, "choose_generation_size", lambda *_: pytest.fail("measured again"))
    assert search(trials=15, **stored).generation_size == 2


def test_auto_on_a_cpu_is_six_or_a_fifth_of_the_trials() -> None:
    found = search(generation_size="auto", trials=12, epochs=1, device="cpu")
    assert (found.generation_size, len(found.study.trials)) == (2, 12)
    stopped = search(generation_size="auto", trials=None, epochs=1, device="cpu", on_generation=lambda _: True)
    assert (stopped.generation_size, len(stopped.study.trials)) == (6, 6)


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.fixture
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s2e.api.as_labelled_parts", lambda *_, **__: pytest.fail("data were read"))


@pytest.mark.usefixtures("_no_data")
def test_bad_choices_of_a_search_are_refused_before_data_are_read() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"network": "resnetto"}, "`network` must be"),
        ({"network": small_mlp()}, "`network` must be"),
        ({"method": "jocar"}, "`method` must be one of"),
        ({"method": "standard"}, "`method` must have a keep rate"),
        ({"method": SmallLoss}, "`method` must be .* but got the class SmallLoss"),
        ({"space": "nowhere"}, "`space` must be one of"),
        ({"space": ConstantSpace}, "`space` must be"),
        ({"sampler": "moon"}, "`sampler` must be one of"),
        ({"sampler": optuna.samplers.RandomSampler}, "`sampler` must be"),
        ({"device": "abacus"}, "`device` must be"),
        ({"generation_size": "many", "trials": 0}, "`trials` must .*`generation_size` must"),
        ({"epochs": 0, "batch_size": 0}, "`epochs` must .*`batch_size` must"),
        ({"seed": -1}, "`seed` must be an integer of at least 0, but got -1"),
    ]
    for changes, message in cases:
        with pytest.raises(S2EError, match=message):
            search(**changes)


@pytest.mark.usefixtures("_no_data")
def test_bad_choices_of_a_training_are_refused_before_data_are_read() -> None:
    cases: list[tuple[list[float], dict[str, Any], str]] = [
        ([1.5], {}, r"in \[0, 1\]"),
        ([], {}, "epoch"),
        ([1.0], {"method": "jocar"}, "`method` must be one of"),
        ([1.0], {"network": 3}, "`network` must be"),
        ([1.0], {"learning_rate": float("nan")}, "`learning_rate` must be"),
    ]
    for schedule, changes, message in cases:
        with pytest.raises(S2EError, match=message):
            s2e.train(TRAIN, schedule, **{**TRAINING, **changes})


def test_missing_needs_and_bad_storage_are_refused() -> None:
    with pytest.raises(InvalidInput, match="reweight needs clean validation samples"):
        s2e.train(TRAIN, [1.0], method="reweight", **TRAINING)
    with pytest.raises(UnreadableData, match="could not be opened"):
        search(storage="nonsense://")


# Audits of trainings


def test_labels_of_a_training_are_audited_better_with_folds() -> None:
    data = blobs(480)
    wrong = data.labels != data.clean_labels
    schedule = np.linspace(1.0, 0.7, 20)
    with_folds, without = (
        s2e.train(data, schedule, network=small_mlp, batch_size=32, learning_rate=1e-2, folds=folds) for folds in (3, 0)
    )
    table = with_folds.find_label_issues()
    assert list(table["given_label"]) == [data.class_names[label] for label in data.labels]
    found = table["is_label_issue"].to_numpy()
    assert (found & wrong).sum() > 0.85 * max(found.sum(), wrong.sum())
    low, high = table.attrs["noise_rate_interval"]
    assert low <= wrong.mean() <= high
    assert with_folds.audit is with_folds.audit
    assert "trained on these labels" in without.audit.message
    assert len(without.find_label_issues()) == len(data)
    for one, other in zip(with_folds.networks, without.networks, strict=True):
        for name, tensor in one.state_dict().items():
            assert torch.equal(tensor, other.state_dict()[name])
    assert with_folds.curves.loss.shape == without.curves.loss.shape == (1, 20)


def test_losses_of_forward_correction_are_not_used_in_its_audit() -> None:
    trained = s2e.train(blobs(), np.ones(3), method="f-correction", network=small_mlp, batch_size=32)
    assert np.isfinite(trained.find_label_issues()["label_quality"]).all()


def test_folds_must_be_a_count() -> None:
    for folds in (-1, 2.5):
        with pytest.raises(InvalidInput, match="`folds` must be an integer of at least 0"):
            s2e.train(blobs(), np.ones(3), network=small_mlp, folds=folds)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- time


def test_a_time_budget_ends_the_search_and_leaves_it_resumable(tmp_path, monkeypatch) -> None:
    stored = {"storage": f"sqlite:///{tmp_path}/study.db", "trials": 6}
    with monkeypatch.context() as patched:
        patched.setattr(time_budget.LimitedListener, "_finishes_in_time", lambda *_: False)
        stopped = search(time_budget="1h", **stored)
    assert (stopped.status, len(stopped.study.trials)) == (s2e.Status.STOPPED_EARLY, 2)
    resumed, whole = search(time_budget=3600, **stored), search(trials=6)
    assert (resumed.status, len(resumed.study.trials)) == (s2e.Status.COMPLETE, 6)
    assert [trial.params for trial in resumed.study.trials] == [trial.params for trial in whole.study.trials]


def test_a_time_budget_too_short_for_one_generation_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"`time_budget` must be enough for one generation, about .*`epochs=\d+`"):
        search(epochs=100_000, time_budget=2)


def test_waiting_threads_sleep_unless_the_user_decides_otherwise() -> None:
    """libgomp prints its settings when torch loads it."""
    for before, expected in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "active"}, "ACTIVE")):
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | before
        done = subprocess.run(
            [sys.executable, "-c", "import s2e.engine"],
            env={**environment, "OMP_DISPLAY_ENV": "true"},
            capture_output=True,
            text=True,
            check=True,
        )
        if "OMP_WAIT_POLICY" not in done.stderr:
            pytest.skip("torch uses another library for threads")
        assert f"OMP_WAIT_POLICY = '{expected}'" in done.stderr
