"""What the engine relies on in every optimizer and learning-rate plan: the named ones, and those a user might write."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from sklearn.base import clone

import s2e
from populations import assert_same
from s2e.engine.learning_rates import Cosine, Linear, Step, WarmUp
from s2e.engine.optimizers import SGD, Adam, AdamW, RMSProp, optimizer_of
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import Coteaching, CoteachingPlus
from small_tasks import blobs, member, task
from user_objects import SignDescent, StackedSignDescent


@dataclass(frozen=True)
class EveryOther:
    """A user's plan: full and half the rate in turns."""

    def factor(self, epoch, epochs):  # noqa: ARG002
        return 1.0 if epoch % 2 == 0 else 0.5


OPTIMIZERS = {
    "Adam": Adam(),
    "AdamW": AdamW(),
    "SGD": SGD(0.9, nesterov=True, weight_decay=5e-4),
    "RMSProp": RMSProp(momentum=0.5),
    "a user's optimizer": SignDescent(),
}
PLANS = {"cosine": Cosine(), "step": Step(), "warm-up": WarmUp(1, Cosine()), "a user's plan": EveryOther()}
RATES = (1e-3, 3e-3, 1e-2)


@pytest.fixture(params=OPTIMIZERS.values(), ids=OPTIMIZERS)
def optimizer(request):
    return request.param


def members():
    return [member(0.8, seed=seed, learning_rate=rate) for seed, rate in enumerate(RATES)]


def test_optimizer_equals_its_copy(optimizer):
    assert optimizer_of(optimizer) is optimizer
    assert replace(optimizer) == optimizer
    assert hash(replace(optimizer)) == hash(optimizer)
    assert optimizer.state_tensors >= 0


@pytest.mark.parametrize("vectorize", [True, False], ids=["vectorized", "loop"])
def test_member_alone_equals_member_among_other_learning_rates(optimizer, vectorize):
    shared = task(blobs(), CoteachingPlus(warm_up=1), optimizer=optimizer, plan=Cosine(), vectorize=vectorize)
    together = train_population(shared, members())
    for index, one in enumerate(members()):
        assert_same(together.take([index]), train_population(shared, [one]), exactly=not vectorize)


def test_members_that_go_on_do_not_depend_on_those_that_stop(optimizer):
    shared = task(blobs(), Coteaching(), optimizer=optimizer)
    together = train_population(shared, members())
    fewer = train_population(shared, members(), stop=lambda finished: [1] if finished.epoch == 2 else [])
    assert_same(fewer.take([0, 2]), together.take([0, 2]))


def test_optimizer_learns(optimizer):
    valid = blobs(96, wrong=0.0, seed=1)
    shared = task(blobs(), Coteaching(), optimizer=optimizer, plan=Cosine(), epochs=15, evaluate={"valid": valid})
    trained = train_population(shared, [member(seed=1, epochs=15, learning_rate=0.02)])
    assert trained.curves.accuracy["valid"][0, -1] > 0.8


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_population_follows_the_plan(plan, monkeypatch):
    factors = []
    monkeypatch.setattr(StackedSignDescent, "scale_learning_rates", lambda _, factor: factors.append(factor))
    train_population(task(blobs(), Coteaching(), optimizer=SignDescent(), plan=plan), [member()])
    assert factors == [plan.factor(epoch, 4) for epoch in range(4)]


def test_hyperparameters_of_members_differ_in_one_population():
    shared = task(blobs(), Coteaching(), optimizer=SGD(0.9))
    mixed = [member(seed=1, learning_rate=0.02, optimizer=each) for each in (None, SGD(), SGD(0.5, weight_decay=0.1))]
    together = train_population(shared, mixed)
    for index, one in enumerate(mixed):
        assert_same(together.take([index]), train_population(shared, [one]))
    with pytest.raises(InvalidInput, match=r"`optimizer` must be of one type .* but got SGD and Adam"):
        train_population(shared, [member(), member(optimizer=Adam())])


def test_a_stored_search_is_not_continued_with_another_optimizer_or_plan(tmp_path):
    train, valid = ((data.inputs, data.labels) for data in (blobs(), blobs(96, seed=1)))
    settings = {"method": "mentornet", "sampler": "random", "trials": 1, "generation_size": 1, "epochs": 2}
    settings |= {"device": "cpu", "storage": f"sqlite:///{tmp_path / 'study.db'}"}
    s2e.search(train, valid, optimizer="sgd:momentum=0.9", **settings)
    s2e.search(train, valid, optimizer=SGD(0.9), plan=Linear(0.4), **settings)
    for other in ({"optimizer": "sgd:momentum=0.8"}, {"optimizer": SGD(0.9), "plan": "cosine"}):
        with pytest.raises(s2e.RunConflict, match="made with other settings"):
            s2e.search(train, valid, **{**settings, **other})


def test_classifier_takes_optimizers_and_plans_by_name_and_object():
    train = blobs()
    chosen = {"n_trials": 2, "epochs": 2, "restarts": 1, "random_state": 0, "learning_rate": 0.02, "device": "cpu"}
    chosen["final_estimator"] = None
    for optimizer, plan in (("sgd:momentum=0.9", "cosine"), (SGD(0.9), EveryOther())):
        classifier = s2e.S2EClassifier(optimizer=optimizer, plan=plan, **chosen)
        assert clone(classifier).fit(train.inputs, train.labels).epochs_ == 2
    for wrong in ({"optimizer": "sdg"}, {"plan": "cosin"}, {"plan": "cosine:warmup=2"}):
        with pytest.raises(InvalidInput, match="must be"):
            s2e.S2EClassifier(**{**chosen, **wrong}).fit(None, None)


def test_names_and_objects_train_alike():
    train, schedule = blobs(), [0.8] * 3
    settings = {"learning_rate": 0.02, "device": "cpu", "method": "mentornet"}
    by_name, by_object = (
        s2e.train((train.inputs, train.labels), schedule, optimizer=optimizer, plan=plan, **settings)
        for optimizer, plan in (
            ("sgd:momentum=0.9,weight_decay=5e-4", "cosine:warmup=1"),
            (SGD(0.9, weight_decay=5e-4), WarmUp(1, Cosine())),
        )
    )
    for one, other in zip(by_name.networks[0].parameters(), by_object.networks[0].parameters(), strict=True):
        assert torch.equal(one, other)
