"""Augmentations by name and by object behave alike in every function that takes them."""

from __future__ import annotations

import pytest
import torch
from sklearn.base import clone

import s2e
from s2e.engine.augmentation import Crop, Flip
from s2e.errors import InvalidInput
from small_images import images, small_cnn

BY_NAME, BY_OBJECT = "crop:padding=2,flip,normalize", (Crop(2), Flip(), "normalize")
SHARED = {"device": "cpu", "method": "mentornet", "network": small_cnn, "batch_size": 32}


def pair(data):
    return data.inputs, data.labels


def trained(augment):
    (module,) = s2e.train(pair(images()), [0.8] * 3, augment=augment, **SHARED).networks
    return torch.cat([parameter.flatten() for parameter in module.parameters()])


def test_names_and_objects_train_alike():
    assert torch.equal(trained(BY_NAME), trained(BY_OBJECT))
    assert not torch.equal(trained("normalize"), trained(BY_OBJECT))
    assert not torch.equal(trained("crop:padding=2,flip"), trained(BY_OBJECT))


def test_a_stored_search_is_not_continued_with_another_augmentation(tmp_path):
    train, valid = pair(images()), pair(images(48, seed=1))
    settings = {"sampler": "random", "trials": 1, "generation_size": 1, "epochs": 2, **SHARED}
    settings["storage"] = f"sqlite:///{tmp_path / 'study.db'}"
    s2e.search(train, valid, augment=BY_NAME, **settings)
    s2e.search(train, valid, augment=BY_OBJECT, **settings)
    for other in ("none", "crop:padding=1,flip,normalize", "crop:padding=2,flip"):
        with pytest.raises(s2e.RunConflict, match="made with other settings"):
            s2e.search(train, valid, augment=other, **settings)


def test_classifier_takes_names_and_objects():
    data = images()
    chosen = {"n_trials": 2, "epochs": 2, "restarts": 1, "random_state": 0, "final_estimator": None, **SHARED}
    by_name, by_object = (
        clone(s2e.S2EClassifier(augment=augment, **chosen)).fit(data.inputs, data.labels).predict_proba(data.inputs)
        for augment in (BY_NAME, BY_OBJECT)
    )
    assert (by_name == by_object).all()
    with pytest.raises(InvalidInput, match="`augment` must be one of flip, "):
        s2e.S2EClassifier(augment="flop", **chosen).fit(None, None)
    with pytest.raises(InvalidInput, match="`augment` must be none for data that are not images"):
        s2e.S2EClassifier(augment="flip", **{**chosen, "network": "auto"}).fit(
            data.inputs.reshape(len(data), -1), data.labels
        )
