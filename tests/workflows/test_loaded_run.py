"""A run in Python: the same predictions through every kind of input, its study, curves and audit."""

from __future__ import annotations

import shutil
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest
import torch

import s2e
from image_files import flat
from image_files import save as save_image
from s2e.audit import audit_run
from s2e.errors import InvalidInput, InvalidType, UnreadableData
from s2e.runs.directory import Run
from s2e.runs.session import RunLocation
from s2e.workflows.compare import compare
from s2e.workflows.predict import predict
from s2e.workflows.search import search
from s2e.workflows.train import train
from small_runs import save_clusters, search_options, train_options
from small_tasks import blobs

pytestmark = pytest.mark.usefixtures("few_trees")


def table_of(rows: int = 192) -> pd.DataFrame:
    data = blobs()
    frame = pd.DataFrame(data.inputs[:rows], columns=list("abcdef"))
    return frame.assign(name=[f"sample {row}" for row in range(rows)], kind=data.labels[:rows] + 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loaded")
    table_of().to_csv(path / "own.csv", index=False)
    return path


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    options = search_options(str(folder / "own.csv"), label="kind", id_column="name", restarts=1)
    return search(options, RunLocation(folder / "run"))


def test_frames_paths_and_the_command_predict_the_same(run: Run, folder: Path) -> None:
    loaded = s2e.load(run.path)
    classifier, frame = loaded.classifier, table_of()
    expected = predict(run, folder / "own.csv")
    np.testing.assert_array_equal(classifier.classes_, [3, 4, 5, 6])
    for samples in (frame, frame.drop(columns=["kind", "name"]), folder / "own.csv", str(folder / "own.csv")):
        np.testing.assert_allclose(classifier.predict_proba(samples), expected.probabilities, atol=1e-6)
    assert classifier.predict(frame).astype(str).tolist() == expected.predicted
    assert len(classifier.networks_) >= 2
    assert all(isinstance(network, torch.nn.Module) and not network.training for network in classifier.networks_)
    with pytest.raises(InvalidType, match=r"`X` must be a DataFrame with the columns .* but got ndarray"):
        classifier.predict(frame.to_numpy())


def test_study_curves_schedule_and_results_are_those_of_the_run(run: Run) -> None:
    loaded = s2e.load(str(run.path))
    assert repr(loaded) == f"s2e.load({str(run.path)!r})"
    assert isinstance(loaded.study, optuna.Study)
    assert len(loaded.study.trials) == loaded.result["search"]["trials"] == 4
    assert loaded.config["options"]["label"] == "kind"
    assert loaded.schedule.tolist() == run.read_json("schedule.json")["keep_rates"]
    assert loaded.curves.keys() >= {"Standard", "S2E"}
    np.testing.assert_array_equal(loaded.curves["S2E"]["loss"], run.read_arrays("curves.npz")["S2E/loss"])


def test_audit_is_that_of_the_command_and_writes_nothing(run: Run) -> None:
    before = {path.name for path in run.path.iterdir()}
    pd.testing.assert_frame_equal(s2e.load(run.path).audit(), pd.DataFrame(audit_run(run).table()))
    assert {path.name for path in run.path.iterdir()} == before


def test_estimator_of_a_run_predicts_and_has_its_audit(run: Run) -> None:
    loaded, fitted, frame = s2e.load(run.path), s2e.S2EClassifier.load(run.path), table_of()
    np.testing.assert_array_equal(fitted.predict_proba(frame), loaded.classifier.predict_proba(frame))
    assert fitted.score(frame, frame["kind"]) == np.mean(fitted.predict(frame) == frame["kind"])
    issues = fitted.find_label_issues()
    assert issues.index.tolist() == frame["name"].tolist()
    assert issues["given_label"].tolist() == frame["kind"].tolist()
    assert issues["is_label_issue"].sum() == loaded.audited.summary()["issues"]
    assert (fitted.n_trials, fitted.epochs, fitted.random_state, fitted.status_) == (4, 4, 0, "complete")
    assert fitted.validation_accuracy_ == loaded.result["methods"][-1]["valid"]["last_10_epochs"]
    with pytest.raises(InvalidInput, match="must be loaded from its directory"):
        fitted.save(run.path / "copy.safetensors")


def test_arrays_of_a_run_without_a_table(tmp_path: Path) -> None:
    run = train(train_options(save_clusters(tmp_path / "own.npz")), RunLocation(tmp_path / "run"))
    loaded = s2e.load(run.path)
    np.savez(tmp_path / "new.npz", x=blobs().inputs[:9])
    expected = predict(run, tmp_path / "new.npz")
    for samples in (blobs().inputs[:9], blobs().inputs[:9].tolist(), tmp_path / "new.npz"):
        np.testing.assert_allclose(loaded.classifier.predict_proba(samples), expected.probabilities, atol=1e-6)
    assert loaded.classifier.predict(blobs().inputs[:9]).tolist() == expected.predicted
    with pytest.raises(InvalidInput, match=r"`X` must hold samples of shape \(6,\)"):
        loaded.classifier.predict(np.zeros((2, 5)))
    with pytest.raises(InvalidInput, match="must be a run of s2e search to have a study"):
        _ = loaded.study
    assert s2e.S2EClassifier.load(run.path).predict(blobs().inputs[:9]).tolist() == expected.predicted


def test_images_of_a_run_are_files_or_pillow_images(tmp_path: Path) -> None:
    from PIL import Image

    for index in range(24):
        name = ("cat", "dog")[index % 2]
        save_image(tmp_path / "photos" / name / f"{index}.png", flat((index % 2 * 200 + index, 30, 60)))
    options = train_options(str(tmp_path / "photos"), batch_size=8, image_size=8)
    classifier = s2e.load(train(options, RunLocation(tmp_path / "run")).path).classifier
    expected = classifier.predict_proba(tmp_path / "photos")
    files = sorted((tmp_path / "photos").rglob("*.png"), key=lambda file: (file.parent.name, int(file.stem)))
    np.testing.assert_array_equal(classifier.predict_proba(files), expected)
    np.testing.assert_array_equal(classifier.predict_proba([Image.open(file) for file in files]), expected)
    with pytest.raises(InvalidType, match=r"a sequence of image files or of `PIL\.Image` images"):
        classifier.predict(np.zeros((2, 3, 8, 8)))


def test_runs_without_a_classifier_are_refused(tmp_path: Path) -> None:
    from comparisons import options

    with pytest.raises(UnreadableData, match="holds no run"):
        s2e.load(tmp_path / "absent")
    data = save_clusters(tmp_path / "own.npz")
    made = compare(options(data=data, methods=("standard",), seeds=1, epochs=1), RunLocation(tmp_path / "compared"))
    with pytest.raises(InvalidInput, match=r"is a run of s2e compare, which keeps no classifier; .*: s2e search"):
        s2e.load(made.path)


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": []},
        {"methods": [{}]},
        {"methods": "x"},
        {"validation": None},
        {"search": 3},
        {"status": 0.5},
    ],
    ids=str,
)
def test_damaged_results_are_refused_in_one_line(run: Run, tmp_path: Path, changes: dict[str, object]) -> None:
    copied = Run(Path(shutil.copytree(run.path, tmp_path / "run")))
    copied.write_json("result.json", {**run.read_json("result.json"), **changes})
    with pytest.raises(UnreadableData, match=r"result\.json' is damaged.*`[a-z\[\]0.]*`") as refused:
        s2e.S2EClassifier.load(copied.path)
    assert "\n" not in str(refused.value)
    copied.write_text("result.json", "[1]")
    with pytest.raises(UnreadableData, match="must be an object"):
        s2e.load(copied.path).result  # noqa: B018
    copied.write_text("config.json", "1")
    with pytest.raises(UnreadableData, match=r"config\.json' is damaged: it must be an object with named fields"):
        s2e.load(copied.path)


