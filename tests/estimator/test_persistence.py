"""A fitted classifier written and read again: the same predictions and audit, without pickle."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from scipy import sparse

from fitted_classifiers import POOL, QUICK, Narrow, fitted, of_any_shape, three_blobs
from s2e import S2EClassifier
from s2e.engine.augmentation import Flip
from s2e.errors import InvalidInput, UnreadableData

pytestmark = pytest.mark.usefixtures("few_trees")


def frame_of(X):
    return pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(X[:, 0] > 0, "large", "small"))


def images_of(X):
    return np.clip(40 * X + 100, 0, 255).astype(np.uint8).repeat(4, axis=1).reshape(len(X), 4, 4)


KINDS = {
    "numbers": (lambda X: X, POOL),
    "frame": (frame_of, POOL),
    "sparse": (lambda X: sparse.csr_matrix(np.maximum(X, 0)), POOL),
    "reduced": (lambda X: sparse.csr_matrix(np.maximum(X, 0)), {"sparse_components": 2, **POOL}),
    "pixels": (images_of, POOL),
    "images": (lambda X: images_of(X) / 255.0, {}),
    "augmented": (images_of, {"augment": "crop:padding=1,flip,normalize"}),
    "options": (lambda X: X, {"network": "mlp:widths=7-5,batch_norm=true"}),
}


@pytest.mark.parametrize(("made_of", "changes"), KINDS.values(), ids=KINDS)
def test_a_loaded_classifier_equals_the_saved_one(tmp_path, made_of, changes):
    X, y = three_blobs(96)
    samples, names = made_of(X), np.array(["ant", "bee", "cow"])
    before = fitted(samples, names[y], **changes)
    before.save(tmp_path / "classifier.safetensors")
    after = S2EClassifier.load(tmp_path / "classifier.safetensors")
    np.testing.assert_array_equal(after.predict_proba(samples), before.predict_proba(samples))
    assert set(after.predict(samples)) <= set(names)
    pd.testing.assert_frame_equal(after.find_label_issues(), before.find_label_issues())
    np.testing.assert_array_equal(after.schedule_, before.schedule_)
    np.testing.assert_array_equal(after.label_issues_, before.label_issues_)
    assert after.get_params() == before.get_params()
    assert (after.noise_rate_, after.validation_, after.epochs_) == (before.noise_rate_, "noisy", before.epochs_)


def test_a_loaded_classifier_has_no_transition_matrix_of_many_classes(tmp_path, monkeypatch):
    for module in ("s2e.audit.label_model", "s2e.estimator.persistence"):
        monkeypatch.setattr(f"{module}.MAX_TRANSITION_CLASSES", 2)
    X, y = three_blobs(96)
    fitted(X, y).save(tmp_path / "saved")
    after = S2EClassifier.load(tmp_path / "saved")
    assert (after.transition_.shape, after.transition_interval_.shape) == ((0, 0), (2, 0, 0))


@pytest.mark.parametrize("kind", ["sparse", "reduced", "numbers"])
def test_a_file_whose_columns_contradict_its_encoder_is_refused(tmp_path, kind):
    made_of, changes = KINDS[kind]
    X, y = three_blobs(96)
    fitted(made_of(X), y, **changes).save(tmp_path / "saved")
    with safe_open(tmp_path / "saved", "pt") as file:
        about = json.loads(file.metadata()["s2e_classifier"])
    terms = 0 if kind == "numbers" else 4
    model = {"columns": 2**40, "weights": {"logistic-regression": 1.0}}
    for other, columns in (({"columns": 2**40}, 4), ({"model": model}, terms)):
        save_file(load_file(tmp_path / "saved"), tmp_path / "other", {"s2e_classifier": json.dumps(about | other)})
        with pytest.raises(UnreadableData, match=f"columns` must be {columns}, as in the encoder, but got {2**40}"):
            S2EClassifier.load(tmp_path / "other")


@pytest.mark.parametrize("labels", [np.array([False, True]), np.array([-3, 8]), np.array([0.0, 2.0])], ids=str)
def test_labels_keep_their_type(tmp_path, labels):
    X, y = three_blobs(96)
    fitted(X, labels[y % 2]).save(tmp_path / "saved")
    after = S2EClassifier.load(tmp_path / "saved")
    assert after.classes_.dtype == labels.dtype
    np.testing.assert_array_equal(after.classes_, labels)


@pytest.mark.parametrize("network", [Narrow, of_any_shape])
def test_a_factory_is_passed_again(tmp_path, network):
    X, y = three_blobs(96)
    before = fitted(X, y, network=network)
    before.save(tmp_path / "saved")
    after = S2EClassifier.load(tmp_path / "saved", network=network)
    np.testing.assert_array_equal(after.predict_proba(X), before.predict_proba(X))
    with pytest.raises(InvalidInput, match="`network` must be given"):
        S2EClassifier.load(tmp_path / "saved")
    with pytest.raises(UnreadableData, match="is not a saved classifier"):
        S2EClassifier.load(tmp_path / "saved", network=lambda: of_any_shape((4,), 7))


def test_normalisation_is_kept_with_augmentation_objects(tmp_path):
    X, y = three_blobs(96)
    before = fitted(images_of(X), y, augment=(Flip(), "normalize"))
    before.save(tmp_path / "saved")
    after = S2EClassifier.load(tmp_path / "saved")
    np.testing.assert_array_equal(after.predict_proba(images_of(X)), before.predict_proba(images_of(X)))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UnreadableData, match="does not exist"):
        S2EClassifier.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("not tensors")
    with pytest.raises(UnreadableData, match="is not a saved classifier"):
        S2EClassifier.load(tmp_path / "text")
    X, y = three_blobs(96)
    whole = fitted(X, y)
    whole.save(tmp_path / "whole")
    save_file(load_file(tmp_path / "whole"), tmp_path / "bare")
    with pytest.raises(UnreadableData, match="is not a saved classifier"):
        S2EClassifier.load(tmp_path / "bare")
    with pytest.raises(InvalidInput, match="directory that exists"):
        whole.save(tmp_path / "nowhere" / "saved")


def test_only_a_fitted_classifier_can_be_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        S2EClassifier(**QUICK).save(tmp_path / "saved")
