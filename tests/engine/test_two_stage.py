"""Trainings in two stages: where the transition matrix is read off, who is trained how often, and in which order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from populations import trained_with_states
from s2e.data.samples import LabelledData
from s2e.engine import two_stage
from s2e.engine.inference import predictions
from s2e.engine.task import EpochFinished, Member, Task, Trained
from s2e.engine.training import train_population
from s2e.engine.two_stage import estimated_transitions, populations_needed, train_in_stages
from s2e.methods import Coteaching, ForwardCorrection, MentorNet, Standard
from small_tasks import TRANSITION, blobs, member, small_mlp, task

EPOCHS = 8
CPU = torch.device("cpu")


def a_task(method: Any = None, **changes: Any) -> Task:
    evaluate = {"valid": blobs(96, wrong=0.0, seed=1)}
    return task(blobs(), method or Standard(), **{"evaluate": evaluate, "epochs": EPOCHS, **changes})


def a_member(method: Any = None, seed: int = 0, **changes: Any) -> Member:
    given = {"learning_rate": 3e-2, "transition": None, **changes}
    return member(seed=seed, epochs=EPOCHS, method=method, **given)


CORRECTED, PLAIN = ForwardCorrection(), Standard()


class Watched:
    """Populations as they are trained, with the state of all networks after every epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.members: list[list[Member]] = []
        self.tasks: list[Task] = []
        self._patched = monkeypatch

        def trained(task: Task, members: Sequence[Member], **named: Any) -> Trained:
            self.tasks.append(task)
            self.members.append(list(members))
            return train_population(task, members, **named)

        monkeypatch.setattr(two_stage, "train_population", trained)

    def states_of(self, task: Task, members: Sequence[Member]) -> tuple[Trained, list[dict[str, Tensor]]]:
        return trained_with_states(task, members, self._patched)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def probabilities(network: nn.Module, state: dict[str, Tensor], row: int, inputs: Tensor) -> NDArray[np.float64]:
    network.load_state_dict({name: tensor[row] for name, tensor in state.items()})
    with torch.no_grad():
        return network.eval()(inputs).softmax(dim=1).double().numpy()


def slow_matrix(p: NDArray[np.float64], percentile: float | None = 97.0) -> NDArray[np.float64]:
    """Row i: the prediction at the sample with the largest p_i, among those strictly below the percentile of p_i."""
    samples, classes = p.shape
    rows = []
    for label in range(classes):
        ranked = sorted(range(samples), key=lambda n: (-p[n, label], n))
        if percentile is not None:
            bound = sorted(p[:, label])[math.ceil(percentile / 100 * (samples - 1))]
            ranked = [n for n in ranked if p[n, label] < bound]
        rows.append(p[ranked[0]] / p[ranked[0]].sum())
    return np.array(rows)


def assert_same_training(found: Trained, place: int, alone: Trained) -> None:
    """The member at a place is, to the last bit, the only one of another training."""
    for name, curve in alone.curves.arrays().items():
        np.testing.assert_array_equal(found.curves.arrays()[name][place], curve[0], err_msg=name)
    for name in ("kept", "agreed", "loss"):
        np.testing.assert_array_equal(getattr(found.dynamics, name)[place], getattr(alone.dynamics, name)[0])
    assert found.networks[place] == alone.networks[0]
    for name, tensor in alone.state.items():
        assert torch.equal(found.state[name][found.rows(place)], tensor), name


# Where the matrix is read off


def test_the_matrix_is_read_at_the_best_validation_epoch(watched: Watched) -> None:
    for seed in (0, 1):
        plain, states = watched.states_of(a_task(), [a_member(PLAIN, seed)])
        best = int(np.argmax(plain.curves.accuracy["valid"][0]))  # the first of equals
        assert best < EPOCHS - 1
        inputs = torch.from_numpy(a_task().train.inputs)
        expected = slow_matrix(probabilities(small_mlp(), states[best], 0, inputs))
        in_the_end = slow_matrix(probabilities(small_mlp(), states[-1], 0, inputs))
        (found,) = train_in_stages(a_task(), [a_member(CORRECTED, seed)]).members
        np.testing.assert_allclose(found.transition, expected, rtol=1e-5)
        assert np.abs(expected - in_the_end).max() > 0.05