def test_a_study_that_is_missing_or_executes_statements_is_not_opened(run: Run, tmp_path: Path) -> None:
    copied = Run(Path(shutil.copytree(run.path, tmp_path / "run")))
    with closing(sqlite3.connect(copied.path / "study.db")) as database:
        database.execute("CREATE TRIGGER own AFTER INSERT ON trials BEGIN DELETE FROM trials; END")
        database.commit()
    with pytest.raises(UnreadableData, match="which creates no trigger"):
        s2e.load(copied.path).study  # noqa: B018
    (copied.path / "study.db").unlink()
    with pytest.raises(UnreadableData, match="the file does not exist"):
        s2e.load(copied.path).study  # noqa: B018
    assert not (copied.path / "study.db").exists()
    copied.write_json("config.json", {**run.read_json("config.json"), "study": "other"})
    shutil.copy(run.path / "study.db", copied.path)
    with pytest.raises(UnreadableData, match="has no study 'other'"):
        s2e.load(copied.path).study  # noqa: B018


def test_what_is_logged_is_a_warning_at_the_callers_line(run: Run) -> None:
    classifier = s2e.load(run.path).classifier
    with pytest.warns(s2e.S2EWarning, match="unknown columns are ignored: 'extra'") as caught:
        classifier.predict(table_of().assign(extra=1))
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.predict(table_of())
