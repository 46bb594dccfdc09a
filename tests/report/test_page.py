"""The page as HTML."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import report_runs as runs
from s2e.audit.run_audit import AuditedRun, audit_run
from s2e.errors import InvalidInput, UnreadableData
from s2e.report import build_report
from s2e.report.label_numbers import MAX_CLASSES, noise_matrix
from s2e.report.page import repeated_command
from s2e.report.run_numbers import read_numbers
from s2e.runs.directory import Run


class Headings(HTMLParser):
    """Collects the levels of the headings and all URLs."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.levels: list[int] = []
        self.urls: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        self.urls += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]


def page_of(*paths: Path) -> str:
    return build_report([Run.open(path) for path in paths]).html


@pytest.fixture(scope="module")
def page_of_all() -> str:
    return page_of(runs.images(), runs.table(), runs.training(), runs.comparison())


@pytest.mark.parametrize("single", [True, False])
def test_headings_are_nested_and_nothing_is_loaded(single, page_of_all):
    page = Headings(page_of(runs.images()) if single else page_of_all)
    assert page.levels[0] == 1
    assert page.levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(page.levels, page.levels[1:], strict=False))
    assert all(url.startswith(("data:", "#")) for url in page.urls)


def test_text_of_users_is_escaped(page_of_all):
    assert runs.MARKUP not in page_of_all
    assert "&lt;script&gt;document.title=" in page_of_all
    assert page_of_all.count("<script") == 1


def test_the_same_runs_give_the_same_page(page_of_all):
    assert page_of(runs.images(), runs.table(), runs.training(), runs.comparison()) == page_of_all


def test_labels_of_a_comparison_are_not_audited():
    page = page_of(runs.comparison())
    assert "its labels cannot be audited" in page
    assert '<div class="review"' not in page


def test_an_unfinished_run_has_a_page(tmp_path):
    path = runs.copy_of(runs.images, tmp_path)
    for name in ("result.json", "curves.npz", "dynamics.npz", "model.safetensors", "schedule.json"):
        (path / name).unlink()
    report = build_report([Run.open(path)])
    (summary,) = report.summaries
    assert summary.startswith("This run is not finished. The best of 12 schedules so far has a validation accuracy of ")
    assert "The final training is not finished" in report.html
    assert "Best validation accuracy so far" in report.html
    (path / "study.db").unlink()
    assert build_report([Run.open(path)]).summaries == ("This run is not finished and has no results yet.",)


def test_the_last_row_of_accuracies_is_the_classifier(page_of_all):
    page = page_of(runs.images())
    (row,) = re.findall(r'<tr class="classifier">.*?</tr>', page, re.DOTALL)
    voted = Run.open(runs.images()).read_json("result.json")["classifier"]
    assert "The classifier: " in row
    assert f">{100 * voted['test']:.1f}%<" in row
    assert page.index("S2E</th>") < page.index(row)
    assert "The last row is the classifier, which <code>s2e predict</code> uses; rows above it are" in page
    assert 'class="classifier"' not in page_of(runs.training())
    overview = page_of_all[: page_of_all.index("<nav")]
    assert ">Classifier</th>" in overview
    assert f">{100 * voted['test']:.1f}%</td>" in overview


def test_a_selection_that_differs_from_the_best_trial_is_explained():
    run = Run.open(runs.images())
    (setting,) = read_numbers(run).settings
    (search,) = setting.searches
    (selected,) = (trial.accuracy for trial in search.trials if trial.number == search.selected)
    explained = "lowest expected error under a model of all trials" in page_of(runs.images())
    assert explained == (selected < search.best_so_far[-1])


def test_labels_to_review_come_first(page_of_all):
    page = page_of(runs.images())
    places = [
        page.index(f'id="run-1-{name}"') for name in ("review", "labels", "accuracy", "schedule", "search", "about")
    ]
    assert places == sorted(places)


def test_the_command_with_decisions_repeats_the_run():
    numbers = read_numbers(Run.open(runs.table()))
    words = shlex.split(repeated_command(numbers, "my decisions.csv"))
    assert words[:2] == ["s2e", "search"]
    assert words[-2:] == ["--reviewed", "my decisions.csv"]
    assert [words[words.index(flag) + 1] for flag in ("--label", "--id", "--epochs", "--trials")] == [
        "kind",
        "name",
        "4",
        "12",
    ]
    assert "--learning-rate" not in words
    noisy = shlex.split(repeated_command(read_numbers(Run.open(runs.images())), "d.csv"))
    assert noisy[noisy.index("--noise") + 1] == "symmetric:0.3"


def test_columns_interval_and_message_are_shown_where_the_run_has_them(tmp_path, monkeypatch):
    path = runs.copy_of(runs.table, tmp_path)
    (path / "columns.json").unlink()
    assert "Encoding</th>" not in page_of(path)
    column = {"name": runs.MARKUP, "kind": "left out", "encoding": "it is named in --drop", "inputs": 0}
    (path / "columns.json").write_text(json.dumps({"columns": [column]}))
    summary = AuditedRun.summary
    more = {"noise_rate_interval": [0.12, 0.34], "message": "Audit of <b>90</b> labels."}
    monkeypatch.setattr(AuditedRun, "summary", lambda self: {**summary(self), **more})
    page = page_of(path)
    assert "Encoding</th>" in page
    assert runs.MARKUP not in page
    assert "(12.0% to 34.0%)" in page
    assert "Audit of &lt;b&gt;90&lt;/b&gt; labels." in page
    (path / "columns.json").write_text('{"columns": {"name": 1}}')
    with pytest.raises(UnreadableData, match="must be a list of objects"):
        page_of(path)


def test_of_many_classes_the_matrix_shows_those_with_the_most_errors():
    audited = audit_run(Run.open(runs.training()))
    classes = MAX_CLASSES + 5
    transition = np.eye(classes)
    for row in range(5, classes):  # the first five classes have no errors
        transition[row, row], transition[row, 5 + (row - 4) % (classes - 5)] = 0.9, 0.1
    names = tuple(f"class {index}" for index in range(classes))
    changed = replace(audited, class_names=names, audit=replace(audited.audit, transition=transition))
    shown = noise_matrix(changed)
    assert (shown.names, shown.total) == (names[5:], classes)
    np.testing.assert_array_equal(shown.rows, transition[5:, 5:])


def test_invalid_arguments_are_refused():
    with pytest.raises(InvalidInput, match="at least one run"):
        build_report([])
    with pytest.raises(InvalidInput, match="must not be negative"):
        build_report([Run.open(runs.training())], samples=-1)
