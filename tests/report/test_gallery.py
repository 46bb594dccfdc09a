"""The gallery shows the most doubtful labels with their samples."""

from __future__ import annotations

import base64
import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import report_runs as runs
from s2e.audit.run_audit import audit_run
from s2e.report.gallery import MAX_SIDE, MIN_SHOWN, Gallery, gallery, thumbnails
from s2e.runs.directory import Run


def gallery_of(run: Run, max_samples: int = 60) -> Gallery:
    return gallery(audit_run(run), run.read_json("config.json"), None, max_samples)


def decoded(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def test_samples_are_in_the_order_of_the_audit():
    run = Run.open(runs.images())
    shown = gallery_of(run, 5).samples
    listed = audit_run(run).table()[:5]
    assert [(sample.id, sample.given, sample.suggested) for sample in shown] == [
        (row["id"], row["given_label"], row["suggested_label"]) for row in listed
    ]
    assert [sample.ranks["quality"] for sample in shown] == list(range(5))
    by_id = sorted(shown, key=lambda sample: sample.ranks["id"])
    assert [sample.id for sample in by_id] == sorted((sample.id for sample in shown), key=int)


def test_a_few_labels_are_shown_beyond_the_issues():
    run = Run.open(runs.training())
    audited = audit_run(run)
    issues = audited.audit.quality < np.sort(audited.audit.quality)[3]
    few = replace(audited, audit=replace(audited.audit, issues=issues))
    shown = gallery(few, run.read_json("config.json"), None, 60)
    assert [sample.issue for sample in shown.samples] == [True] * 3 + [False] * (MIN_SHOWN - 3)
    assert (shown.images, shown.columns, shown.problem) == (False, (), "")


def test_images_and_true_labels_are_those_of_the_samples():
    images, labels = runs.labelled_images(0, runs.SAMPLES)
    for sample in gallery_of(Run.open(runs.images())).samples:
        np.testing.assert_array_equal(np.asarray(decoded(sample.image)), images[int(sample.id)])
        assert sample.true == runs.CLASSES[labels[int(sample.id)]]
        assert sample.wrong == (sample.given != sample.true)


def test_cells_are_those_of_the_table():
    shown = gallery_of(Run.open(runs.table()))
    with (runs.home() / "table.csv").open(newline="") as file:
        rows = {row.pop("name"): row for row in csv.DictReader(file)}
    assert shown.columns == tuple(name for name in rows["row 0"] if name != "kind")
    for sample in shown.samples:
        written = rows[sample.id]
        assert sample.given == written.pop("kind")
        assert [_number(cell) for cell in sample.cells] == [_number(cell) for cell in written.values()]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.parametrize(("shape", "mode"), [((1, 8, 6), "L"), ((4, 8, 6), "RGBA"), ((3, 300, 200), "RGB")])
def test_thumbnails_keep_channels_and_are_scaled_down(shape, mode):
    pixels = np.random.default_rng(0).integers(0, 256, size=(2, *shape)).astype(np.uint8)
    urls, size = thumbnails(pixels)
    image = decoded(urls[1])
    assert (image.size, image.mode) == (size, mode)
    assert max(size) <= MAX_SIDE
    if max(shape) < MAX_SIDE:
        channels_last = np.moveaxis(pixels[1], 0, -1).squeeze()
        np.testing.assert_array_equal(np.asarray(image), channels_last)


def test_floats_outside_0_and_1_are_scaled_to_their_range():
    def brightness(*values: float) -> list[int]:
        (url,), _ = thumbnails(np.array(values, dtype=np.float32).reshape(1, 2, 2))
        return np.asarray(decoded(url)).ravel().tolist()

    assert brightness(0.0, 0.2, 0.4, 0.8) == [0, 51, 102, 204]
    assert brightness(-1.0, 0.0, 1.0, 3.0) == [0, 64, 128, 255]


@pytest.mark.parametrize(("change", "reason"), [("moved", "does not exist"), ("changed", "has changed since")])
def test_without_its_data_a_run_keeps_ids_and_labels(tmp_path, change, reason):
    path = runs.copy_of(runs.images, tmp_path)
    config = json.loads((path / "config.json").read_text())
    config["options"]["data"] = str(tmp_path / "moved.npz")
    (path / "config.json").write_text(json.dumps(config))
    if change == "changed":
        with np.load(runs.home() / "images.npz") as arrays:
            np.savez(tmp_path / "moved.npz", **{**arrays, "x_train": arrays["x_train"] // 2})
    shown = gallery_of(Run.open(path))
    assert shown.samples
    assert not shown.images
    assert shown.problem.startswith("The samples cannot be shown: ")
    assert reason in shown.problem
