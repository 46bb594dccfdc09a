"""Records of a training: summed over members, extended by unseen samples, and turned into means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from s2e.audit.evidence import Evidence, records_of
from s2e.engine.inference import predictions
from s2e.engine.training import train_population
from s2e.errors import InvalidInput
from s2e.methods import Coteaching
from small_tasks import blobs, member, task

FITTING: dict[str, Any] = {
    "labels": np.array([0, 1]),
    "probabilities": np.full((1, 2, 2), 0.5),
    "kept": np.zeros(2),
    "loss": np.ones((3, 2)),
}


def test_sums_become_means_over_networks_and_epochs():
    found = Evidence.from_records(
        {
            "seen": np.array([[2, 1, 0], [2, 0, 0]]),
            "kept": np.array([6, 0, 0], dtype=np.float32),
            "loss": np.array([[8, 3, 0], [2, 0, 0]], dtype=np.float32),
            "labels": np.array([0, 1, 1], dtype=np.int32),
            "probabilities": np.full((2, 3, 2), 0.5),
        }
    )
    np.testing.assert_array_equal(found.loss, [[2, 1.5, np.nan], [0.5, np.nan, np.nan]])
    np.testing.assert_array_equal(found.kept, [0.75, 0, 0])
    assert found.labels.dtype == np.int64


def test_records_are_summed_over_members_and_extended_by_unseen_samples():
    shared, unseen = task(blobs(), Coteaching()), blobs(24, seed=1)
    trained = train_population(shared, [member(seed=seed) for seed in range(3)])
    records, dynamics = records_of(shared, trained, [0, 2], unseen), trained.dynamics
    samples = len(shared.train)
    np.testing.assert_array_equal(records["kept"][:samples], dynamics.kept[[0, 2]].sum(axis=0))
    np.testing.assert_array_equal(records["loss"][:, :samples], dynamics.loss[[0, 2]].sum(axis=0))
    np.testing.assert_array_equal(records["seen"][:, :samples], dynamics.seen)
    for name in ("kept", "loss", "seen"):
        assert (records[name][..., samples:] == 0).all()
    np.testing.assert_array_equal(records["labels"], np.concatenate([shared.train.labels, unseen.labels]))
    assert records["probabilities"].shape == (4, samples + 24, 4)
    state = {name: tensor[[0, 1, 4, 5]] for name, tensor in trained.state.items()}
    np.testing.assert_allclose(
        records["probabilities"][:, samples:], predictions(shared, state, unseen.inputs), atol=1e-3
    )
    assert (Evidence.from_records(records).kept[samples:] == 0).all()


def test_records_hold_which_labels_are_reviewed_and_the_true_ones():
    train, unseen = blobs(), blobs(24, seed=1)
    reviewed = np.arange(len(train)) % 5 == 0
    shared = task(replace(train, reviewed=reviewed), Coteaching())
    trained = train_population(shared, [member()])
    records = records_of(shared, trained, [0], unseen)
    np.testing.assert_array_equal(records["reviewed"], np.concatenate([reviewed, np.zeros(24, dtype=bool)]))
    np.testing.assert_array_equal(records["clean_labels"], np.concatenate([train.clean_labels, unseen.clean_labels]))
    np.testing.assert_array_equal(Evidence.from_records(records).reviewed, records["reviewed"])
    assert not {"reviewed", "clean_labels"} & set(
        records_of(task(replace(train, clean_labels=None), Coteaching()), trained, [0])
    )


def test_inconsistent_evidence_is_refused():
    cases = [
        ({"labels": np.zeros(0, dtype=int)}, "`labels` must be"),
        ({"labels": np.array([0, 2])}, "`labels` must be integers in 0..1, but got 0..2"),
        ({"labels": np.array([0.0, 1.0])}, "of type float64"),
        ({"probabilities": np.ones((1, 2, 1))}, r"`probabilities` must be \(M, 2, C\)"),
        ({"probabilities": np.full((1, 2, 2), np.nan)}, "diverged"),
        ({"probabilities": np.zeros((1, 2, 2))}, "not all zero"),
        ({"probabilities": np.array([[[2.0, -1.0], [1.0, 0.0]]])}, "not negative"),
        ({"kept": np.array([0, 1.5])}, r"`kept` must lie in \[0, 1\], but got 0..1.5"),
        ({"kept": np.array([0, np.nan])}, "`kept` must lie"),
        ({"loss": np.array([[0.5, -0.25], [np.nan, 1]])}, "`loss` must be at least 0, but got -0.25"),
        ({"kept": np.zeros(3), "loss": np.zeros(2)}, "`kept` must be.*`loss` must be"),
    ]
    for changed, message in cases:
        with pytest.raises(InvalidInput, match=message):
            Evidence(**{**FITTING, **changed})
