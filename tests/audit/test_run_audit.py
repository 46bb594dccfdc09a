"""Audited runs: wrong labels found, listed by the IDs of their file, and summarised."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from s2e.audit.evidence import Evidence
from s2e.audit.label_model import audit
from s2e.audit.run_audit import ISSUES, RECORDS, SUMMARY, AuditedRun, audit_run, write_audit
from s2e.errors import UnreadableData
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.workflows.train import train
from small_runs import save_clusters, train_options
from small_tasks import blobs

DATA = blobs(480)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A training on a table of clusters, of which a known third has the label of the next class."""
    folder = tmp_path_factory.mktemp("audited")
    with (folder / "own.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *"abcdef", "kind"])
        for row, (values, label) in enumerate(zip(DATA.inputs, DATA.labels, strict=True)):
            writer.writerow([f"row-{row}", *values, DATA.class_names[label]])
    options = train_options(
        str(folder / "own.csv"), label="kind", id_column="name", epochs=60, learning_rate=1e-3, folds=4
    )
    return train(options, RunLocation(folder / "run"))


@pytest.fixture(scope="module")
def audited(run: Run) -> AuditedRun:
    return audit_run(run)


def test_wrong_labels_come_first_with_the_ids_of_the_file(audited: AuditedRun) -> None:
    rows = audited.table()
    order = [int(row["id"].removeprefix("row-")) for row in rows]
    assert sorted(order) == list(range(480))  # held-out samples with noisy labels are audited too
    assert [row["given_label"] for row in rows] == [DATA.class_names[label] for label in DATA.labels[order]]
    assert [row["label_quality"] for row in rows] == sorted(row["label_quality"] for row in rows)
    wrong = (DATA.labels != DATA.clean_labels)[order]
    count = int(wrong.sum())
    assert wrong[:count].mean() > 0.9
    flagged = np.array([row["is_label_issue"] for row in rows])
    assert (flagged & wrong).sum() / flagged.sum() > 0.85
    assert (flagged & wrong).sum() / count > 0.85
    correct = np.array([row["suggested_label"] for row in rows]) == np.array(DATA.class_names)[DATA.clean_labels[order]]
    assert correct[flagged].mean() > 0.85


def test_summary_estimates_the_noise(audited: AuditedRun) -> None:
    summary = audited.summary()
    assert summary["noise_rate"] == pytest.approx((DATA.labels != DATA.clean_labels).mean(), abs=0.06)
    transition = np.array(summary["transition"])
    np.testing.assert_allclose(transition.sum(axis=1), 1)
    for label in range(4):  # the next class is the most frequent error
        assert np.delete(transition[label], label).max() == transition[label, (label + 1) % 4]
    assert (summary["samples"], summary["issues"]) == (480, int(audited.audit.issues.sum()))
    assert (summary["class_names"], summary["doubtful_classes"]) == (list(DATA.class_names), [])
    low, high = summary["noise_rate_interval"]
    assert low <= (DATA.labels != DATA.clean_labels).mean() <= high
    assert summary["accuracy_interval"][0] <= summary["accuracy"] <= summary["accuracy_interval"][1]
    assert summary["message"] == ""


def test_written_files_hold_the_table_and_the_summary(run: Run, audited: AuditedRun) -> None:
    write_audit(run, audited)
    assert run.read_json(SUMMARY) == audited.summary()
    with (run.path / ISSUES).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [row["id"] for row in audited.table()]
    columns = ["id", "given_label", "suggested_label", "confidence", "label_quality", "is_label_issue"]
    assert list(rows[0]) == columns
    assert {row["is_label_issue"] for row in rows} == {"True", "False"}


def test_audit_is_that_of_the_records(run: Run, audited: AuditedRun) -> None:
    expected = audit(Evidence.from_records(run.read_arrays(RECORDS)))
    np.testing.assert_array_equal(audited.audit.quality, expected.quality)


def test_audit_of_forward_correction_ignores_its_losses_and_numbers_rows_without_ids(tmp_path: Path) -> None:
    options = train_options(save_clusters(tmp_path / "own.npz", test=False), method="f-correction", schedule="")
    run = train(options, RunLocation(tmp_path / "run"))
    records = run.read_arrays(RECORDS)
    evidence = Evidence.from_records(records)
    found = audit_run(run)
    expected = audit(evidence.without_losses())
    np.testing.assert_array_equal(found.audit.quality, expected.quality)
    assert found.ids == [str(row) for row in records["rows"]]


def test_runs_without_records_are_refused(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"options": {"method": "coteaching"}})
    with pytest.raises(UnreadableData, match="holds no records of a finished search or training"):
        audit_run(run)
    run.write_arrays(RECORDS, {"seen": np.zeros((1, 1))})
    with pytest.raises(UnreadableData, match="holds records of an older version"):
        audit_run(run)
