"""Stacked Adam equals Adam of each network alone; the learning-rate plan equals that of the papers."""

from __future__ import annotations

import pytest
import torch

from s2e.engine.optimizers import StackedAdam, learning_rate_factor

CPU = torch.device("cpu")
RATES = (1e-3, 1e-3, 3e-2, 1e-3, 1e-3, 1e-2)  # equal rates in adjacent rows and in separate ones
SHAPES = ((16, 3), (10,), (7,), (1,), (), (5, 4, 2), (32,))
FACTORS = [1.0, 1.0, 1.0, 0.75, 0.5, 0.5, 0.25, 0.25]
ACTIVE = torch.tensor(  # (steps, rows); row 5 is never active
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
BOTH = pytest.mark.parametrize("vectorize", [True, False], ids=["vectorized", "row by row"])


def random_rows(seed, shapes=SHAPES, rows=6):
    """Tensors (G, ...), row g from its own generator."""
    return [
        torch.stack(
            [torch.randn(shape, generator=torch.Generator().manual_seed(100 * seed + 10 * g + k)) for g in range(rows)]
        )
        for k, shape in enumerate(shapes)
    ]


def stepped(parameters, rates, gradients_of_steps, factors=(), *, active=(), vectorize=False):
    """Take steps on copies of the parameters."""
    own = [parameter.clone() for parameter in parameters]
    optimizer = StackedAdam(own, rates, CPU, vectorize=vectorize)
    for step, gradients in enumerate(gradients_of_steps):
        if factors:
            optimizer.scale_learning_rates(factors[step])
        optimizer.update(gradients, active[step] if len(active) else None)
    return own


def adam_by_formula(start, rate, gradients, factors):
    """Adam of one network by the formulas of its paper, in float64."""
    weight, first, second, beta1, beta2 = start.double(), 0.0, 0.0, 0.9, 0.999
    for count, (gradient, factor) in enumerate(zip(gradients, factors, strict=True), start=1):
        first = beta1 * first + (1 - beta1) * gradient.double()
        second = beta2 * second + (1 - beta2) * gradient.double() ** 2
        first_corrected, second_corrected = first / (1 - beta1**count), second / (1 - beta2**count)
        weight = weight - rate * factor * first_corrected / (second_corrected.sqrt() + 1e-8)
    return weight


@BOTH
def test_rows_equal_the_formulas_of_the_paper(vectorize):
    start, steps = random_rows(0), [random_rows(seed) for seed in range(1, 9)]
    found = stepped(start, RATES, steps, FACTORS, vectorize=vectorize)
    for index, tensor in enumerate(start):
        for row, rate in enumerate(RATES):
            expected = adam_by_formula(tensor[row], rate, [gradients[index][row] for gradients in steps], FACTORS)
            torch.testing.assert_close(found[index][row].double(), expected, rtol=1e-5, atol=1e-6)


@BOTH
@pytest.mark.parametrize("tuples", [False, True], ids=["tensors", "tuples"])
def test_rows_equal_torch_adam_that_skips_inactive_steps(vectorize, tuples):
    start, steps = random_rows(0), [random_rows(seed) for seed in range(1, 9)]
    gradients_of_steps = [[tuple(gradient) for gradient in step] for step in steps] if tuples else steps
    found = stepped(start, RATES, gradients_of_steps, FACTORS, active=ACTIVE, vectorize=vectorize)
    for row, rate in enumerate(RATES):
        network = [tensor[row].clone().requires_grad_() for tensor in start]
        adam = torch.optim.Adam(network, lr=rate)
        for gradients, factor, active in zip(steps, FACTORS, ACTIVE, strict=True):
            adam.param_groups[0].update(lr=rate * factor)
            if active[row]:
                for parameter, gradient in zip(network, gradients, strict=True):
                    parameter.grad = gradient[row].clone()
                adam.step()
        for parameter, stacked in zip(network, found, strict=True):
            torch.testing.assert_close(stacked[row], parameter.detach(), rtol=1e-5, atol=1e-6)
    for tensor, before in zip(found, start, strict=True):
        assert torch.equal(tensor[5], before[5])


@BOTH
def test_all_active_equals_none(vectorize):
    start, steps = random_rows(0), [random_rows(seed) for seed in range(1, 9)]
    masked = stepped(start, RATES, steps, FACTORS, active=torch.ones_like(ACTIVE), vectorize=vectorize)
    for one, other in zip(masked, stepped(start, RATES, steps, FACTORS, vectorize=vectorize), strict=True):
        assert torch.equal(one, other)


@BOTH
def test_gradients_of_inactive_rows_are_ignored(vectorize):
    start, steps = random_rows(0), [random_rows(seed) for seed in range(1, 9)]
    with_nan = [
        [torch.where(active.view(-1, *[1] * (g.ndim - 1)), g, torch.nan) for g in step]
        for step, active in zip(steps, ACTIVE, strict=True)
    ]
    plain, ignored = (
        stepped(start, RATES, each, FACTORS, active=ACTIVE, vectorize=vectorize) for each in (steps, with_nan)
    )
    for one, other in zip(plain, ignored, strict=True):
        assert torch.equal(one, other)


@BOTH
def test_inactive_rows_do_not_affect_other_rows(vectorize):
    start, steps = random_rows(0), [random_rows(seed) for seed in range(1, 9)]
    fewer = ACTIVE.clone()
    fewer[:, [1, 3, 4, 5]] = False
    results = (stepped(start, RATES, steps, FACTORS, active=active, vectorize=vectorize) for active in (ACTIVE, fewer))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one[[0, 2]], other[[0, 2]])
        assert not torch.equal(one[[1, 4]], other[[1, 4]])


