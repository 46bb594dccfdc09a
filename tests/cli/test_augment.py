"""`--augment`: refused before anything is written, and part of what a run keeps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import TINY, assert_refused, s2e, save
from s2e.data import loading
from s2e.networks import statistics_of
from s2e.runs import Run, read_classifier

pytestmark = pytest.mark.usefixtures("work")


@pytest.mark.parametrize(
    ("augment", "mention"),
    [
        ("crop,flop", "`augment` must be one of flip, "),
        (
            "crop:padding=0",
            "`padding` of augment crop must be an integer of at least 1 and at most 1,000,000",
        ),
        ("crop:padding=8", "`padding` of crop must be less than the shorter side of the images, 8 pixels, but got 8"),
        ("flip,cutout:size=9", "`size` of cutout must not exceed the shorter side of the images, 8 pixels, but got 9"),
    ],
)
def test_unusable_augmentations_are_refused(augment: str, mention: str) -> None:
    assert_refused(s2e("search", "digits", "--augment", augment, "--out", "run"), mention)


@pytest.mark.parametrize("augment", ["flip", "normalize"])
def test_data_that_are_not_images_are_refused(augment: str) -> None:
    result = s2e("train", save(), "--method", "standard", *TINY, "--augment", augment, "--out", "run")
    assert_refused(result, "`augment` must be none for data that are not images", "have the shape (6,)")


def test_unknown_names_are_refused_before_data_are_loaded() -> None:
    assert_refused(s2e("search", "nowhere.npz", "--augment", "flop"), "`augment` must be one of flip, ")


def test_a_run_predicts_with_the_normalisation_it_was_trained_with() -> None:
    options = ["--augment", "crop:padding=1,flip,normalize", "--method", "standard", "--epochs", "2", "--noise", "none"]
    trained = s2e("train", "digits", *options, "--out", "run")
    assert trained.exit_code == 0, trained.stderr
    assert json.loads(Path("run/config.json").read_text())["options"]["augment"] == "crop:padding=1,flip,normalize"
    test = loading.load("digits", Path("data")).test
    assert test is not None
    np.savez("new.npz", x=test.inputs)
    predicted = s2e("predict", "run", "new.npz", "-o", "out.csv")
    assert predicted.exit_code == 0, predicted.stderr
    classes = [line.split(",")[1] for line in Path("out.csv").read_text().splitlines()[1:]]
    accuracy = np.mean([name == test.class_names[label] for name, label in zip(classes, test.labels, strict=True)])
    assert accuracy == pytest.approx(np.load("run/curves.npz")["standard/accuracy_test"][-1])
    statistics = statistics_of(read_classifier(Run(Path("run"))).networks[0])
    assert statistics is not None
    assert 0 < statistics.mean[0] < 1