def test_without_validation_the_matrix_is_read_in_the_end(watched: Watched) -> None:
    blind = a_task(evaluate={})
    _, states = watched.states_of(blind, [a_member(PLAIN)])
    expected = slow_matrix(probabilities(small_mlp(), states[-1], 0, torch.from_numpy(blind.train.inputs)))
    (found,) = train_in_stages(blind, [a_member(CORRECTED)]).members
    np.testing.assert_allclose(found.transition, expected, rtol=1e-5)


def test_the_best_epoch_is_that_of_validation_and_not_of_test(watched: Watched) -> None:
    valid = a_task().evaluate["valid"]
    turned = replace(valid, labels=(valid.labels + 1) % 4)  # what is best here is worst there
    both = a_task(evaluate={"test": turned, "valid": valid})
    one, other = (train_in_stages(given, [a_member(CORRECTED)]).members[0] for given in (both, a_task()))
    np.testing.assert_array_equal(one.transition, other.transition)


def test_each_member_has_the_matrix_of_its_own_labels_and_seed() -> None:
    turned = (blobs().labels + 1) % 4
    members = [a_member(CORRECTED, 0), a_member(CORRECTED, 1), a_member(CORRECTED, 0, labels=turned)]
    found = [each.transition for each in train_in_stages(a_task(), members).members]
    alone = [train_in_stages(a_task(), [each]).members[0].transition for each in members]
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.allclose(found[0], found[1])
    assert not np.allclose(found[0], found[2])


def test_with_a_hundred_classes_no_percentile_is_left_out(watched: Watched) -> None:
    generator = np.random.default_rng(0)
    data = LabelledData(
        generator.normal(size=(200, 6)).astype(np.float32), np.arange(200) % 100, tuple(map(str, range(100)))
    )

    def network() -> nn.Module:
        return nn.Linear(6, 100)

    many = task(data, Standard(), network=network, epochs=1)
    schedule = np.ones(1)
    _, states = watched.states_of(many, [Member(schedule, 0)])
    p = probabilities(network(), states[-1], 0, torch.from_numpy(data.inputs))
    (found,) = train_in_stages(many, [Member(schedule, 0, method=CORRECTED)]).members
    np.testing.assert_allclose(found.transition, slow_matrix(p, None), rtol=1e-5)
    assert not np.allclose(slow_matrix(p, None), slow_matrix(p), rtol=1e-3)


def test_outputs_beyond_the_classes_are_no_part_of_the_matrix(watched: Watched) -> None:
    def wide() -> nn.Module:
        return small_mlp(classes=7)

    more = a_task(network=wide, evaluate={})
    _, states = watched.states_of(more, [a_member(PLAIN)])
    p = probabilities(wide(), states[-1], 0, torch.from_numpy(more.train.inputs))
    (found,) = train_in_stages(more, [a_member(CORRECTED)]).members
    np.testing.assert_allclose(found.transition, slow_matrix(p[:, :4]), rtol=1e-5)


# Who is trained, and how often


def methods(members: Sequence[Member]) -> list[str]:
    return ["none" if each.method is None else each.method.name for each in members]


def test_a_standard_member_that_is_there_anyway_is_not_trained_twice(watched: Watched) -> None:
    members = [a_member(CORRECTED, 0), a_member(PLAIN, 0), a_member(CORRECTED, 1), a_member(PLAIN, 2)]
    train_in_stages(a_task(), members)
    first, second = watched.members
    assert [(each.method.name, each.seed) for each in first if each.method] == [
        ("standard", 0),
        ("standard", 2),
        ("standard", 1),
    ]
    assert [(each.method.name, each.seed) for each in second if each.method] == [
        ("f-correction", 0),
        ("f-correction", 1),
    ]


def test_the_method_of_the_task_counts_as_that_of_its_members(watched: Watched) -> None:
    train_in_stages(a_task(Standard()), [a_member(None), a_member(CORRECTED)])
    assert [methods(each) for each in watched.members] == [["none"], ["f-correction"]]
    train_in_stages(a_task(ForwardCorrection()), [a_member(None)])
    assert [methods(each) for each in watched.members[2:]] == [["standard"], ["none"]]


