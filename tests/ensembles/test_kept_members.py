"""Members kept by a search: the best, within bounds, also after a break."""

from __future__ import annotations

import pytest
import torch

from s2e.engine import VALIDATION
from s2e.engine.training import train_population
from s2e.ensembles.kept_members import KEPT, KeptMembers
from s2e.errors import UnreadableData
from s2e.methods import Coteaching
from s2e.runs.directory import Run
from small_tasks import blobs, member, task


@pytest.fixture(scope="module")
def generations():
    """Two generations of three members, and their outcomes."""
    shared = task(blobs(), Coteaching(), evaluate={VALIDATION: blobs(96, seed=1)})
    members = [[member(0.3 + 0.1 * index, seed=3 * half + index) for index in range(3)] for half in range(2)]
    return [(each, train_population(shared, each)) for each in members]


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", {})


def expected(generations, most):
    scored = [
        (float(score), one.seed)
        for members, trained in generations
        for one, score in zip(members, trained.curves.last(VALIDATION), strict=True)
    ]
    return [seed for _, seed in sorted(scored, key=lambda each: -each[0])[:most]]


@pytest.mark.parametrize("most", [1, 4, 6])
def test_the_best_members_are_kept_with_their_weights(generations, most):
    kept = KeptMembers(most=most)
    for members, trained in generations:
        kept.add(members, trained)
    assert [one.seed for one in kept.members] == expected(generations, most)
    best = kept.members[0]
    half, index = divmod(best.seed, 3)
    trained = generations[half][1]
    for name, tensor in trained.state.items():
        assert torch.equal(best.state[name], tensor[trained.rows(index)])


def test_bytes_are_bounded_but_one_member_is_always_kept(generations):
    members, trained = generations[0]
    whole = KeptMembers()
    whole.add(members, trained)
    size = whole.members[0].bytes
    for most_bytes, count in ((2 * size, 2), (2 * size - 1, 1), (1, 1)):
        kept = KeptMembers(most_bytes=most_bytes)
        kept.add(members, trained)
        assert len(kept.members) == count


def test_a_break_changes_nothing(generations, run):
    whole, first = KeptMembers(most=4), KeptMembers(run, most=4)
    first.add(*generations[0])
    resumed = KeptMembers(run, most=4)
    resumed.add(*generations[0])  # the scores of this generation were not stored, so it is trained again
    resumed.add(*generations[1])
    for each in generations:
        whole.add(*each)
    for again in (resumed, KeptMembers(run, most=4)):
        assert [one.seed for one in again.members] == [one.seed for one in whole.members]
        for one, other in zip(again.members, whole.members, strict=True):
            assert all(torch.equal(one.state[name], other.state[name]) for name in other.state)


def test_diverged_members_are_not_kept():
    train = blobs()
    shared = task(train, Coteaching(), evaluate={VALIDATION: train})
    members = [member(seed=0), member(seed=1, learning_rate=1e30)]
    kept = KeptMembers()
    kept.add(members, train_population(shared, members))
    assert [one.seed for one in kept.members] == [0]


def test_a_damaged_file_is_refused(generations, run):
    KeptMembers(run).add(*generations[0])
    run.write_weights(KEPT, {"x.weight": torch.zeros(1)}, {"trials": '{"seeds": [1], "scores": [0.5]}'})
    with pytest.raises(UnreadableData, match="damaged"):
        KeptMembers(run)


@pytest.mark.parametrize("change", ["shape", "type", "name", "networks", "digits"])
def test_members_of_another_network_are_refused(change, generations, run):
    shared = task(blobs(), Coteaching())
    KeptMembers(run).add(*generations[0])
    KeptMembers(run).check(shared.network)
    tensors, metadata = run.read_weights(KEPT)
    name = min(tensors)
    changed = {
        "shape": {name: tensors[name][..., None]},
        "type": {name: tensors[name].double()},
        "name": {f"{name}x": tensors[name]},
        "networks": {name: tensors[name][:1]},
        "digits": {"9" * 5000 + ".weight": tensors[name]},
    }[change]
    run.write_weights(KEPT, {**{key: tensor for key, tensor in tensors.items() if key != name}, **changed}, metadata)
    with pytest.raises(UnreadableData, match="remove it and resume the run"):
        KeptMembers(run).check(shared.network)
