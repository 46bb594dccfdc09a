"""Forward correction against loops in plain Python, and where it equals standard training."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from method_batches import outcome, slow_softmax
from s2e.errors import InvalidInput
from s2e.methods.forward_correction import ForwardCorrection
from s2e.methods.interface import Batch
from s2e.methods.standard import Standard

P, B, C = 3, 16, 5
LOPSIDED = [[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]


def drawn_matrices(members=P, classes=C, seed=0):
    """Return asymmetric transition matrices, one for each member."""
    return np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), size=(members, classes))


def batch_of(logits, labels, transition):
    members, _, size, _ = logits.shape
    everything = torch.full((members,), size)
    shares = torch.ones(members, dtype=torch.float64)
    return Batch(logits, labels, everything, shares, torch.tensor(0), transition=transition)


def drawn_batch(transition, outputs=None, dtype=torch.float32, seed=0, spread=2.0):
    generator = torch.Generator().manual_seed(seed)
    members, classes, _ = transition.shape
    logits = spread * torch.randn(members, 1, B, outputs or classes, generator=generator, dtype=dtype)
    labels = torch.randint(classes, (members, B), generator=generator)
    return batch_of(logits.requires_grad_(), labels, torch.as_tensor(transition).to(dtype))


# ------------------------------------------------------------------------------------------------- against slow oracles


def slow_loss(row, label, matrix):
    return -math.log(sum(share * matrix[k][label] for k, share in enumerate(slow_softmax(row))))


def slow_gradient(row, label, matrix):
    """Of one sample's loss by its logits: p_k − q_k, q_k ∝ p_k T_ky the probability of class k given the label."""
    shares = slow_softmax(row)
    joint = [share * matrix[k][label] for k, share in enumerate(shares)]
    return [share - part / sum(joint) for share, part in zip(shares, joint, strict=True)]


def test_gradient_descent_equals_a_loop_over_members_and_samples():
    generator = np.random.default_rng(0)
    samples, features = 256, 4
    inputs = generator.normal(size=(samples, features))
    labels = generator.integers(0, C, size=(P, samples))  # every member has its own
    matrices = drawn_matrices()  # and its own matrix
    weights = generator.normal(size=(P, features, C))  # of linear networks
    stacked = torch.tensor(weights, requires_grad=True)
    for step in range(8):
        index = np.arange(samples)[step * 32 : (step + 1) * 32]
        logits = torch.einsum("bf,pfc->pbc", torch.from_numpy(inputs[index]), stacked).unsqueeze(1)
        batch = batch_of(logits, torch.from_numpy(labels[:, index]), torch.from_numpy(matrices))
        objective = ForwardCorrection().objective(batch)
        (gradient,) = torch.autograd.grad(objective.loss.sum(), stacked)
        assert objective.selected.all()
        for member in range(P):
            own = (inputs[index] @ weights[member]).tolist()
            losses, expected = [], np.zeros((features, C))
            for position, sample in enumerate(index):
                label, matrix = labels[member, sample], matrices[member].tolist()
                losses.append(slow_loss(own[position], label, matrix))
                expected += np.outer(inputs[sample], slow_gradient(own[position], label, matrix)) / len(index)
            np.testing.assert_allclose(objective.sample_losses[member, 0], losses, rtol=1e-10)
            np.testing.assert_allclose(objective.loss[member, 0].item(), sum(losses) / len(losses), rtol=1e-10)
            np.testing.assert_allclose(gradient[member], expected, rtol=1e-8, atol=1e-10)
            weights[member] -= 0.5 * expected
        with torch.no_grad():
            stacked -= 0.5 * gradient
        np.testing.assert_allclose(stacked.detach(), weights, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradient_equal_the_naive_formula(dtype):
    batch = drawn_batch(torch.from_numpy(drawn_matrices()), dtype=dtype)
    predicted = torch.einsum("pkj,pmbk->pmbj", batch.transition, batch.logits.softmax(dim=-1))  # Tᵀp
    naive = -predicted.gather(-1, batch.labels[:, None, :, None]).squeeze(-1).log()
    (expected,) = torch.autograd.grad(naive.mean(dim=-1).sum(), batch.logits)
    found = outcome(ForwardCorrection(), batch)
    torch.testing.assert_close(found["sample_losses"], naive.detach())
    torch.testing.assert_close(found["loss"], naive.mean(dim=-1))
    torch.testing.assert_close(found["gradient"], expected)


# --------------------------------------------------------------------------------------------------------- equivalences


@pytest.mark.parametrize("spread", [1.0, 1e6])
def test_identity_matrix_is_standard_training_even_where_probabilities_underflow(spread):
    batch = drawn_batch(torch.eye(C).expand(P, C, C), spread=spread)
    corrected, standard = outcome(ForwardCorrection(), batch), outcome(Standard(), batch)
    assert (standard["sample_losses"] > 100).any() or spread < 100  # e^-100 is 0 in float32
    for name, tensor in standard.items():
        torch.testing.assert_close(corrected[name], tensor, rtol=1e-6, atol=1e-6)


def test_permutation_matrix_is_cross_entropy_with_renamed_classes():
    renamed = torch.tensor([2, 0, 1, 4, 3])  # class k is called renamed[k]
    matrix = torch.eye(C)[renamed]
    batch = drawn_batch(matrix.expand(P, C, C))
    standard = outcome(Standard(), batch._replace(labels=renamed.argsort()[batch.labels]))
    for name, tensor in outcome(ForwardCorrection(), batch).items():
        torch.testing.assert_close(tensor, standard[name], rtol=1e-6, atol=1e-6)


def test_uniform_matrix_has_no_gradient():
    found = outcome(ForwardCorrection(), drawn_batch(torch.full((P, C, C), 1 / C)))
    torch.testing.assert_close(found["sample_losses"], torch.full((P, 1, B), math.log(C)))
    torch.testing.assert_close(found["gradient"], torch.zeros(P, 1, B, C), rtol=0, atol=1e-7)


def test_true_posterior_minimises_the_loss_with_the_true_matrix():
    posterior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)  # of the true class at one point
    noisy = (posterior @ torch.tensor(LOPSIDED, dtype=torch.float64)).tolist()
    counts = [round(1000 * share) for share in noisy]  # labels of 1000 annotators
    assert counts == pytest.approx([1000 * share for share in noisy])
    labels = torch.tensor([label for label, count in enumerate(counts) for _ in range(count)])

    def slope(matrix):
        logits = posterior.log().expand(1, 1, 1000, 3).clone().requires_grad_()
        objective = ForwardCorrection().objective(
            batch_of(logits, labels.unsqueeze(0), torch.tensor([matrix], dtype=torch.float64))
        )
        (gradient,) = torch.autograd.grad(objective.loss.sum(), logits)
        return gradient.sum(dim=-2).abs().max().item()  # all samples share the logits

    assert slope(LOPSIDED) < 1e-12
    assert slope(np.eye(3).tolist()) > 0.1  # without correction the noise is fitted
    assert slope(np.transpose(LOPSIDED).tolist()) > 0.01


