"""The numbers of a report are those in the files of the run."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

import report_runs as runs
from s2e.cli.tables import result_table
from s2e.errors import UnreadableData
from s2e.report.run_numbers import read_numbers
from s2e.runs.directory import Run


def test_numbers_of_a_search():
    run = Run.open(runs.images())
    (setting,), result, curves = read_numbers(run).settings, run.read_json("result.json"), run.read_arrays("curves.npz")
    assert [score.name for score in setting.scores] == ["Standard", "Co-teaching", "S2E"]
    assert [score.searched for score in setting.scores] == [False, False, True]
    for score, row in zip(setting.scores, result["methods"], strict=True):
        assert score.accuracy == row["test"]["last_10_epochs"]
        assert score.precision == row["label_precision"]
    assert setting.classifier.accuracy == result["classifier"]["test"]
    for curve in setting.validation:
        np.testing.assert_array_equal(curve.mean, curves[f"{curve.name}/accuracy_valid"])
    rates = {curve.name: curve.mean for curve in setting.keep_rates}
    assert list(rates) == ["Co-teaching", "S2E"]
    np.testing.assert_array_equal(rates["S2E"], run.read_json("schedule.json")["keep_rates"])
    np.testing.assert_array_equal(rates["Co-teaching"], curves["Co-teaching/kept"])


def test_the_classifier_is_named_as_on_the_terminal(tmp_path):
    run = Run.open(runs.copy_of(runs.images, tmp_path))
    result = run.read_json("result.json")
    result["classifier"] |= {"votes": {"extra-trees": 0.2, "networks": 0.5, "boosting": 0.3}, "networks": 6}
    run.write_json("result.json", result)
    (setting,) = read_numbers(run).settings
    assert setting.classifier.voters == "6 networks, boosting and extra-trees"
    text = io.StringIO()
    Console(file=text, width=200).print(result_table(result))
    assert f"the classifier: {setting.classifier.voters}" in text.getvalue()
    del result["classifier"]  # of an earlier version
    run.write_json("result.json", result)
    assert read_numbers(run).settings[0].classifier is None


def test_numbers_of_a_comparison():
    run = Run.open(runs.comparison())
    numbers, summary = read_numbers(run), run.read_json("result.json")["summary"]
    found = [
        (setting.noise, score.method, score.accuracy, score.deviation)
        for setting in numbers.settings
        for score in setting.scores
    ]
    assert found == [(row["noise"], row["method"], *row["last_10_epochs"].values()) for row in summary]
    assert [len(setting.searches) for setting in numbers.settings] == [1, 1]
    assert all(curve.low is not None for setting in numbers.settings for curve in setting.test)


@pytest.mark.parametrize("made", [runs.images, runs.comparison])
def test_options_without_the_number_of_epochs_are_refused(made, tmp_path):
    run = Run.open(runs.copy_of(made, tmp_path))
    config = run.read_json("config.json")
    del config["options"]["epochs"]
    run.write_json("config.json", config)
    with pytest.raises(UnreadableData, match=r"`options\.epochs` must be an integer .* but got None"):
        read_numbers(run)
