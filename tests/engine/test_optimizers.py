"""Stacked Adam is Adam for each network, whatever its company; the learning-rate plan is the papers'."""

from __future__ import annotations

import pytest
import torch

from s2e.engine.optimizers import StackedAdam, learning_plan

CPU = torch.device("cpu")
RATES = (1e-3, 1e-3, 3e-2, 1e-3, 1e-3, 1e-2)  # neighbours that agree, and equal ones that are no neighbours
WAYS = [pytest.param(True, id="at once"), pytest.param(False, id="row by row")]
SHAPES = ((16, 3), (10,), (7,), (1,), (), (5, 4, 2), (32,))


def drawn(seed, shapes=SHAPES, rows=6):
    """Tensors (G, ...), row g from its own generator, so that a row does not depend on its company."""
    return [
        torch.stack(
            [torch.randn(shape, generator=torch.Generator().manual_seed(100 * seed + 10 * g + k)) for g in range(rows)]
        )
        for k, shape in enumerate(shapes)
    ]


def stepped(parameters, rates, gradients_of_steps, plans=(), *, at_once=False):
    """Take steps on copies of the parameters, by the plan of each step if there is one."""
    own = [parameter.clone() for parameter in parameters]
    optimizer = StackedAdam(own, rates, CPU, at_once=at_once)
    for step, gradients in enumerate(gradients_of_steps):
        if plans:
            optimizer.plan(*plans[step])
        optimizer.update(gradients)
    return own


def slow_adam(start, rate, gradients, plans):
    """Adam of one network by the formulas of its paper, in float64."""
    weight, first, second = start.double(), 0.0, 0.0
    beta2 = 0.999
    for count, (gradient, (factor, beta1)) in enumerate(zip(gradients, plans, strict=True), start=1):
        first = beta1 * first + (1 - beta1) * gradient.double()
        second = beta2 * second + (1 - beta2) * gradient.double() ** 2
        first_corrected, second_corrected = first / (1 - beta1**count), second / (1 - beta2**count)
        weight = weight - rate * factor * first_corrected / (second_corrected.sqrt() + 1e-8)
    return weight


