"""From which generation size on the paper's steps are better than random search, at equal numbers of trainings.

The estimates of a step from K points have errors of 1/√K, and the estimated Hessian has a rank of at most K, in 36
dimensions. A larger K makes better steps, and fewer of them. All repeats advance together on surrogates of the table.

Letters: R repeats, K points in a generation, G generations, N = K G trainings, D dimensions of the space, T epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from s2e.errors import InvalidInput, unknown_name
from s2e.experiments.figures import draw_steps, write_figure
from s2e.experiments.incumbent_curves import CONFIDENCE
from s2e.experiments.samplers import read_table
from s2e.experiments.schedule_table.surrogate import TableSurrogate
from s2e.runs import Run, RunLocation, Session, csv_text
from s2e.samplers.relaxation import STEPS, Layout, Settings, State, advance, sample
from s2e.schedules import Space, space
from s2e.seeds import derive
from s2e.specs import StepsOptions, to_count
from s2e.workflows import SILENT, ProgressListener

Floats = NDArray[np.float64]

RANDOM = "random"
GRADIENT = "gradient"
"""The step without curvature, which the others are compared with."""
TITLES = {"best": "best trained", "centre": "centre of the distribution", "mean": "mean of the last generation"}
"""What is compared: the best schedule trained so far, the schedule at the mean of p_θ, and the mean error of the last
generation, which estimates J(θ). The centre is compared with the best schedule of random search too, the mean with the
mean error of random draws."""


@dataclass(frozen=True, eq=False)
class StepErrors:
    """Errors of R repeats of a search, after each of its G generations.

    Attributes:
        best: (R, G) smallest expected error trained so far.
        centre: (R, G) expected error of the schedule at the mean of the distribution after the generation's step.
        mean: (R, G) mean expected error of the generation.
    """

    best: Floats
    centre: Floats
    mean: Floats


def compare_steps(
    options: StepsOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Search with every step and generation size, and at random, and write the errors as a table and a figure."""
    sizes = [_size(text) for text in options.sizes]
    for step in options.steps:
        if step not in STEPS:
            raise unknown_name("step", step, STEPS)
    for name, given in (("steps", options.steps), ("sizes", options.sizes)):
        if not given or len(set(given)) < len(given):
            raise InvalidInput(f"`{name}` must name each once, but got {', '.join(given) or 'none'}.")
    if any(options.trials % size for size in sizes):
        raise InvalidInput(f"`trials` must be a multiple of every size, but got {options.trials} and {sizes}.")
    session = Session("reproduce steps", options, location, resume=resume)
    table, fingerprint = read_table(options.on, only_draws=options.only_draws)
    with session.start({"data_fingerprint": fingerprint, "table": dict(table.about)}) as run:
        rows: list[dict[str, Any]] = []
        for noise in options.noises or table.noises:
            surrogate, searched = TableSurrogate(table, noise), space(table.space)

            def repeated(step: str | None, size: int) -> StepErrors:
                seed = derive(options.seed, "steps", noise, step or RANDOM, size)  # noqa: B023
                return run_steps(surrogate, searched, step, size, options.trials, options.repeats, seed)  # noqa: B023

            random, plain = repeated(None, min(sizes)), None
            for step in sorted(options.steps, key=lambda step: step != GRADIENT):  # the others are compared with it
                errors = {size: repeated(step, size) for size in sizes}
                plain = errors if step == GRADIENT else plain
                rows += comparison_rows(noise, step, errors, random, plain)
                listener.note(
                    f"{noise}, {step}: {options.repeats * len(sizes)} searches, {session.seconds:.0f} s so far"
                )
        run.write_text("steps.csv", csv_text(rows))
        last = [row for row in rows if row["trainings"] == options.trials]
        for measure, name in (("best", "steps"), ("mean", "steps-mean")):
            shown = [row for row in last if row["measure"] == measure]
            write_figure(run, name, draw_steps(shown, TITLES[measure], random=measure == "best"))
        result = {
            "on": options.on,
            "repeats": options.repeats,
            "trainings": options.trials,
            "better": better_sizes(rows, "better"),
            "better_than_gradient": better_sizes(rows, "gain"),
            "rows": last,
        }
        return session.finish(result, torch.device("cpu"))


