"""The protocol of a comparison: repeated searches, oracles, noisy validation, chosen epochs, a part of the test set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comparisons import (
    Trainings,
    compared,
    correct_labels,
    options,
    outcomes,
    prepared,
    rows,
    unknown_noise,
    without_figures,
)
from s2e.data import parse_noise
from s2e.data.preparing import with_noise
from s2e.errors import InvalidInput
from s2e.runs.directory import Run
from s2e.specs import DataSpec
from small_runs import file_names, result

NOISE = "pair:0.4"
PROTOCOL = ["standard", "reweight", "s2e", "s2e-noisy-validation", "oracle:selected", "oracle:clean"]

_quick = pytest.fixture(without_figures, scope="module", autouse=True)
data = pytest.fixture(correct_labels, scope="module")
own = pytest.fixture(unknown_noise, scope="module")


@pytest.fixture(scope="module")
def trained(data: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Trainings]]:
    """Three seeds, two searches, all kinds of entrants, and a part of the test samples."""
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        given = options(data, *PROTOCOL, seeds=3, searches=2, test_part="48-95")
        yield compared(given, tmp_path_factory.mktemp("protocol") / "run"), trainings


@pytest.fixture
def run(trained: tuple[Run, Trainings]) -> Run:
    return trained[0]


def keep_rates(run: Run, name: str, seed: int) -> list[float]:
    found = outcomes(run)[NOISE, name, seed].keep_rates
    assert found is not None
    return found.tolist()


@pytest.mark.parametrize("name", ["s2e", "s2e-noisy-validation"])
def test_seeds_share_the_schedules_of_the_searches_in_turn(run: Run, name: str) -> None:
    files = [f"schedule-{name}-pair-0.4{end}.json" for end in ("", "-search-1")]
    schedules = [run.read_json(file)["keep_rates"] for file in files]
    assert schedules[0] != schedules[1]
    assert [keep_rates(run, name, seed) for seed in range(3)] == [schedules[0], schedules[1], schedules[0]]
    found = [(row["search"], row["method"]) for row in result(run)["search"] if row["method"] == name]
    assert found == [(0, name), (1, name)]


def test_one_search_is_the_first_of_several(run: Run, data: str, tmp_path: Path) -> None:
    alone = compared(options(data, "s2e", seeds=1), tmp_path / "run")
    assert keep_rates(alone, "s2e", 0) == keep_rates(run, "s2e", 0)


def test_each_search_uses_its_own_draw_of_the_noise(trained: tuple[Run, Trainings], data: str) -> None:
    labels = [prepared(data, NOISE, draw).splits.train.labels for draw in range(2)]
    both = next(members for members in trained[1].members if len(members) == 2)  # one point of each search
    for member, own in zip(both, labels, strict=True):
        assert member.labels is not None
        np.testing.assert_array_equal(member.labels, own)


def test_noisy_validation_gets_no_clean_sample(trained: tuple[Run, Trainings], data: str) -> None:
    """Its validation labels have the noise of the training part, and no epoch is chosen for it."""
    run, trainings = trained
    clean = prepared(data, NOISE, 0).splits.valid
    searched = [task for task in trainings.tasks if set(task.evaluate) == {"valid"}]
    on_clean = [np.array_equal(task.evaluate["valid"].labels, clean.labels) for task in searched]
    assert on_clean.count(True) > 0
    assert on_clean.count(False) > 0
    for task, is_clean in zip(searched, on_clean, strict=True):
        assert is_clean or task.clean is None
    assert outcomes(run)[NOISE, "s2e-noisy-validation", 0].chosen_epoch is None


@pytest.mark.parametrize("noise", ["pair:0.4", "symmetric:0.3"])
def test_noise_of_the_validation_part_has_the_given_rate(data: str, noise: str) -> None:
    clean = prepared(data, noise, 0, validation_share=0.5).splits.valid
    spec = DataSpec(data)
    noisy = [with_noise(clean, spec, noise, 0, Path(), draw=draw) for draw in (0, 0, 1)]
    np.testing.assert_array_equal(noisy[0].labels, noisy[1].labels)
    assert (noisy[0].labels != noisy[2].labels).any()
    assert np.mean(noisy[0].labels != clean.labels) == pytest.approx(parse_noise(noise).rate, abs=0.1)


def test_reweight_is_stopped_on_samples_that_it_does_not_train_with(trained: tuple[Run, Trainings], data: str) -> None:
    run, trainings = trained
    valid = prepared(data, NOISE, 0).splits.valid
    task = next(task for task in trainings.tasks if task.clean is not None)
    assert task.clean is not None
    unused = task.evaluate["unused"]
    assert not {*task.clean.rows} & {*unused.rows}
    assert {*task.clean.rows} | {*unused.rows} == {*valid.rows}
    assert outcomes(run)[NOISE, "reweight", 0].chosen_epoch is not None
    assert "unused" not in {name for each in trainings.tasks for name in each.evaluate if each.clean is None}


def test_oracles_use_the_true_labels_and_the_others_do_not(trained: tuple[Run, Trainings], data: str) -> None:
    run, trainings = trained
    assert all(outcomes(run)[NOISE, f"oracle:{name}", 0].label_precision.min() == 1 for name in ("selected", "clean"))
    assert outcomes(run)[NOISE, "standard", 0].label_precision.max() < 1
    train = prepared(data, NOISE, 0).splits.train
    population = next(members for members in trainings.members if any(each.held_out is not None for each in members))
    held_out = [each.held_out for each in population if each.held_out is not None]
    assert len(held_out) == 3
    np.testing.assert_array_equal(held_out[0], train.labels != train.clean_labels)


def test_accuracy_on_a_part_is_reported_beside_the_whole(trained: tuple[Run, Trainings], data: str) -> None:
    run, trainings = trained
    parts = [task.evaluate["test-part"] for task in trainings.tasks if "test-part" in task.evaluate]
    assert all(part.rows.tolist() == list(range(48, 96)) for part in parts)
    assert result(run)["test_part"] == "48-95"
    for row in result(run)["summary"]:
        own = [outcomes(run)[NOISE, row["method"], seed].part_accuracy for seed in range(3)]
        assert row["part_last_10_epochs"]["mean"] == pytest.approx(np.mean(own))
    assert all(float(row["part_last_10_epochs"]) > 0 for row in rows(run, "results.csv"))


def test_fewer_samples_have_equal_shares_of_every_class(data: str, tmp_path: Path) -> None:
    run = compared(options(data, "standard", seeds=1, samples=80), tmp_path / "run")
    samples = result(run)["samples"]
    assert samples["train"] + samples["valid"] == samples["test"] == 80
    assert "study.db" not in file_names(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"searches": 3}, "`searches` must be at most `seeds`, but got searches=3, seeds=2."),
        ({"test_part": "9-5"}, "`test_part` must be written as FIRST-LAST, such as 5000-9999, but got '9-5'."),
        ({"samples": 0}, "`samples` must be an integer of at least 1 or None, but got 0."),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_data_are_loaded(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        options("nowhere.npz", "standard", **changes)
    assert str(refused.value) == message


def test_rows_that_are_no_test_samples_are_refused(data: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="which are in rows 0 to 95, but got 96-97"):
        compared(options(data, "standard", test_part="96-97"), tmp_path / "run")


def test_oracles_and_noisy_validation_need_known_labels_and_noise(own: str, data: str, tmp_path: Path) -> None:
    for name in ("oracle:clean", "oracle:selected"):
        with pytest.raises(InvalidInput, match=f"^{name} needs the true labels of all training samples"):
            compared(options(own, name, noises=("none",)), tmp_path / "run")
    for source, noise in ((own, "none"), (data, "none")):
        with pytest.raises(InvalidInput, match=r"^s2e-noisy-validation needs clean validation samples and noise"):
            compared(options(source, "s2e-noisy-validation", noises=(noise,)), tmp_path / "run")
