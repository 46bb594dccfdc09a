"""Stacked optimizers equal those of torch for each network alone, row by row and vectorised."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from s2e.engine.optimizers import OPTIMIZERS, SGD, Adam, AdamW, RMSProp, optimizer_of
from s2e.engine.optimizers.row_optimizer import StackedRows
from s2e.errors import InvalidInput

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
KINDS = [
    Adam(),
    Adam(0.8, 0.95, 1e-4, 0.03),
    AdamW(),
    AdamW(0.7, 0.9, 1e-6, 0.1),
    SGD(),
    SGD(0.9, weight_decay=0.05),
    SGD(0.8, nesterov=True),
    RMSProp(),
    RMSProp(0.9, 1e-6, 0.5, 0.03),
]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=repr)
ONE_OF_EACH = pytest.mark.parametrize("kind", [Adam(), SGD(0.9, weight_decay=0.05), RMSProp(momentum=0.5)], ids=repr)
ADAM = Adam()


def random_rows(seed, shapes=SHAPES, rows=6):
    """Tensors (G, ...), row g from its own generator."""
    return [
        torch.stack(
            [torch.randn(shape, generator=torch.Generator().manual_seed(100 * seed + 10 * g + k)) for g in range(rows)]
        )
        for k, shape in enumerate(shapes)
    ]


def stepped(parameters, rates, gradients_of_steps, factors=(), *, kind=ADAM, active=(), vectorize=False):
    """Take steps on copies of the parameters."""
    own = [parameter.clone() for parameter in parameters]
    optimizer = kind.build(own, rates, CPU, vectorize=vectorize)
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


def torch_optimizer(kind, parameters, rate):
    """Return torch's optimizer with the same settings."""
    if isinstance(kind, Adam):
        own = torch.optim.AdamW if isinstance(kind, AdamW) else torch.optim.Adam
        return own(parameters, rate, (kind.beta1, kind.beta2), kind.eps, kind.weight_decay)
    own = torch.optim.SGD if isinstance(kind, SGD) else torch.optim.RMSprop
    return own(parameters, rate, **vars(kind))


def stepped_by_torch(kind, start, row, rate, steps, factors, active):
    """Train one row alone, without the steps in which it is inactive."""
    network = [tensor[row].clone().requires_grad_() for tensor in start]
    optimizer = torch_optimizer(kind, network, rate)
    for gradients, factor, is_active in zip(steps, factors, active, strict=True):
        optimizer.param_groups[0].update(lr=rate * factor)
        if is_active[row]:
            for parameter, gradient in zip(network, gradients, strict=True):
                parameter.grad = gradient[row].clone()
            optimizer.step()
    return [parameter.detach() for parameter in network]


@BOTH
@EVERY_KIND
def test_rows_equal_torch_that_skips_inactive_steps(kind, vectorize):
    start, steps = random_rows(0), [random_rows(seed) for seed in range(1, 9)]
    found = stepped(start, RATES, steps, FACTORS, kind=kind, active=ACTIVE, vectorize=vectorize)
    for row, rate in enumerate(RATES):
        expected = stepped_by_torch(kind, start, row, rate, steps, FACTORS, ACTIVE)
        for parameter, stacked in zip(expected, found, strict=True):
            torch.testing.assert_close(stacked[row], parameter, rtol=1e-5, atol=1e-6)
    for tensor, before in zip(found, start, strict=True):
        assert torch.equal(tensor[5], before[5])


@BOTH
@EVERY_KIND
def test_rows_equal_torch_over_many_steps(kind, vectorize):
    generator = torch.Generator().manual_seed(0)
    start, *steps = ([torch.randn(2, 9, generator=generator)] for _ in range(301))
    factors, active = [1 - step / 300 for step in range(300)], torch.ones(300, 2, dtype=torch.bool)
    (found,) = stepped(start, (1e-3, 1e-2), steps, factors, kind=kind, vectorize=vectorize)
    for row, rate in enumerate((1e-3, 1e-2)):
        (expected,) = stepped_by_torch(kind, start, row, rate, steps, factors, active)
        torch.testing.assert_close(found[row], expected, rtol=1e-4, atol=1e-5)


