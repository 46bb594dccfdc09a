"""Results of comparisons on several data sets: rows, claims, and the page with their tables and figures."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from s2e.engine import LAST_EPOCHS
from s2e.errors import counted
from s2e.experiments.claims import Claim, Verdict
from s2e.experiments.pages import (
    PAGE,
    RESULT,
    Section,
    cell,
    claims_section,
    files,
    how_made,
    made_of,
    page,
    percent,
    table,
)
from s2e.experiments.published import SPACES_TABLE
from s2e.experiments.targets import LAST, Reached, reached, targets_section
from s2e.methods import METHODS
from s2e.plots import data_title, display_name, noise_title
from s2e.runs import CONFIG, Run, Session, csv_text
from s2e.workflows import (
    NOISY_VALIDATION,
    ORACLES,
    PART,
    SEARCHED,
    FinishedTrainings,
    Outcome,
    bands,
    best_of_competitors,
    is_oracle,
    is_searched,
    result_rows,
)

COLUMNS = {
    LAST: f"last {LAST_EPOCHS} epochs",
    "chosen_epoch": "epoch chosen on clean validation samples",
    "best_epoch": "best epoch on the test samples, as the paper reports",
}
"""The three accuracies, with their titles."""

ENTRANTS = (*METHODS, SEARCHED, NOISY_VALIDATION, *ORACLES)
"""What a full comparison trains; the page names those that are missing."""

SELECTING = ("mentornet", "coteaching", "coteaching+", "jocor")
"""Methods with a fixed R(t), with which label precision is compared."""


@dataclass(frozen=True, eq=False)
class Compared:
    """A finished comparison on one data set.

    Attributes:
        name: name of the part.
        title: title of the data set or of the part.
        result: content of `result.json`.
        outcomes: its trainings.
        data: name of the data set, for published numbers.
    """

    name: str
    title: str
    result: Mapping[str, Any]
    outcomes: Sequence[Outcome]
    data: str

    @classmethod
    def of(cls, name: str, run: Run, title: str | None = None) -> Compared:
        """Read a finished run of `s2e compare`."""
        data = str(run.read_json(CONFIG)["options"]["data"])
        outcomes = FinishedTrainings.of(run).outcomes
        return cls(name, data_title(data) if title is None else title, run.read_json(RESULT), outcomes, data)

    @property
    def noises(self) -> list[str]:
        """The noise settings."""
        return list(dict.fromkeys(row["noise"] for row in self.result["summary"]))

    def rows(self, noise: str) -> list[Mapping[str, Any]]:
        """Return the summaries of the methods under a noise setting."""
        return [row for row in self.result["summary"] if row["noise"] == noise]

    def row(self, noise: str, method: str) -> Mapping[str, Any]:
        """Return the summary of a method under a noise setting; empty if it was not trained."""
        return next((row for row in self.rows(noise) if row["method"] == method), {})

    @property
    def columns(self) -> dict[str, str]:
        """The accuracies that are known, with their titles, those on a part of the test samples included."""
        part = self.result.get("test_part")
        parts = {f"{PART}{name}": f"test images {part} alone, {title}" for name, title in COLUMNS.items() if part}
        known = {
            name for row in self.result["summary"] for name in row if (row[name] or {}) and name in COLUMNS | parts
        }
        return {name: title for name, title in (COLUMNS | parts).items() if name in known}


def write_comparisons(
    run: Run,
    session: Session[Any],
    device: torch.device,
    made: Mapping[str, Run],
    *,
    title: str,
    about: str,
    titles: Mapping[str, str] | None = None,
    further: Sequence[Section] = (),
    claims: Sequence[Claim] = (),
    source: str | None = None,
) -> Run:
    """Write the tables and the page of finished comparisons, and the result of the experiment.

    Args:
        run: the experiment.
        session: its session.
        device: where it ran.
        made: its finished parts, by name.
        title: title of the page.
        about: its first paragraph.
        titles: titles of the parts; None for those of their data sets.
        further: sections before that on how it was made.
        claims: further claims.
        source: source of the claims about the comparisons; None for the figures of the paper.
    """
    compared = [Compared.of(name, part, (titles or {}).get(name)) for name, part in made.items()]
    own = claims_of(compared)
    all_claims = [*(own if source is None else [replace(claim, source=source) for claim in own]), *claims]
    found = [margin for each in compared for margin in margins(each)]
    targets = [target for each in compared for target in targets_of(each)]
    result = {
        "parts": list(made),
        "claims": [claim.row() for claim in all_claims],
        "margins": [margin.row() for margin in found],
        "targets": [target.row() for target in targets],
    }

    def write() -> None:
        run.write_text("results.csv", csv_text(_all_rows(compared)))
        run.write_text("curves.csv", csv_text(mean_curve_rows(compared), decimals=4))
        sections = [
            Section("", [about, PROTOCOL, f"Files: {files(['results.csv', 'curves.csv', RESULT, CONFIG])}."]),
            claims_section(all_claims, session.options.scale),
            *filter(None, [targets_section(targets)]),
            *margins_sections(found),
            *(section_of(each) for each in compared),
            *further,
            how_made(run, type(session.options), session.command, made_of(made)),
        ]
        run.write_text(PAGE, page(title, sections))

    return session.finish(result, device, write)


PROTOCOL = """Three accuracies, the same for every method: the mean over the last ten epochs; the epoch that is best
on the clean validation samples, where a user who has them would have stopped; and the best epoch on the test samples,
as the paper reports, which no user can choose. S2E is not given the noise rate; it is given clean validation samples,
by which its schedules are chosen ("noisy validation": without any, its validation labels are as wrong as the training
labels). The other methods with a keep rate are given the true noise rate. Reweight trains with one half of the
validation samples, and its epoch is chosen on the other. Oracles train Standard on the correctly labelled samples
alone, or on clean labels: they show what is left to gain, and are not ranked. Means ± standard deviations over seeds;
where several searches are made, the seeds use their schedules in turn, and the deviation of S2E includes that of
searches. The best of each column is bold."""


# ---------------------------------------------------------------------------------------------------------------- rows


def _all_rows(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return one row for each training of all comparisons, with the same columns."""
    rows = [{"part": each.name, "data": each.data, **row} for each in compared for row in result_rows(each.outcomes)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def mean_curve_rows(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return one row for each epoch of each method: mean and deviation of test accuracy, and mean label precision."""
    rows = []
    for each in compared:
        precisions = {(band.noise, band.method): band.mean for band in bands(each.outcomes, "label_precision")}
        for band in bands(each.outcomes, "accuracy"):
            precision = precisions.get((band.noise, band.method), np.full_like(band.mean, np.nan))
            rows += [
                {
                    "part": each.name,
                    "noise": band.noise,
                    "method": band.method,
                    "epoch": epoch,
                    "accuracy": float(band.mean[epoch]),
                    "deviation": float(band.high[epoch] - band.mean[epoch]),
                    "label_precision": float(precision[epoch]),
                }
                for epoch in range(len(band.mean))
            ]
    return rows


# -------------------------------------------------------------------------------------------------------------- claims


def claims_of(compared: Sequence[Compared]) -> list[Claim]:
    """Return the paper's claims about its Figures 3 to 5, for each data set with a search."""
    return [
        claim
        for each in compared
        if any(row["method"] == SEARCHED for row in each.result["summary"])
        for claim in (_accuracy_claim(each), *_schedule_claims(each), *_precision_claims(each))
    ]


def _accuracy_claim(compared: Compared) -> Claim:
    """S2E is the best of all methods over the last epochs, as at the end of the curves of Figure 3."""
    first = [margin.noise for margin in margins(compared) if margin.column == COLUMNS[LAST] and margin.is_first]
    own = {noise: compared.row(noise, SEARCHED) for noise in compared.noises}
    published = SPACES_TABLE.get(compared.data, {})
    part = f"{PART}{LAST}" if compared.result.get("test_part") else LAST
    better = all(
        noise in published and own[noise][part]["mean"] * 100 >= published[noise]["s2e"] for noise in compared.noises
    )
    found = "; ".join(f"{noise_title(noise)}: {cell(row, LAST)}" for noise, row in own.items())
    if published.keys() & own.keys():
        on = f"test images {compared.result['test_part']}" if compared.result.get("test_part") else "all test images"
        paper = " / ".join(f"{published[noise]['s2e']:.2f}" for noise in compared.noises if noise in published)
        here = " / ".join(percent(own[noise][part]["mean"]) for noise in compared.noises if noise in published)
        found += f" (paper, best epoch: {paper}; here, last epochs on {on}: {here})"
    text = f"{compared.title}: S2E ends above every other method"
    verdict = Verdict.of(holds=len(first), of=len(compared.noises), better=better)
    return Claim("Figure 3", text, verdict, f"first in {len(first)} of {len(compared.noises)}; {found}")


@dataclass(frozen=True)
class Margin:
    """S2E and the best other method in one column of a table of accuracies.

    Attributes:
        title: title of the comparison.
        noise: noise setting.
        column: title of the accuracy.
        own: mean accuracy of S2E.
        others: mean accuracies of the other methods, without oracles and other searches; the best first.
    """

    title: str
    noise: str
    column: str
    own: float
    others: Mapping[str, float]

    @property
    def best(self) -> str:
        """The best other method."""
        return next(iter(self.others))

    @property
    def difference(self) -> float:
        """The accuracy of S2E minus that of the best other method."""
        return self.own - self.others[self.best]

    @property
    def is_first(self) -> bool:
        """Whether no other method is ahead of S2E."""
        return self.difference >= 0

    def row(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        about = {"title": self.title, "noise": self.noise, "column": self.column, "s2e": self.own}
        return {**about, "difference": self.difference, "others": dict(self.others)}

    def line(self) -> str:
        """Return which methods are ahead of S2E, and by how much."""
        ahead = [
            f"{display_name(method)} by {100 * (mean - self.own):.2f} points"
            for method, mean in self.others.items()
            if mean > self.own
        ]
        return f"{self.title}, {noise_title(self.noise)}, {self.column}: {', '.join(ahead)}"


def margins(compared: Compared) -> list[Margin]:
    """Return S2E beside the best other method in every column of every table of accuracies; none without S2E."""
    found = []
    for column, title in compared.columns.items():
        for noise in compared.noises:
            own = _mean(compared.row(noise, SEARCHED), column)
            others = {
                row["method"]: mean
                for row in compared.rows(noise)
                if not is_oracle(row["method"])
                and not is_searched(row["method"])
                and (mean := _mean(row, column)) is not None
            }
            if own is not None and others:
                ordered = dict(sorted(others.items(), key=lambda each: -each[1]))
                found.append(Margin(compared.title, noise, title, own, ordered))
    return found


def _mean(row: Mapping[str, Any], column: str) -> float | None:
    mean: float | None = (row.get(column) or {}).get("mean")
    return mean


def margins_sections(found: Sequence[Margin]) -> list[Section]:
    """Return a section with the margins of S2E, and where it is not first; none without margins."""
    if not found:
        return []
    behind = [margin for margin in found if not margin.is_first]
    noises = list(dict.fromkeys(margin.noise for margin in found))
    rows: dict[str, dict[str, str]] = {}
    for margin in found:
        text = f"{100 * margin.difference:+.2f} ({display_name(margin.best)})"
        rows.setdefault(f"{margin.title}, {margin.column}", {})[margin.noise] = text
    lines = [[name, *(cells.get(noise, "—") for noise in noises)] for name, cells in rows.items()]
    about = (
        f"S2E is first in {len(found) - len(behind)} of {len(found)} columns of the tables of accuracies. Its accuracy "
        "minus that of the best other method, in points:"
    )
    listed = ["Ahead of S2E:", "\n".join(f"- {margin.line()}" for margin in behind)] if behind else []
    return [
        Section("S2E beside the best other method", [about, table(["", *map(noise_title, noises)], lines), *listed])
    ]


def targets_of(compared: Compared) -> list[Reached]:
    """Return the targets on the data set of a comparison of drawn noise, and what was found."""
    own = {noise: compared.row(noise, SEARCHED) for noise in compared.noises}
    return reached(compared.data, own, compared.result.get("test_part"))


def _keep_rates(compared: Compared, noise: str, method: str) -> NDArray[np.float64] | None:
    """Return the mean R(t) of a method (T,); None if it has none."""
    found = [
        one.keep_rates
        for one in compared.outcomes
        if (one.noise, one.method) == (noise, method) and one.keep_rates is not None
    ]
    return np.mean(found, axis=0) if found else None


def _schedule_claims(compared: Compared) -> list[Claim]:
    """The searched R(t) drops more samples than are wrong (Figure 4)."""
    rates, shares = {}, compared.result["noise_rates"]
    for noise in compared.noises:
        searched = _keep_rates(compared, noise, SEARCHED)
        if searched is not None and shares[noise] is not None:
            rates[noise] = float(searched[-LAST_EPOCHS:].mean())
    if not rates:
        return []
    holds = [noise for noise, rate in rates.items() if 1 - rate > shares[noise]]
    found = "; ".join(
        f"{noise_title(noise)}: keeps {percent(rate)}%, {percent(1 - shares[noise])}% of the labels are right"
        for noise, rate in rates.items()
    )
    text = f"{compared.title}: the searched R(t) ends below the share of correct labels"
    claims = [Claim("Figure 4", text, Verdict.of(holds=len(holds), of=len(rates)), found)]
    pairs = [
        (less, more)
        for less, more in itertools.permutations(rates, 2)
        if less.partition(":")[0] == more.partition(":")[0] and shares[less] < shares[more]
    ]
    if not pairs:
        return claims
    smaller = [rates[more] < rates[less] for less, more in pairs]
    found = "; ".join(
        f"{noise_title(less)}: {percent(rates[less])}%, {noise_title(more)}: {percent(rates[more])}%"
        for less, more in pairs
    )
    text = f"{compared.title}: the searched R(t) is smaller for more noise of the same kind"
    return [*claims, Claim("Figure 4", text, Verdict.of(holds=sum(smaller), of=len(pairs)), found)]


def _precision_claims(compared: Compared) -> list[Claim]:
    """S2E's label precision is the highest of the methods that select samples (Figure 5)."""
    name, holds, found = "label_precision", 0, []
    for noise in compared.noises:
        known = {
            method: mean
            for method in (SEARCHED, *SELECTING)
            if (mean := (compared.row(noise, method).get(name) or {}).get("mean")) is not None
        }
        if SEARCHED not in known or len(known) < 2:
            continue
        others = {method: mean for method, mean in known.items() if method != SEARCHED}
        best = max(others, key=lambda method: others[method])
        holds += known[SEARCHED] > others[best]
        found.append(f"{noise_title(noise)}: {percent(known[SEARCHED])}, {display_name(best)} {percent(others[best])}")
    if not found:
        return []
    text = f"{compared.title}: S2E's label precision is the highest of the methods that select samples"
    return [Claim("Figure 5", text, Verdict.of(holds=holds, of=len(found)), "; ".join(found))]


# ---------------------------------------------------------------------------------------------------------------- page


def section_of(compared: Compared) -> Section:
    """Return the section of a comparison: a table for each accuracy, label precision, and the figures of the run."""
    result = compared.result
    given = counted(result["samples"]["valid"], f"{result['validation']} validation sample")
    searches = {row["trials"] for row in result["search"]}
    count = counted(result.get("searches", 1), "search", "searches")
    searched = f"{count} of {' or '.join(map(str, sorted(searches)))} schedules for each noise setting, "
    about = (
        f"{result['samples']['train']} training samples, {given}, {result['samples'].get('test', 0)} test samples; "
        f"{searched if searches else ''}{result['epochs']} epochs. Wrong labels: "
        + "; ".join(
            f"{noise_title(noise)}: {'unknown' if rate is None else f'{percent(rate)}%'}"
            for noise, rate in ((noise, result["noise_rates"][noise]) for noise in compared.noises)
        )
        + f".{_not_trained(compared)} Details: [{compared.name}/]({compared.name})."
    )
    tables = [
        text
        for column, title in compared.columns.items()
        for text in (f"Test accuracy, {title}:", _table(compared, column))
    ]
    precision = ["Label precision, last epochs:", _table(compared, "label_precision", ranked=False)]
    figures = [
        f"![{text}]({compared.name}/{name}.png)"
        for name, text in (
            ("accuracy", f"{compared.title}: test accuracy by epoch"),
            ("keep_rate", f"{compared.title}: keep rates"),
            ("label_precision", f"{compared.title}: label precision by epoch"),
        )
    ]
    return Section(compared.title, [about, *tables, *precision, *figures])


def _not_trained(compared: Compared) -> str:
    """Return a sentence about what a full comparison trains and this one does not; empty if nothing is missing."""
    trained = {row["method"] for row in compared.result["summary"]}
    missing = [display_name(name) for name in ENTRANTS if name not in trained]
    return f" Not trained here: {'; '.join(missing)}." if missing else ""


def _table(compared: Compared, column: str, *, ranked: bool = True) -> str:
    noises, rows = compared.noises, []
    best = {noise: best_of_competitors(_with(compared.rows(noise), column), column) for noise in noises}
    for method in dict.fromkeys(row["method"] for row in compared.result["summary"]):
        cells = []
        for noise in noises:
            row = compared.row(noise, method)
            mean = (row.get(column) or {}).get("mean")
            bold = ranked and mean is not None and mean == best[noise] and not is_oracle(method)
            cells.append(cell(row, column, bold=bold))
        rows.append([display_name(method), *cells])
    return table(["", *map(noise_title, noises)], rows)


def _with(rows: Sequence[Mapping[str, Any]], column: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row.get(column)]
