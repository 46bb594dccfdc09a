"""Synthetic outcomes and bands to draw, and access to the elements of a drawing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from s2e.plots import Band
from s2e.workflows.outcomes import Outcome

METHODS = [
    "standard",
    "decoupling",
    "f-correction",
    "mentornet",
    "coteaching",
    "coteaching+",
    "reweight",
    "jocor",
    "s2e",
]
FIXED_SCHEDULE = ["mentornet", "coteaching", "coteaching+", "jocor"]
NOISES = ["symmetric:0.2", "symmetric:0.5", "pair:0.45"]
NAN = math.nan


def comparison(
    methods: Sequence[str] = METHODS,
    noises: Sequence[str] = NOISES,
    seeds: int = 5,
    epochs: int = 200,
    *,
    known: bool = True,
    evaluated_on: str = "test",
    diverged: Sequence[tuple[str, str, int]] = (),
) -> list[Outcome]:
    """Outcomes in which accuracy rises, then falls as wrong labels are memorised, less for later methods."""
    t = np.arange(epochs)
    made = []
    for noise, (rank, method), seed in itertools.product(noises, enumerate(methods), range(seeds)):
        generator = np.random.default_rng([seed, rank, *noise.encode()])
        rate = float(noise.partition(":")[2])
        memorised = rate / (1 + rank) / (1 + np.exp((40 - t) / 15))
        accuracy = 0.9 + 0.005 * rank - 0.7 * np.exp(-(t + 1) / 3) - memorised + generator.normal(0, 0.005, epochs)
        schedule = None
        if method in FIXED_SCHEDULE:
            schedule = 1 - rate * np.minimum(t / 10, 1)
        elif method.startswith("s2e"):
            schedule = (1 + t) ** -generator.uniform(0.2, 0.3)
        has_diverged = (noise, method, seed) in diverged
        if has_diverged:
            accuracy[epochs // 3 :] = 0.1
        precision = 1 - rate * (1 if schedule is None else schedule)
        made.append(
            Outcome(
                noise,
                method,
                seed,
                evaluated_on,
                accuracy=accuracy,
                part_accuracy=np.full(epochs, NAN),
                valid_accuracy=accuracy,
                train_accuracy=accuracy - rate / 2,
                label_precision=precision * np.ones(epochs) if known else np.full(epochs, NAN),
                kept=np.ones(epochs) if schedule is None else schedule,
                loss=np.exp(-t / 50),
                keep_rates=schedule,
                diverged=has_diverged,
            )
        )
    return made


def small_comparison(**changes: Any) -> list[Outcome]:
    """One noise setting, two methods, one seed and five epochs, with changes."""
    settings: dict[str, Any] = {"methods": ["coteaching", "s2e"], "noises": ["pair:0.45"], "seeds": 1, "epochs": 5}
    return comparison(**{**settings, **changes})


def from_accuracies(values: Sequence[Sequence[float]], *, keep_rates: Any = None, **changes: Any) -> list[Outcome]:
    """Outcomes of one method with these accuracies, (seeds, T)."""
    curves = np.array(values, dtype=float)
    names = {"noise": "pair:0.45", "method": "s2e", **changes}
    return [
        Outcome(
            **names,
            seed=seed,
            evaluated_on="test",
            accuracy=curve,
            part_accuracy=np.full_like(curve, NAN),
            valid_accuracy=curve,
            train_accuracy=curve,
            label_precision=curve,
            kept=curve,
            loss=curve,
            keep_rates=keep_rates,
            diverged=False,
        )
        for seed, curve in enumerate(curves)
    ]


def make_band(
    noise: str = "pair:0.45", method: str = "s2e", values: Sequence[float] = (0.5, 0.6), **changes: Any
) -> Band:
    """A band of width 0.1 on either side of the values, with changes."""
    mean = np.array(values, dtype=float)
    settings = {"low": mean - 0.1, "high": mean + 0.1, "seeds": 3, "diverged": 0, **changes}
    return Band(noise, method, mean, **settings)


def legend_of(figure: Any) -> Any:
    (legend,) = figure.legends
    return legend


def legend_names(figure: Any) -> list[str]:
    return [text.get_text() for text in legend_of(figure).get_texts()]


def lines_of(axes: Any) -> list[Any]:
    return list(axes.get_lines())


def draw(figure: Any) -> None:
    """Lay out and draw the figure; its default canvas does neither."""
    FigureCanvasAgg(figure).draw()