@BOTH
@pytest.mark.parametrize(
    "kinds",
    [
        [Adam(), Adam(0.5), Adam(beta2=0.9), Adam(eps=1e-3), Adam(weight_decay=0.1), Adam()],
        [AdamW(), AdamW(0.5), AdamW(weight_decay=0.0), AdamW(), AdamW(), AdamW(beta2=0.9)],
        [SGD(), SGD(0.9), SGD(0.9, nesterov=True), SGD(weight_decay=0.1), SGD(0.5), SGD()],
        [RMSProp(), RMSProp(0.9), RMSProp(momentum=0.9), RMSProp(weight_decay=0.1), RMSProp(eps=1e-3), RMSProp()],
    ],
    ids=["Adam", "AdamW", "SGD", "RMSProp"],
)
def test_hyperparameters_of_each_row(kinds, vectorize):
    start, steps = random_rows(0), [random_rows(seed) for seed in range(1, 9)]
    found = [tensor.clone() for tensor in start]
    optimizer = StackedRows(kinds, found, RATES, CPU, vectorize=vectorize)
    for gradients, factor, active in zip(steps, FACTORS, ACTIVE, strict=True):
        optimizer.scale_learning_rates(factor)
        optimizer.update(gradients, active)
    for row, (kind, rate) in enumerate(zip(kinds, RATES, strict=True)):
        expected = stepped_by_torch(kind, start, row, rate, steps, FACTORS, ACTIVE)
        for parameter, stacked in zip(expected, found, strict=True):
            torch.testing.assert_close(stacked[row], parameter, rtol=1e-5, atol=1e-6)


@BOTH
@EVERY_KIND
def test_rows_taken_continue_and_reset_rows_start_again(kind, vectorize):
    start, steps, rows = random_rows(0), [random_rows(seed) for seed in range(1, 7)], [4, 0, 2]
    whole = [tensor.clone() for tensor in start]
    optimizer = kind.build(whole, RATES, CPU, vectorize=vectorize)
    optimizer.scale_learning_rates(0.5)
    for gradients in steps[:3]:
        optimizer.update(gradients)
    part = [tensor[rows] for tensor in whole]
    taken = optimizer.take(rows, part)
    for gradients in steps[3:]:
        optimizer.update(gradients)
        taken.update([gradient[rows] for gradient in gradients])
    for one, other in zip(whole, part, strict=True):
        torch.testing.assert_close(other, one[rows], rtol=1e-6, atol=1e-7)
    for tensor, first in zip(whole, start, strict=True):
        tensor.copy_(first)
    optimizer.reset()
    optimizer.scale_learning_rates(1.0)
    for gradients in steps:
        optimizer.update(gradients)
    for one, other in zip(whole, stepped(start, RATES, steps, kind=kind, vectorize=vectorize), strict=True):
        assert torch.equal(one, other)


@BOTH
def test_gradients_may_be_tuples(vectorize):
    start, steps = random_rows(0), [random_rows(seed) for seed in range(1, 4)]
    tuples = [[tuple(gradient) for gradient in step] for step in steps]
    results = (stepped(start, RATES, each, active=ACTIVE, vectorize=vectorize) for each in (steps, tuples))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@BOTH
def test_all_active_equals_none(vectorize):
    start, steps = random_rows(0), [random_rows(seed) for seed in range(1, 9)]
    masked = stepped(start, RATES, steps, FACTORS, active=torch.ones_like(ACTIVE), vectorize=vectorize)
    for one, other in zip(masked, stepped(start, RATES, steps, FACTORS, vectorize=vectorize), strict=True):
        assert torch.equal(one, other)


