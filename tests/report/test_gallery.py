"""The gallery shows the most doubtful labels with their samples."""

from __future__ import annotations

import base64
import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import report_runs as runs
from s2e.audit import order_by_value
from s2e.audit.run_audit import audit_run
from s2e.report.gallery import MAX_SIDE, MIN_SHOWN, Cell, Gallery, gallery, thumbnails
from s2e.runs.directory import Run


def gallery_of(run: Run, max_samples: int = 60) -> Gallery:
    return gallery(run, audit_run(run), run.read_json("config.json"), None, max_samples)


def decoded(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def test_the_most_doubtful_and_the_most_valuable_are_shown_in_the_order_of_the_audit():
    run = Run.open(runs.images())
    audited, shown = audit_run(run), gallery_of(run, 5).samples
    valuable = order_by_value(audited.audit, audited.labels, 5).tolist()
    chosen = [index for place, index in enumerate(audited.order.tolist()) if place < 5 or index in valuable]
    assert [sample.row for sample in shown] == audited.rows[chosen].tolist()
    assert [sample.id for sample in shown[:5]] == [row["id"] for row in audited.table()[:5]]
    by_worth = sorted((sample for sample in shown if sample.worth), key=lambda sample: sample.worth)
    assert [sample.row for sample in by_worth] == audited.rows[valuable].tolist()
    assert [sample.ranks["quality"] for sample in shown] == list(range(len(shown)))
    assert [sample.ranks["worth"] for sample in by_worth] == list(range(5))
    by_id = sorted(shown, key=lambda sample: sample.ranks["id"])
    assert [sample.id for sample in by_id] == sorted((sample.id for sample in shown), key=int)


def test_a_few_labels_are_shown_beyond_the_issues():
    run = Run.open(runs.training())
    audited = audit_run(run)
    issues = audited.audit.quality < np.sort(audited.audit.quality)[3]
    certain = replace(audited.audit, issues=issues, quality=np.where(issues, 0.0, 1.0), confidence=np.ones(len(issues)))
    shown = gallery(run, replace(audited, audit=certain), run.read_json("config.json"), None, 60)
    assert [sample.issue for sample in shown.samples] == [True] * 3 + [False] * (MIN_SHOWN - 3)
    assert not any(sample.worth for sample in shown.samples), "certain labels are worth nothing"
    assert (shown.images, shown.problem) == (False, "")


def test_reviewed_labels_are_not_shown_again():
    run = Run.open(runs.images())
    audited = audit_run(run)
    reviewed = np.isin(np.arange(len(audited.ids)), audited.order[:4])
    shown = gallery(run, replace(audited, reviewed=reviewed), run.read_json("config.json"), None, 60)
    assert not {sample.id for sample in shown.samples} & {audited.ids[index] for index in audited.order[:4]}


def test_images_and_true_labels_are_those_of_the_samples():
    images, labels = runs.labelled_images(0, 2 * runs.SAMPLES)
    for sample in gallery_of(Run.open(runs.images())).samples:
        np.testing.assert_array_equal(np.asarray(decoded(sample.image)), images[int(sample.id)])
        assert sample.true == runs.CLASSES[labels[int(sample.id)]]
        assert sample.wrong == (sample.given != sample.true)


def test_cells_are_those_of_the_table():
    run = Run.open(runs.table())
    with (runs.home() / "table.csv").open(newline="") as file:
        rows = {row.pop("name"): row for row in csv.DictReader(file)}
    for sample in gallery_of(run).samples:
        written = rows[sample.id]
        assert sample.given == written.pop("kind")
        assert {cell.name: _number(cell.value) for cell in sample.cells} == {
            name: _number(value) for name, value in written.items() if value
        }


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
    assert brightness(-3e38, 0.0, 3e38, 3e38) == [0, 128, 255, 255]


@pytest.mark.parametrize(
    ("value", "link"),
    [
        ("https://example.org/photo/1?a=b&c=d", True),
        ("http://example.org", True),
        ("javascript:alert(1)", False),
        ("https://example.org/ and text", False),
        ('https://example.org/"onclick="x', False),
        ("ftp://example.org", False),
    ],
)
def test_only_addresses_of_pages_are_links(value, link):
    assert Cell("url", value).link == link


def moved(path: Path, data: Path) -> Run:
    """Change the path of the data of a run."""
    config = json.loads((path / "config.json").read_text())
    config["options"]["data"] = str(data)
    (path / "config.json").write_text(json.dumps(config))
    return Run.open(path)


@pytest.mark.parametrize("made", [runs.images, runs.table])
def test_a_run_shows_its_samples_where_the_data_are_not(tmp_path, made):
    with_data = gallery_of(Run.open(made())).samples
    shown = gallery_of(moved(runs.copy_of(made, tmp_path), tmp_path / "nowhere.npz"))
    assert shown.problem == ""
    assert shown.samples == with_data
    assert all(sample.image or sample.cells for sample in shown.samples)


@pytest.mark.parametrize(("change", "reason"), [("moved", "does not exist"), ("changed", "has changed since")])
def test_a_run_without_stored_samples_keeps_ids_and_labels(tmp_path, change, reason):
    path = runs.copy_of(runs.images, tmp_path)
    (path / "review.npz").unlink()
    run = moved(path, tmp_path / "moved.npz")
    if change == "changed":
        with np.load(runs.home() / "images.npz") as arrays:
            np.savez(tmp_path / "moved.npz", **{**arrays, "x_train": arrays["x_train"] // 2})
    shown = gallery_of(run)
    assert shown.samples
    assert not shown.images
    assert shown.problem.startswith("The samples cannot be shown: ")
    assert reason in shown.problem


@pytest.mark.parametrize("made", [runs.images, runs.table])
def test_stored_samples_equal_those_of_the_data(tmp_path, made):
    path = runs.copy_of(made, tmp_path)
    for name in ("review.npz", "review.json"):
        (path / name).unlink(missing_ok=True)
    assert gallery_of(Run.open(path)).samples == gallery_of(Run.open(made())).samples


def test_where_stored_samples_are_damaged_the_data_are_read(tmp_path, caplog):
    path = runs.copy_of(runs.table, tmp_path)
    (path / "review.json").write_text('{"columns": ["a"], "rows": [1], "cells": [["x", "y"]]}')
    shown = gallery_of(Run.open(path))
    assert "`cells` must have a row of 1" in caplog.text
    assert shown.samples == gallery_of(Run.open(runs.table())).samples


def test_decisions_are_kept_apart_by_run_and_not_by_directory(tmp_path):
    copied = gallery_of(Run.open(runs.copy_of(runs.images, tmp_path))).key
    assert copied == gallery_of(Run.open(runs.images())).key
    assert copied != gallery_of(Run.open(runs.table())).key
