"""`s2e reproduce steps`: searches of all repeats together, their rows, and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from listeners import Log
from s2e.errors import InvalidInput
from s2e.experiments import steps
from s2e.experiments.steps import StepErrors, better_sizes, centre_of, compare_steps, comparison_rows, run_steps
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.samplers.relaxation import Layout, Settings, State, advance, sample, weights
from s2e.schedules import SPACES
from s2e.specs import StepsOptions
from sampler_runs import write_table

SPACE = SPACES["s2e"]
NAMES = SPACE.names
EPOCHS = 12


class Noiseless:
    """A surrogate whose error is a function of the point: the keep rate of the last epoch."""

    epochs = EPOCHS

    def error(self, schedules: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(schedules[:, -1])

    def measured(self, expected: NDArray[np.float64], normal: NDArray[np.float64]) -> NDArray[np.float64]:  # noqa: ARG002
        return expected


def search(step: str | None, size: int, trials: int, repeats: int = 5, seed: int = 0) -> StepErrors:
    return run_steps(Noiseless(), SPACE, step, size, trials, repeats, seed)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- searches


@pytest.mark.parametrize("step", ["newton", "natural", "gradient"])
def test_search_equals_steps_one_after_the_other(step: str) -> None:
    size, generator = 4, np.random.default_rng(7)
    order = [*SPACE.simplex, *(name for name in NAMES if name not in SPACE.simplex)]
    layout = Layout(len(SPACE.simplex), len(NAMES) - len(SPACE.simplex))
    state, seen = State(layout, np.ones((2, layout.size))), [np.inf, np.inf]
    best, mean = [], []
    for _ in range(3):
        points = sample(state.theta, layout, size, generator)
        generator.normal(size=(2, size))
        in_space = points[..., [order.index(name) for name in NAMES]]
        errors = np.stack([SPACE.decode(own, EPOCHS)[:, -1] for own in in_space])
        single = [
            advance(State(layout, theta), own, error, step=step, settings=Settings()).theta
            for theta, own, error in zip(state.theta, points, errors, strict=True)
        ]
        state = State(layout, np.stack(single))
        seen = [min(before, min(error)) for before, error in zip(seen, errors.tolist(), strict=True)]
        best.append(seen)
        mean.append(errors.mean(axis=1))
    found = search(step, size, 3 * size, repeats=2, seed=7)
    np.testing.assert_allclose(found.best.T, best, atol=1e-9)
    np.testing.assert_allclose(found.mean.T, mean, atol=1e-9)


def test_many_points_lower_the_mean_error_and_random_search_does_not() -> None:
    stepped, random = search("natural", 96, 960), search(None, 96, 960)
    assert (stepped.mean[:, -1] < 0.7 * stepped.mean[:, 0]).all()
    np.testing.assert_allclose(random.mean[:, -1], random.mean[:, 0], rtol=0.35)
    assert (stepped.centre[:, -1] < stepped.mean[:, 0]).all()


def test_random_search_does_not_depend_on_the_generation_size() -> None:
    first, second = search(None, 6, 24, repeats=400), search(None, 12, 24, repeats=400)
    assert first.best[:, -1].mean() == pytest.approx(second.best[:, -1].mean(), rel=0.2)
    assert (np.diff(first.best, axis=1) <= 0).all()


def test_centre_has_the_means_of_the_distribution() -> None:
    layout = Layout(3, 2)
    state = State(layout, np.array([[2.0, 1.0, 5.0, 3.0, 1.0, 1.0, 1.0]]))
    draws = sample(state.theta, layout, 200_000, np.random.default_rng(0))[0]
    (centre,) = centre_of(state)
    np.testing.assert_allclose(weights(centre, layout), weights(draws, layout).mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(centre[3:], draws[:, 3:].mean(axis=0), atol=2e-3)


# ----------------------------------------------------------------------------------------------------------------- rows


def test_rows_compare_with_random_search_after_as_many_trainings() -> None:
    generator = np.random.default_rng(0)

    def errors(generations: int) -> StepErrors:
        return StepErrors(*(generator.random((3, generations)) for _ in range(3)))

    sizes, random, plain = {2: errors(4), 4: errors(2)}, errors(4), {2: errors(4), 4: errors(2)}
    compared = comparison_rows("a", "newton", sizes, random, plain)
    rows = {(row["size"], row["trainings"], row["measure"]): row for row in compared}
    assert set(rows) == {
        (size, trainings, name) for size in (2, 4) for trainings in (4, 8) for name in ("best", "centre", "mean")
    }
    for (size, trainings, measure), row in rows.items():
        own, without_curvature = (getattr(each[size], measure)[:, trainings // size - 1] for each in (sizes, plain))
        reference = random.best[:, trainings // 2 - 1]
        if measure == "mean":
            reference = random.mean[:, : trainings // 2].mean(axis=1)
        for name, other in (("better", reference), ("gain", without_curvature)):
            band = 1.96 * np.sqrt((own.var(ddof=1) + other.var(ddof=1)) / 3)
            difference = other.mean() - own.mean()
            expected = [difference, difference - band, difference + band]
            assert [row[name], row[f"{name}_low"], row[f"{name}_high"]] == pytest.approx(expected)
        assert (row["error"], row["random"]) == pytest.approx((own.mean(), reference.mean()))


def test_without_the_gradient_step_there_is_no_gain() -> None:
    errors = {2: StepErrors(*np.random.default_rng(0).random((3, 3, 4)))}
    rows = comparison_rows("a", "newton", errors, errors[2])
    assert {row["gain"] for row in rows} == {0.0}
    assert all(row["gain_low"] < 0 for row in rows)


def test_better_sizes_have_their_whole_interval_above_zero() -> None:
    def row(size: int, low: float, measure: str = "best", trainings: int = 960) -> dict[str, Any]:
        own = {"measure": measure, "better_low": low, "gain_low": -low}
        return {"noise": "a", "step": "newton", "size": size, "trainings": trainings, **own}

    rows = [row(6, -0.1), row(12, 0.1), row(24, 0.0), row(48, 0.2), row(6, 1.0, trainings=96), row(6, 0.3, "mean")]
    who = {"noise": "a", "step": "newton"}
    assert better_sizes(rows, "better") == [{**who, "best": [12, 48], "centre": [], "mean": [6]}]
    assert better_sizes(rows, "gain") == [{**who, "best": [6], "centre": [], "mean": []}]


# -------------------------------------------------------------------------------------------------------------- the run


def options(**changes: Any) -> StepsOptions:
    return StepsOptions(**{"on": "table:table.npz", "sizes": ("2", "4"), "trials": 8, "repeats": 3, **changes})


@pytest.mark.usefixtures("work")
def test_run_holds_rows_and_figure_and_is_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s2e.experiments.schedule_table.surrogate.TREES", 20)
    write_table(Path("table.npz"))
    runs = [compare_steps(options(), RunLocation(Path(name), device="cpu"), Log()) for name in ("first", "second")]
    results = [run.read_json("result.json") for run in runs]
    for result in results:
        result.pop("seconds")
    assert results[0] == results[1]
    assert {(row["step"], row["size"]) for row in results[0]["rows"]} == {
        (step, size) for step in ("newton", "natural", "gradient") for size in (2, 4)
    }
    assert [each["step"] for each in results[0]["better"]] == ["gradient", "newton", "natural"] * 2
    tidy = list(csv.DictReader((runs[0].path / "steps.csv").read_text().splitlines()))
    assert {row["trainings"] for row in tidy} == {"4", "8"}
    assert len([row for row in tidy if row["trainings"] == "8"]) == len(results[0]["rows"])
    for name in ("steps", "steps-mean"):
        assert (runs[0].path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((runs[0].path / "config.json").read_text())["options"]["only_draws"] is False


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"on": "digits"}, "`on` must be table or table:FILE, but got 'digits'"),
        ({"sizes": ("2", "3")}, "`trials` must be a multiple of every size, but got 8 and"),
        ({"sizes": ("1",)}, "each of `sizes` must be at least 2, but got 1"),
        ({"sizes": ("two",)}, "each of `sizes` must be an integer of at least 1 and at most 1,000,000, but got 'two'"),
        ({"sizes": ()}, "`sizes` must name each once, but got none"),
        ({"steps": ("newton", "newton")}, "`steps` must name each once"),
        ({"steps": ("secant",)}, "`step` must be one of .*, but got 'secant'"),
        ({"repeats": 0}, "`repeats` must be an integer of at least 1"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_a_run_is_created(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        compare_steps(options(**changes), RunLocation(Path("run"), device="cpu"), Log())
    assert not Run("run").exists


def test_random_is_no_step() -> None:
    assert steps.RANDOM not in steps.STEPS
