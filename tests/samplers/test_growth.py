"""Samplers of long searches: the same points as an exact model while there are few trials, bounded time with many."""

from __future__ import annotations

import time

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial
from threadpoolctl import threadpool_limits

from s2e.samplers import CurveModel, landmarks, sampler_spec
from s2e.samplers.curve_model import MAX_EXACT, REFIT_GROWTH, _fit, _process, _representative_rows, _rows_to_fit
from s2e.samplers.one_thread import one_thread_for_products
from s2e.samplers.relaxation_sampler import states
from s2e.schedules import Space
from s2e.schedules.spaces import CoteachingSpace, S2ESpace
from s2e.studies.optuna_internals import insert_trial
from s2e.studies.selection import best_trial

EPOCHS, K = 200, 6
SPACES: dict[str, Space] = {"coteaching": CoteachingSpace(), "s2e": S2ESpace()}

RECORDED = {
    ("coteaching", "curve"): [
        5.295842985353331, 5.3843262806585415, 5.283518102703821, 5.1924353218765615, 5.322910459537066,
        5.228114053497839,
    ],
    ("coteaching", "newton"): [
        3.7155000921770123, 3.137131884622285, 3.0411577106561127, 2.9130695698007223, 2.44417279915137,
        2.7591207927893047,
    ],
    ("coteaching", "newton-curve"): [
        2.9346990793403966, 2.3287495465907178, 2.2309927935451284, 2.136314826585784, 1.7217224075688677,
        1.9626320572240266,
    ],
    ("s2e", "curve"): [
        79.50666029829478, 79.11660287682409, 81.45477906127527, 80.89470787273024, 80.68737948376594,
        80.12511513178114,
    ],
    ("s2e", "newton"): [
        94.35572032251537, 126.88561275960687, 93.82593920105668, 103.11621585811122, 103.34865275057133,
        115.53608610772969,
    ],
    ("s2e", "newton-curve"): [
        82.08270002538154, 106.7756914526887, 90.37556811992296, 87.59452681848525, 92.98811480132582,
        94.28552370647891,
    ],
}  # fmt: skip
"""Points asked after 300 trials by exact models that were fitted anew for every generation: Σ_j j · u_j of each."""
SLOW = {("coteaching", "newton-curve"), ("s2e", "newton-curve")}
"""Fifty models each."""


