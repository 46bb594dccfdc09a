"""Reweighting against gradients worked out by hand, and against a virtual step that is really taken."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp

from s2e.errors import InvalidInput
from s2e.methods.interface import Batch, Need
from s2e.methods.reweight import Reweight
from s2e.methods.standard import Standard

P, B, V, C, F = 3, 24, 8, 4, 5


def batch_of(logits, labels, networks):
    members, _, size, _ = logits.shape
    everything = torch.full((members,), size)
    shares = torch.ones(members, dtype=torch.float64)
    return Batch(logits, labels, everything, shares, torch.tensor(0), networks=networks)


def outcome(batch):
    """Everything the method makes of a batch, with the gradient the engine takes of it."""
    objective = Reweight().objective(batch)
    (gradient,) = torch.autograd.grad(objective.loss.sum(), batch.logits, retain_graph=True)
    return {**objective._asdict(), "gradient": gradient}


def weights_within(objective, batch):
    """Read the weights off the loss: its derivative by the logit of a sample's own label is w (p_y − 1), (P, M, B)."""
    own = batch.labels[:, None, :, None]
    (gradient,) = torch.autograd.grad(objective.loss.sum(), batch.logits, retain_graph=True)
    shares = batch.logits.detach().softmax(dim=-1)
    return (gradient.gather(-1, own) / (shares.gather(-1, own) - 1)).squeeze(-1)


class Prepared:
    """Networks whose answers were decided beforehand."""

    def __init__(self, change, clean=None, clean_labels=None):
        self.clean_labels = torch.zeros(V, dtype=torch.int64) if clean_labels is None else clean_labels
        self._clean = torch.zeros(len(change), 1, V, change.shape[-1]) if clean is None else clean
        self._change = change

    def clean_logits(self):
        return self._clean

    def change_along_gradient(self, loss):
        assert loss.shape == ()
        return self._change


def prepared_batch(alignment):
    """Two classes of equal logits, all labels 0, with the alignments (P, B) given: p_1 (u_1 − u_0) = (2a − 0)/2."""
    alignment = torch.as_tensor(alignment, dtype=torch.float32).unsqueeze(1)  # (P, 1, B)
    logits = torch.zeros(*alignment.shape, 2, requires_grad=True)
    change = torch.stack([torch.zeros_like(alignment), 2 * alignment], dim=-1)
    labels = torch.zeros_like(alignment[:, 0], dtype=torch.int64)
    return batch_of(logits, labels, Prepared(change))


# ------------------------------------------------------------------------------------- linear networks, worked by hand


def slow_shares(row):
    """Softmax of a list."""
    exponentials = [math.exp(z - max(row)) for z in row]
    return [e / sum(exponentials) for e in exponentials]


def slow_sample_gradient(x, label, weights):
    """Loss of one sample under logits x @ weights, and its gradient by the weights, x (softmax − onehot), (F, C)."""
    shares = slow_shares((x @ weights).tolist())
    slope = np.array(shares)
    slope[label] -= 1
    return -math.log(shares[label]), np.outer(x, slope)


def slow_weights(gradients, clean_gradient):
    """max(⟨∇ℓ_i, ∇L⟩, 0)/Σ, one inner product after the other."""
    products = [float((gradient * clean_gradient).sum()) for gradient in gradients]
    total = sum(product for product in products if product > 0)
    return [product / total if product > 0 else 0.0 for product in products]


class LinearNetworks:
    """Logits x @ W for every member: their change along dW is x @ dW, and dW follows from the slopes of the logits."""

    def __init__(self, weights, inputs, clean_inputs, clean_labels):
        self.clean_labels = torch.from_numpy(clean_labels)
        self._inputs, self._clean_inputs = inputs, clean_inputs
        logits = np.stack([clean_inputs @ own for own in weights])[:, None]  # (P, 1, V, C)
        self._clean = torch.from_numpy(logits).requires_grad_()

    def clean_logits(self):
        return self._clean

    def change_along_gradient(self, loss):
        (slopes,) = torch.autograd.grad(loss, self._clean)
        gradients = [self._clean_inputs.T @ own[0] for own in slopes.numpy()]  # each member's dL/dW, (F, C)
        return torch.from_numpy(np.stack([self._inputs @ own for own in gradients])[:, None])  # (P, 1, B, C)


