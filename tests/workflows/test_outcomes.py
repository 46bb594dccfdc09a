"""Outcomes of a comparison: figures against plain loops, rows of tables, and storage."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from s2e.errors import InvalidInput
from s2e.runs.csv_files import csv_text
from s2e.workflows.outcomes import Outcome, arrays, best_of_competitors, curve_rows, from_arrays, result_rows, summarise

CURVES = ["accuracy", "part_accuracy", "valid_accuracy", "train_accuracy", "label_precision", "kept", "loss"]
NAN = math.nan


def outcome(
    noise: str = "pair:0.45", method: str = "coteaching", seed: int = 0, epochs: int = 14, **changes: Any
) -> Outcome:
    """An outcome with random curves, different for every noise setting, method and seed."""
    generator = np.random.default_rng([seed, *f"{noise}/{method}".encode()])
    curves = {name: generator.random(epochs) for name in CURVES}
    plain = Outcome(noise, method, seed, "test", **curves, keep_rates=generator.random(epochs), diverged=False)
    return replace(plain, **changes)


def same(one: Outcome, other: Outcome) -> None:
    for item in fields(Outcome):
        before, after = getattr(one, item.name), getattr(other, item.name)
        if isinstance(before, np.ndarray):
            np.testing.assert_array_equal(before, after, err_msg=item.name)
            assert before.dtype == after.dtype
        else:
            assert (type(before), before) == (type(after), after), item.name


# ------------------------------------------------------------------------------------------------ one outcome


@pytest.mark.parametrize("epochs", [1, 10, 40])
def test_last_is_the_mean_accuracy_over_at_most_ten_epochs(epochs: int) -> None:
    made = outcome(epochs=epochs)
    assert made.last == pytest.approx(statistics.mean(made.accuracy.tolist()[-10:]))
    assert type(made.last) is float


def test_last_is_0_for_a_training_that_diverged() -> None:
    assert outcome(diverged=True, accuracy=np.full(14, NAN)).last == 0


@pytest.mark.parametrize("diverged", [False, True])
def test_best_is_the_first_epoch_with_the_best_known_accuracy(diverged: bool) -> None:
    made = outcome(accuracy=np.array([0.1, NAN, 0.7, 0.3, 0.7]), diverged=diverged)
    assert (made.best, made.best_epoch) == (0.7, 2)
    assert (type(made.best), type(made.best_epoch)) == (float, int)


def test_chosen_is_the_accuracy_at_the_first_epoch_that_is_best_on_validation() -> None:
    valid = np.array([NAN, 0.4, 0.9, 0.9, 0.1])
    made = outcome(accuracy=np.array([0.9, 0.1, 0.5, 0.7, 0.8]), valid_accuracy=valid)
    assert (made.chosen, made.chosen_epoch) == (0.5, 2)
    assert (type(made.chosen), type(made.chosen_epoch)) == (float, int)


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluated_on": "valid"},  # the accuracy of an epoch chosen on the same samples is too high
        {"valid_accuracy": np.full(14, NAN)},
    ],
    ids=str,
)
def test_no_epoch_is_chosen_where_validation_says_nothing(changes: dict[str, Any]) -> None:
    made = outcome(**changes)
    assert made.chosen_epoch is None
    assert math.isnan(made.chosen)
    (row,) = result_rows([made])
    assert row["chosen_epoch"] is row["at_chosen_epoch"] is None
    assert summarise([made])[0]["chosen_epoch"] == {"mean": None, "std": None}


def test_last_precision_is_the_mean_over_the_known_of_the_last_ten_epochs() -> None:
    precision = np.arange(14) / 14
    assert outcome(label_precision=precision).last_precision == pytest.approx(sum(range(4, 14)) / 140)
    precision[[2, 5, 13]] = NAN
    known = [4, 6, 7, 8, 9, 10, 11, 12]
    assert outcome(label_precision=precision).last_precision == pytest.approx(sum(known) / 14 / len(known))
    precision[4:] = NAN
    assert math.isnan(outcome(label_precision=precision).last_precision)


# -------------------------------------------------------------------------------------------------- summaries


def a_comparison() -> list[Outcome]:
    """Two noise settings with different methods and numbers of seeds, in no particular order."""
    unknown = np.full(14, NAN)
    return [
        outcome("pair:0.45", "s2e", 0),
        outcome("pair:0.2", "standard", 0, keep_rates=None, label_precision=unknown),
        outcome("pair:0.45", "coteaching", 0),
        outcome("pair:0.45", "s2e", 1, diverged=True),
        outcome("pair:0.2", "s2e", 4, label_precision=unknown),
        outcome("pair:0.45", "s2e", 2),
        outcome("pair:0.2", "s2e", 5),
        outcome("pair:0.45", "coteaching", 1),
    ]


def test_summary_has_a_row_for_each_noise_and_method_in_order_of_first_appearance() -> None:
    rows = summarise(a_comparison())
    assert [(row["noise"], row["method"], row["seeds"], row["diverged"]) for row in rows] == [
        ("pair:0.45", "s2e", 3, 1),
        ("pair:0.2", "standard", 1, 0),
        ("pair:0.45", "coteaching", 2, 0),
        ("pair:0.2", "s2e", 2, 0),
    ]


def test_summary_has_means_and_standard_deviations_over_the_seeds() -> None:
    made = a_comparison()
    for row in summarise(made):
        own = [one for one in made if (one.noise, one.method) == (row["noise"], row["method"])]
        for key, values in (
            ("last_10_epochs", [one.last for one in own]),
            ("chosen_epoch", [one.chosen for one in own]),
            ("best_epoch", [one.best for one in own]),
            ("label_precision", [one.last_precision for one in own if not math.isnan(one.last_precision)]),
        ):
            mean = pytest.approx(statistics.mean(values)) if values else None
            std = pytest.approx(statistics.stdev(values)) if len(values) > 1 else None
            assert row[key] == {"mean": mean, "std": std}, (row["method"], key)


def test_training_that_diverged_counts_as_0() -> None:
    made = [outcome(accuracy=np.full(14, 0.8)), outcome(seed=1, diverged=True)]
    last = summarise(made)[0]["last_10_epochs"]
    assert last == {"mean": pytest.approx(0.4), "std": pytest.approx(0.8 / math.sqrt(2))}


def test_single_seed_has_no_deviation_and_unknown_values_have_no_mean() -> None:
    (row,) = summarise([outcome(label_precision=np.full(14, NAN))])
    assert row["last_10_epochs"]["std"] is row["best_epoch"]["std"] is None
    assert row["label_precision"] == {"mean": None, "std": None}


def test_summaries_and_rows_are_plain_json() -> None:
    made = a_comparison()
    for rows in (summarise(made), result_rows(made)):
        assert json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_no_outcomes_give_no_rows() -> None:
    assert summarise([]) == result_rows([]) == curve_rows([]) == []
    assert csv_text([]) == ""
    assert from_arrays(arrays([])) == []


# ------------------------------------------------------------------------------------------------------- rows


def test_each_training_has_one_result_row() -> None:
    made = a_comparison()
    rows = result_rows(made)
    assert len(rows) == len(made)
    assert rows[0] == {
        "noise": "pair:0.45",
        "method": "s2e",
        "seed": 0,
        "evaluated_on": "test",
        "last_10_epochs": made[0].last,
        "chosen_epoch": made[0].chosen,
        "at_chosen_epoch": made[0].chosen_epoch,
        "best_epoch": made[0].best,
        "at_epoch": made[0].best_epoch,
        "label_precision": made[0].last_precision,
        "diverged": False,
        "part_last_10_epochs": made[0].part_accuracy[-10:].mean(),
        "part_chosen_epoch": made[0].part_accuracy[made[0].chosen_epoch],
        "part_best_epoch": made[0].part_accuracy.max(),
    }
    whole = result_rows([replace(made[0], part_accuracy=np.full(14, NAN))])[0]
    assert whole == {name: value for name, value in rows[0].items() if not name.startswith("part_")}
    assert rows[1]["label_precision"] is None
    assert rows[3]["diverged"] is True


def test_each_epoch_of_each_training_has_one_curve_row() -> None:
    made = a_comparison()[:3]
    rows = curve_rows(made)
    assert list(rows[0]) == ["noise", "method", "seed", "epoch", *CURVES]
    expected = [(one, epoch) for one in made for epoch in range(14)]
    assert len(rows) == len(expected)
    for row, (one, epoch) in zip(rows, expected, strict=True):
        assert (row["noise"], row["method"], row["seed"], row["epoch"]) == (one.noise, one.method, one.seed, epoch)
        for name in CURVES:
            np.testing.assert_equal(row[name], getattr(one, name)[epoch])


def test_csv_text_is_read_by_other_readers() -> None:
    made = [outcome("asymmetric:a,b.csv"), outcome(loss=np.full(14, np.inf), diverged=True)]
    text = csv_text(curve_rows(made))
    assert "\r" not in text
    assert text.endswith("\n")
    read = list(csv.DictReader(io.StringIO(text)))
    for row, expected in zip(read, curve_rows(made), strict=True):
        assert row["noise"] == expected["noise"]
        assert float(row["accuracy"]) == round(expected["accuracy"], 6)
    assert {row["loss"] for row in read[14:]} == {"inf"}


def test_csv_text_rounds_numbers_and_leaves_missing_values_empty() -> None:
    rows = [
        {"name": "a", "share": 0.123456789, "count": 3, "known": None, "yes": True},
        {"name": "b", "share": np.float64(2 / 3), "count": 1234567, "known": NAN, "yes": False},
    ]
    assert csv_text(rows) == "name,share,count,known,yes\na,0.123457,3,,True\nb,0.666667,1234567,,False\n"


# ---------------------------------------------------------------------------------------------------- storage


def test_stored_outcomes_are_equal(tmp_path: Any) -> None:
    made = [
        *a_comparison(),
        outcome("human:wörst", "s2e:jocor", seed=2**63 - 1, evaluated_on="valid", loss=np.array([np.inf, NAN] * 7)),
    ]
    np.savez_compressed(tmp_path / "outcomes.npz", **arrays(made))
    with np.load(tmp_path / "outcomes.npz", allow_pickle=False) as stored:
        read = from_arrays(stored)
    assert len(read) == len(made)
    for before, after in zip(made, read, strict=True):
        same(before, after)


def test_arrays_are_stacked_without_objects() -> None:
    made = a_comparison()
    stacked = arrays(made)
    assert set(stacked) == {item.name for item in fields(Outcome)}
    for name, array in stacked.items():
        assert array.dtype != object
        assert array.shape == ((8, 14) if name in (*CURVES, "keep_rates") else (8,)), name
    assert np.isnan(stacked["keep_rates"][1]).all()


def test_outcomes_must_have_the_same_number_of_epochs() -> None:
    with pytest.raises(InvalidInput, match="same number of epochs, but got 3 and 14"):
        arrays([outcome(), outcome(epochs=3)])


def test_outcomes_of_an_earlier_version_are_read_without_a_part_and_without_a_choice_for_reweight() -> None:
    made = [outcome(), outcome(method="reweight")]
    stored = {name: array for name, array in arrays(made).items() if name != "part_accuracy"}
    plain, reweight = from_arrays(stored)
    assert plain.on_part is reweight.on_part is None
    assert plain.chosen_epoch == made[0].chosen_epoch
    assert reweight.chosen_epoch is None  # it trained on all validation samples then


def test_best_of_competitors_is_no_oracle() -> None:
    made = [outcome(method=name, accuracy=np.full(14, mean)) for name, mean in (("oracle:clean", 0.9), ("s2e", 0.7))]
    assert best_of_competitors(summarise(made), "last_10_epochs") == pytest.approx(0.7)
    assert best_of_competitors(summarise(made[:1]), "last_10_epochs") is None
