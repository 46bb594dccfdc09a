"""Tables of results, printed on a terminal."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from s2e.engine import LAST_EPOCHS, VALIDATION
from s2e.ensembles import NETWORKS
from s2e.errors import class_title, counted, listed
from s2e.plots import display_name, noise_title
from s2e.workflows import HELD_OUT, NOISY_VALIDATION, PART, TEST, best_of_competitors, is_oracle, voters_title

FIGURE_WIDTH = len("97.83 ± 0.06")
"""Width of a column of means; wider numbers with their deviations may take two lines."""

MOST_CLASSES = 20
"""Names of classes that are printed in one line."""


def run_tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the table of a search or of a training."""
    return [result_table(result)]


def no_tables(result: Mapping[str, Any]) -> list[Table]:  # noqa: ARG001
    """Return no table."""
    return []


def result_table(result: Mapping[str, Any]) -> Table:
    """One row for each method of a run: accuracies over the last epochs and at the best epoch, and label precision."""
    part = "test" if "test" in result["samples"] else "valid"
    last = f"last_{LAST_EPOCHS}_epochs"
    table = Table(caption=_caption(result), caption_justify="left")
    table.add_column("method")
    table.add_column(_accuracy_header(result, part), justify="right")
    table.add_column("best epoch", justify="right")
    table.add_column("label precision", justify="right")
    for row in result["methods"]:
        name = f"{row['name']} (diverged)" if row["diverged"] else row["name"]
        precision = row["label_precision"]
        table.add_row(
            name,
            _percent(row[part][last]),
            _percent(row[part]["best_epoch"]),
            "unknown" if precision is None else _percent(precision),
        )
    if "classifier" in result:
        table.add_row(_classifier_name(result["classifier"]), _percent(result["classifier"][part]))
    return table


def _classifier_name(row: Mapping[str, Any]) -> str:
    return f"the classifier: {voters_title(row['networks'], row.get('votes', {NETWORKS: 1.0}))}"


def comparison_tables(result: Mapping[str, Any]) -> list[Table]:
    """One table for each noise setting of a comparison, one row for each method: means and deviations over seeds.

    The caption of the last table also lists the methods left out, the duration and the device.
    """
    settings = list(dict.fromkeys(row["noise"] for row in result["summary"]))
    tables = []
    for noise in settings:
        rows = [row for row in result["summary"] if row["noise"] == noise]
        caption = [_seeds(rows), _wrong_labels(result["noise_rates"][noise])]
        if noise == settings[-1]:
            caption += _given_to_searches(result)
            caption += [f"left out: {display_name(left['method'])}, {left['reason']}" for left in result["left_out"]]
            caption.append(f"{result['seconds']:.0f} s on {result['device']}")
        tables.append(_comparison_table(result, noise_title(noise), rows, "\n".join(caption)))
    return tables


def _comparison_table(result: Mapping[str, Any], title: str, rows: Sequence[Mapping[str, Any]], caption: str) -> Table:
    table = Table(title=Text(title), caption=Text(caption), caption_justify="left")  # Text: brackets are no markup
    columns = {_accuracy_header(result, result["evaluated_on"]): f"last_{LAST_EPOCHS}_epochs"}
    if any(row["chosen_epoch"]["mean"] is not None for row in rows):
        columns["epoch chosen on validation"] = "chosen_epoch"
    columns |= {"best epoch": "best_epoch", "label precision": "label_precision"}
    if part := result.get("test_part"):
        columns |= {
            f"test images {part}: {shown}": f"{PART}{name}"
            for shown, name in (("last epochs", f"last_{LAST_EPOCHS}_epochs"), ("best epoch", "best_epoch"))
        }
    table.add_column("method", overflow="fold")
    for header in columns:
        table.add_column(header, justify="right", min_width=FIGURE_WIDTH)
    best = best_of_competitors(rows, f"last_{LAST_EPOCHS}_epochs")
    for row in rows:
        name = display_name(row["method"])
        if row["diverged"]:
            name += f" ({row['diverged']} of {row['seeds']} diverged)"
        last, *others = (mean_and_std(row[key]) for key in columns.values())
        is_best = row[f"last_{LAST_EPOCHS}_epochs"]["mean"] == best and not is_oracle(row["method"])
        table.add_row(Text(name), Text(last, style="bold" if is_best else ""), *others)
    return table


def _given_to_searches(result: Mapping[str, Any]) -> list[str]:
    """Return lines about what searches and oracles receive."""
    lines, methods = [], {row["method"] for row in result["summary"]}
    searched = {row["method"] for row in result.get("search", [])}
    if searched - {NOISY_VALIDATION}:
        given = counted(result["samples"]["valid"], f"{result['validation']} validation sample")
        lines.append(f"{display_name('s2e')}: not given the noise rate; given {given}")
    if NOISY_VALIDATION in searched:
        lines.append(f"{display_name(NOISY_VALIDATION)}: not given the noise rate, and no clean sample")
    if result.get("searches", 1) > 1:
        lines.append(f"{result['searches']} searches for each noise setting, whose schedules are shared by the seeds")
    if any(map(is_oracle, methods)):
        lines.append("oracles use the true labels: they show what is left to gain, and are not ranked")
    return lines