def test_training_linear_networks_equals_a_loop_over_members_and_samples():
    generator = np.random.default_rng(0)
    samples, steps = 256, 10
    inputs, clean_inputs = generator.normal(size=(samples, F)), generator.normal(size=(64, F))
    truth = generator.normal(size=(F, C))
    labels = (inputs @ truth).argmax(axis=1)
    labels = np.where(generator.random((P, samples)) < 0.4, generator.integers(0, C, (P, samples)), labels)
    clean_labels = (clean_inputs @ truth).argmax(axis=1)
    weights = 0.1 * generator.normal(size=(P, F, C))
    stacked = torch.tensor(weights, requires_grad=True)
    left_out = 0
    for _ in range(steps):
        index, clean = generator.choice(samples, B, replace=False), generator.choice(64, V, replace=False)
        networks = LinearNetworks(stacked.detach().numpy(), inputs[index], clean_inputs[clean], clean_labels[clean])
        logits = torch.einsum("bf,pfc->pbc", torch.from_numpy(inputs[index]), stacked).unsqueeze(1)
        batch = batch_of(logits, torch.from_numpy(labels[:, index]), networks)
        objective = Reweight().objective(batch)
        (gradient,) = torch.autograd.grad(objective.loss.sum(), stacked)
        for member in range(P):
            own = weights[member]
            of_clean = [slow_sample_gradient(clean_inputs[v], clean_labels[v], own)[1] for v in clean]
            of_batch = [slow_sample_gradient(inputs[i], labels[member, i], own) for i in index]
            expected = slow_weights([each for _, each in of_batch], sum(of_clean) / V)
            left_out += expected.count(0.0)
            at = (member, 0)
            assert objective.selected[at].tolist() == [weight > 0 for weight in expected]
            np.testing.assert_allclose(objective.sample_losses[at], [loss for loss, _ in of_batch], rtol=1e-9)
            weighted = sum(weight * loss for weight, (loss, _) in zip(expected, of_batch, strict=True))
            np.testing.assert_allclose(objective.loss[at].item(), weighted, rtol=1e-8)
            step = sum(weight * each for weight, (_, each) in zip(expected, of_batch, strict=True))
            np.testing.assert_allclose(gradient[member], step, rtol=1e-7, atol=1e-10)
            weights[member] -= 0.5 * step
        with torch.no_grad():
            stacked -= 0.5 * gradient
        np.testing.assert_allclose(stacked.detach(), weights, rtol=1e-6, atol=1e-9)
    assert 0.1 < left_out / (steps * P * B) < 0.9  # both kinds of samples were there


def test_of_two_clean_copies_the_one_with_the_right_label_gets_all_the_weight():
    x = np.array([[1.0, -2.0, 0.5]])
    networks = LinearNetworks(np.zeros((1, 3, C)), np.repeat(x, 2, axis=0), x, np.array([2]))
    logits = torch.zeros(1, 1, 2, C, dtype=torch.float64, requires_grad=True)
    batch = batch_of(logits, torch.tensor([[2, 1]]), networks)
    found = outcome(batch)
    assert found["selected"].tolist() == [[[True, False]]]
    torch.testing.assert_close(found["loss"].item(), math.log(C))


# -------------------------------------------------------------------------------- any network, by a step really taken


class ModuleNetworks:
    """Modules of any kind, one for each member: the Jacobian-vector product by forward-mode differentiation."""

    def __init__(self, modules, inputs, clean_inputs, clean_labels):
        self.clean_labels = clean_labels
        self._modules, self._inputs, self._clean_inputs = modules, inputs, clean_inputs

    def clean_logits(self):
        return torch.stack([module(self._clean_inputs) for module in self._modules]).unsqueeze(1)

    def change_along_gradient(self, loss):
        changes = []
        for module in self._modules:
            values = dict(module.named_parameters())
            gradients = torch.autograd.grad(loss, list(values.values()), retain_graph=True)

            def logits(values, module=module):
                return functional_call(module, values, (self._inputs,))

            _, change = jvp(logits, (values,), (dict(zip(values, gradients, strict=True)),))
            assert change.requires_grad  # a method that forgets to detach is found out
            changes.append(change)
        return torch.stack(changes).unsqueeze(1)


