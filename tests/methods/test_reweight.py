"""Reweighting against gradients computed by hand, and against an unrolled virtual step."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp

from method_batches import outcome, slow_softmax
from s2e.errors import InvalidInput
from s2e.methods.interface import Batch
from s2e.methods.reweight import Reweight

P, B, V, C, F = 3, 24, 8, 4, 5


def batch_of(logits, labels, networks):
    members, _, size, _ = logits.shape
    everything = torch.full((members,), size)
    shares = torch.ones(members, dtype=torch.float64)
    return Batch(logits, labels, everything, shares, torch.tensor(0), networks=networks)


def weights_within(objective, batch):
    """Compute the weights (P, M, B) from the loss, whose derivative by the logit of a label is w (p_y − 1)."""
    own = batch.labels[:, None, :, None]
    (gradient,) = torch.autograd.grad(objective.loss.sum(), batch.logits, retain_graph=True)
    shares = batch.logits.detach().softmax(dim=-1)
    return (gradient.gather(-1, own) / (shares.gather(-1, own) - 1)).squeeze(-1)


class FixedNetworks:
    """Networks with given clean logits and a given change."""

    def __init__(self, change, clean=None, clean_labels=None):
        self.clean_labels = torch.zeros(V, dtype=torch.int64) if clean_labels is None else clean_labels
        self._clean = torch.zeros(len(change), 1, V, change.shape[-1]) if clean is None else clean
        self._change = change

    def clean_logits(self):
        return self._clean

    def change_along_gradient(self, loss):
        assert loss.shape == ()
        return self._change


def aligned_batch(alignment):
    """Return a batch with given alignments a (P, B): two classes, equal logits, labels 0, p_1 (u_1 − u_0) = 2a/2."""
    alignment = torch.as_tensor(alignment, dtype=torch.float32).unsqueeze(1)  # (P, 1, B)
    logits = torch.zeros(*alignment.shape, 2, requires_grad=True)
    change = torch.stack([torch.zeros_like(alignment), 2 * alignment], dim=-1)
    labels = torch.zeros_like(alignment[:, 0], dtype=torch.int64)
    return batch_of(logits, labels, FixedNetworks(change))


# ------------------------------------------------------------------------------------- linear networks, in plain Python


def slow_sample_gradient(x, label, weights):
    """Loss of one sample under logits x @ weights, and its gradient by the weights, x (softmax − onehot), (F, C)."""
    shares = slow_softmax((x @ weights).tolist())
    slope = np.array(shares)
    slope[label] -= 1
    return -math.log(shares[label]), np.outer(x, slope)


def slow_weights(gradients, clean_gradient):
    """max(⟨∇ℓ_i, ∇L⟩, 0)/Σ, one inner product at a time."""
    products = [float((gradient * clean_gradient).sum()) for gradient in gradients]
    total = sum(product for product in products if product > 0)
    return [product / total if product > 0 else 0.0 for product in products]


class LinearNetworks:
    """Logits x @ W of every member; their change along dW is x @ dW, and dW follows from the gradient of the logits."""

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


def test_gradient_descent_equals_a_loop_over_members_and_samples():
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
    assert 0.1 < left_out / (steps * P * B) < 0.9  # samples with and without weight


def test_copy_of_a_clean_sample_with_the_true_label_gets_all_the_weight():
    x = np.array([[1.0, -2.0, 0.5]])
    networks = LinearNetworks(np.zeros((1, 3, C)), np.repeat(x, 2, axis=0), x, np.array([2]))
    logits = torch.zeros(1, 1, 2, C, dtype=torch.float64, requires_grad=True)
    batch = batch_of(logits, torch.tensor([[2, 1]]), networks)
    found = outcome(Reweight(), batch)
    assert found["selected"].tolist() == [[[True, False]]]
    torch.testing.assert_close(found["loss"].item(), math.log(C))


# ------------------------------------------------------------------------ any network, against an unrolled virtual step


class ModuleNetworks:
    """Any modules, one for each member; the Jacobian-vector product by forward-mode differentiation."""

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
            assert change.requires_grad  # the method has to detach it
            changes.append(change)
        return torch.stack(changes).unsqueeze(1)


def weights_of_a_virtual_step(module, inputs, labels, clean_inputs, clean_labels):
    """Take the step with a multiplier for each sample; differentiate the clean loss by the multipliers."""
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
    """Linearly separable classes; two in five labels are drawn at random for every member."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples + clean_samples, F, generator=generator, dtype=torch.float64)
    truth = (inputs @ torch.randn(F, C, generator=generator, dtype=torch.float64)).argmax(dim=1)
    wrong = torch.rand(P, samples, generator=generator) < 0.4
    labels = torch.where(wrong, torch.randint(C, (P, samples), generator=generator), truth[:samples])
    return inputs[:samples], labels, inputs[samples:], truth[samples:], labels == truth[:samples]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch, on the first use of jvp
@pytest.mark.parametrize("network", [mlp, with_batch_norm, convolution])
def test_weights_and_training_equal_those_of_an_unrolled_step(network):
    inputs, labels, clean_inputs, clean_labels, correct = noisy_problem()
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        modules = [network().double() for _ in range(P)]
    others = copy.deepcopy(modules)
    on_correct, total = 0.0, 0.0
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
            on_correct += expected[correct[member, index]].sum().item()
            total += expected.sum().item()
        for parameter in [value for module in (*modules, *others) for value in module.parameters()]:
            with torch.no_grad():
                parameter -= 0.3 * parameter.grad
            parameter.grad = None
        for module, other in zip(modules, others, strict=True):
            for value, expected in zip(module.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-8)
    assert on_correct / total > 0.75  # against the share of correct labels, 0.7: the weights favour them