def test_further_outputs_are_classes_without_label_noise():
    further = 3
    matrices = torch.from_numpy(drawn_matrices()).float()
    padded = torch.stack([torch.block_diag(matrix, torch.eye(further)) for matrix in matrices])
    batch = drawn_batch(matrices, outputs=C + further)
    whole = outcome(ForwardCorrection(), batch._replace(transition=padded))
    for name, tensor in outcome(ForwardCorrection(), batch).items():
        torch.testing.assert_close(tensor, whole[name], rtol=1e-6, atol=1e-6)


# --------------------------------------------------------------------------------------------------------------- zeros


def test_zeros_in_the_matrix_keep_value_and_gradient_finite():
    matrix = torch.tensor(LOPSIDED)
    logits = torch.tensor([[0.0, 300.0, 600.0], [600.0, 300.0, 0.0], [300.0, -500.0, 300.0]])
    labels = torch.tensor([0, 2, 0])
    # Label 0 comes from class 0 (0.7) or 2 (0.25), label 2 from class 2 alone (0.5).
    expected = [-math.log(0.25), 600 - math.log(0.5), -math.log(0.5 * 0.7 + 0.5 * 0.25)]
    slopes = [[0, 0, 0], [1, 0, -1], [0.5 - 0.7 / 0.95, 0, 0.5 - 0.25 / 0.95]]
    batch = batch_of(logits[None, None].requires_grad_(), labels[None], matrix[None])
    found = outcome(ForwardCorrection(), batch)
    torch.testing.assert_close(found["sample_losses"][0, 0], torch.tensor(expected), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(3 * found["gradient"][0, 0], torch.tensor(slopes), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_impossible_label_has_a_finite_loss_and_no_gradient(dtype):
    matrix = torch.tensor([[0.8, 0.2, 0.0], [0.3, 0.7, 0.0], [0.5, 0.5, 0.0]], dtype=dtype)
    logits = torch.tensor([[3.0, -1.0, 0.5], [3.0, -1.0, 0.5], [0.0, 500.0, -500.0]], dtype=dtype)
    labels = torch.tensor([2, 0, 2])
    found = outcome(ForwardCorrection(), batch_of(logits[None, None].requires_grad_(), labels[None], matrix[None]))
    impossible = -math.log(torch.finfo(dtype).tiny)
    others = slow_loss(logits[1].tolist(), 0, matrix.tolist())
    expected = torch.tensor([impossible, others, impossible], dtype=dtype)
    torch.testing.assert_close(found["sample_losses"][0, 0], expected)
    torch.testing.assert_close(found["gradient"][0, 0, [0, 2]], torch.zeros(2, 3, dtype=dtype), rtol=0, atol=1e-6)
    slope = torch.tensor(slow_gradient(logits[1].tolist(), 0, matrix.tolist()), dtype=dtype) / 3
    torch.testing.assert_close(found["gradient"][0, 0, 1], slope)


def test_impossible_label_of_one_member_does_not_change_others():
    empty_column = torch.tensor([[0.8, 0.2, 0.0], [0.3, 0.7, 0.0], [0.5, 0.5, 0.0]])
    logits = torch.tensor([0.0, 0.0, -400.0]).expand(2, 1, 1, 3).clone().requires_grad_()
    labels = torch.full((2, 1), 2)
    losses = outcome(ForwardCorrection(), batch_of(logits, labels, torch.stack([empty_column, torch.eye(3)])))[
        "sample_losses"
    ]
    torch.testing.assert_close(losses[1, 0, 0].item(), 400 + math.log(2))


def test_nan_in_the_matrix_reaches_the_loss():
    batch = drawn_batch(torch.full((1, C, C), math.nan))
    assert ForwardCorrection().objective(batch).loss.isnan().all()


def test_loss_has_the_dtype_of_the_logits():
    batch = drawn_batch(torch.from_numpy(drawn_matrices()))
    objective = ForwardCorrection().objective(batch._replace(transition=batch.transition.double()))
    assert objective.loss.dtype == objective.sample_losses.dtype == torch.float32


def test_batch_without_matrix_is_refused():
    batch = drawn_batch(torch.from_numpy(drawn_matrices()))
    with pytest.raises(InvalidInput, match="`transition` must be given for f-correction, but got none"):
        ForwardCorrection().objective(batch._replace(transition=None))
