"""Two-stage training: estimates of the transition matrix, trained populations, and the order of members."""

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

from populations import assert_same, train_with_states
from s2e.data.samples import LabelledData
from s2e.engine import two_stage
from s2e.engine.task import EpochFinished, Member, Task, Trained
from s2e.engine.training import train_population
from s2e.engine.two_stage import estimate_transitions, stages_needed, train_in_two_stages
from s2e.methods import Coteaching, ForwardCorrection, MentorNet, Standard
from small_tasks import TRANSITION, blobs, member, small_mlp, task

EPOCHS = 5


def a_task(method: Any = None, **changes: Any) -> Task:
    evaluate = {"valid": blobs(96, wrong=0.0, seed=1)}
    return task(blobs(), method or Standard(), **{"evaluate": evaluate, "epochs": EPOCHS, **changes})


def a_member(method: Any = None, seed: int = 0, **changes: Any) -> Member:
    given = {"learning_rate": 3e-2, "transition": None, **changes}
    return member(seed=seed, epochs=EPOCHS, method=method, **given)


CORRECTED, PLAIN = ForwardCorrection(), Standard()


class TrainedPopulations:
    """Tasks and members of the populations that `two_stage` trains."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.members: list[list[Member]] = []
        self.tasks: list[Task] = []

        def recorded(task: Task, members: Sequence[Member], **named: Any) -> Trained:
            self.tasks.append(task)
            self.members.append(list(members))
            return train_population(task, members, **named)

        monkeypatch.setattr(two_stage, "train_population", recorded)


@pytest.fixture
def populations(monkeypatch: pytest.MonkeyPatch) -> TrainedPopulations:
    return TrainedPopulations(monkeypatch)


def probabilities(network: nn.Module, state: dict[str, Tensor], row: int, inputs: Tensor) -> NDArray[np.float64]:
    network.load_state_dict({name: tensor[row] for name, tensor in state.items()})
    with torch.no_grad():
        return network.eval()(inputs).softmax(dim=1).double().numpy()


def matrix_by_loops(p: NDArray[np.float64], percentile: float | None = 97.0) -> NDArray[np.float64]:
    """Row i: the prediction for the sample with the largest p_i among those strictly below the percentile of p_i."""
    samples, classes = p.shape
    rows = []
    for label in range(classes):
        ranked = sorted(range(samples), key=lambda n: (-p[n, label], n))
        if percentile is not None:
            bound = sorted(p[:, label])[math.ceil(percentile / 100 * (samples - 1))]
            ranked = [n for n in ranked if p[n, label] < bound]
        rows.append(p[ranked[0]] / p[ranked[0]].sum())
    return np.array(rows)


# The transition matrix


def test_matrix_is_estimated_at_the_best_validation_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, states = train_with_states(a_task(), [a_member(PLAIN)], monkeypatch)
    best = int(np.argmax(plain.curves.accuracy["valid"][0]))
    assert best < EPOCHS - 1
    inputs = torch.from_numpy(a_task().train.inputs)
    expected = matrix_by_loops(probabilities(small_mlp(), states[best], 0, inputs))
    at_the_end = matrix_by_loops(probabilities(small_mlp(), states[-1], 0, inputs))
    assert np.abs(expected - at_the_end).max() > 0.05
    (found,) = train_in_two_stages(a_task(), [a_member(CORRECTED)]).members
    np.testing.assert_allclose(found.transition, expected, rtol=1e-5)
    (without_validation,) = train_in_two_stages(a_task(evaluate={}), [a_member(CORRECTED)]).members
    np.testing.assert_allclose(without_validation.transition, at_the_end, rtol=1e-5)


def test_best_epoch_does_not_depend_on_test_data() -> None:
    valid = a_task().evaluate["valid"]
    shifted = replace(valid, labels=(valid.labels + 1) % 4)  # best where validation is worst
    both = a_task(evaluate={"test": shifted, "valid": valid})
    one, other = (train_in_two_stages(each, [a_member(CORRECTED)]).members[0] for each in (both, a_task()))
    np.testing.assert_array_equal(one.transition, other.transition)


def test_matrix_depends_on_labels_and_seed() -> None:
    shifted = (blobs().labels + 1) % 4
    members = [a_member(CORRECTED, 0), a_member(CORRECTED, 1), a_member(CORRECTED, 0, labels=shifted)]
    found = [each.transition for each in train_in_two_stages(a_task(), members).members]
    (alone,) = train_in_two_stages(a_task(), members[2:]).members
    np.testing.assert_array_equal(found[2], alone.transition)
    assert not np.allclose(found[0], found[1])
    assert not np.allclose(found[0], found[2])


def test_no_percentile_with_a_hundred_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    data = LabelledData(
        generator.normal(size=(200, 6)).astype(np.float32), np.arange(200) % 100, tuple(map(str, range(100)))
    )

    def network() -> nn.Module:
        return nn.Linear(6, 100)

    many = task(data, Standard(), network=network, epochs=1)
    _, states = train_with_states(many, [Member(np.ones(1), 0)], monkeypatch)
    p = probabilities(network(), states[-1], 0, torch.from_numpy(data.inputs))
    (found,) = train_in_two_stages(many, [Member(np.ones(1), 0, method=CORRECTED)]).members
    np.testing.assert_allclose(found.transition, matrix_by_loops(p, None), rtol=1e-5)
    assert not np.allclose(matrix_by_loops(p, None), matrix_by_loops(p), rtol=1e-3)


def test_matrix_has_no_outputs_beyond_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide() -> nn.Module:
        return small_mlp(classes=7)

    more = a_task(network=wide, evaluate={})
    _, states = train_with_states(more, [a_member(PLAIN)], monkeypatch)
    p = probabilities(wide(), states[-1], 0, torch.from_numpy(more.train.inputs))
    (found,) = train_in_two_stages(more, [a_member(CORRECTED)]).members
    np.testing.assert_allclose(found.transition, matrix_by_loops(p[:, :4]), rtol=1e-5)


def test_matrices_of_some_members() -> None:
    """Indices of members differ from indices of networks if a method has two."""
    members = [a_member(Coteaching(), 5), a_member(PLAIN, 0), a_member(Coteaching(), 6), a_member(PLAIN, 1)]
    trained = train_population(a_task(), members)
    found = estimate_transitions(a_task(), trained, [3, 1])
    inputs = torch.from_numpy(a_task().train.inputs)
    for matrix, row in zip(found, (5, 2), strict=True):
        expected = matrix_by_loops(probabilities(small_mlp(), trained.state, row, inputs))
        np.testing.assert_allclose(matrix, expected, rtol=1e-5)


# Populations


def names(members: Sequence[Member]) -> list[tuple[str, int]]:
    return [("none" if each.method is None else each.method.name, each.seed) for each in members]


def test_standard_members_are_trained_once(populations: TrainedPopulations) -> None:
    needing = [a_member(CORRECTED, 0), a_member(CORRECTED, 1), a_member(CORRECTED, 1)]
    train_in_two_stages(a_task(), [*needing, a_member(PLAIN, 0), a_member(PLAIN, 2)])
    first, second = populations.members
    assert names(first) == [("standard", 0), ("standard", 2), ("standard", 1)]
    assert names(second) == names(needing)


def test_method_of_the_task_applies_to_members_without_one(populations: TrainedPopulations) -> None:
    train_in_two_stages(a_task(Standard()), [a_member(None), a_member(CORRECTED)])
    train_in_two_stages(a_task(ForwardCorrection()), [a_member(None)])
    methods = [[name for name, _ in names(members)] for members in populations.members]
    assert methods == [["none"], ["f-correction"], ["standard"], ["none"]]


@pytest.mark.parametrize(
    ("other", "first_stage"),
    [
        ({"seed": 1}, 2),
        ({"labels": (blobs().labels + 1) % 4}, 2),
        ({"method": MentorNet()}, 2),
        ({"schedule": np.ones(EPOCHS)}, 1),  # Standard does not use it
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_first_stage_is_shared_only_by_equal_trainings(
    populations: TrainedPopulations, other: Any, first_stage: int
) -> None:
    result = train_in_two_stages(a_task(), [replace(a_member(PLAIN), **other), a_member(CORRECTED)])
    assert len(populations.members[0]) == first_stage
    assert_same(result.trained.take([1]), train_in_two_stages(a_task(), [a_member(CORRECTED)]).trained)


def test_given_matrix_is_used_in_one_population(populations: TrainedPopulations) -> None:
    members = [a_member(CORRECTED, transition=TRANSITION), a_member(PLAIN)]
    trained, as_trained = train_in_two_stages(a_task(), members)
    assert names(populations.members[0]) == names(members)
    assert as_trained == members
    assert as_trained[0].transition is TRANSITION
    assert populations.tasks[0].keep_best_on is None
    assert_same(trained.take([0]), train_population(a_task(), members[:1]))


@pytest.mark.parametrize(
    ("members", "stages"),
    [
        ([a_member(PLAIN), a_member(CORRECTED, transition=TRANSITION)], 1),
        ([a_member(CORRECTED)], 2),
        ([a_member(PLAIN), a_member(CORRECTED), a_member(CORRECTED, 1)], 2),
    ],
)
def test_stages_needed_are_those_trained(populations: TrainedPopulations, members: list[Member], stages: int) -> None:
    events: list[EpochFinished] = []
    assert stages_needed(a_task(), members) == stages
    train_in_two_stages(a_task(), members, on_epoch=events.append)
    assert len(populations.members) == stages
    assert len(events) == stages * EPOCHS


def test_members_are_stopped_in_both_stages() -> None:
    result = train_in_two_stages(a_task(), [a_member(CORRECTED)], stop=lambda event: event.indices)
    assert result.trained.curves.epochs.tolist() == [1]


# Outcomes


MIXED = [
    a_member(CORRECTED, 3),
    a_member(Coteaching(), 1),
    a_member(CORRECTED, 2, transition=TRANSITION),
    a_member(PLAIN, 3),
    a_member(CORRECTED, 4, learning_rate=1e-2),
    a_member(MentorNet(), 0),
]


def test_members_equal_members_trained_alone() -> None:
    trained, as_trained = train_in_two_stages(a_task(), MIXED)
    assert trained.networks_per_member == (1, 2, 1, 1, 1, 1)
    for index, (given, final) in enumerate(zip(MIXED, as_trained, strict=True)):
        assert_same(trained.take([index]), train_in_two_stages(a_task(), [given]).trained)
        if given.method is CORRECTED and given.transition is None:
            assert final.transition is not None
            assert final.transition.shape == (4, 4)
            np.testing.assert_allclose(final.transition.sum(axis=1), 1)
            assert replace(final, transition=None) == given
            assert_same(trained.take([index]), train_population(a_task(), [final]))
        else:
            assert final is given


def test_first_stage_is_reported_before_the_second(populations: TrainedPopulations) -> None:
    reported: list[tuple[list[int], Trained]] = []

    def report(indices: list[int], trained: Trained) -> None:
        assert len(populations.members) == 1
        reported.append((indices, trained))

    trained, _ = train_in_two_stages(a_task(), MIXED, on_first_stage=report)
    ((indices, finished),) = reported
    assert indices == [1, 2, 3, 5]
    assert_same(trained.take(indices), replace(finished, best_state=None))


def test_first_stage_is_not_reported_if_empty_or_last() -> None:
    for members in ([a_member(CORRECTED)], [a_member(PLAIN)]):
        train_in_two_stages(a_task(), members, on_first_stage=lambda *_: pytest.fail("reported"))


def test_diverged_first_stage_affects_its_own_member_only() -> None:
    diverging = a_member(CORRECTED, learning_rate=1e35)
    trained, as_trained = train_in_two_stages(a_task(), [diverging, a_member(CORRECTED, 1), a_member(PLAIN, 1)])
    assert trained.curves.diverged.tolist() == [True, False, False]
    assert np.isfinite(as_trained[1].transition).all()
    assert_same(trained.take([1]), train_in_two_stages(a_task(), [a_member(CORRECTED, 1)]).trained)