# ------------------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_weights_do_not_depend_on_the_scale_of_the_clean_gradient(scale):
    alignment = torch.tensor([[0.5, -1.0, 0.2, 0.0, 0.3]])
    batch = aligned_batch(scale * alignment)
    found = Reweight().objective(batch)
    expected = torch.tensor([0.5, 0.0, 0.2, 0.0, 0.3])
    torch.testing.assert_close(weights_within(found, batch)[0, 0], expected)
    assert found.selected[0, 0].tolist() == [True, False, True, False, True]  # an alignment of 0 has no weight


def test_clean_loss_is_the_mean_over_the_clean_samples_of_each_network():
    clean = torch.randn(2, 1, V, C, generator=torch.Generator().manual_seed(0)).requires_grad_()
    clean_labels = torch.arange(V) % C
    networks = FixedNetworks(torch.zeros(2, 1, B, C), clean, clean_labels)
    given = []
    networks.change_along_gradient = lambda loss: given.append(loss) or torch.zeros(2, 1, B, C)
    labels = torch.zeros(2, B, dtype=torch.int64)
    Reweight().objective(batch_of(torch.zeros(2, 1, B, C, requires_grad=True), labels, networks))
    rows = [[slow_softmax(row)[y] for row, y in zip(own[0].tolist(), clean_labels, strict=True)] for own in clean]
    torch.testing.assert_close(given[0].item(), sum(-sum(math.log(share) for share in own) / V for own in rows))
    (slopes,) = torch.autograd.grad(given[0], clean)  # differentiable, and not scaled by the number of networks
    expected = (clean.detach().softmax(dim=-1) - nn.functional.one_hot(clean_labels, C)) / V
    torch.testing.assert_close(slopes, expected)


@pytest.mark.parametrize("margin", [0.0, 30.0])
def test_confident_sample_keeps_its_weight_where_its_probability_rounds_to_one(margin):
    logits = torch.tensor([[[[margin, 0.0], [0.0, 0.0]]]], requires_grad=True)
    change = torch.tensor([[[[-2 * math.exp(margin), 0.0], [0.0, 2.0]]]])
    batch = batch_of(logits, torch.zeros(1, 2, dtype=torch.int64), FixedNetworks(change))
    products = [2 / (1 + math.exp(-margin)), 1.0]  # p_1 (u_1 − u_0)
    found = Reweight().objective(batch)
    assert found.selected.all()
    torch.testing.assert_close(weights_within(found, batch)[0, 0, 1].item(), products[1] / sum(products))


# ------------------------------------------------------------------------------- nothing to train on, and divergence


def test_without_positive_alignment_nothing_is_selected_and_there_is_no_gradient():
    batch = aligned_batch([[-1.0, -0.5, 0.0], [1.0, -1.0, 3.0], [0.0, 0.0, 0.0]])
    found = outcome(Reweight(), batch)
    torch.testing.assert_close(found["loss"][:, 0], torch.tensor([0.0, math.log(2), 0.0]))
    assert found["selected"].any(dim=-1).flatten().tolist() == [False, True, False]
    assert (found["gradient"].flatten(1) != 0).any(dim=1).tolist() == [False, True, False]
    assert Reweight().objective(batch).loss.requires_grad
    torch.testing.assert_close(weights_within(Reweight().objective(batch), batch)[1, 0], torch.tensor([0.25, 0, 0.75]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_alignment_that_is_not_finite_reaches_the_loss_of_its_member_only(bad):
    sound = [0.5, -1.0, 0.5]
    batch = aligned_batch([sound, [bad, -1.0, 0.5], [-1.0, bad, -1.0], sound])
    found, expected = outcome(Reweight(), batch), outcome(Reweight(), aligned_batch([sound] * 4))
    assert found["loss"].isfinite().flatten().tolist() == [True, False, False, True]
    assert not found["selected"][1:3].any()  # no step is taken with NaN weights
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name][[0, 3]], tensor[[0, 3]], rtol=0, atol=0)


def test_nan_logits_of_a_sample_without_weight_reach_the_loss():
    batch = aligned_batch([[0.5, 0.2, -1.0]] * 3)
    before = outcome(Reweight(), batch)
    logits = batch.logits.detach().clone()
    logits[1, 0, 2] = math.nan  # a sample with a negative alignment
    after = outcome(Reweight(), batch._replace(logits=logits.requires_grad_()))
    assert after["loss"].isfinite().flatten().tolist() == [True, False, True]
    for name, tensor in before.items():
        torch.testing.assert_close(after[name][[0, 2]], tensor[[0, 2]], rtol=0, atol=0)


def test_infinite_loss_without_weight_is_ignored():
    batch = aligned_batch([[0.5, -1.0, 0.5]])
    with torch.no_grad():
        batch.logits[0, 0, 1] = torch.tensor([-3e38, 3e38])
    found = outcome(Reweight(), batch)
    assert found["sample_losses"][0, 0, 1].isinf()
    assert not found["selected"][0, 0, 1]
    torch.testing.assert_close(found["loss"][0, 0].item(), math.log(2))
    assert found["gradient"].isfinite().all()
    assert not found["gradient"][0, 0, 1].any()


def test_infinite_loss_with_weight_reaches_the_loss():
    batch = aligned_batch([[0.5, 1.0, 0.5]])
    with torch.no_grad():
        batch.logits[0, 0, 1] = torch.tensor([-3e38, 3e38])
    assert Reweight().objective(batch).loss.isinf().all()


def test_batch_without_clean_samples_is_refused():
    with pytest.raises(InvalidInput, match="`networks` must be given for reweight, but got none"):
        Reweight().objective(aligned_batch([[0.5, 0.2]])._replace(networks=None))
