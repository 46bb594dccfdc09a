"""Results of the study of memorization: rows, figures, claims and the page.

Letters: R trainings, T epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s2e.engine import LAST_EPOCHS
from s2e.errors import counted
from s2e.experiments.claims import Claim, Verdict
from s2e.experiments.pages import Section, claims_section, figure, files, how_made, page, percent, table
from s2e.plots import Line, data_title, draw_lines, mean_line, noise_title
from s2e.runs import Run
from s2e.specs import MemorizationOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

COMMAND = "reproduce memorization"

SMALLEST_DROP = 0.005
"""Drop of the test accuracy after its peak, as a share, from which it counts as a drop."""

LARGEST_SHARE = 0.5
"""Largest share of the gain of Co-teaching's schedule that random ones may have to count as hardly better than none."""

RANDOM_NAME = "random"
"""Name of all random schedules together."""


@dataclass(frozen=True, eq=False)
class Trainings:
    """R trainings of one setting under one noise setting, which differ in their seed.

    Attributes:
        train: (R, T) accuracy on the given training labels, measured on each batch before its step.
        test: (R, T) accuracy on the test part after each epoch.
        precision: (R, T) label precision.
    """

    train: Floats
    test: Floats
    precision: Floats

    @property
    def peak(self) -> int:
        """The epoch at which the mean test accuracy is largest."""
        return int(self.test.mean(axis=0).argmax())

    def row(self) -> dict[str, Any]:
        """Return the numbers of a table: the peak of the mean test accuracy, and means over the last epochs."""
        test, train, peak = self.test.mean(axis=0), self.train.mean(axis=0), self.peak
        last = self.test[:, -LAST_EPOCHS:].mean(axis=1)  # (R,)
        return {
            "trainings": len(self.test),
            "test_peak": float(test[peak]),
            "peak_epoch": peak,
            "test_last": float(last.mean()),
            "test_last_std": float(last.std(ddof=1)) if len(last) > 1 else None,
            "drop": float(test[peak] - last.mean()),
            "train_at_peak": float(train[peak]),
            "train_last": float(train[-LAST_EPOCHS:].mean()),
        }


Shown = Mapping[str, Mapping[str, Mapping[str, Trainings]]]
"""Trainings by study, name in the legend, and noise setting."""


def together(named: Mapping[str, Mapping[str, Trainings]]) -> dict[str, Mapping[str, Trainings]]:
    """Return the trainings of a study with those of all random schedules as one entry."""
    random = [by_noise for name, by_noise in named.items() if name.startswith(RANDOM_NAME)]
    merged = {name: by_noise for name, by_noise in named.items() if not name.startswith(RANDOM_NAME)}
    if not random:
        return merged
    return merged | {
        f"{RANDOM_NAME} ({counted(len(random), 'draw')})": {
            noise: Trainings(
                np.concatenate([each[noise].train for each in random]),
                np.concatenate([each[noise].test for each in random]),
                np.concatenate([each[noise].precision for each in random]),
            )
            for noise in random[0]
        }
    }


# --------------------------------------------------------------------------------------------------------------- rows


def result_rows(shown: Shown) -> list[dict[str, Any]]:
    """Return one row for each setting under each noise setting."""
    return [
        {"study": study, "setting": name, "noise": noise, **trainings.row()}
        for study, named in shown.items()
        for name, by_noise in named.items()
        for noise, trainings in by_noise.items()
    ]


def curve_rows(shown: Shown) -> list[dict[str, Any]]:
    """Return one row for each epoch of the mean curves of each setting."""
    return [
        {
            "study": study,
            "setting": name,
            "noise": noise,
            "epoch": epoch,
            "train_accuracy": float(trainings.train[:, epoch].mean()),
            "test_accuracy": float(trainings.test[:, epoch].mean()),
        }
        for study, named in shown.items()
        for name, by_noise in named.items()
        for noise, trainings in by_noise.items()
        for epoch in range(trainings.test.shape[1])
    ]


# ------------------------------------------------------------------------------------------------------------- figures


def figures_of(shown: Shown) -> dict[str, Figure]:
    """Return the figure of each study, by file name: training accuracy above, test accuracy below."""
    return {study: _figure_of(study, together(named)) for study, named in shown.items()}


def _figure_of(study: str, named: Mapping[str, Mapping[str, Trainings]]) -> Figure:
    lines = lines_of(study, named)
    highest = max(float(np.max(line.mean if line.high is None else line.high)) for line in lines)
    several = any(line.high is not None for line in lines)
    notes = ["training accuracy: on the given, noisy labels", *(["bands: one standard deviation"] if several else [])]
    return draw_lines(
        lines,
        "accuracy",
        limits=(0.0, min(1.02, 1.05 * highest)),
        notes=["; ".join(notes)],
        per_row=_panels_per_row(study, named),
    )


def lines_of(study: str, named: Mapping[str, Mapping[str, Trainings]]) -> list[Line]:
    """Return the lines of a study: panels by data set with lines by noise setting, or the other way round."""

    def line(kind: str, name: str, noise: str, trainings: Trainings) -> Line:
        panel, legend = (data_title(name), noise_title(noise)) if study == "data" else (noise_title(noise), name)
        return mean_line(f"{panel}: {kind}", legend, trainings.train if kind == "training" else trainings.test)

    return [
        line(kind, name, noise, trainings)
        for kind in ("training", "test")
        for noise in _noises(named)
        for name, by_noise in named.items()
        if (trainings := by_noise.get(noise)) is not None
    ]