@BOTH
def test_nan_stays_in_its_row(vectorize):
    start, gradients = random_rows(0, rows=3), random_rows(1, rows=3)
    with_nan = [gradient.clone() for gradient in gradients]
    for gradient in with_nan:
        gradient[1] = torch.nan
    results = (stepped(start, (1e-3,) * 3, [step, step], vectorize=vectorize) for step in (gradients, with_nan))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one[[0, 2]], other[[0, 2]])
        assert other[1].isnan().all()


@pytest.fixture
def _threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("_threads", [1, 2], indirect=True)
@pytest.mark.parametrize("shapes", [SHAPES, ((64, 300), (300,), (33, 17), (4099,))], ids=["small", "large"])
def test_rows_do_not_depend_on_other_rows(shapes):
    start, steps = random_rows(0, shapes), [random_rows(seed, shapes) for seed in range(1, 4)]
    together = stepped(start, RATES, steps)
    for rows in ([0], [2], [0, 1], [4, 2], [5, 4, 3, 2, 1, 0]):
        rates = [RATES[row] for row in rows]
        fewer = stepped([tensor[rows] for tensor in start], rates, [[g[rows] for g in step] for step in steps])
        for tensor, found in zip(together, fewer, strict=True):
            assert torch.equal(found, tensor[rows])


def test_rows_of_odd_sizes_are_exact_over_many_steps():
    # The fused kernel rarely rounds the last values of a block differently, hence many rows and steps.
    generator = torch.Generator().manual_seed(0)
    rows, factors = 40, [1.0] * 20 + [0.7] * 20
    start, *steps = ([torch.randn(rows, size, generator=generator) for size in (10, 7, 47)] for _ in range(41))
    together = stepped(start, (1e-3,) * rows, steps, factors)
    for row in range(rows):
        own = slice(row, row + 1)
        alone = stepped([tensor[own] for tensor in start], (1e-3,), [[g[own] for g in s] for s in steps], factors)
        for tensor, found in zip(together, alone, strict=True):
            assert torch.equal(found, tensor[own])


def test_strides_of_gradients_do_not_matter():
    shapes = ((16, 8), (7, 5), (2, 3, 4), (5,))
    start, steps = random_rows(0, shapes), [random_rows(seed, shapes) for seed in range(1, 4)]
    for gradients in steps:
        gradients[3] = gradients[3][:1].expand_as(gradients[3])
    strided = [
        [
            gradients[0].transpose(1, 2).contiguous().transpose(1, 2),
            gradients[1].repeat_interleave(2, dim=-1)[..., ::2],
            gradients[2].permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
            gradients[3],
        ]
        for gradients in steps
    ]
    assert not any(gradient.is_contiguous() for gradient in strided[0])
    contiguous = [[gradient.contiguous() for gradient in gradients] for gradients in steps]
    for one, other in zip(stepped(start, RATES, contiguous), stepped(start, RATES, strided), strict=True):
        assert torch.equal(one, other)


def test_update_is_in_place_and_keeps_gradients():
    parameter, gradient = torch.zeros(2, 3).requires_grad_(), torch.ones(2, 3)
    StackedAdam([parameter], (0.1, 0.2), CPU).update([gradient])
    torch.testing.assert_close(parameter.detach(), torch.tensor([[-0.1] * 3, [-0.2] * 3]))  # Adam's first step
    assert torch.equal(gradient, torch.ones(2, 3))
    assert parameter.grad is None


def test_factors_replace_each_other():
    parameter = torch.zeros(2, 3)
    optimizer = StackedAdam([parameter], (0.1, 0.2), CPU)
    optimizer.scale_learning_rates(0.0)
    optimizer.update([torch.ones(2, 3)])
    assert torch.equal(parameter, torch.zeros(2, 3))
    optimizer.scale_learning_rates(0.5)  # half of the initial rate, not half of 0
    optimizer.update([torch.ones(2, 3)])
    torch.testing.assert_close(parameter, torch.tensor([[-0.05] * 3, [-0.1] * 3]))


# The learning-rate plan


@pytest.mark.parametrize(
    ("epochs", "epoch", "factor"),
    [(200, 0, 1.0), (200, 80, 1.0), (200, 81, 119 / 120), (200, 140, 0.5), (200, 199, 1 / 120), (1, 0, 1.0)],
)
def test_learning_rate_factor(epochs, epoch, factor):
    assert learning_rate_factor(epoch, epochs) == pytest.approx(factor)


@pytest.mark.parametrize("epochs", [1, 3, 33])
def test_learning_rate_falls_but_not_to_0(epochs):
    factors = [learning_rate_factor(epoch, epochs) for epoch in range(epochs)]
    assert factors[0] == 1
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] > 0
