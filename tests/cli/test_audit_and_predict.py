"""`s2e audit` and `s2e predict`: what they print and write, and refusals in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command_line import TINY, s2e, save
from s2e.cli.tables import audit_tables
from s2e.data.table_files import read_table
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
    assert "accuracy" not in shown  # its interval is not reliable
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


def test_samples_without_a_prediction_are_named_and_have_no_class(work: Path) -> None:
    images = blobs().inputs.reshape(-1, 2, 3)
    data = save(x_train=images)
    trained = s2e("train", data, "--method", "standard", "--epochs", "1", "--batch-size", "32", "--out", "run")
    assert trained.exit_code == 0
    inputs = images[:9].copy()
    inputs[[3, 5]] = np.inf
    np.savez("new.npz", x=inputs)
    done = s2e("predict", "run", "new.npz", "-o", "out.csv")
    assert done.exit_code == 0
    assert "2 of 9 samples have no prediction" in done.stderr
    assert done.stderr.endswith(": 3, 5\n")
    assert [row["predicted_label"] == "" for row in table("out.csv")] == [row in (3, 5) for row in range(9)]
    empty = {"predicted_label": "", "confidence": ""}
    assert all(table("out.csv")[row] == {"id": str(row), **empty} for row in (3, 5))


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


# Tables


def test_predictions_are_written_in_the_format_of_the_ending(run: str) -> None:
    np.savez("new.npz", x=blobs().inputs[:9])
    for name in ("out.csv", "out.parquet", "out.jsonl"):
        done = s2e("predict", run, "new.npz", "-o", name, "--probabilities")
        assert done.exit_code == 0, done.stderr
    expected = pd.read_csv("out.csv")
    assert list(expected) == ["id", "predicted_label", "confidence", "p(0)", "p(1)", "p(2)", "p(3)"]
    found = pd.read_parquet("out.parquet")
    assert found["predicted_label"].tolist() == expected["predicted_label"].tolist()
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["confidence"] for row in rows] == expected["confidence"].tolist() == found["confidence"].tolist()


def test_standard_output_receives_the_table_alone(run: str) -> None:
    np.savez("new.npz", x=blobs().inputs[:9])
    s2e("predict", run, "new.npz", "-o", "out.csv")
    done = s2e("predict", run, "new.npz", "-o", "-")
    assert (done.exit_code, done.stdout) == (0, Path("out.csv").read_text())
    assert not Path("-").exists()
    audited = s2e("audit", run, "--top", "3", "-o", "-")
    assert audited.stdout.splitlines()[1:] == Path("run/label_issues.csv").read_text().splitlines()[1:4]


def test_accuracy_is_printed_where_labels_are_given(run: str) -> None:
    np.savez("new.npz", x=blobs().inputs[:9], y=blobs().labels[:9])
    printed = json.loads(s2e("predict", run, "new.npz", "--json").stdout)
    assert (printed["samples"], printed["labelled"], printed["output"]) == (9, 9, "predictions.csv")
    assert sum(printed["predicted"].values()) == 9
    shown = s2e("predict", run, "new.npz").stdout
    assert f"accuracy: {printed['accuracy']:.2%} of 9 given labels\n" in shown
    assert "9 samples: class " in shown
    np.savez("one.npz", x=blobs().inputs[:1], y=blobs().labels[:1])
    assert "1 sample: class " in s2e("predict", run, "one.npz").stdout


def test_audit_writes_the_most_doubtful_labels(run: str) -> None:
    done = s2e("audit", run, "--top", "5", "-o", "doubtful.parquet")
    assert done.exit_code == 0, done.stderr
    written, all_labels = pd.read_parquet("doubtful.parquet"), pd.read_csv("run/label_issues.csv")
    assert list(written) == list(all_labels)
    assert written["id"].astype(int).tolist() == all_labels["id"].tolist()[:5]
    assert "first 5 labels: doubtful.parquet\n" in done.stdout


def test_other_endings_are_refused_before_any_work(run: str) -> None:
    for arguments in (("predict", "absent", "absent.npz"), ("audit", "absent")):
        refused = s2e(*arguments, "-o", "out.xlsx")
        assert refused.exit_code == 2
        assert "`output` must end with .csv, .parquet or .jsonl" in refused.stderr
    both = s2e("audit", run, "--json", "-o", "-")
    assert (both.exit_code, both.stdout) == (2, "")


def test_comparisons_are_refused_with_what_to_do() -> None:
    assert s2e("compare", save(), *TINY, "--methods", "standard", "--seeds", "1", "--out", "compared").exit_code == 0
    for arguments in (("audit", "compared"), ("predict", "compared", "own.npz")):
        refused = s2e(*arguments)
        assert refused.exit_code == 2
        assert refused.stderr.endswith("keeps no classifier; make one with s2e train, or with: s2e search own.npz\n")
    assert s2e("report", "compared").exit_code == 0


def test_one_doubtful_label_is_singular() -> None:
    summary = {"samples": 2, "issues": 1, "noise_rate": 0.5, "noise_rate_interval": [0.2, 0.8], "accuracy": None}
    summary |= {"message": "", "doubtful_classes": ["3"], "class_names": ["3", "4"]}
    (doubtful, *_) = audit_tables({**summary, "transition": [[1, 0], [0, 1]]}, [], 3)
    assert str(doubtful.caption).startswith("1 of 2 labels is probably wrong;")
    assert str(doubtful.caption).endswith("not audited: class 3")


def test_of_many_classes_only_some_are_named_and_no_empty_table_is_printed() -> None:
    row = {"id": 0, "given_label": "a", "suggested_label": "b", "confidence": 0.5, "is_label_issue": True}
    summary = {"samples": 9, "issues": 1, "noise_rate": 0.5, "noise_rate_interval": [0.2, 0.8], "accuracy": None}
    summary |= {"message": "", "doubtful_classes": [f"n{index}" for index in range(21)], "class_names": []}
    (doubtful,) = audit_tables({**summary, "transition": []}, [row], 3)
    assert str(doubtful.caption).endswith("n18, n19, …")


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
        assert row["suggested_label"] == issues[row["name"]]["suggested_label"]
        assert float(row["sample_weight"]) == pytest.approx(float(issues[row["name"]]["label_quality"]), abs=1e-6)


def test_a_cleaned_table_keeps_values_and_types_in_every_format(work: Path) -> None:
    data = blobs()
    frame = pd.DataFrame(data.inputs, columns=list("abcdef")).astype(float).round(3)
    frame = frame.assign(note="-see below", rank=7, kind=data.labels)
    frame.loc[3, "rank"] = None
    frame.to_json("own.jsonl", orient="records", lines=True)
    training = ["--method", "standard", "--epochs", "5", "--batch-size", "32", "--out", "run"]
    assert s2e("train", "own.jsonl", "--label", "kind", *training).exit_code == 0
    given = read_table("own.jsonl")
    for suffix in (".jsonl", ".ndjson.gz", ".csv", ".csv.gz", ".tsv", ".parquet"):
        done = s2e("audit", "run", "--cleaned", f"cleaned{suffix}")
        assert done.exit_code == 0, done.stderr
        found = read_table(f"cleaned{suffix}")
        pd.testing.assert_frame_equal(found[given.columns], given)
        assert list(found.columns) == [*given.columns, "sample_weight", "suggested_label", "suggested_weight"]
        assert found["suggested_label"].dtype == given["kind"].dtype
    assert '"rank": 7,' in Path("cleaned.jsonl").read_text().splitlines()[0]
    assert s2e("audit", "run", "--cleaned", "cleaned.npz").exit_code == 0
    again = ["--label", "suggested_label", "--drop", "kind,sample_weight,suggested_weight"]
    assert s2e("train", "cleaned.jsonl", *again, *training[:-1], "again").exit_code == 0


def test_cleaned_arrays_have_the_suggested_labels_and_can_be_trained_on() -> None:
    training = ["--method", "standard", "--epochs", "5", "--batch-size", "32"]
    for name, changes in (
        ("numbers", {}),
        ("texts", {"y_train": np.array(blobs().class_names)[blobs().labels].astype("S")}),
        ("named", {"class_names": np.array(blobs().class_names), "x_test": blobs().inputs, "y_test": blobs().labels}),
    ):
        own = save(f"{name}.npz", ids=np.arange(len(blobs())), **changes)
        assert s2e("train", own, *training, "--out", name).exit_code == 0
        done = s2e("audit", name, "--cleaned", f"cleaned-{name}.npz")
        assert done.exit_code == 0, done.stderr
        issues = {int(row["id"]): row for row in table(f"{name}/label_issues.csv")}
        with np.load(own) as given, np.load(f"cleaned-{name}.npz") as found:
            assert set(found) == {*given, "given_label", "sample_weight", "suggested_weight"} - {"ids"}
            for key in set(given) - {"ids", "y_train"}:
                np.testing.assert_array_equal(found[key], given[key])
            np.testing.assert_array_equal(found["given_label"], given["y_train"].astype(found["given_label"].dtype))
            names = given["class_names"][found["y_train"]] if "class_names" in given else found["y_train"]
            assert names.astype(str).tolist() == [issues[row]["suggested_label"] for row in range(len(names))]
            qualities = [float(issues[row]["label_quality"]) for row in range(len(names))]
            np.testing.assert_allclose(found["sample_weight"], qualities, atol=1e-6)
        assert s2e("train", f"cleaned-{name}.npz", *training, "--out", f"{name}-again").exit_code == 0


def test_cleaned_arrays_as_a_table_are_ids_labels_and_weights(run: str) -> None:
    assert s2e("audit", run, "--cleaned", "cleaned.csv").exit_code == 0
    found = pd.read_csv("cleaned.csv")
    assert list(found) == ["id", "given_label", "sample_weight", "suggested_label", "suggested_weight"]
    assert len(found) == len(table("run/label_issues.csv"))


def test_data_that_have_changed_since_the_training_are_not_cleaned(run: str) -> None:
    for change, mention in (
        (lambda: save(x_train=blobs().inputs[:40], y_train=blobs().labels[:40]), "with more than "),
        (lambda: save(y_train=blobs().labels % 2), "with 4 classes, but it has 2"),
        (lambda: Path("own.npz").unlink(), "but it does not exist"),
    ):
        change()
        refused = s2e("audit", run, "--cleaned", "cleaned.npz")
        assert refused.exit_code == 2
        assert "must be the file that the run was trained on, " in refused.stderr
        assert mention in refused.stderr
    refused = s2e("audit", run, "--cleaned", "cleaned.xlsx")
    assert refused.exit_code == 2
    assert "`cleaned` must be a .csv" in refused.stderr