def weights_of_a_virtual_step(module, inputs, labels, clean_inputs, clean_labels):
    """Take the step with a multiplier for each sample, and ask the clean loss for the multipliers' derivatives."""
    multipliers = torch.zeros(len(inputs), dtype=inputs.dtype, requires_grad=True)
    values = dict(module.named_parameters())
    losses = nn.functional.cross_entropy(module(inputs), labels, reduction="none")
    gradients = torch.autograd.grad((multipliers * losses).sum(), list(values.values()), create_graph=True)
    moved = {name: value - 0.3 * gradient for (name, value), gradient in zip(values.items(), gradients, strict=True)}
    clean_loss = nn.functional.cross_entropy(functional_call(module, moved, (clean_inputs,)), clean_labels)
    (slopes,) = torch.autograd.grad(clean_loss, multipliers)
    weights = (-slopes).clamp(min=0)
    return (weights / weights.sum() if weights.sum() > 0 else weights), losses


def mlp():
    return nn.Sequential(nn.Linear(F, 16), nn.ReLU(), nn.Linear(16, C))


def with_batch_norm():
    """The loss of a sample depends on the others of its batch."""
    norm = nn.BatchNorm1d(16, track_running_stats=False)
    return nn.Sequential(nn.Linear(F, 16), norm, nn.Tanh(), nn.Linear(16, C))


def convolution():
    return nn.Sequential(nn.Unflatten(1, (1, F)), nn.Conv1d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, C))


