"""`s2e audit`: the labels of a run judged from its records, listed under the names of their file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from command_line import s2e, save
from s2e.audit.evidence import Evidence
from s2e.audit.label_model import audit
from s2e.audit.run_audit import ISSUES, SUMMARY, audit_run
from s2e.runs.classifier_file import read_classifier
from s2e.runs.directory import Run
from small_tasks import blobs

TRAINED = ["--epochs", "30", "--batch-size", "32", "--method", "coteaching", "--schedule", "coteaching:0.3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A training on clusters of which a known third has the label of the next class, with the names of a table."""
    folder = tmp_path_factory.mktemp("audited")
    data = blobs(480)
    with (folder / "own.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *"abcdef", "kind"])
        for row, (values, label) in enumerate(zip(data.inputs, data.labels, strict=True)):
            writer.writerow([f"row-{row}", *values, data.class_names[label]])
    result = s2e(
        "train", str(folder / "own.csv"), "--label", "kind", "--id", "name", *TRAINED, "--out", str(folder / "run")
    )
    assert result.exit_code == 0, result.stderr
    return Run(folder / "run")


def listed(run):
    with (run.path / ISSUES).open(newline="") as file:
        return list(csv.DictReader(file))


def test_wrong_labels_come_first_and_are_named_as_in_the_file(run):
    result = s2e("audit", str(run.path))
    assert result.exit_code == 0, result.stderr
    rows, data = listed(run), blobs(480)
    place = [int(row["id"].removeprefix("row-")) for row in rows]
    wrong = (data.labels != data.clean_labels)[place]
    assert sorted(place) == list(range(480))  # those held out for validation, with labels as doubtful, are judged too
    assert [row["given"] for row in rows] == [data.class_names[label] for label in data.labels[place]]
    count = int(wrong.sum())
    assert wrong[:count].mean() > 0.9
    flagged = np.array([row["issue"] == "yes" for row in rows])
    assert (flagged & wrong).sum() / flagged.sum() > 0.85
    assert (flagged & wrong).sum() / count > 0.85
    right = np.array([row["suggested"] for row in rows]) == np.array(data.class_names)[data.clean_labels[place]]
    assert right[flagged].mean() > 0.85
    assert [float(row["quality"]) for row in rows] == sorted(float(row["quality"]) for row in rows)


def test_the_summary_estimates_the_noise_that_is_there(run):
    s2e("audit", str(run.path))
    summary = json.loads((run.path / SUMMARY).read_text())
    data = blobs(480)
    rows = run.read_arrays("dynamics.npz")["rows"]
    true = (data.labels != data.clean_labels)[rows].mean()
    assert summary["noise_rate"] == pytest.approx(true, abs=0.06)
    assert summary["class_names"] == list(data.class_names)
    transition = np.array(summary["transition"])
    np.testing.assert_allclose(transition.sum(axis=1), 1)
    for label in range(4):  # the next class is the likeliest mistake
        assert np.delete(transition[label], label).max() == transition[label, (label + 1) % 4]
    assert summary["issues"] == sum(row["issue"] == "yes" for row in listed(run))
    assert summary["samples"] == len(rows)


def test_what_is_written_is_the_audit_of_the_records(run):
    records = run.read_arrays("dynamics.npz")
    names = ("seen", "kept", "loss", "labels", "probabilities")
    expected = audit(Evidence.from_dynamics(**{name: records[name] for name in names}))
    found = audit_run(run)
    np.testing.assert_array_equal(found.verdicts.quality, expected.quality)
    assert found.class_names == read_classifier(run).class_names


def test_it_prints_the_most_doubtful_or_everything_as_json(run):
    shown = s2e("audit", str(run.path)).stdout
    first = listed(run)[0]
    assert first["id"] in shown
    assert "are probably wrong" in shown
    told = json.loads(s2e("audit", str(run.path), "--json").stdout)
    assert told == {**json.loads((run.path / SUMMARY).read_text()), "run": str(run.path)}


def test_rows_without_names_are_numbered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert s2e("train", save(), *TRAINED[:-4], "--method", "standard", "--out", "run").exit_code == 0
    assert s2e("audit", "run").exit_code == 0
    rows = Run("run").read_arrays("dynamics.npz")["rows"]
    assert sorted(int(row["id"]) for row in listed(Run("run"))) == sorted(rows.tolist())


def test_of_forward_correction_the_networks_are_asked_and_not_its_losses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert s2e("train", save(), *TRAINED[:-4], "--method", "f-correction", "--out", "run").exit_code == 0
    records = Run("run").read_arrays("dynamics.npz")
    names = ("seen", "kept", "loss", "labels", "probabilities")
    evidence = Evidence.from_dynamics(**{name: records[name] for name in names})
    expected = audit(
        Evidence(evidence.labels, evidence.probabilities, evidence.kept, np.full_like(evidence.loss, np.nan))
    )
    np.testing.assert_array_equal(audit_run(Run("run")).verdicts.quality, expected.quality)


def test_runs_without_records_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Run.create("run", {"options": {"method": "coteaching"}})
    refused = s2e("audit", "run")
    assert refused.exit_code == 2
    assert "holds no finished training" in refused.stderr
    Run("run").write_arrays("dynamics.npz", {"seen": np.zeros((1, 1))})
    assert "kept too few records" in s2e("audit", "run").stderr
    assert not Path("run", ISSUES).exists()
