"""Original samples are stored within bounds and read back as they were."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from s2e.audit import Evidence, audit, original_samples
from s2e.audit.original_samples import MAX_CELL, read_samples, stored_samples, write_samples
from s2e.data import LabelledData, Source, load
from s2e.errors import UnreadableData
from s2e.runs import Run

SAMPLES = 40


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {})


def table(folder: Path) -> Source:
    """A table with long texts, a constant column and gaps."""
    rows = [
        f'k{row},{row % 2},{"ab"[row % 2]},"{row}: {"x" * 3000}",same,{row / 3 if row % 5 else ""}'
        for row in range(SAMPLES)
    ]
    (folder / "data.csv").write_text("key,x,kind,note,constant,ratio\n" + "\n".join(rows) + "\n")
    return load(folder / "data.csv", label="kind", id_column="key")


def images() -> Source:
    inputs = np.random.default_rng(0).integers(0, 256, size=(SAMPLES, 1, 5, 6)).astype(np.uint8)
    return Source("images", LabelledData(inputs, np.arange(SAMPLES) % 2, ("a", "b")))


def store(run: Run, source: Source, data: str) -> None:
    generator = np.random.default_rng(1)
    labels = source.train.labels
    evidence = Evidence(
        labels, generator.dirichlet([1, 1], size=(1, SAMPLES)), np.zeros(SAMPLES), np.full((1, SAMPLES), np.nan)
    )
    write_samples(run, source, data, "kind", audit(evidence), labels, source.train.rows, evidence.kept)


def test_all_columns_but_label_and_id_are_stored(run: Run, tmp_path: Path) -> None:
    store(run, table(tmp_path), str(tmp_path / "data.csv"))
    found = stored_samples(run)
    assert found.columns == ("x", "note", "constant", "ratio")
    assert found.have(range(SAMPLES))
    assert found.cells[5][0] == "1"
    assert found.cells[5][1].startswith("5: xxx")
    assert len(found.cells[5][1]) == MAX_CELL
    assert found.cells[5][2:] == ("same", "")
    assert found.cells[4][3] == "1.33333"


def test_images_are_stored_as_they_are(run: Run) -> None:
    source = images()
    store(run, source, "images")
    found = stored_samples(run)
    assert sorted(found.inputs) == list(range(SAMPLES))
    for row, image in found.inputs.items():
        np.testing.assert_array_equal(image, source.train.inputs[row])


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e39])
def test_images_that_are_not_finite_are_refused(run: Run, value: float) -> None:
    run.write_arrays("review.npz", {"rows": np.arange(2), "inputs": np.full((2, 8, 8), value)})
    with pytest.raises(UnreadableData, match="`inputs` must be finite numbers of float32"):
        stored_samples(run)


def test_samples_that_are_neither_images_nor_rows_are_not_stored(run: Run) -> None:
    source = images()
    flat = replace(source.train, inputs=source.train.inputs.reshape(SAMPLES, -1))
    store(run, replace(source, train=flat), "flat")
    assert [path.name for path in run.path.iterdir() if "review" in path.name] == []
    assert not stored_samples(run).have([0])


def test_no_more_is_stored_than_the_bounds_allow(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original_samples, "MAX_BYTES", 10_000)
    store(run, table(tmp_path), str(tmp_path / "data.csv"))
    assert len(stored_samples(run).cells) == 4
    monkeypatch.setattr(original_samples, "MAX_BYTES", 70)
    store(run, images(), "images")
    assert len(stored_samples(run).inputs) == 2


def test_a_source_that_is_gone_or_shorter_is_said_and_no_error(run: Run, tmp_path: Path, caplog) -> None:
    source = table(tmp_path)
    path = tmp_path / "data.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:9]) + "\n")
    with pytest.raises(UnreadableData, match="has only 8 rows"):
        read_samples(source, str(path), "kind", [20])
    path.unlink()
    with caplog.at_level(logging.WARNING):
        store(run, source, str(path))
    assert "are not stored" in caplog.text
    assert not stored_samples(run).cells