def noisy_problem(samples=300, clean_samples=40):
    """Linearly separable classes with two in five labels drawn anew for every member."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples + clean_samples, F, generator=generator, dtype=torch.float64)
    truth = (inputs @ torch.randn(F, C, generator=generator, dtype=torch.float64)).argmax(dim=1)
    wrong = torch.rand(P, samples, generator=generator) < 0.4
    labels = torch.where(wrong, torch.randint(C, (P, samples), generator=generator), truth[:samples])
    return inputs[:samples], labels, inputs[samples:], truth[samples:], labels == truth[:samples]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch, the first time jvp is used
@pytest.mark.parametrize("network", [mlp, with_batch_norm, convolution])
def test_weights_and_training_equal_those_of_a_virtual_step_really_taken(network):
    inputs, labels, clean_inputs, clean_labels, right = noisy_problem()
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        modules = [network().double() for _ in range(P)]
    others = copy.deepcopy(modules)
    on_right, total = 0.0, 0.0
    for _ in range(12):
        index = torch.randperm(len(inputs), generator=generator)[:B]
        clean = torch.randperm(len(clean_inputs), generator=generator)[:V]
        networks = ModuleNetworks(modules, inputs[index], clean_inputs[clean], clean_labels[clean])
        logits = torch.stack([module(inputs[index]) for module in modules]).unsqueeze(1)
        batch = batch_of(logits, labels[:, index], networks)
        objective = Reweight().objective(batch)
        weights = weights_within(objective, batch)
        objective.loss.sum().backward()
        for member, other in enumerate(others):
            problem = (inputs[index], labels[member, index], clean_inputs[clean], clean_labels[clean])
            expected, losses = weights_of_a_virtual_step(other, *problem)
            torch.testing.assert_close(weights[member, 0], expected, rtol=1e-6, atol=1e-6)
            assert torch.equal(objective.selected[member, 0], expected > 0)
            torch.testing.assert_close(objective.sample_losses[member, 0], losses.detach(), rtol=1e-5, atol=1e-5)
            loss = (expected.detach() * losses).sum()
            torch.testing.assert_close(objective.loss[member, 0], loss, rtol=1e-5, atol=1e-5)
            loss.backward()
            on_right += expected[right[member, index]].sum().item()
            total += expected.sum().item()
        for parameter in [value for module in (*modules, *others) for value in module.parameters()]:
            with torch.no_grad():
                parameter -= 0.3 * parameter.grad
            parameter.grad = None
        for module, other in zip(modules, others, strict=True):
            for value, expected in zip(module.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-8)
    assert on_right / total > 0.75  # against the share of right labels, 0.7: the weights favour them


# -------------------------------------------------------------------------------------------------------- equivalences


def test_samples_that_all_help_equally_are_standard_training():
    batch = prepared_batch(torch.full((2, 10), 0.3))
    found, standard = outcome(batch), Standard().objective(batch)
    torch.testing.assert_close(found["loss"], standard.loss)
    assert torch.equal(found["sample_losses"], standard.sample_losses)
    assert found["selected"].all()


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
def test_the_weights_do_not_depend_on_the_scale_of_the_clean_gradient(scale):
    alignment = torch.tensor([[0.5, -1.0, 0.2, 0.0, 0.3]])
    batch = prepared_batch(scale * alignment)
    found = Reweight().objective(batch)
    expected = torch.tensor([0.5, 0.0, 0.2, 0.0, 0.3])
    torch.testing.assert_close(weights_within(found, batch)[0, 0], expected)
    assert found.selected[0, 0].tolist() == [True, False, True, False, True]  # what neither helps nor hurts is left out


def test_the_clean_loss_is_the_mean_over_the_clean_samples_of_each_network_against_the_clean_labels():
    clean = torch.randn(2, 1, V, C, generator=torch.Generator().manual_seed(0)).requires_grad_()
    clean_labels = torch.arange(V) % C
    networks = Prepared(torch.zeros(2, 1, B, C), clean, clean_labels)
    told = []
    networks.change_along_gradient = lambda loss: told.append(loss) or torch.zeros(2, 1, B, C)
    labels = torch.zeros(2, B, dtype=torch.int64)
    Reweight().objective(batch_of(torch.zeros(2, 1, B, C, requires_grad=True), labels, networks))
    rows = [[slow_shares(row)[y] for row, y in zip(own[0].tolist(), clean_labels, strict=True)] for own in clean]
    torch.testing.assert_close(told[0].item(), sum(-sum(math.log(share) for share in own) / V for own in rows))
    (slopes,) = torch.autograd.grad(told[0], clean)  # it is differentiable, and no network's is scaled by the others
    expected = (clean.detach().softmax(dim=-1) - nn.functional.one_hot(clean_labels, C)) / V
    torch.testing.assert_close(slopes, expected)


@pytest.mark.parametrize("margin", [0.0, 5.0, 30.0])
def test_a_sample_the_network_is_sure_of_keeps_its_share_where_its_probability_rounds_to_one(margin):
    logits = torch.tensor([[[[margin, 0.0], [0.0, 0.0]]]], requires_grad=True)
    change = torch.tensor([[[[-2 * math.exp(margin), 0.0], [0.0, 2.0]]]])
    batch = batch_of(logits, torch.zeros(1, 2, dtype=torch.int64), Prepared(change))
    products = [2 / (1 + math.exp(-margin)), 1.0]  # p_1 (u_1 − u_0)
    found = Reweight().objective(batch)
    assert found.selected.all()
    torch.testing.assert_close(weights_within(found, batch)[0, 0, 1].item(), products[1] / sum(products))


# ------------------------------------------------------------------------------- nothing to train on, and divergence


def test_where_no_sample_helps_nothing_is_selected_and_nothing_moves():
    batch = prepared_batch([[-1.0, -0.5, 0.0], [1.0, -1.0, 3.0], [0.0, 0.0, 0.0]])
    found = outcome(batch)
    torch.testing.assert_close(found["loss"][:, 0], torch.tensor([0.0, math.log(2), 0.0]))
    assert found["selected"].any(dim=-1).flatten().tolist() == [False, True, False]
    assert (found["gradient"].flatten(1) != 0).any(dim=1).tolist() == [False, True, False]
    assert Reweight().objective(batch).loss.requires_grad
    torch.testing.assert_close(weights_within(Reweight().objective(batch), batch)[1, 0], torch.tensor([0.25, 0, 0.75]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_alignment_that_is_not_finite_shows_in_the_loss_of_its_member_alone(bad):
    sound = [0.5, -1.0, 0.5]
    batch = prepared_batch([sound, [bad, -1.0, 0.5], [-1.0, bad, -1.0], sound])
    found, expected = outcome(batch), outcome(prepared_batch([sound] * 4))
    assert found["loss"].isfinite().flatten().tolist() == [True, False, False, True]
    assert not found["selected"][1:3].any()  # no step is taken with weights that are not there
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name][[0, 3]], tensor[[0, 3]], rtol=0, atol=0)


def test_logits_that_are_not_finite_show_in_the_loss_of_their_member_alone():
    batch = prepared_batch([[0.5, 0.2, -1.0]] * 3)
    before = outcome(batch)
    logits = batch.logits.detach().clone()
    logits[1, 0, 2] = math.nan  # even where the sample would have had no weight
    after = outcome(batch._replace(logits=logits.requires_grad_()))
    assert after["loss"].isfinite().flatten().tolist() == [True, False, True]
    for name, tensor in before.items():
        torch.testing.assert_close(after[name][[0, 2]], tensor[[0, 2]], rtol=0, atol=0)


def test_an_infinite_loss_that_has_no_weight_does_not_count():
    batch = prepared_batch([[0.5, -1.0, 0.5]])
    with torch.no_grad():
        batch.logits[0, 0, 1] = torch.tensor([-3e38, 3e38])
    found = outcome(batch)
    assert found["sample_losses"][0, 0, 1].isinf()
    assert not found["selected"][0, 0, 1]
    torch.testing.assert_close(found["loss"][0, 0].item(), math.log(2))
    assert found["gradient"].isfinite().all()
    assert not found["gradient"][0, 0, 1].any()


def test_an_infinite_loss_that_has_weight_shows():
    batch = prepared_batch([[0.5, 1.0, 0.5]])
    with torch.no_grad():
        batch.logits[0, 0, 1] = torch.tensor([-3e38, 3e38])
    assert Reweight().objective(batch).loss.isinf().all()


# ------------------------------------------------------------------------------------------- what the engine relies on


def drawn_batch(members=P):
    generator = torch.Generator().manual_seed(0)
    logits, change = (2 * torch.randn(members, 1, B, C, generator=generator) for _ in range(2))
    labels = torch.randint(C, (members, B), generator=generator)
    clean = torch.randn(members, 1, V, C, generator=generator)
    return batch_of(logits.requires_grad_(), labels, Prepared(change, clean.requires_grad_()))


def test_it_declares_what_it_needs_and_equals_itself():
    method = Reweight()
    assert (method.name, method.networks, method.may_select_nothing) == ("reweight", 1, True)
    assert method.needs == {Need.CLEAN_SAMPLES}
    assert method == Reweight()


def test_the_objective_has_the_shapes_and_types_the_engine_expects():
    objective = Reweight().objective(drawn_batch())
    assert objective.loss.shape == (P, 1)
    assert objective.sample_losses.shape == objective.selected.shape == (P, 1, B)
    assert objective.loss.dtype == objective.sample_losses.dtype == torch.float32
    assert objective.selected.dtype == torch.bool
    assert objective.loss.requires_grad
    assert not objective.sample_losses.requires_grad


def test_a_member_alone_has_the_outcome_it_has_among_others_exactly():
    batch = drawn_batch()
    together = outcome(batch)
    for member in range(P):
        part = slice(member, member + 1)
        change = batch.networks.change_along_gradient(torch.tensor(0.0))
        networks = Prepared(change[part].clone(), batch.networks.clean_logits()[part].detach().clone())
        alone = outcome(batch_of(batch.logits[part].detach().clone().requires_grad_(), batch.labels[part], networks))
        for name, tensor in alone.items():
            torch.testing.assert_close(tensor, together[name][part], rtol=0, atol=0)


def test_nothing_it_was_given_is_changed():
    batch = drawn_batch()
    given = [*batch[:5], batch.networks.clean_logits(), batch.networks.change_along_gradient(torch.tensor(0.0))]
    before = [tensor.detach().clone() for tensor in given]
    Reweight().objective(batch)
    assert all(torch.equal(tensor, copied) for tensor, copied in zip(given, before, strict=True))


def test_no_shape_and_no_branch_depends_on_values_as_a_captured_step_demands():
    networks = Prepared(*(tensor.to("meta") for tensor in (torch.zeros(P, 1, B, C), torch.zeros(P, 1, V, C))))
    networks.clean_labels = networks.clean_labels.to("meta")
    batch = drawn_batch()
    without_values = Batch(*(tensor.detach().to("meta") for tensor in batch[:5]), networks=networks)
    objective = Reweight().objective(without_values._replace(logits=without_values.logits.requires_grad_()))
    objective.loss.sum().backward()
    assert objective.selected.shape == (P, 1, B)


def test_a_batch_without_clean_samples_is_refused():
    with pytest.raises(InvalidInput, match="`networks` must be given for reweight, but got none"):
        Reweight().objective(drawn_batch()._replace(networks=None))
