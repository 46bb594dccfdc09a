"""`s2e audit` and `s2e predict`: what they print and write, and refusals in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from command_line import s2e, save
from s2e.runs.directory import Run
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("work")


@pytest.fixture
def run(work: Path) -> str:
    trained = s2e("train", save(), "--method", "standard", "--epochs", "20", "--batch-size", "32", "--out", "run")
    assert trained.exit_code == 0, trained.stderr
    return "run"


def table(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_audit_prints_the_summary_or_json(run: str) -> None:
    shown = s2e("audit", run).stdout
    assert "are probably wrong" in shown
    assert table("run/label_issues.csv")[0]["id"] in shown
    printed = json.loads(s2e("audit", run, "--json").stdout)
    assert printed == {**json.loads(Path("run/audit.json").read_text()), "run": run}


def test_predict_writes_a_table(run: str) -> None:
    np.savez("new.npz", x=blobs().inputs[:9])
    done = s2e("predict", run, "new.npz", "-o", "out.csv")
    assert done.exit_code == 0, done.stderr
    assert "9 samples: " in done.stdout
    assert [row["id"] for row in table("out.csv")] == [str(row) for row in range(9)]


def test_bad_input_is_refused_in_one_line(run: str) -> None:
    np.savez("new.npz", x=blobs().inputs[:9])
    Run.create("unfinished", {"options": {"method": "coteaching"}})
    for arguments, mention in (
        (("audit", "absent"), "holds no run"),
        (("audit", "unfinished"), "holds no records of a finished search or training"),
        (("predict", "absent", "own.npz"), "holds no run"),
        (("predict", "unfinished", "own.npz"), "holds no trained classifier yet"),
        (("predict", run, "absent.npz"), "absent.npz"),
        (("predict", run, "new.npz", "-o", "no/such/folder.csv"), "`output` must be a file in an existing directory"),
    ):
        refused = s2e(*arguments)
        assert refused.exit_code == 2
        assert mention in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert not Path("predictions.csv").exists()


def test_samples_without_a_prediction_are_named_and_have_no_class(run: str) -> None:
    inputs = blobs().inputs[:9].copy()
    inputs[[3, 5]] = 3e38  # the outputs of the classifier overflow
    np.savez("new.npz", x=inputs)
    done = s2e("predict", run, "new.npz", "-o", "out.csv")
    assert done.exit_code == 0
    assert "2 of 9 samples have no prediction" in done.stderr
    assert done.stderr.endswith(": 3, 5\n")
    assert [row["predicted"] == "" for row in table("out.csv")] == [row in (3, 5) for row in range(9)]
    assert {value for row in (3, 5) for name, value in table("out.csv")[row].items() if name != "id"} == {""}


def test_a_diverged_classifier_predicts_nothing(work: Path) -> None:
    diverging = ["--method", "standard", "--epochs", "2", "--batch-size", "32", "--learning-rate", "1e30"]
    assert s2e("train", save(), *diverging, "--out", "run").exit_code == 0
    np.savez("new.npz", x=blobs().inputs[:9])
    Path("out.csv").write_text("old")
    refused = s2e("predict", "run", "new.npz", "-o", "out.csv")
    assert refused.exit_code == 2
    assert "no sample of 'new.npz' has a prediction" in refused.stderr
    assert Path("out.csv").read_text() == "old"


def test_predictions_that_cannot_be_written_leave_the_old_file(run: str) -> None:
    np.savez("new.npz", x=blobs().inputs[:9])
    refused = s2e("predict", run, "new.npz", "-o", "/dev/full")
    assert refused.exit_code == 2
    assert "No space left on device" in refused.stderr
    assert Path("/dev/full").is_char_device()


def test_a_cleaned_table_has_its_columns_with_weights_and_suggestions(work: Path) -> None:
    data = blobs()
    rows = [
        {"name": f"row {index}", **{f"x{at}": value for at, value in enumerate(row)}, "kind": data.class_names[label]}
        for index, (row, label) in enumerate(zip(data.inputs.tolist(), data.labels.tolist(), strict=True))
    ]
    with Path("own.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    training = ["--method", "standard", "--epochs", "5", "--batch-size", "32", "--out", "run"]
    done = s2e("train", "own.csv", "--label", "kind", "--id", "name", *training)
    assert done.exit_code == 0, done.stderr
    cleaned = s2e("audit", "run", "--cleaned", "cleaned.csv")
    assert cleaned.exit_code == 0, cleaned.stderr
    assert "cleaned data: cleaned.csv" in cleaned.stderr + cleaned.stdout
    found, issues = table("cleaned.csv"), {row["id"]: row for row in table("run/label_issues.csv")}
    assert [row["name"] for row in found] == [row["name"] for row in rows]
    assert [row["kind"] for row in found] == [row["kind"] for row in rows]
    for row in found:
        assert row["suggested_label"] == issues[row["name"]]["suggested"]
        assert float(row["sample_weight"]) == pytest.approx(float(issues[row["name"]]["quality"]), abs=1e-6)


def test_cleaned_arrays_are_ids_labels_and_weights(run: str) -> None:
    assert s2e("audit", run, "--cleaned", "cleaned.npz").exit_code == 0
    with np.load("cleaned.npz") as found:
        assert set(found) == {"id", "label", "sample_weight", "suggested_label", "suggested_weight"}
        assert len(found["id"]) == len(table("run/label_issues.csv"))
    refused = s2e("audit", run, "--cleaned", "cleaned.xlsx")
    assert refused.exit_code == 2
    assert "`cleaned` must be a .csv" in refused.stderr
