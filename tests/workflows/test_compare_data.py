"""Comparisons on all kinds of data: noisy validation, unknown noise rates, labels as given, options that cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparisons import (
    EPOCHS,
    KEEP_RATE,
    NOISES,
    Log,
    Trainings,
    alone,
    assert_outcome,
    compared,
    labels_of_users,
    options,
    outcomes,
    prepared,
    result,
    right_labels,
    rows,
    save,
    told_schedule,
    without_figures,
)
from s2e.data.samples import LabelledData
from s2e.errors import InvalidInput
from s2e.runs.session import RunLocation
from s2e.workflows import compare as comparison
from s2e.workflows.compare import CompareOptions
from s2e.workflows.entrants import Setting
from small_tasks import blobs

_quick = pytest.fixture(without_figures, scope="module", autouse=True)
data = pytest.fixture(right_labels, scope="module")
own = pytest.fixture(labels_of_users, scope="module")


# Validation


def test_noisy_validation_trains_each_setting_on_its_own_split(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings, log = Trainings(monkeypatch), Log()
    names = ("standard", "f-correction", "coteaching", "s2e")
    run = compared(options(data, *names, noises=NOISES, validation="noisy"), tmp_path / "run", log)
    assert trainings.sizes == 2 * [2, 1, 1, 1, 1, 2, 1, 1]  # the first draw of each setting has the search between
    given, searched = ("standard, f-correction, coteaching", 2 * EPOCHS), ("s2e", EPOCHS)
    relabelling = ("relabelling validation", EPOCHS)
    assert log.stages == 2 * [given, relabelling, ("search", 2 * EPOCHS), searched, given, searched]
    assert result(run)["validation"] == "noisy"
    assert {task.clean for task in trainings.tasks} == {None}  # doubtful samples are never handed out as clean ones
    found = outcomes(run)
    assert len(found) == 16
    for noise in NOISES:
        schedule = run.read_json(f"schedule-s2e-{noise}.json".replace(":", "-"))["keep_rates"]
        for draw in range(2):
            made = prepared(data, noise, draw, validation="noisy")
            assert made.noise_rate is not None
            assert_outcome(found[noise, "standard", draw], alone(made, "standard", draw, [1.0] * EPOCHS))
            assert_outcome(found[noise, "f-correction", draw], alone(made, "f-correction", draw, [1.0] * EPOCHS))
            told = told_schedule(made.noise_rate)
            assert_outcome(found[noise, "coteaching", draw], alone(made, "coteaching", draw, told))
            assert_outcome(found[noise, "s2e", draw], alone(made, "coteaching", draw, schedule))


@pytest.mark.parametrize("noises", [("none", "pair:0.4"), ("pair:0.4", "none")], ids=lambda noises: noises[0])
def test_labels_as_given_beside_noisy_ones_keep_their_precision_unknown_and_that_of_the_others_known(
    data: str, tmp_path: Path, noises: tuple[str, ...]
) -> None:
    """The split of both is the same; what is known of them is not."""
    run = compared(options(data, "standard", "f-correction", noises=noises), tmp_path / "run")
    found = outcomes(run)
    for noise in noises:
        for draw in range(2):
            for name in ("standard", "f-correction"):
                made = prepared(data, noise, draw)
                assert_outcome(found[noise, name, draw], alone(made, name, draw, [1.0] * EPOCHS))
    precision = {row["noise"]: row["label_precision"]["mean"] for row in result(run)["summary"]}
    assert precision["none"] is None
    assert precision["pair:0.4"] == pytest.approx(0.6, abs=0.15)


def test_settings_share_a_population_where_they_differ_in_nothing_but_the_given_labels(data: str) -> None:
    first = Setting("pair:0.4", 0, prepared(data, "pair:0.4", 0))
    train, valid = first.prepared.splits.train, first.prepared.splits.valid
    assert train.clean_labels is not None

    def other(**changes: LabelledData) -> Setting:
        return replace(first, prepared=replace(first.prepared, splits=replace(first.prepared.splits, **changes)))

    apart = [
        other(train=replace(train, rows=train.rows[::-1].copy())),
        other(train=replace(train, clean_labels=None)),
        other(train=replace(train, clean_labels=train.clean_labels[::-1].copy())),
        other(valid=replace(valid, labels=valid.labels[::-1].copy())),
    ]
    alike = other(train=replace(train, labels=train.labels[::-1].copy()))
    groups = comparison._groups(options(data), [first, *apart, alike], RunLocation(Path()))
    assert [group.settings for group in groups] == [[first, alike], *([each] for each in apart)]


def test_a_validation_file_gives_reweight_its_clean_samples(own: str, tmp_path: Path) -> None:
    trusted = blobs(96, wrong=0.0, seed=1)
    np.savez(tmp_path / "trusted.npz", X=trusted.inputs, y=trusted.labels)
    file = str(tmp_path / "trusted.npz")
    run = compared(options(own, "reweight", noises=("none",), validation=file), tmp_path / "run")
    assert result(run)["validation"] == "clean"
    made = prepared(own, "none", 1, validation=file)
    one = outcomes(run)["none", "reweight", 1]
    assert_outcome(one, alone(made, "reweight", 1, [1.0] * EPOCHS), evaluated_on="valid")


def test_without_a_test_part_methods_are_evaluated_on_validation(data: str, tmp_path: Path) -> None:
    no_test = save(tmp_path / "no_test.npz", x_test=None, y_test=None)
    run = compared(options(no_test, "standard"), tmp_path / "run")
    assert result(run)["evaluated_on"] == "valid"
    assert result(run)["samples"].keys() == {"train", "valid"}
    assert {row["evaluated_on"] for row in rows(run, "results.csv")} == {"valid"}
    for one in outcomes(run).values():
        np.testing.assert_array_equal(one.accuracy, one.valid_accuracy)


# An unknown noise rate


NEEDS_RATE = "needs a noise rate to make its schedule from; give your guess with --noise-rate, or search with s2e"
NEEDS_CLEAN = "needs clean validation samples to train with; give some with --validation FILE.npz"


def test_all_leaves_out_what_unknown_data_do_not_allow_and_says_why(own: str, tmp_path: Path) -> None:
    run = compared(options(own, noises=("none",), seeds=1), tmp_path / "run")
    left_out = {row["method"]: row["reason"] for row in result(run)["left_out"]}
    assert left_out == {**dict.fromkeys(KEEP_RATE, NEEDS_RATE), "reweight": NEEDS_CLEAN}
    assert [row["method"] for row in result(run)["summary"]] == ["standard", "decoupling", "f-correction", "s2e"]
    assert result(run)["noise_rates"] == {"none": None}


def test_a_guess_of_the_noise_rate_brings_the_methods_with_a_keep_rate_back(own: str, tmp_path: Path) -> None:
    run = compared(options(own, noises=("none",), seeds=1, noise_rate=0.2), tmp_path / "run")
    assert result(run)["left_out"] == [{"method": "reweight", "reason": NEEDS_CLEAN}]
    found = outcomes(run)
    for name in KEEP_RATE:
        one = found["none", name, 0]
        assert one.keep_rates is not None
        np.testing.assert_allclose(one.keep_rates, told_schedule(0.2))
    assert result(run)["noise_rates"] == {"none": None}  # a guess is not knowledge


def test_a_noise_rate_that_is_told_is_believed_even_where_the_true_one_is_known(data: str, tmp_path: Path) -> None:
    run = compared(options(data, "coteaching", noise_rate=0.0, epochs=12, seeds=1), tmp_path / "run")
    (one,) = outcomes(run).values()
    assert one.keep_rates is not None
    np.testing.assert_array_equal(one.keep_rates, 1.0)


def test_methods_are_told_the_share_of_wrong_labels_of_their_own_draw(data: str, tmp_path: Path) -> None:
    run = compared(options(data, "mentornet", epochs=12), tmp_path / "run")
    shares = [prepared(data, NOISES[0], draw).noise_rate for draw in range(2)]
    assert shares[0] != shares[1]
    for draw, one in enumerate(outcomes(run).values()):
        assert one.keep_rates is not None
        assert one.keep_rates[-1] == pytest.approx(1 - (shares[draw] or 0))


# Options that cannot be


@pytest.mark.parametrize(
    ("changes", "mention"),
    [
        ({"seeds": 0}, "`seeds` must be at least 1, but got 0"),
        ({"seeds": -1}, "`seeds` must be at least 1, but got -1"),
        ({"noise_rate": 1.0}, r"`noise_rate` must lie in \[0, 1\), but got 1.0"),
        ({"noise_rate": -0.1}, r"`noise_rate` must lie in \[0, 1\)"),
        ({"noise_rate": float("nan")}, r"`noise_rate` must lie in \[0, 1\)"),
        ({"noises": ()}, "`noises` must name each noise setting once, but got none"),
        ({"noises": ("pair:0.4", "none", "pair:0.4")}, "once, but got pair:0.4, none, pair:0.4"),
        ({"noises": ("pair:0.4", "pair:0.40")}, "once, but got pair:0.4, pair:0.40"),
        ({"noises": ("none", " none")}, "`noises` must name each noise setting once"),
        ({"noises": ("pear:0.4",)}, r"`noise` must be one of pair:RATE"),
    ],
)
def test_an_impossible_option_is_refused(changes: dict[str, Any], mention: str) -> None:
    with pytest.raises(InvalidInput, match=mention):
        CompareOptions("digits", **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": ("standard", "nothing")},
        {"epochs": 0},
        {"batch_size": 1000},
        {"learning_rate": 0.0},
        {"network": "cifar10-cnn"},
        {"trials": 0},
        {"generation": 0},
        {"space": "nowhere"},
        {"sampler": "newton", "generation": 1},
        {"noises": ("pair:0.4", "human:worst")},
        {"validation": "cleanish"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_bad_input_is_refused_before_anything_is_trained_or_made(
    data: str, tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = Trainings(monkeypatch)
    with pytest.raises(InvalidInput):
        compared(options(data, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not trainings.sizes