def score(curves: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(((curves - np.linspace(1.0, 0.55, curves.shape[1])) ** 2).mean(axis=1))


def coordinates(space: Space) -> dict[str, FloatDistribution]:
    return {name: FloatDistribution(0.0, 1.0) for name in space.names}


def scored_trials(space: Space, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return uniform points and noisy scores of their curves."""
    generator = np.random.default_rng(count)
    points = generator.random((count, space.dimension))
    return points, score(curves_of(space, points)) + 0.01 * generator.normal(size=count)


def curves_of(space: Space, points: NDArray[np.float64]) -> NDArray[np.float64]:
    return space.decode(points, EPOCHS, at=landmarks(EPOCHS))


def scored_study(space: Space, count: int) -> optuna.Study:
    study, names = optuna.create_study(), space.names
    for point, value in zip(*(each.tolist() for each in scored_trials(space, count)), strict=True):
        params = dict(zip(names, point, strict=True))
        insert_trial(study, optuna.create_trial(value=value, params=params, distributions=coordinates(space)))
    return study


def asked_generation(study: optuna.Study, sampler: str, space: Space) -> list[FrozenTrial]:
    spec = sampler_spec(sampler, space, EPOCHS, K)
    for _ in range(K):
        study.sampler = spec.build(7)
        study.ask(dict(coordinates(space)))
    return study.get_trials(deepcopy=False)[-K:]


def points_of(trials: list[FrozenTrial], space: Space) -> NDArray[np.float64]:
    return np.array([[trial.params[name] for name in space.names] for trial in trials])


def clear_caches() -> None:
    _fit.cache_clear()
    _process.cache_clear()
    states.clear()


# Few trials: exact


@pytest.mark.parametrize(
    ("space", "sampler"), [pytest.param(*case, marks=[pytest.mark.slow] * (case in SLOW)) for case in RECORDED]
)
def test_points_after_300_trials_are_as_recorded(space: str, sampler: str) -> None:
    asked = points_of(asked_generation(scored_study(SPACES[space], 300), sampler, SPACES[space]), SPACES[space])
    # `curve` chooses among drawn candidates, so its points are equal; those of the others are computed by BLAS.
    relative = 1e-14 if sampler == "curve" else 1e-8
    expected = RECORDED[space, sampler]
    np.testing.assert_allclose(asked @ np.arange(1, SPACES[space].dimension + 1), expected, rtol=relative)


def test_best_of_300_trials_is_as_recorded() -> None:
    assert [best_trial(scored_study(SPACES[name], 300), SPACES[name], EPOCHS).trial for name in SPACES] == [129, 116]


# Many trials: approximate


def test_hyperparameters_are_fitted_to_all_of_few_trials_and_to_a_spread_share_of_many() -> None:
    assert _rows_to_fit(MAX_EXACT).tolist() == list(range(MAX_EXACT))
    for count in (MAX_EXACT + 1, 1000, 5000, 20_000):
        rows = _rows_to_fit(count)
        assert len(np.unique(rows)) == MAX_EXACT
        assert rows[0] == 0
        assert count / REFIT_GROWTH - 2 <= rows[-1] < count
    fits = {tuple(_rows_to_fit(count)) for count in range(MAX_EXACT + 1, 5001)}
    assert len(fits) == 12  # log(5000 / 400) / log(1.25), rounded up


def test_representative_curves_are_the_best_and_the_farthest() -> None:
    points, values = scored_trials(SPACES["s2e"], 1000)
    curves = curves_of(SPACES["s2e"], points)
    rows = _representative_rows(curves, values)
    assert len(np.unique(rows)) == MAX_EXACT
    assert set(np.argsort(values)[: MAX_EXACT // 2]) <= set(rows)
    distances = np.sqrt(((curves[:, None] - curves[rows]) ** 2).sum(axis=2).min(axis=1))
    at_random = np.random.default_rng(0).choice(1000, MAX_EXACT, replace=False)
    assert distances.max() < 0.8 * np.sqrt(((curves[:, None] - curves[at_random]) ** 2).sum(axis=2).min(axis=1)).max()


def test_equal_curves_can_be_represented() -> None:
    model = CurveModel(np.ones((500, 3)), np.linspace(0.0, 1.0, 500))
    mean, deviation = model.predict(np.ones((2, 3)))
    np.testing.assert_allclose(mean, 0.5, atol=1e-3)
    assert np.isfinite(deviation).all()


def test_approximate_model_predicts_as_well_as_an_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    space = SPACES["s2e"]
    points, values = scored_trials(space, 900)
    curves, unseen = curves_of(space, points), curves_of(space, np.random.default_rng(1).random((300, space.dimension)))
    approximate = CurveModel(curves, values).predict(unseen)
    monkeypatch.setattr("s2e.samplers.curve_model.MAX_EXACT", 900)
    clear_caches()
    exact = CurveModel(curves, values).predict(unseen)
    clear_caches()
    errors = [np.sqrt(((mean - score(unseen)) ** 2).mean()) for mean, _ in (approximate, exact)]
    assert errors[0] < 1.1 * errors[1]
    assert np.median(np.abs(approximate[1] / exact[1] - 1)) < 0.3


@pytest.mark.parametrize("sampler", ["curve", "newton", "newton-curve"])
def test_caches_and_threads_of_blas_change_no_point_of_a_long_search(sampler: str) -> None:
    space, count = SPACES["coteaching"], MAX_EXACT + 50
    if sampler == "newton-curve":
        count = 90  # a model for each generation
    study = scored_study(space, count)
    asked_generation(study, sampler, space)
    studies = [scored_study(space, count) for _ in range(3)]
    found = []
    for threads, each in zip((1, 2, 4), studies, strict=True):
        if threads > 1:
            clear_caches()
        with threadpool_limits(threads, "blas"):
            found.append(points_of(asked_generation(each, sampler, space), space))
    np.testing.assert_array_equal(found[0], points_of(study.trials[-K:], space))
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_points_of_a_generation_differ_in_a_long_search() -> None:
    space = SPACES["coteaching"]
    asked = points_of(asked_generation(scored_study(space, MAX_EXACT + 50), "curve", space), space)
    assert len(np.unique(curves_of(space, asked), axis=0)) == K


def test_number_of_threads_is_restored_after_nested_blocks() -> None:
    def threads() -> list[int]:
        from threadpoolctl import threadpool_info

        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    with threadpool_limits(2, "blas"):
        before = threads()
        with one_thread_for_products():
            with one_thread_for_products():
                assert set(threads()) == {1}
            assert set(threads()) == {1}
        assert threads() == before


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["curve", "newton"])
def test_generation_after_5000_trials_takes_below_two_seconds(sampler: str) -> None:
    space = SPACES["s2e"]
    study = scored_study(space, 5000)
    asked_generation(study, sampler, space)  # fits the hyperparameters, as one generation in a hundred does
    for trial in study.get_trials(deepcopy=False)[-K:]:
        study.tell(trial.number, 0.1)
    began = time.process_time()
    asked_generation(study, sampler, space)
    assert time.process_time() - began < 2.0  # 0.5 s where this was written