def audit_tables(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], shown: int) -> list[Table]:
    """The most doubtful labels of a run, and the most frequent wrong labels."""
    issues = [row for row in rows if row["is_label_issue"]]
    are = "is" if summary["issues"] == 1 else "are"
    found = f"{summary['issues']} of {counted(summary['samples'], 'label')} {are} probably wrong"
    estimated = f"{found}; estimated share of wrong labels {_estimate(summary, 'noise_rate')}"
    if summary["message"]:
        estimated += f"\n{summary['message']}"
    if summary["doubtful_classes"]:
        names = listed(map(class_title, summary["doubtful_classes"]), MOST_CLASSES)
        estimated += f"\nprobably not learnt by the networks, so their labels are not audited: {names}"
    doubtful = Table(title=Text("most doubtful labels"), caption=Text(estimated), caption_justify="left")
    for column in ("row", "given", "suggested"):
        doubtful.add_column(column)
    doubtful.add_column("confidence", justify="right")
    for row in issues[:shown]:
        texts = (Text(str(row[name])) for name in ("id", "given_label", "suggested_label"))
        doubtful.add_row(*texts, _percent(row["confidence"]))
    names = summary["class_names"]
    mistakes = (
        (share, names[true], names[given])
        for true, shares in enumerate(summary["transition"])
        for given, share in enumerate(shares)
        if true != given
    )
    mistaken = Table(title=Text("most frequent wrong labels, estimated"))
    mistaken.add_column("true class")
    mistaken.add_column("given label")
    mistaken.add_column("share of the class", justify="right")
    for share, true, given in heapq.nlargest(shown, mistakes, key=lambda one: one[0]):
        mistaken.add_row(Text(true), Text(given), _percent(share))
    return [doubtful, mistaken] if issues and mistaken.row_count else [doubtful]


def _accuracy_header(result: Mapping[str, Any], part: str) -> str:
    score, labels = str(result.get("score", "accuracy")).replace("-", " "), result["validation"]
    clean = f"{score} on clean validation data"
    agreement = f"agreement with {labels} validation labels" if score == "accuracy" else f"{score} on {labels} labels"
    named = {
        TEST: f"test {score}",
        HELD_OUT: "agreement with noisy labels of held-out samples",
        VALIDATION: clean if labels == "clean" else agreement,
    }[part]
    return f"{named}, last {min(LAST_EPOCHS, result['epochs'])} epochs"


def mean_and_std(figure: Mapping[str, float | None]) -> str:
    """Write a mean with its deviation in percent, as 84.47 ± 0.31; a single training has no deviation."""
    mean, std = figure["mean"], figure["std"]
    if mean is None:
        return "unknown"
    return f"{100 * mean:.2f}" if std is None else f"{100 * mean:.2f} ± {100 * std:.2f}"


def _seeds(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe the numbers of a comparison."""
    seeds = sorted({row["seeds"] for row in rows})
    if seeds == [1]:
        return "in percent, one seed"
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"in percent, mean ± standard deviation over {count} seeds"


def _caption(result: Mapping[str, Any]) -> str:
    searched = ""
    if "search" in result:
        trials, planned = result["search"]["trials"], result["search"].get("planned_trials", 0)
        of_planned = f"{trials} of " if trials < planned else ""
        searched = f", {of_planned}{counted(max(trials, planned), 'schedule')} searched"
        if "method" in result["search"]:
            searched += f", best with {display_name(result['search']['method'])}"
    lines = [f"{_wrong_labels(result['noise_rate'])}{searched}, {result['seconds']:.0f} s on {result['device']}"]
    if "classifier" in result:
        lines.append(_size_and_speed(result["classifier"]))
    return "\n".join(lines)


def _estimate(values: Mapping[str, Any], name: str) -> str:
    """Write an estimate with its interval, as 20.31% (18.90% to 21.72%)."""
    low, high = values[f"{name}_interval"]
    return f"{_percent(values[name])} ({_percent(low)} to {_percent(high)})"


def _size_and_speed(row: Mapping[str, Any]) -> str:
    """Describe the size and the speed of a classifier."""
    size = f"networks of {row['bytes'] / 2**20:.1f} MiB, " if NETWORKS in row.get("votes", [NETWORKS]) else ""
    speed = f"{row['microseconds_per_sample']:.0f} µs for each sample on the CPU"
    return f"the classifier: {size}{speed}; rows above it are single networks"


def _wrong_labels(rate: float | None) -> str:
    return "share of wrong labels unknown" if rate is None else f"{_percent(rate)} of the training labels are wrong"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
