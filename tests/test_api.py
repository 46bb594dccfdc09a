"""The Python door: tensors, arrays and datasets in, schedule and modules out."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import s2e
from s2e.errors import InvalidInput, RunConflict
from s2e.studies import generation_size
from small_tasks import blobs, small_mlp

TRAIN, VALID = blobs(192), blobs(96, wrong=0.0, seed=1)
SMALL = {"network": small_mlp, "trials": 6, "generation": 3, "epochs": 3, "batch_size": 32}


def as_arrays(data):
    return data.inputs, data.labels


def as_tensors(data):
    return torch.from_numpy(data.inputs), torch.from_numpy(data.labels)


def as_dataset(data):
    return TensorDataset(*as_tensors(data))


def unlabelled_truth(data):
    """The same without true labels, as users have it."""
    return s2e.LabelledData(data.inputs, data.labels, data.class_names)


def test_arrays_tensors_datasets_and_labelled_data_search_the_same():
    found = [
        s2e.search(shape(TRAIN), shape(VALID), **SMALL)
        for shape in (as_arrays, as_tensors, as_dataset, unlabelled_truth)
    ]
    assert len(found[0].study.trials) == 6
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].schedule, other.schedule)
        assert found[0].validation_accuracy == other.validation_accuracy


def test_a_found_schedule_can_be_trained_with_and_gives_modules():
    found = s2e.search(TRAIN, VALID, **SMALL)
    trained = s2e.train(TRAIN, found.schedule, evaluate={"test": VALID}, network=small_mlp, batch_size=32)
    assert len(trained.networks) == 2
    inputs, labels = as_tensors(VALID)
    with torch.no_grad():
        right = [(network(inputs).argmax(dim=1) == labels).double().mean() for network in trained.networks]
    assert torch.stack(right).mean().item() == pytest.approx(trained.curves.accuracy["test"][0, -1])


def test_a_stored_study_is_continued_and_held_to_its_settings(tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    first = s2e.search(TRAIN, VALID, storage=storage, **SMALL)
    more = s2e.search(TRAIN, VALID, storage=storage, **{**SMALL, "trials": 9})
    assert len(more.study.trials) == 9
    for before, after in zip(first.study.trials, more.study.trials, strict=False):
        assert before.params == after.params
    with pytest.raises(RunConflict, match="other settings"):
        s2e.search(TRAIN, VALID, storage=storage, **{**SMALL, "epochs": 4})


def test_auto_on_a_cpu_is_the_search_of_sixty_trials_six_at_a_time():
    quick = {**SMALL, "epochs": 1, "sampler": "random", "device": "cpu"}
    del quick["trials"], quick["generation"]
    plain, auto = s2e.search(TRAIN, VALID, **quick), s2e.search(TRAIN, VALID, generation="auto", **quick)
    assert plain.generation == auto.generation == auto.study.user_attrs["settings"]["generation"] == 6
    assert [trial.params for trial in auto.study.trials] == [trial.params for trial in plain.study.trials]
    assert len(auto.study.trials) == 60
    np.testing.assert_array_equal(auto.schedule, plain.schedule)
    bounded = s2e.search(TRAIN, VALID, generation="auto", trials=15, **quick)
    assert (bounded.generation, len(bounded.study.trials)) == (3, 15)


def test_a_picked_generation_is_kept_when_its_study_is_continued(tmp_path, monkeypatch):
    storage, seen = f"sqlite:///{tmp_path}/study.db", []

    def finds(size):
        def picked(task, kinds, sizes):
            seen.append((task.method.name, task.batch_size, [kind.learning_rate for kind in kinds], tuple(sizes)))
            return size

        return picked

    auto = {**SMALL, "generation": "auto", "trials": 35, "sampler": "random", "learning_rate": 0.01}
    monkeypatch.setattr(generation_size, "picked", finds(7))
    first = s2e.search(TRAIN, VALID, storage=storage, **auto)
    assert seen == [("coteaching", 32, [0.01], (6, 7))]
    monkeypatch.setattr(generation_size, "picked", lambda *_: pytest.fail("measured again"))
    more = s2e.search(TRAIN, VALID, storage=storage, **{**auto, "trials": 40})
    assert (first.generation, more.generation, len(more.study.trials)) == (7, 7, 40)
    fixed = s2e.search(TRAIN, VALID, **{**auto, "generation": 7, "trials": 40})
    assert [trial.params for trial in more.study.trials] == [trial.params for trial in fixed.study.trials]
    monkeypatch.setattr(generation_size, "picked", finds(6))
    assert s2e.search(TRAIN, VALID, storage=storage, study_name="other", **auto).generation == 6


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"generation": "many"}, "`generation` must be a positive integer or auto, but got 'many'"),
        ({"generation": "auto", "trials": 0}, "`trials` must be at least 1"),
        ({"generation": "auto", "sampler": "moon"}, "`sampler` must be one of"),
    ],
)
def test_bad_numbers_and_names_are_refused_before_anything_is_measured(changes, complaint, monkeypatch):
    monkeypatch.setattr(generation_size, "picked", lambda *_: pytest.fail("measured"))
    with pytest.raises(InvalidInput, match=complaint):
        s2e.search(TRAIN, VALID, **{**SMALL, **changes})


def test_reference_networks_are_chosen_by_the_shape_of_the_data():
    trained = s2e.train(TRAIN, [1.0, 0.5], method="standard", batch_size=32)
    assert sum(p.numel() for p in trained.networks[0].parameters()) == (6 * 256 + 256) + (256 * 4 + 4)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (5, "must be \\(inputs, labels\\) or a dataset"),
        ((TRAIN.inputs, TRAIN.labels.astype(float)), "`labels` must be integers"),
        ((TRAIN.inputs, TRAIN.labels[:-1]), "one entry for each of the 192 inputs"),
        ((TRAIN.inputs * np.nan, TRAIN.labels), "`inputs` must be finite"),
        ((TRAIN.inputs, TRAIN.labels - 1), "must lie in 0..2"),
    ],
)
def test_data_that_cannot_be_used_is_refused(data, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        s2e.search(data, VALID, **SMALL)


def test_public_names_are_all_there_and_importing_them_is_lazy():
    for name in s2e.__all__:
        assert getattr(s2e, name) is not None
    code = "import sys, s2e; assert 'torch' not in sys.modules and 'optuna' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nothing_here"):
        s2e.nothing_here  # noqa: B018