@pytest.mark.parametrize(
    "other",
    [{"seed": 1}, {"learning_rate": 1e-2}, {"labels": (blobs().labels + 1) % 4}, {"method": MentorNet()}],
    ids=lambda other: next(iter(other)),
)
def test_a_member_that_differs_in_more_than_the_schedule_does_not_serve(watched: Watched, other: Any) -> None:
    result = train_in_stages(a_task(), [replace(a_member(PLAIN), **other), a_member(CORRECTED)])
    assert len(watched.members[0]) == 2
    alone = train_in_stages(a_task(), [a_member(CORRECTED)])
    assert_same_training(result.trained, 1, alone.trained)


def test_a_standard_member_serves_whatever_its_schedule(watched: Watched) -> None:
    """Standard does not look at it."""
    result = train_in_stages(a_task(), [replace(a_member(PLAIN), schedule=np.ones(EPOCHS)), a_member(CORRECTED)])
    assert [len(each) for each in watched.members] == [1, 1]
    assert_same_training(result.trained, 1, train_in_stages(a_task(), [a_member(CORRECTED)]).trained)


def test_two_that_need_the_same_matrix_share_one_training(watched: Watched) -> None:
    result = train_in_stages(a_task(), [a_member(CORRECTED), a_member(CORRECTED)])
    assert [len(each) for each in watched.members] == [1, 2]
    np.testing.assert_array_equal(result.members[0].transition, result.members[1].transition)


def test_a_matrix_that_is_given_is_used_as_it_is_in_one_population(watched: Watched) -> None:
    members = [a_member(CORRECTED, transition=TRANSITION), a_member(PLAIN)]
    trained, as_trained = train_in_stages(a_task(), members)
    assert [methods(each) for each in watched.members] == [["f-correction", "standard"]]
    assert as_trained == members
    assert as_trained[0].transition is TRANSITION
    assert watched.tasks[0].remember_best is None
    assert_same_training(trained, 0, train_population(a_task(), members[:1]))


@pytest.mark.parametrize(
    ("members", "populations"),
    [
        ([a_member(PLAIN), a_member(MentorNet())], 1),
        ([a_member(CORRECTED, transition=TRANSITION)], 1),
        ([a_member(CORRECTED)], 2),
        ([a_member(PLAIN), a_member(CORRECTED), a_member(CORRECTED, 1)], 2),
    ],
)
def test_the_populations_announced_are_those_trained(watched: Watched, members: list[Member], populations: int) -> None:
    epochs: list[EpochFinished] = []
    assert populations_needed(a_task(), members) == populations
    train_in_stages(a_task(), members, on_epoch=epochs.append)
    assert len(watched.members) == populations
    assert len(epochs) == populations * EPOCHS


# What comes of it


MIXED = [
    a_member(CORRECTED, 3),
    a_member(Coteaching(), 1),
    a_member(CORRECTED, 2, transition=TRANSITION),
    a_member(PLAIN, 3),
    a_member(CORRECTED, 4, learning_rate=1e-2),
    a_member(MentorNet(), 0),
]


def test_every_member_has_its_place_and_equals_itself_trained_alone() -> None:
    trained, as_trained = train_in_stages(a_task(), MIXED)
    assert trained.networks == (1, 2, 1, 1, 1, 1)
    for place, (given, final) in enumerate(zip(MIXED, as_trained, strict=True)):
        assert_same_training(trained, place, train_in_stages(a_task(), [given]).trained)
        assert_same_training(trained, place, train_population(a_task(), [final]))


def test_members_as_trained_carry_their_matrix_and_are_otherwise_as_given() -> None:
    _, as_trained = train_in_stages(a_task(), MIXED)
    for given, final in zip(MIXED, as_trained, strict=True):
        if given.method is CORRECTED and given.transition is None:
            assert final.transition is not None
            assert final.transition.shape == (4, 4)
            np.testing.assert_allclose(final.transition.sum(axis=1), 1)
            assert replace(final, transition=None) == given
        else:
            assert final is given


