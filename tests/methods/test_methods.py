"""Methods against per-member loops in plain Python, and what the engine relies on in every one of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from method_batches import (
    CLEAN,
    FEATURES,
    B,
    C,
    LinearNetworks,
    P,
    batch_for,
    drawn_batch,
    for_members,
    given,
    leaf,
    outcome,
    slow_gradient,
    slow_losses,
    slow_picks,
)
from s2e.errors import InvalidInput
from s2e.methods import (
    METHODS,
    SEARCHABLE,
    Batch,
    Coteaching,
    CoteachingPlus,
    JoCoR,
    MentorNet,
    Need,
    Standard,
    method,
    sample_cross_entropy,
)

SMALL_LOSS = [MentorNet(), Coteaching()]

EVERY_METHOD = {
    **METHODS,
    "coteaching+ warming up": CoteachingPlus(warm_up=4),
    "jocor without agreement": JoCoR(agreement=0.0),
    "jocor without labels": JoCoR(agreement=1.0),
}


@pytest.fixture(params=EVERY_METHOD.values(), ids=EVERY_METHOD)
def any_method(request):
    """Every method there is: one that is added to METHODS has to keep all the claims below."""
    return request.param


# ------------------------------------------------------------------------------------------------ against slow oracles


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
        counts = torch.tensor(keep)
        batch = Batch(logits, torch.from_numpy(labels[:, index]), counts, counts.double() / 32, torch.tensor(step))
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
    batch = drawn_batch(2, members=2, size=3, classes=10)
    batch = batch._replace(logits=torch.zeros(2, 2, 3, 10))
    torch.testing.assert_close(sample_cross_entropy(batch), torch.full((2, 2, 3), math.log(10)))


@pytest.mark.parametrize("one", SMALL_LOSS, ids=lambda one: one.name)
def test_keeping_the_whole_batch_is_standard_training_of_each_network(one):
    batch = drawn_batch(one.networks)._replace(keep=torch.full((P,), B), keep_rate=torch.ones(P).double())
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
    keep = torch.tensor([2])
    batch = Batch(logits, torch.zeros(1, 4, dtype=torch.int64), keep, keep.double() / 4, torch.tensor(0))
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
    made = outcome(one, batch._replace(keep=torch.tensor([4])))
    assert made["sample_losses"][0, :, 3].isinf().all()
    assert not made["selected"][0, :, 3].any()
    assert made["loss"].isfinite().all()
    assert made["gradient"].isfinite().all()
    assert not made["gradient"][0, :, 3].any()


# ----------------------------------------------------------------------------------------- conformance of every method


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_found_by_its_own_name(name):
    one = method(name)
    assert one is METHODS[name]
    assert one.name == name


def test_a_method_says_what_it_is_and_needs(any_method):
    assert any_method.networks >= 1
    assert isinstance(any_method.needs, frozenset)
    assert all(isinstance(need, Need) for need in any_method.needs)
    assert isinstance(any_method.may_select_nothing, bool)


def test_two_methods_with_equal_settings_are_equal(any_method):
    again = replace(any_method)
    assert again is not any_method
    assert again == any_method
    assert hash(again) == hash(any_method)


@pytest.mark.parametrize("members", [1, P])
def test_an_objective_has_the_shapes_and_types_the_engine_expects(any_method, members):
    objective = any_method.objective(batch_for(any_method, members))
    assert objective.loss.shape == (members, any_method.networks)
    assert objective.sample_losses.shape == objective.selected.shape == (members, any_method.networks, B)
    assert objective.loss.dtype == objective.sample_losses.dtype == torch.float32
    assert objective.selected.dtype == torch.bool
    assert objective.loss.isfinite().all()
    assert objective.loss.requires_grad
    assert not objective.sample_losses.requires_grad


def test_an_objective_is_made_without_a_look_at_any_value(any_method):
    """On tensors that have shapes but no values, so that a step with this method can be captured as a CUDA graph."""
    batch = batch_for(any_method)
    tensors = {name: part.to("meta") for name, part in given(batch).items()}
    if batch.networks:
        own = [tensors.pop(name) for name in vars(batch.networks)]
        tensors["networks"] = LinearNetworks(*own)
    made = outcome(any_method, Batch(**{**tensors, "logits": leaf(tensors["logits"])}))
    assert all(tensor.is_meta for tensor in made.values())
    assert made["loss"].shape == (P, any_method.networks)


def test_a_gradient_flows_within_its_member_alone(any_method):
    batch = batch_for(any_method)
    objective = any_method.objective(batch)
    for member in range(P):
        (gradient,) = torch.autograd.grad(objective.loss[member].sum(), batch.logits, retain_graph=True)
        reached = gradient.flatten(1).abs().sum(dim=1) > 0
        assert reached.tolist() == [other == member for other in range(P)]


def test_a_gradient_flows_through_the_selected_samples_alone(any_method):
    made = outcome(any_method, batch_for(any_method))
    reached = made["gradient"].abs().sum(dim=-1) > 0  # (P, M, B)
    assert torch.equal(reached, made["selected"])


def test_a_member_alone_has_the_outcome_it_has_among_others(any_method):
    batch = batch_for(any_method)
    together = outcome(any_method, batch)
    for member in range(P):
        part = slice(member, member + 1)
        alone = outcome(any_method, for_members(batch, lambda tensor, part=part: tensor[part]))
        for name, tensor in alone.items():
            torch.testing.assert_close(tensor, together[name][part], rtol=0, atol=0)


def test_what_happens_to_one_member_leaves_the_others_alone(any_method):
    def spoil(tensor):
        tensor[1] = math.nan if tensor.is_floating_point() else 1  # as bad as it gets
        return tensor

    batch = batch_for(any_method)
    before = outcome(any_method, batch)
    after = outcome(any_method, for_members(batch, spoil))
    for name, tensor in before.items():
        for untouched in (0, 2):
            torch.testing.assert_close(after[name][untouched], tensor[untouched], rtol=0, atol=0)


def test_a_member_whose_logits_are_not_numbers_has_no_finite_loss_and_so_is_found_to_have_diverged(any_method):
    def spoil(tensor):
        tensor[1] = math.nan if tensor.is_floating_point() and tensor.ndim > 1 else tensor[1]
        return tensor

    loss = any_method.objective(for_members(batch_for(any_method), spoil)).loss
    assert loss.isfinite().all(dim=1).tolist() == [True, False, True]


def test_the_keep_count_matters_to_methods_that_need_a_schedule_and_to_no_other(any_method):
    batch = batch_for(any_method)
    few, all_of_them = (
        any_method.objective(
            batch._replace(keep=torch.full((P,), count), keep_rate=torch.full((P,), count / B, dtype=torch.float64))
        ).selected
        for count in (2, B)
    )
    assert torch.equal(few, all_of_them) != (Need.SCHEDULE in any_method.needs)


def test_an_objective_changes_nothing_it_was_given(any_method):
    batch = batch_for(any_method)
    before = {name: tensor.detach().clone() for name, tensor in given(batch).items()}
    any_method.objective(batch)
    assert all(torch.equal(tensor, before[name]) for name, tensor in given(batch).items())


def test_only_methods_that_say_so_select_nothing_and_then_there_is_no_loss_and_no_gradient(any_method):
    """Nothing to disagree on, nothing to learn from clean samples, and every warm-up over."""
    batch = batch_for(any_method)
    networks = batch.networks and LinearNetworks(
        batch.networks.weights, batch.networks.inputs, torch.zeros(CLEAN, FEATURES), batch.networks.clean_labels
    )
    logits = batch.logits.detach()[:, :1].repeat(1, any_method.networks, 1, 1)
    made = outcome(any_method, batch._replace(logits=leaf(logits), networks=networks, epoch=torch.tensor(1000)))
    picked = made["selected"].any(dim=-1)
    assert picked.logical_not().all() if any_method.may_select_nothing else picked.all()
    assert made["loss"].isfinite().all()
    assert not made["loss"][~picked].any()
    assert not made["gradient"][~picked].any()
    assert made["gradient"].isfinite().all()


def test_a_method_has_the_settings_published_for_the_network_it_is_used_with():
    assert method("coteaching+").warm_up == method("coteaching+", "mlp").warm_up == 0
    assert method("coteaching+", "cifar10-cnn") == CoteachingPlus(warm_up=20)
    assert method("coteaching+", "cifar100-cnn") == CoteachingPlus(warm_up=5)
    assert method("jocor") == method("jocor", "cifar10-cnn") == JoCoR(agreement=0.9)
    assert method("jocor", "cifar100-cnn") == JoCoR(agreement=0.85)
    assert method("coteaching", "cifar100-cnn") is METHODS["coteaching"]


def test_a_schedule_can_be_searched_for_every_method_that_keeps_a_share():
    assert set(SEARCHABLE) == {"mentornet", "coteaching", "coteaching+", "jocor"}


def test_an_unknown_method_is_refused_with_the_known_ones_nearest_first():
    with pytest.raises(InvalidInput, match=r"`method` must be one of coteaching, .*, but got 'coteachin'\.") as refused:
        method("coteachin")
    assert all(name in str(refused.value) for name in METHODS)
    with pytest.raises(InvalidInput, match="`method` must be one of mentornet, "):
        method("MentorNet")