def run_steps(
    surrogate: TableSurrogate, searched: Space, step: str | None, size: int, trials: int, repeats: int, seed: int
) -> StepErrors:
    """Run R searches with a step, or without one: random search.

    Args:
        surrogate: predicts trainings.
        searched: space of the schedules.
        step: a name of `STEPS`, or None to leave θ = 1.
        size: K.
        trials: N.
        repeats: R.
        seed: of the points and of the noise of the trainings.
    """
    generator = np.random.default_rng(seed)
    layout, order = _layout(searched)
    state = State(layout, np.ones((repeats, layout.size)))

    def expected(points: Floats) -> Floats:
        """Return the expected errors (...) of points (..., D) in the order of the layout."""
        flat = points.reshape(-1, layout.dimensions)[:, order]
        return surrogate.error(searched.decode(flat, surrogate.epochs)).reshape(points.shape[:-1])

    best, centre, mean = [], [], []
    lowest = np.full(repeats, np.inf)
    for _ in range(trials // size):
        points = sample(state.theta, layout, size, generator)  # (R, K, D)
        errors = expected(points)  # (R, K)
        if step is not None:
            measured = surrogate.measured(errors, generator.normal(size=errors.shape))
            state = advance(state, points, measured, step=step, settings=Settings())
        lowest = np.minimum(lowest, errors.min(axis=1))
        best.append(lowest)
        mean.append(errors.mean(axis=1))
        centre.append(expected(centre_of(state)))
    return StepErrors(np.stack(best, axis=1), np.stack(centre, axis=1), np.stack(mean, axis=1))


def centre_of(state: State) -> Floats:
    """Return the point (..., D) whose weights and coordinates are the means of p_θ."""
    alphas, firsts, seconds = state.layout.split(state.theta)
    weights = alphas / alphas.sum(axis=-1, keepdims=True)  # g = α is one of the points with these weights
    return np.concatenate([-np.expm1(-weights), firsts / (firsts + seconds)], axis=-1)


def _layout(searched: Space) -> tuple[Layout, list[int]]:
    """Return the layout with the simplex first, and where each coordinate of the space is in it."""
    others = [name for name in searched.names if name not in searched.simplex]
    names = [*searched.simplex, *others]
    return Layout(len(searched.simplex), len(others)), [names.index(name) for name in searched.names]


def comparison_rows(
    noise: str,
    step: str,
    errors: Mapping[int, StepErrors],
    random: StepErrors,
    gradient: Mapping[int, StepErrors] | None = None,
) -> list[dict[str, Any]]:
    """Return one row for each generation size, number of trainings and measure, with intervals.

    `better` is how much smaller the error is than that of random search with as many trainings, `gain` how much smaller
    than that of the gradient step with as many points in a generation.

    Args:
        noise: noise setting.
        step: name of the step.
        errors: of the step, by size.
        random: of random search, in generations of the smallest size.
        gradient: of the gradient step, by size; None to compare with random search only.
    """
    rows = []
    smallest, together = min(errors), math.lcm(*errors)
    total = smallest * random.best.shape[1]
    counts = [together * 2**power for power in range(total.bit_length()) if together * 2**power < total]
    for size, own in errors.items():
        for trainings in [*counts, total]:
            generations = trainings // smallest
            for measure in TITLES:
                values = _after(own, measure, trainings, size)  # (R,)
                # Random draws have one distribution, so all of them estimate its mean.
                reference = (
                    random.mean[:, :generations].mean(axis=1) if measure == "mean" else random.best[:, generations - 1]
                )
                plain = values if gradient is None else _after(gradient[size], measure, trainings, size)
                rows.append(
                    {
                        "noise": noise,
                        "step": step,
                        "size": size,
                        "trainings": trainings,
                        "measure": measure,
                        **_with_band("error", "", values),
                        **_with_band("random", "random_", reference),
                        **_with_band("better", "better_", reference, values),
                        **_with_band("gain", "gain_", plain, values),
                        "repeats": len(values),
                    }
                )
    return rows


def better_sizes(rows: Sequence[Mapping[str, Any]], difference: str) -> list[dict[str, Any]]:
    """Return the sizes with which a step is better after all trainings, by measure.

    It is better if the whole 95% interval of the difference, "better" or "gain", is positive.
    """
    last = max(row["trainings"] for row in rows)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if row["trainings"] == last:
            noise, step = row["noise"], row["step"]
            sizes = found.setdefault((noise, step), {"noise": noise, "step": step, **{name: [] for name in TITLES}})
            sizes[row["measure"]] += [row["size"]] if row[f"{difference}_low"] > 0 else []
    return list(found.values())


def _after(errors: StepErrors, measure: str, trainings: int, size: int) -> Floats:
    """Return a measure (R,) after a number of trainings."""
    values: Floats = getattr(errors, measure)
    return values[:, trainings // size - 1]


def _with_band(name: str, prefix: str, values: Floats, less: Floats | None = None) -> dict[str, float]:
    """Return the mean of values (R,), or of their difference to others, and its 95% confidence band."""
    mean, error = values.mean(), _standard_error(values)
    if less is not None:
        mean, error = mean - less.mean(), np.hypot(error, _standard_error(less))
    band = CONFIDENCE * error
    return {name: float(mean), f"{prefix}low": float(mean - band), f"{prefix}high": float(mean + band)}


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _size(text: str) -> int:
    try:
        size = to_count(text.strip())
    except ValueError as problem:
        raise InvalidInput(f"each of `sizes` {problem}, but got {text!r}.") from None
    if size < 2:
        raise InvalidInput(f"each of `sizes` must be at least 2, but got {size}: a step compares points.")
    return size
