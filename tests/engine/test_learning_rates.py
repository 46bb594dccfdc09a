"""Learning-rate plans equal torch's schedulers, and the plan of the papers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch.optim import lr_scheduler

from s2e.engine.learning_rates import PLANS, Constant, Cosine, Linear, Step, WarmUp, check_plan, plan_of
from s2e.errors import InvalidInput

EVERY_PLAN = [*(kind() for kind in PLANS.values()), Linear(0.0), Linear(1.0), WarmUp(1, Cosine()), WarmUp(2)]


def factors(plan, epochs):
    return [plan.factor(epoch, epochs) for epoch in range(epochs)]


def factors_of_torch(scheduler, epochs, **settings):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    plan, found = scheduler(optimizer, **settings), []
    for _ in range(epochs):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        plan.step()
    return found


@pytest.mark.parametrize(
    ("epochs", "epoch", "factor"),
    [(200, 0, 1.0), (200, 80, 1.0), (200, 81, 119 / 120), (200, 140, 0.5), (200, 199, 1 / 120), (1, 0, 1.0)],
)
def test_linear_plan_of_the_papers(epochs, epoch, factor):
    assert Linear().factor(epoch, epochs) == pytest.approx(factor)


def test_plans_equal_schedulers_of_torch():
    cosine = factors_of_torch(lr_scheduler.CosineAnnealingLR, 30, T_max=30)
    step = factors_of_torch(lr_scheduler.MultiStepLR, 30, milestones=[10, 15, 24], gamma=0.3)
    linear = factors_of_torch(lr_scheduler.PolynomialLR, 30, total_iters=30)
    constant = factors_of_torch(lr_scheduler.ConstantLR, 30, factor=1.0)
    for plan, expected in (
        (Cosine(), cosine),
        (Step((1 / 3, 0.5, 0.8), 0.3), step),
        (Linear(0.0), linear),
        (Constant(), constant),
    ):
        assert factors(plan, 30) == pytest.approx(expected)


def test_warm_up_rises_then_the_plan_takes_the_other_epochs():
    found = factors(WarmUp(3, Cosine()), 13)
    assert found == pytest.approx([0.25, 0.5, 0.75, *factors(Cosine(), 10)])


@pytest.mark.parametrize("plan", EVERY_PLAN, ids=repr)
@pytest.mark.parametrize("epochs", [3, 33])
def test_rates_stay_positive_and_at_most_1(plan, epochs):
    check_plan(plan, epochs)
    assert all(0 < factor <= 1 for factor in factors(plan, epochs))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constant", Constant()),
        ("linear", Linear(0.4)),
        ("linear:start=0.25", Linear(0.25)),
        ("cosine:warmup=5", WarmUp(5, Cosine())),
        ("cosine:warmup=0", Cosine()),
        ("step:milestones=0.3-0.6-0.9,gamma=0.2,warmup=2", WarmUp(2, Step((0.3, 0.6, 0.9), 0.2))),
    ],
)
def test_plan_by_name(text, expected):
    assert plan_of(text) == expected
    assert plan_of(expected) is expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("cosin", r"`plan` must be one of cosine, .*, but got 'cosin'"),
        ("linear:end=0.4", r"must be one of start, warmup, but got 'end'"),
        ("linear:start=1.5", r"`start` must lie in \[0, 1\], but got 1.5"),
        ("step:milestones=0.5-2", r"`milestones` must be shares of the epochs .*, but got 0.5-2"),
        ("step:milestones=half", r"`milestones` of plan step must be numbers separated by hyphens, .*'half'"),
        ("step:gamma=0", r"`gamma` must be positive and finite, but got 0"),
        ("cosine:warmup=-1", r"`warmup` of plan cosine must be a number of epochs, .*'-1'"),
        (Cosine, r"`s2e.LearningRatePlan`, .*, but got the class Cosine"),
        (lambda epoch: 1.0, r"`s2e.LearningRatePlan`, .*, but got function"),  # noqa: ARG005
    ],
)
def test_wrong_plans_are_refused(wrong, message):
    with pytest.raises(InvalidInput, match=message):
        plan_of(wrong)


@dataclass(frozen=True)
class Always:
    """A user's plan."""

    value: float

    def factor(self, epoch, epochs):
        return self.value if epochs > 1 or epoch == 0 else 1.0


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Always(0.0), r"`plan` must rise above 0 in one of the 3 epochs, but got 0 for all: Always\(value=0.0\)"),
        (Always(-1.0), r"`plan` must give finite factors of at least 0, but got -1.0 for epoch 0"),
        (Always(math.nan), r"`plan` must give finite factors of at least 0, but got nan"),
        (Always("0.5"), r"`plan` must give finite factors of at least 0, but got str for epoch 0"),
        (Always(None), r"`plan` must give finite factors of at least 0, but got NoneType for epoch 0"),
        (WarmUp(3), r"`warmup` must be less than the 3 epochs of a training, but got 3"),
    ],
)
def test_plans_that_cannot_train_are_refused(plan, message):
    with pytest.raises(InvalidInput, match=message):
        check_plan(plan_of(plan), 3)
