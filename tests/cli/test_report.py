"""`s2e report` on the command line."""

from __future__ import annotations

import shutil

import report_runs as runs
from command_line import assert_refused, s2e


def test_the_page_is_written_into_the_first_run_or_to_the_given_file(tmp_path):
    path, other = runs.copy_of(runs.training, tmp_path), tmp_path / "page.html"
    done = s2e("report", str(path))
    assert done.exit_code == 0
    summary, last = done.stdout.splitlines()
    assert " of 90 labels " in summary
    assert last == f"report: {path / 'report.html'}"
    assert s2e("report", str(path), "-o", str(other)).exit_code == 0
    own, link = (path / "report.html").read_text(), 'href="label_issues.csv"'
    assert link in own
    assert own.replace(link, f'href="{path.name}/label_issues.csv"') == other.read_text()
    assert len((path / "label_issues.csv").read_text().splitlines()) == 91


def test_invalid_runs_and_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(s2e("report", "missing"), "holds no run")
    path = shutil.copytree(runs.training(), tmp_path / "copy")
    assert_refused(s2e("report", str(path), "--out", str(tmp_path)), "is a directory")
    assert_refused(s2e("report", str(path), "--out", str(tmp_path / "no" / "page.html")), "No such file or directory")
    (path / "config.json").write_text('{"command": "search"}')
    assert_refused(s2e("report", str(path)), "is not the configuration of a run")