def _noises(named: Mapping[str, Mapping[str, Trainings]]) -> list[str]:
    return list(dict.fromkeys(noise for by_noise in named.values() for noise in by_noise))


def _panels_per_row(study: str, named: Mapping[str, Mapping[str, Trainings]]) -> int:
    return max(2, len(named) if study == "data" else len(_noises(named)))


# -------------------------------------------------------------------------------------------------------------- claims


def claims_of(shown: Shown) -> list[Claim]:
    """Return the paper's claims about its Figure 1, each decided by the curves."""
    plain = {
        (study, name, noise): trainings.row()
        for study, named in shown.items()
        if study != "schedules"
        for name, by_noise in named.items()
        for noise, trainings in by_noise.items()
    }
    memorised = [key for key, row in plain.items() if is_memorised(row)]
    counts = {
        study: [key in memorised for key in plain if key[0] == study]
        for study in dict.fromkeys(key[0] for key in plain)
    }
    by_study = ", ".join(f"{study.replace('-', ' ')} {sum(each)} of {len(each)}" for study, each in counts.items())
    found = (
        f"in {len(memorised)} of {len(plain)} curves ({by_study}); a drop counts from {100 * SMALLEST_DROP:g} points"
    )
    first = Claim(
        "Figure 1 b–f",
        "training accuracy rises to the end; test accuracy rises first, then falls, with every data set, network, "
        "optimizer and its settings",
        Verdict.of(holds=len(memorised), of=len(plain)),
        found,
    )
    return [first, *_claim_of_schedules(shown)]


def is_memorised(row: Mapping[str, Any]) -> bool:
    """Return whether a training rises on its labels after the peak of its test accuracy, which then drops."""
    return bool(row["drop"] >= SMALLEST_DROP and row["train_last"] > row["train_at_peak"])


def _claim_of_schedules(shown: Shown) -> list[Claim]:
    """Return the claim of Figure 1 a: random schedules gain little, Co-teaching's gains much.

    Gains are of the test accuracy over the last epochs, over that of training on all samples.
    """
    named = together(shown.get("schedules", {}))
    if not named:
        return []
    all_samples, coteaching, random = named.values()
    last = {
        noise: [each[noise].row()["test_last"] for each in (all_samples, random, coteaching)] for noise in all_samples
    }
    holds = [
        noise
        for noise, (none, drawn, fixed) in last.items()
        if fixed > none and drawn - none <= LARGEST_SHARE * (fixed - none)
    ]
    found = "; ".join(
        f"{noise_title(noise)}: R = 1 {percent(none)}, random {percent(drawn)}, Co-teaching's {percent(fixed)}"
        for noise, (none, drawn, fixed) in last.items()
    )
    text = (
        "Co-teaching's R(t) is better than training on all samples, and a random one gains at most half as much "
        "in the mean"
    )
    return [Claim("Figure 1 a", text, Verdict.of(holds=len(holds), of=len(last)), found)]


# ---------------------------------------------------------------------------------------------------------------- page


_TITLES = {
    "data": "Data sets",
    "schedules": "Impact of R(t)",
    "networks": "Networks",
    "optimizers": "Optimizers",
    "learning-rates": "Learning rates",
    "batch-sizes": "Batch sizes",
}


ABOUT = """Training and test accuracy by epoch under label noise (the paper's Figure 1). Networks are trained on all
samples, except under [impact of R(t)](#impact-of-rt), where pairs of networks are trained by Co-teaching with a fixed
R(t): 1, Co-teaching's for the true noise rate, or a random one, a uniform draw from the space of perceptrons. Unless
a figure says otherwise: the network that the paper uses on the data set, Adam with a learning rate of 0.001, batches
of 128. Nothing is chosen by the test accuracy."""

LEFT_OUT = """ResNet and DenseNet take the most time: they are trained once, under 50% symmetric noise, at the scale
of the paper only. Combinations that are not named are left out: everything but the data set is varied on one data
set."""


def page_of(
    run: Run,
    rows: Sequence[Mapping[str, Any]],
    shown: Shown,
    claims: Sequence[Claim],
    made: Mapping[str, Mapping[str, Any]],
    scale: str,
) -> str:
    """Return the page of the study."""
    csv_files = files(["results.csv", "curves.csv", "result.json", "config.json"])
    about = Section("", [ABOUT, LEFT_OUT, f"Files: {csv_files}."])
    sections = [
        Section(_TITLES[study], [figure(study, f"accuracy by epoch: {_TITLES[study]}"), _table(rows, study)])
        for study in shown
    ]
    made_by = how_made(run, MemorizationOptions, COMMAND, made)
    return page("Memorization of wrong labels", [about, claims_section(claims, scale), *sections, made_by])


def _table(rows: Sequence[Mapping[str, Any]], study: str) -> str:
    header = ["", "noise", "test, peak", "at epoch", "test, last ten epochs", "training, last ten epochs"]
    return table(
        header,
        [
            [
                data_title(row["setting"]) if study == "data" else row["setting"],
                noise_title(row["noise"]),
                percent(row["test_peak"]),
                str(row["peak_epoch"]),
                percent(row["test_last"], row["test_last_std"]),
                percent(row["train_last"]),
            ]
            for row in rows
            if row["study"] == study
        ],
    )
