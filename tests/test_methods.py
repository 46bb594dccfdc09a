"""Methods against per-member loops in plain Python, and what the engine relies on in every one of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from s2e.errors import InvalidInput
from s2e.methods import METHODS, Batch, Coteaching, MentorNet, Standard, method, sample_cross_entropy, smallest

SMALL_LOSS = [MentorNet(), Coteaching()]
P, B, C = 3, 16, 5


@pytest.fixture(params=METHODS.values(), ids=METHODS)
def any_method(request):
    """Every method there is: one that is added to METHODS has to keep all the claims below."""
    return request.param


def drawn_batch(networks, members=P, size=B, classes=C, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(members, networks, size, classes, generator=generator)
    labels = torch.randint(classes, (members, size), generator=generator)
    keep = 1 + torch.arange(members) * (size - 1) // max(1, members - 1)  # from one sample to all of them
    return Batch(logits.requires_grad_(), labels, keep)


def outcome(one, batch):
    """Everything a method makes of a batch, with the gradient the engine takes of it."""
    objective = one.objective(batch)
    (gradient,) = torch.autograd.grad(objective.loss.sum(), batch.logits)
    return {**objective._asdict(), "gradient": gradient}


# ------------------------------------------------------------------------------------------------ against slow oracles


def slow_losses(logits, labels):
    """Cross-entropy of every sample, one by one: (B, C), (B,) -> (B,)."""
    return [math.log(sum(math.exp(z - row[y]) for z in row)) for row, y in zip(logits, labels, strict=True)]


def slow_picks(losses, keep):
    """Positions of the smallest losses; Python sorts pairs by loss, then by position."""
    return sorted(position for _, position in sorted(zip(losses, range(len(losses)), strict=True))[:keep])


def slow_gradient(inputs, logits, labels, picks):
    """Of the mean loss over the picks, for logits = inputs @ weights: Σ x (softmax − onehot) / |picks|, (F, C)."""
    gradient = np.zeros((inputs.shape[1], logits.shape[1]))
    for position in picks:
        shares = np.exp(logits[position] - logits[position].max())
        shares /= shares.sum()
        shares[labels[position]] -= 1
        gradient += np.outer(inputs[position], shares) / len(picks)
    return gradient


@pytest.mark.parametrize("one", [Standard(), *SMALL_LOSS], ids=lambda one: one.name)
def test_gradient_descent_equals_a_loop_over_members_networks_and_samples(one):
    generator = np.random.default_rng(0)
    samples, features, steps, networks = 256, 4, 8, one.networks
    inputs = generator.normal(size=(samples, features))
    labels = generator.integers(0, C, size=(P, samples))  # every member has its own
    weights = generator.normal(size=(P, networks, features, C))  # of linear networks
    stacked = torch.tensor(weights, requires_grad=True)
    for step in range(steps):
        index = np.arange(samples)[step * 32 : (step + 1) * 32]
        keep = [1, 12 + step, 32]
        logits = torch.einsum("bf,pmfc->pmbc", torch.from_numpy(inputs[index]), stacked)
        batch = Batch(logits, torch.from_numpy(labels[:, index]), torch.tensor(keep))
        objective = one.objective(batch)
        (gradient,) = torch.autograd.grad(objective.loss.sum(), stacked)
        for member in range(P):
            own = [inputs[index] @ weights[member, network] for network in range(networks)]
            losses = [slow_losses(logits, labels[member, index]) for logits in own]
            picks = [slow_picks(row, keep[member]) for row in losses]
            if one.name == "standard":
                picks = [list(range(len(index)))]
            if one.name == "coteaching":
                picks = [picks[1], picks[0]]  # the first network is trained on what the second finds easy
            for network in range(networks):
                kept, row = picks[network], losses[network]
                at = (member, network)
                assert objective.selected[at].nonzero().flatten().tolist() == kept
                np.testing.assert_allclose(objective.sample_losses[at], row, rtol=1e-10)
                np.testing.assert_allclose(objective.loss[at].item(), sum(row[k] for k in kept) / len(kept), rtol=1e-10)
                expected = slow_gradient(inputs[index], own[network], labels[member, index], kept)
                np.testing.assert_allclose(gradient[at], expected, rtol=1e-8, atol=1e-10)
                weights[at] -= 0.5 * expected
        with torch.no_grad():
            stacked -= 0.5 * gradient
        np.testing.assert_allclose(stacked.detach(), weights, rtol=1e-7, atol=1e-9)


def test_cross_entropy_of_equal_logits_is_the_logarithm_of_the_classes():
    batch = Batch(torch.zeros(2, 2, 3, 10), torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, dtype=torch.int64))
    torch.testing.assert_close(sample_cross_entropy(batch), torch.full((2, 2, 3), math.log(10)))


@pytest.mark.parametrize("one", SMALL_LOSS, ids=lambda one: one.name)
def test_keeping_the_whole_batch_is_standard_training_of_each_network(one):
    batch = drawn_batch(one.networks)._replace(keep=torch.full((P,), B))
    kept = one.objective(batch)
    assert kept.selected.all()
    for network in range(one.networks):
        single = Standard().objective(batch._replace(logits=batch.logits[:, network : network + 1]))
        torch.testing.assert_close(kept.loss[:, network], single.loss[:, 0])


def test_a_coteaching_pair_of_equal_networks_is_mentornet_twice():
    batch = drawn_batch(1)
    pair = outcome(Coteaching(), batch._replace(logits=batch.logits.detach().repeat(1, 2, 1, 1).requires_grad_()))
    single = outcome(MentorNet(), batch)
    for name, tensor in single.items():
        for network in (0, 1):
            torch.testing.assert_close(pair[name][:, network], tensor[:, 0])


def test_in_coteaching_the_networks_swap_their_picks():
    losses = torch.tensor([[[0.1, 0.2, 3.0, 4.0], [4.0, 3.0, 0.2, 0.1]]])  # each network finds another half easy
    logits = torch.stack([torch.zeros_like(losses), torch.expm1(losses).log()], dim=-1)  # their cross-entropy for 0
    batch = Batch(logits, torch.zeros(1, 4, dtype=torch.int64), torch.tensor([2]))
    objective = Coteaching().objective(batch)
    torch.testing.assert_close(objective.sample_losses, losses)
    assert objective.selected.tolist() == [[[False, False, True, True], [True, True, False, False]]]
    torch.testing.assert_close(objective.loss, torch.tensor([[3.5, 3.5]]))


@pytest.mark.parametrize("one", SMALL_LOSS, ids=lambda one: one.name)
def test_as_many_samples_are_selected_as_are_to_be_kept(one):
    batch = drawn_batch(one.networks)
    counts = one.objective(batch).selected.sum(dim=-1)
    assert counts.tolist() == [[count] * one.networks for count in batch.keep.tolist()]


@pytest.mark.parametrize("one", SMALL_LOSS, ids=lambda one: one.name)
def test_an_infinite_loss_that_is_not_selected_does_not_count(one):
    batch = drawn_batch(one.networks, members=1)
    with torch.no_grad():
        batch.logits[0, :, 3] = 3e38 * (1 - 2 * torch.nn.functional.one_hot(batch.labels[0, 3], C))
    objective = one.objective(batch._replace(keep=torch.tensor([4])))
    assert objective.sample_losses[0, :, 3].isinf().all()
    assert not objective.selected[0, :, 3].any()
    assert objective.loss.isfinite().all()


# ------------------------------------------------------------------------------------------------------------ smallest


def test_smallest_gives_ties_to_the_lower_index():
    losses = torch.tensor([2.0, 1.0, 1.0, 0.5, 1.0])
    assert smallest(losses, torch.tensor(3)).tolist() == [False, True, True, True, False]
    assert smallest(torch.zeros(6), torch.tensor(2)).tolist() == [True, True, False, False, False, False]


def test_smallest_ranks_nan_last_even_behind_infinity():
    losses = torch.tensor([math.nan, math.inf, 1.0, math.nan])
    assert smallest(losses, torch.tensor(2)).tolist() == [False, True, True, False]
    assert smallest(losses, torch.tensor(3)).tolist() == [True, True, True, False]


def test_smallest_keeps_one_or_all():
    losses = torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    assert smallest(losses, torch.tensor([1, 1])).tolist() == [[False, True, False], [True, False, False]]
    assert smallest(losses, torch.tensor([3, 3])).all()
    assert smallest(torch.ones(1, 1), torch.tensor([1])).all()  # a batch of one


@pytest.mark.parametrize("leading", [(), (4,), (2, 3), (2, 1, 3)])
def test_smallest_equals_sorting_each_row_for_any_leading_dimensions(leading):
    generator = torch.Generator().manual_seed(1)
    losses = torch.randint(6, (*leading, 20), generator=generator).float()  # many ties
    keep = torch.randint(1, 21, leading, generator=generator)
    marked = smallest(losses, keep)
    assert marked.dtype == torch.bool
    assert marked.shape == losses.shape
    rows = zip(losses.reshape(-1, 20).tolist(), keep.reshape(-1).tolist(), marked.reshape(-1, 20), strict=True)
    for row, count, found in rows:
        assert found.nonzero().flatten().tolist() == slow_picks(row, count)


def test_smallest_takes_one_count_for_several_rows():
    losses = torch.tensor([[[1.0, 2.0], [2.0, 1.0]], [[5.0, 4.0], [4.0, 5.0]]])  # (P, M, B)
    found = smallest(losses, torch.tensor([1, 2]).unsqueeze(-1))  # (P, 1): a member's networks share a count
    assert found.tolist() == [[[True, False], [False, True]], [[True, True], [True, True]]]


# ----------------------------------------------------------------------------------------- conformance of every method


def test_a_method_is_found_by_its_own_name(any_method):
    assert method(any_method.name) is any_method
    assert any_method.networks >= 1
    assert isinstance(any_method.uses_schedule, bool)


@pytest.mark.parametrize("members", [1, P])
def test_an_objective_has_the_shapes_and_types_the_engine_expects(any_method, members):
    batch = drawn_batch(any_method.networks, members)
    objective = any_method.objective(batch)
    assert objective.loss.shape == (members, any_method.networks)
    assert objective.sample_losses.shape == objective.selected.shape == (members, any_method.networks, B)
    assert objective.loss.dtype == objective.sample_losses.dtype == torch.float32
    assert objective.selected.dtype == torch.bool
    assert objective.loss.isfinite().all()
    assert objective.loss.requires_grad
    assert not objective.sample_losses.requires_grad


def test_a_gradient_flows_within_its_member_alone(any_method):
    batch = drawn_batch(any_method.networks)
    objective = any_method.objective(batch)
    for member in range(P):
        (gradient,) = torch.autograd.grad(objective.loss[member].sum(), batch.logits, retain_graph=True)
        reached = gradient.flatten(1).abs().sum(dim=1) > 0
        assert reached.tolist() == [other == member for other in range(P)]


def test_a_member_alone_has_the_outcome_it_has_among_others(any_method):
    batch = drawn_batch(any_method.networks)
    together = outcome(any_method, batch)
    for member in range(P):
        part = slice(member, member + 1)
        logits, labels, keep = (tensor[part].detach().clone() for tensor in batch)
        alone = outcome(any_method, Batch(logits.requires_grad_(), labels, keep))
        for name, tensor in alone.items():
            torch.testing.assert_close(tensor, together[name][part], rtol=0, atol=0)


def test_what_happens_to_one_member_leaves_the_others_alone(any_method):
    batch = drawn_batch(any_method.networks)
    logits, labels, keep = (tensor.detach().clone() for tensor in batch)
    logits[1] = math.nan  # as bad as it gets
    labels[1] = 0
    keep[1] = 1
    before = outcome(any_method, batch)
    after = outcome(any_method, Batch(logits.requires_grad_(), labels, keep))
    for name, tensor in before.items():
        for untouched in (0, 2):
            torch.testing.assert_close(after[name][untouched], tensor[untouched], rtol=0, atol=0)


def test_the_keep_count_matters_to_methods_that_use_a_schedule_and_to_no_other(any_method):
    batch = drawn_batch(any_method.networks)
    few, all_of_them = (any_method.objective(batch._replace(keep=torch.full((P,), count))).selected for count in (2, B))
    assert torch.equal(few, all_of_them) != any_method.uses_schedule


def test_an_objective_changes_nothing_it_was_given(any_method):
    batch = drawn_batch(any_method.networks)
    before = [tensor.detach().clone() for tensor in batch]
    any_method.objective(batch)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(batch, before, strict=True))


def test_an_unknown_method_is_refused_with_the_known_ones_nearest_first():
    with pytest.raises(InvalidInput, match=r"`method` must be one of coteaching, .*, but got 'coteachin'\.") as refused:
        method("coteachin")
    assert all(name in str(refused.value) for name in METHODS)
    with pytest.raises(InvalidInput, match="`method` must be one of mentornet, "):
        method("MentorNet")
