"""What the engine relies on in every method: the registered ones, and one that a user might write."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from method_batches import CLEAN, FEATURES, B, C, LinearNetworks, P, batch_for, for_members, inputs_of, leaf, outcome
from method_oracle import assert_same_member
from method_tasks import member, shared_task
from s2e.engine.training import train_population
from s2e.methods import (
    METHODS,
    Batch,
    CoteachingPlus,
    Need,
    Objective,
    may_hold_out,
    method,
    sample_cross_entropy,
    smallest,
)


@dataclass(frozen=True)
class AveragedPicks:
    """A user's method: two networks, both trained on the samples with the smallest average loss, its loss scaled."""

    name: ClassVar[str] = "smallest-average"
    networks: ClassVar[int] = 2
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SCHEDULE})
    may_select_nothing: ClassVar[bool] = False

    scale: float = 1.0

    def objective(self, batch: Batch) -> Objective:
        losses = sample_cross_entropy(batch)
        kept = smallest(losses.detach().mean(dim=1), batch.keep)  # (P, B)
        selected = kept.unsqueeze(1).expand_as(losses)  # (P, 2, B)
        mean = torch.where(selected, losses, 0.0).sum(dim=-1) / batch.keep.unsqueeze(-1)
        return Objective(self.scale * mean, losses.detach(), selected)


CASES = {**METHODS, "coteaching+ warming up": CoteachingPlus(warm_up=4), "a user's method": AveragedPicks()}


@pytest.fixture(params=CASES.values(), ids=CASES)
def any_method(request):
    return request.param


def test_method_describes_itself_and_equals_its_copy(any_method):
    assert method(any_method) is any_method
    assert any_method.networks >= 1
    assert isinstance(any_method.needs, frozenset)
    assert all(isinstance(need, Need) for need in any_method.needs)
    assert isinstance(any_method.may_select_nothing, bool)
    copy = replace(any_method)
    assert copy is not any_method
    assert copy == any_method
    assert hash(copy) == hash(any_method)


def test_objective_has_the_expected_shapes_and_leaves_its_inputs_unchanged(any_method):
    batch = batch_for(any_method)
    before = {name: tensor.detach().clone() for name, tensor in inputs_of(batch).items()}
    objective = any_method.objective(batch)
    assert objective.loss.shape == (P, any_method.networks)
    assert objective.sample_losses.shape == objective.selected.shape == (P, any_method.networks, B)
    assert objective.loss.dtype == objective.sample_losses.dtype == torch.float32
    assert objective.selected.dtype == torch.bool
    assert objective.loss.isfinite().all()
    assert objective.loss.requires_grad
    assert not objective.sample_losses.requires_grad
    assert all(torch.equal(tensor, before[name]) for name, tensor in inputs_of(batch).items())


def test_objective_reads_no_values(any_method):
    """Meta tensors have shapes but no values: a step that works on them can be captured as a CUDA graph."""
    batch = batch_for(any_method)
    tensors = {name: tensor.to("meta") for name, tensor in inputs_of(batch).items()}
    if batch.networks:
        tensors["networks"] = LinearNetworks(*(tensors.pop(name) for name in vars(batch.networks)))
    found = outcome(any_method, Batch(**{**tensors, "logits": leaf(tensors["logits"])}))
    assert all(tensor.is_meta for tensor in found.values())
    assert found["loss"].shape == (P, any_method.networks)


def test_gradient_reaches_the_selected_samples_of_its_member_only(any_method):
    batch = batch_for(any_method)
    objective = any_method.objective(batch)
    for position in range(P):
        (gradient,) = torch.autograd.grad(objective.loss[position].sum(), batch.logits, retain_graph=True)
        reached = gradient.abs().sum(dim=-1) > 0  # (P, M, B)
        assert torch.equal(reached[position], objective.selected[position])
        assert not reached[torch.arange(P) != position].any()


def test_member_alone_equals_member_among_others(any_method):
    batch = batch_for(any_method)
    together = outcome(any_method, batch)
    for position in range(P):
        own = slice(position, position + 1)
        alone = outcome(any_method, for_members(batch, lambda tensor, own=own: tensor[own]))
        for name, tensor in alone.items():
            torch.testing.assert_close(tensor, together[name][own], rtol=0, atol=0)


def test_member_with_nan_has_no_finite_loss_and_leaves_others_unchanged(any_method):
    def spoil(tensor):
        tensor[1] = math.nan if tensor.is_floating_point() and tensor.ndim > 1 else tensor[1]
        return tensor

    batch = batch_for(any_method)
    before, after = outcome(any_method, batch), outcome(any_method, for_members(batch, spoil))
    assert after["loss"].isfinite().all(dim=1).tolist() == [True, False, True]
    for name, tensor in before.items():
        torch.testing.assert_close(after[name][[0, 2]], tensor[[0, 2]], rtol=0, atol=0)


def test_keep_count_matters_exactly_where_a_schedule_is_needed(any_method):
    batch = batch_for(any_method)
    few, everything = (
        any_method.objective(
            batch._replace(keep=torch.full((P,), count), keep_rate=torch.full((P,), count / B, dtype=torch.float64))
        ).selected
        for count in (2, B)
    )
    assert torch.equal(few, everything) != (Need.SCHEDULE in any_method.needs)


def test_only_declared_methods_select_nothing_and_then_have_no_loss(any_method):
    """Equal networks, clean samples without information, and every warm-up over."""
    batch = batch_for(any_method)
    networks = batch.networks and LinearNetworks(
        batch.networks.weights, batch.networks.inputs, torch.zeros(CLEAN, FEATURES), batch.networks.clean_labels
    )
    logits = batch.logits.detach()[:, :1].repeat(1, any_method.networks, 1, 1)
    found = outcome(any_method, batch._replace(logits=leaf(logits), networks=networks, epoch=torch.tensor(1000)))
    trained = found["selected"].any(dim=-1)
    assert trained.logical_not().all() if any_method.may_select_nothing else trained.all()
    assert found["loss"].isfinite().all()
    assert not found["loss"][~trained].any()
    assert not found["gradient"][~trained].any()
    assert found["gradient"].isfinite().all()


def test_user_method_trains_together_with_registered_ones():
    shared = shared_task(METHODS["standard"])
    members = [member(AveragedPicks(scale), seed=seed) for seed, scale in enumerate((1.0, 0.5))]
    together = train_population(shared, [*members, member(METHODS["coteaching"])])
    for position, one in enumerate(members):
        assert_same_member(together, position, train_population(shared, [one]), 0)


def test_held_out_samples_are_never_selected_and_change_nothing(any_method):
    if not may_hold_out(any_method):
        return
    batch = batch_for(any_method)
    eligible = torch.arange(B).expand(P, B) % 3 > 0
    other_labels = torch.where(eligible, batch.labels, (batch.labels + 1) % C)
    one, other = (
        outcome(any_method, for_members(batch._replace(labels=labels, eligible=eligible), torch.clone))
        for labels in (batch.labels, other_labels)
    )
    assert not one["selected"][~eligible.unsqueeze(1).expand_as(one["selected"])].any()
    for name in ("loss", "selected", "gradient"):
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0)


def test_batch_of_eligible_samples_equals_a_batch_without_a_mask(any_method):
    if not may_hold_out(any_method):
        return
    batch = batch_for(any_method)
    masked = batch._replace(eligible=torch.ones(P, B, dtype=torch.bool))
    one, other = (outcome(any_method, for_members(each, torch.clone)) for each in (batch, masked))
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=0, atol=0)
