"""Results of comparisons on several data sets: rows, claims, and the page with their tables and figures."""

from __future__ import annotations

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
from s2e.plots import data_title, display_name, noise_title
from s2e.runs import CONFIG, Run, Session, csv_text
from s2e.workflows import (
    NOISY_VALIDATION,
    PART,
    SEARCHED,
    FinishedTrainings,
    Outcome,
    bands,
    best_of_competitors,
    is_oracle,
    result_rows,
)

LAST = f"last_{LAST_EPOCHS}_epochs"
COLUMNS = {
    LAST: f"last {LAST_EPOCHS} epochs",
    "chosen_epoch": "epoch chosen on clean validation samples",
    "best_epoch": "best epoch on the test samples, as the paper reports",
}
"""The three accuracies, with their titles."""

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
    lines = [line for each in compared for line in behind(each)]
    result = {"parts": list(made), "claims": [claim.row() for claim in all_claims], "behind": lines}

    def write() -> None:
        run.write_text("results.csv", csv_text(_all_rows(compared)))
        run.write_text("curves.csv", csv_text(mean_curve_rows(compared), decimals=4))
        sections = [
            Section("", [about, PROTOCOL, f"Files: {files(['results.csv', 'curves.csv', RESULT, CONFIG])}."]),
            claims_section(all_claims, session.options.scale),
            _behind_section(lines),
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
alone, or on clean labels: they show what is left to gain, and are not ranked. Means ± standard deviations over seeds,
which share the schedules of several searches: the deviation includes that of searches. The best of each column is
bold."""


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
    first = [noise for noise in compared.noises if not _ahead_of_search(compared, noise, LAST)]
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


def _ahead_of_search(compared: Compared, noise: str, column: str) -> list[tuple[str, float]]:
    """Return the methods, without oracles and other searches, whose mean is above S2E's, with the difference."""
    rows, own = compared.rows(noise), compared.row(noise, SEARCHED)
    mine = (own.get(column) or {}).get("mean")
    if mine is None:
        return []
    return [
        (row["method"], row[column]["mean"] - mine)
        for row in rows
        if not is_oracle(row["method"])
        and row["method"].partition(":")[0] not in (SEARCHED, NOISY_VALIDATION)
        and column in row
        and row[column]["mean"] is not None
        and row[column]["mean"] > mine
    ]


def behind(compared: Compared) -> list[str]:
    """Return a line for each column of each table in which another method is ahead of S2E, and by how much."""
    if not any(row["method"] == SEARCHED for row in compared.result["summary"]):
        return []
    return [
        f"{compared.title}, {noise_title(noise)}, {title}: "
        + ", ".join(f"{display_name(method)} by {100 * difference:.2f} points" for method, difference in ahead)
        for column, title in compared.columns.items()
        for noise in compared.noises
        if (ahead := sorted(_ahead_of_search(compared, noise, column), key=lambda pair: -pair[1]))
    ]


def _behind_section(lines: Sequence[str]) -> Section:
    title = "Where S2E is not first"
    if not lines:
        return Section(title, ["S2E is first in all columns of all tables of accuracies."])
    return Section(
        title, ["Another method is ahead of S2E in these columns:", "\n".join(f"- {line}" for line in lines)]
    )


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
    return [Claim("Figure 4", text, Verdict.of(holds=len(holds), of=len(rates)), found)]


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
    searched = f"{result.get('searches', 1)} searches of {' or '.join(map(str, sorted(searches)))} schedules each, "
    about = (
        f"{result['samples']['train']} training samples, {given}, {result['samples'].get('test', 0)} test samples; "
        f"{searched if searches else ''}{result['epochs']} epochs; share of wrong labels: "
        + ", ".join(
            f"{noise_title(noise)} {'unknown' if rate is None else f'{percent(rate)}%'}"
            for noise, rate in ((noise, result["noise_rates"][noise]) for noise in compared.noises)
        )
        + f". Details: [{compared.name}/]({compared.name})."
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