def test_correction_alone_has_the_same_outcome_as_in_company() -> None:
    trained, as_trained = train_in_stages(a_task(), [a_member(CORRECTED, 1), a_member(CORRECTED, 0)])
    assert len(trained.curves.loss) == 2  # the trainings before them are gone
    assert [each.seed for each in as_trained] == [1, 0]
    for place, seed in enumerate((1, 0)):
        assert_same_training(trained, place, train_in_stages(a_task(), [a_member(CORRECTED, seed)]).trained)


def test_what_is_finished_is_told_before_the_second_population(watched: Watched) -> None:
    told: list[tuple[list[int], Trained]] = []

    def tell(places: list[int], trained: Trained) -> None:
        assert len(watched.members) == 1
        told.append((places, trained))

    trained, _ = train_in_stages(a_task(), MIXED, on_first=tell)
    ((places, finished),) = told
    assert places == [1, 2, 3, 5]
    assert finished.networks == (2, 1, 1, 1)
    for place, own in enumerate(places):
        assert_same_training(trained, own, finished.take([place]))


def test_nothing_is_told_where_nobody_is_finished_or_everybody_is() -> None:
    for members in ([a_member(CORRECTED)], [a_member(PLAIN)]):
        train_in_stages(a_task(), members, on_first=lambda *_: pytest.fail("told"))


def test_a_first_training_that_diverges_takes_only_its_own_correction_with_it() -> None:
    broken = a_member(CORRECTED, learning_rate=1e35)
    trained, as_trained = train_in_stages(a_task(), [broken, a_member(CORRECTED, 1), a_member(PLAIN, 1)])
    assert trained.curves.diverged.tolist() == [True, False, False]
    assert as_trained[1].transition is not None
    assert np.isfinite(as_trained[1].transition).all()
    assert_same_training(trained, 1, train_in_stages(a_task(), [a_member(CORRECTED, 1)]).trained)


# Matrices and predictions of trained networks


def test_matrices_are_those_of_the_members_asked_for() -> None:
    """Places of members are not places of networks where some have two."""
    members = [a_member(Coteaching(), 5), a_member(PLAIN, 0), a_member(Coteaching(), 6), a_member(PLAIN, 1)]
    trained = train_population(a_task(), members)
    found = estimated_transitions(a_task(), trained, [3, 1])
    inputs = torch.from_numpy(a_task().train.inputs)
    for matrix, row in zip(found, (5, 2), strict=True):
        expected = slow_matrix(probabilities(small_mlp(), trained.state, row, inputs))
        np.testing.assert_allclose(matrix, expected, rtol=1e-5)


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


@pytest.mark.parametrize("rows", [1 << 16, 100, 1], ids=["at once", "in parts", "one by one"])
def test_predictions_are_those_of_the_networks_in_evaluation_mode(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_stage, "PREDICTED_ROWS", rows)
    given = a_task(network=with_batch_norm)
    trained = train_population(given, [a_member(PLAIN), a_member(PLAIN, 1), a_member(PLAIN, 2)])
    before = {name: tensor.clone() for name, tensor in trained.state.items()}
    found = predictions(given, trained.state)
    assert found.shape == (3, 192, 4)
    inputs = torch.from_numpy(given.train.inputs)
    for row in range(3):
        expected = probabilities(with_batch_norm(), trained.state, row, inputs)
        np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-6)
    for name, tensor in before.items():
        assert torch.equal(trained.state[name], tensor), name


def test_pixels_are_scaled_before_they_are_predicted() -> None:
    images = np.random.default_rng(0).integers(0, 256, (64, 2, 3), dtype=np.uint8)
    data = LabelledData(images, np.arange(64) % 4, tuple("abcd"))

    def network() -> nn.Module:
        return nn.Sequential(nn.Flatten(), small_mlp())

    given = task(data, Standard(), network=network)
    trained = train_population(given, [member(method=PLAIN)])
    scaled = torch.from_numpy(images).float() / 255
    expected = probabilities(network(), trained.state, 0, scaled)
    np.testing.assert_allclose(predictions(given, trained.state)[0], expected, rtol=1e-4, atol=1e-6)