@pytest.mark.parametrize("at_once", WAYS)
def test_each_row_equals_torchs_adam_on_that_network_alone(at_once):
    start, steps = drawn(0), [drawn(seed) for seed in range(1, 7)]
    plans = [(1.0, 0.9), (1.0, 0.9), (0.75, 0.1), (0.5, 0.1), (0.25, 0.1), (0.25, 0.1)]
    found = stepped(start, RATES, steps, plans, at_once=at_once)
    for row, rate in enumerate(RATES):
        network = [tensor[row].clone().requires_grad_() for tensor in start]
        adam = torch.optim.Adam(network, lr=rate)
        for gradients, (factor, beta1) in zip(steps, plans, strict=True):
            adam.param_groups[0].update(lr=rate * factor, betas=(beta1, 0.999))
            for parameter, gradient in zip(network, gradients, strict=True):
                parameter.grad = gradient[row].clone()
            adam.step()
        for parameter, stacked in zip(network, found, strict=True):
            torch.testing.assert_close(stacked[row], parameter.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("at_once", WAYS)
def test_each_row_equals_the_formulas_of_adams_paper(at_once):
    start, steps = drawn(0), [drawn(seed) for seed in range(1, 5)]
    plans = [(1.0, 0.9), (1.0, 0.9), (0.5, 0.1), (0.25, 0.1)]
    found = stepped(start, RATES, steps, plans, at_once=at_once)
    for which, tensor in enumerate(start):
        for row, rate in enumerate(RATES):
            expected = slow_adam(tensor[row], rate, [gradients[which][row] for gradients in steps], plans)
            torch.testing.assert_close(found[which][row].double(), expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("threads", [1, 2], indirect=True)
@pytest.mark.parametrize("shapes", [SHAPES, ((64, 300), (300,), (33, 17), (4099,))], ids=["small", "large"])
def test_a_row_does_not_depend_on_its_company_by_a_single_bit(shapes):
    start, steps = drawn(0, shapes), [drawn(seed, shapes) for seed in range(1, 4)]
    together = stepped(start, RATES, steps)
    for rows in ([0], [1], [2], [3], [5], [0, 1], [4, 2], [5, 4, 3, 2, 1, 0]):
        company = [RATES[row] for row in rows]
        fewer = stepped([tensor[rows] for tensor in start], company, [[g[rows] for g in step] for step in steps])
        for tensor, found in zip(together, fewer, strict=True):
            assert torch.equal(found, tensor[rows])


def test_rows_of_odd_sizes_keep_every_bit_over_many_steps():
    # The fused kernel rounds the last few values of a block differently, but seldom: hence many of them.
    generator = torch.Generator().manual_seed(0)
    rows, plans = 40, [(1.0, 0.9)] * 20 + [(0.7, 0.1)] * 20
    start, *steps = ([torch.randn(rows, size, generator=generator) for size in (10, 7, 47)] for _ in range(41))
    together = stepped(start, (1e-3,) * rows, steps, plans)
    for row in range(rows):
        part = slice(row, row + 1)
        alone = stepped([tensor[part] for tensor in start], (1e-3,), [[g[part] for g in s] for s in steps], plans)
        for tensor, found in zip(together, alone, strict=True):
            assert torch.equal(found, tensor[part])


def test_equal_rates_in_one_group_or_in_several_give_the_same_bits():
    start, steps = drawn(0, rows=3), [drawn(seed, rows=3) for seed in range(1, 4)]
    neighbours = stepped(start, (1e-3, 1e-3, 1e-2), steps)
    apart = stepped(
        [tensor[[0, 2, 1]] for tensor in start],
        (1e-3, 1e-2, 1e-3),
        [[gradient[[0, 2, 1]] for gradient in step] for step in steps],
    )
    for one, other in zip(neighbours, apart, strict=True):
        assert torch.equal(one[[0, 2, 1]], other)


def test_gradients_may_lie_in_memory_in_any_order():
    shapes = ((16, 8), (7, 5), (2, 3, 4))
    start, steps = drawn(0, shapes), [drawn(seed, shapes) for seed in range(1, 4)]
    scattered = [
        [
            gradients[0].transpose(1, 2).contiguous().transpose(1, 2),
            gradients[1].repeat_interleave(2, dim=-1)[..., ::2],
            gradients[2].permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
        ]
        for gradients in steps
    ]
    assert not any(gradient.is_contiguous() for gradient in scattered[0])
    for one, other in zip(stepped(start, RATES, steps), stepped(start, RATES, scattered), strict=True):
        assert torch.equal(one, other)


def test_a_gradient_shared_by_all_rows_may_be_expanded():
    start = [torch.zeros(3, 5)]
    shared = torch.randn(5, generator=torch.Generator().manual_seed(0)).expand(3, 5)
    (one,), (other,) = (stepped(start, (1e-3,) * 3, [[gradient]]) for gradient in (shared, shared.contiguous()))
    assert torch.equal(one, other)


def test_a_step_moves_the_tensors_it_was_given_and_leaves_the_gradients_alone():
    parameter = torch.zeros(2, 3).requires_grad_()
    gradient = torch.ones(2, 3)
    optimizer = StackedAdam([parameter], (0.1, 0.2), CPU)
    optimizer.update([gradient])
    expected = torch.tensor([[-0.1] * 3, [-0.2] * 3])  # Adam's first step has the length of the rate
    torch.testing.assert_close(parameter.detach(), expected)
    assert torch.equal(gradient, torch.ones(2, 3))
    assert parameter.grad is None


def test_a_factor_of_0_stands_still_and_a_new_factor_replaces_the_old():
    parameter = torch.zeros(2, 3)
    optimizer = StackedAdam([parameter], (0.1, 0.2), CPU)
    optimizer.plan(0.0, 0.9)
    optimizer.update([torch.ones(2, 3)])
    assert torch.equal(parameter, torch.zeros(2, 3))
    optimizer.plan(0.5, 0.9)  # half of the member's rate, not half of nothing
    optimizer.update([torch.ones(2, 3)])
    torch.testing.assert_close(parameter, torch.tensor([[-0.05] * 3, [-0.1] * 3]))


def test_a_row_that_is_not_finite_stays_alone():
    start, gradients = drawn(0, rows=3), drawn(1, rows=3)
    broken = [gradient.clone() for gradient in gradients]
    for gradient in broken:
        gradient[1] = torch.nan
    sound, found = (stepped(start, (1e-3,) * 3, [step, step]) for step in (gradients, broken))
    for one, other in zip(sound, found, strict=True):
        assert torch.equal(one[[0, 2]], other[[0, 2]])
        assert other[1].isnan().all()


# Rows that rest


PLANS = [(1.0, 0.9), (1.0, 0.9), (1.0, 0.9), (0.75, 0.1), (0.5, 0.1), (0.5, 0.1), (0.25, 0.1), (0.25, 0.9)]
STEPPING = torch.tensor(  # one line for each step
    [
        [True, False, True, False, True, False],
        [True, True, True, False, False, False],
        [True, False, True, False, True, False],
        [False, True, True, False, True, False],
        [True, False, False, True, False, False],
        [True, True, True, True, True, False],
        [False, False, False, False, False, False],
        [True, False, True, True, True, False],
    ]
)


def resting(at_once, start, gradients_of_steps, stepping=STEPPING):
    """Take steps in which some rows rest, on copies of the parameters."""
    own = [parameter.clone() for parameter in start]
    optimizer = StackedAdam(own, RATES, CPU, at_once=at_once)
    for gradients, plan, steps in zip(gradients_of_steps, PLANS, stepping, strict=True):
        optimizer.plan(*plan)
        optimizer.update(gradients, steps)
    return own


@pytest.mark.parametrize("at_once", WAYS)
@pytest.mark.parametrize("given", ["stacked", "row by row"])
def test_a_row_that_rests_is_a_network_whose_adam_is_simply_not_stepped(at_once, given):
    start, steps = drawn(0), [drawn(seed) for seed in range(1, 9)]
    handed = steps if given == "stacked" else [[tuple(gradient) for gradient in step] for step in steps]
    found = resting(at_once, start, handed)
    for row, rate in enumerate(RATES):
        network = [tensor[row].clone().requires_grad_() for tensor in start]
        adam = torch.optim.Adam(network, lr=rate)
        for gradients, (factor, beta1), stepping in zip(steps, PLANS, STEPPING, strict=True):
            adam.param_groups[0].update(lr=rate * factor, betas=(beta1, 0.999))
            if stepping[row]:
                for parameter, gradient in zip(network, gradients, strict=True):
                    parameter.grad = gradient[row].clone()
                adam.step()
        for parameter, stacked in zip(network, found, strict=True):
            torch.testing.assert_close(stacked[row], parameter.detach(), rtol=1e-5, atol=1e-6)
    for tensor, before in zip(found, start, strict=True):
        assert torch.equal(tensor[5], before[5])  # it never stepped


@pytest.mark.parametrize("at_once", WAYS)
def test_rows_that_never_rest_step_as_those_that_cannot(at_once):
    start, steps = drawn(0), [drawn(seed) for seed in range(1, 9)]
    plain = stepped(start, RATES, steps, PLANS)
    for stepping in (torch.ones_like(STEPPING), [None] * len(PLANS)):
        for one, other in zip(resting(at_once, start, steps, stepping), plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("at_once", WAYS)
def test_what_a_resting_row_would_have_stepped_by_does_not_matter(at_once):
    start, steps = drawn(0), [drawn(seed) for seed in range(1, 9)]
    broken = [
        [torch.where(row.view(-1, *[1] * (g.ndim - 1)), g, torch.nan) for g in step]
        for step, row in zip(steps, STEPPING, strict=True)
    ]
    for one, other in zip(resting(at_once, start, steps), resting(at_once, start, broken), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("at_once", WAYS)
def test_a_row_that_rests_does_not_change_its_neighbours_by_a_single_bit(at_once):
    start, steps = drawn(0), [drawn(seed) for seed in range(1, 9)]
    lonely = STEPPING.clone()
    lonely[:, [1, 3, 4, 5]] = False
    for one, other in zip(resting(at_once, start, steps), resting(at_once, start, steps, lonely), strict=True):
        assert torch.equal(one[[0, 2]], other[[0, 2]])
        assert not torch.equal(one[[1, 4]], other[[1, 4]])


# The learning plan


@pytest.mark.parametrize(
    ("epochs", "epoch", "factor", "beta1"),
    [
        (200, 0, 1.0, 0.9),
        (200, 79, 1.0, 0.9),
        (200, 80, 1.0, 0.1),  # beta1 changes first, the rate falls from the next epoch on
        (200, 81, 119 / 120, 0.1),
        (200, 140, 0.5, 0.1),
        (200, 199, 1 / 120, 0.1),
        (10, 3, 1.0, 0.9),
        (10, 4, 1.0, 0.1),
        (10, 5, 5 / 6, 0.1),
        (10, 9, 1 / 6, 0.1),
        (1, 0, 1.0, 0.1),
        (2, 0, 1.0, 0.9),
        (2, 1, 1.0, 0.1),
    ],
)
def test_the_learning_plan_matches_values_worked_by_hand(epochs, epoch, factor, beta1):
    assert learning_plan(epoch, epochs) == (pytest.approx(factor), beta1)


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 10, 33, 200])
def test_the_learning_rate_never_rises_and_never_reaches_0(epochs):
    factors = [learning_plan(epoch, epochs)[0] for epoch in range(epochs)]
    assert factors[0] == 1
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] > 0