@BOTH
@ONE_OF_EACH
def test_gradients_of_inactive_rows_are_ignored(kind, vectorize):
    start, steps = random_rows(0), [random_rows(seed) for seed in range(1, 9)]
    with_nan = [
        [torch.where(active.view(-1, *[1] * (g.ndim - 1)), g, torch.nan) for g in step]
        for step, active in zip(steps, ACTIVE, strict=True)
    ]
    plain, ignored = (
        stepped(start, RATES, each, FACTORS, kind=kind, active=ACTIVE, vectorize=vectorize)
        for each in (steps, with_nan)
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
@ONE_OF_EACH
def test_nan_stays_in_its_row(kind, vectorize):
    start, gradients = random_rows(0, rows=3), random_rows(1, rows=3)
    with_nan = [gradient.clone() for gradient in gradients]
    for gradient in with_nan:
        gradient[1] = torch.nan
    results = (
        stepped(start, (1e-3,) * 3, [step, step], kind=kind, vectorize=vectorize) for step in (gradients, with_nan)
    )
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
@pytest.mark.parametrize(
    ("_threads", "shapes"),
    [(1, SHAPES), (2, ((64, 300), (300,), (33, 17), (4099,)))],  # two threads share large tensors only
    ids=["small", "large"],
    indirect=["_threads"],
)
@ONE_OF_EACH
def test_rows_do_not_depend_on_other_rows(kind, shapes):
    start, steps = random_rows(0, shapes), [random_rows(seed, shapes) for seed in range(1, 4)]
    together = stepped(start, RATES, steps, kind=kind)
    for rows in ([0], [2], [0, 1], [4, 2], [5, 4, 3, 2, 1, 0]):
        rates = [RATES[row] for row in rows]
        own = [[gradient[rows] for gradient in step] for step in steps]
        fewer = stepped([tensor[rows] for tensor in start], rates, own, kind=kind)
        for tensor, found in zip(together, fewer, strict=True):
            assert torch.equal(found, tensor[rows])


@ONE_OF_EACH
def test_rows_of_odd_sizes_are_exact_over_many_steps(kind):
    # The fused kernels rarely round the last values of a block differently, hence many rows and steps.
    generator = torch.Generator().manual_seed(0)
    rows, factors = 40, [1.0] * 20 + [0.7] * 20
    start, *steps = ([torch.randn(rows, size, generator=generator) for size in (10, 7, 47)] for _ in range(41))
    together = stepped(start, (1e-3,) * rows, steps, factors, kind=kind)
    for row in range(rows):
        own = slice(row, row + 1)
        gradients = [[gradient[own] for gradient in step] for step in steps]
        alone = stepped([tensor[own] for tensor in start], (1e-3,), gradients, factors, kind=kind)
        for tensor, found in zip(together, alone, strict=True):
            assert torch.equal(found, tensor[own])


@ONE_OF_EACH
def test_strides_of_gradients_do_not_matter(kind):
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
    results = (stepped(start, RATES, gradients, kind=kind) for gradients in (contiguous, strided))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_update_is_in_place_and_keeps_gradients():
    parameter, gradient = torch.zeros(2, 3).requires_grad_(), torch.ones(2, 3)
    Adam().build([parameter], (0.1, 0.2), CPU).update([gradient])
    torch.testing.assert_close(parameter.detach(), torch.tensor([[-0.1] * 3, [-0.2] * 3]))  # Adam's first step
    assert torch.equal(gradient, torch.ones(2, 3))
    assert parameter.grad is None


def test_factors_replace_each_other():
    parameter = torch.zeros(2, 3)
    optimizer = Adam().build([parameter], (0.1, 0.2), CPU)
    optimizer.scale_learning_rates(0.0)
    optimizer.update([torch.ones(2, 3)])
    assert torch.equal(parameter, torch.zeros(2, 3))
    optimizer.scale_learning_rates(0.5)  # half of the initial rate, not half of 0
    optimizer.update([torch.ones(2, 3)])
    torch.testing.assert_close(parameter, torch.tensor([[-0.05] * 3, [-0.1] * 3]))


# Names and settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("adam", Adam()),
        ("adamw:weight_decay=0.1,beta2=0.99", AdamW(weight_decay=0.1, beta2=0.99)),
        ("sgd:momentum=0.9,nesterov=true,weight_decay=5e-4", SGD(0.9, nesterov=True, weight_decay=5e-4)),
        ("rmsprop:alpha=0.9,eps=1e-6,momentum=0.5", RMSProp(0.9, 1e-6, 0.5)),
    ],
)
def test_optimizer_by_name(text, expected):
    found = optimizer_of(text)
    assert (found, type(found)) == (expected, type(expected))
    assert optimizer_of(found) is found
    assert hash(replace(found)) == hash(found)


def test_every_optimizer_has_a_name():
    assert {type(kind) for kind in KINDS} == set(OPTIMIZERS.values())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("sdg", r"`optimizer` must be one of sgd, .*, but got 'sdg'"),
        ("sgd:momentun=0.9", r"must be one of momentum, nesterov, weight_decay, but got 'momentun'"),
        ("sgd:momentum=much", r"`momentum` of optimizer sgd must be a finite number, but got 'much'"),
        ("sgd:momentum=1.5", r"`momentum` must lie in \[0, 1\), but got 1.5"),
        ("sgd:nesterov=true", r"`momentum` must be positive for `nesterov`"),
        ("adam:weight_decay=-1", r"`weight_decay` must lie in \[0, inf\), but got -1"),
        ("adamw:beta1=1", r"`beta1` must lie in \[0, 1\), but got 1"),
        ("rmsprop:alpha=1", r"`alpha` must lie in \[0, 1\), but got 1"),
        (SGD, r"`s2e.Optimizer`, .*, but got the class SGD"),
        (0.1, r"`s2e.Optimizer`, .*, but got float"),
    ],
)
def test_wrong_optimizers_are_refused(wrong, message):
    with pytest.raises(InvalidInput, match=message):
        optimizer_of(wrong)


@pytest.mark.parametrize("wrong", [math.nan, -0.1, math.inf, True, "0.9"])
def test_hyperparameters_are_finite_numbers(wrong):
    with pytest.raises(InvalidInput, match="`weight_decay` must lie in"):
        SGD(weight_decay=wrong)
