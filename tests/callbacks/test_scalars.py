"""Numbers of events under the names that loggers show."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from s2e.callbacks.scalars import epoch_scalars, generation_scalars, result_scalars, tag
from s2e.engine.curves import Curves
from s2e.engine.task import EpochFinished
from s2e.studies import GenerationFinished

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_names_have_only_characters_that_every_logger_accepts() -> None:
    assert tag("final training", "Co-teaching (assumed noise rate 20%)", 3) == (
        "final_training/Co-teaching_assumed_noise_rate_20/3"
    )


def test_an_epoch_has_one_value_for_each_curve_of_each_member_of_the_chunk() -> None:
    curves = Curves.empty(2, 3, ["valid"])
    curves.loss[:, 1], curves.accuracy["valid"][:, 1] = [0.5, np.nan], [0.25, 0.75]
    assert epoch_scalars("final training", EpochFinished(2, 3, (4, 5), 6, curves)) == {
        "final_training/loss/member_4": 0.5,  # the loss of the diverged member is left out
        "final_training/valid_accuracy/member_4": 0.25,
        "final_training/valid_accuracy/member_5": 0.75,
    }


def test_a_generation_has_the_best_accuracy_of_each_search() -> None:
    assert generation_scalars("search", GenerationFinished(4, 8, 4, (0.5,))) == {"search/best_validation_accuracy": 0.5}
    assert generation_scalars("search", GenerationFinished(4, 8, 4, (0.5, 0.6))) == {
        "search/best_validation_accuracy/search_0": 0.5,
        "search/best_validation_accuracy/search_1": 0.6,
    }


def test_results_of_runs_are_numbers_by_method() -> None:
    stored = json.loads((RESULTS / "paper-classifiers" / "mnist-pair-0.45-0" / "result.json").read_text())
    found = result_scalars(stored)
    assert found["methods/S2E/test/last_10_epochs"] == stored["methods"][-1]["test"]["last_10_epochs"]
    assert found["epochs"] == stored["epochs"]
    compared = json.loads((RESULTS / "comparison" / "mnist" / "result.json").read_text())
    first = compared["summary"][0]
    assert (
        result_scalars(compared)["summary/symmetric_0.2/standard/last_10_epochs/mean"]
        == (first["last_10_epochs"]["mean"])
    )
    assert all(re.fullmatch(r"[\w./-]+", name) for each in (stored, compared) for name in result_scalars(each))
