"""What a report says: the numbers of the run, sentences, samples, and what it says where something is missing."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import report_runs as runs
from command_line import assert_refused, s2e
from s2e.audit.run_audit import audit_run
from s2e.report import gallery as galleries
from s2e.report.gallery import FEWEST, gallery, natural, thumbnails
from s2e.report.page import MOST_CLASSES, matrix, report
from s2e.report.run_numbers import Score, read_numbers
from s2e.report.summary import sentences
from s2e.runs.directory import Run


class Headings(HTMLParser):
    """Collects the levels of the headings, and the addresses that anything is loaded from or leads to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.levels: list[int] = []
        self.addresses: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]


def report_on(*paths: Path) -> str:
    return report([Run.open(path) for path in paths]).html


def found(path: Path) -> str:
    (sentence,) = report([Run.open(path)]).sentences
    return sentence


# Numbers


def test_scores_curves_and_schedule_are_those_of_the_run():
    run = Run.open(runs.pictures())
    (setting,), result, curves = read_numbers(run).settings, run.read_json("result.json"), run.read_arrays("curves.npz")
    assert [score.name for score in setting.scores] == ["Standard", "Co-teaching", "S2E"]
    for score, row in zip(setting.scores, result["methods"], strict=True):
        assert score.accuracy == row["test"]["last_10_epochs"]
        assert score.precision == row["label_precision"]
    for curve in setting.validation:
        np.testing.assert_array_equal(curve.mean, curves[f"{curve.name}/accuracy_valid"])
    rates = {curve.name: curve.mean for curve in setting.keep_rates}
    np.testing.assert_array_equal(rates["S2E"], run.read_json("schedule.json")["keep_rates"])
    np.testing.assert_array_equal(rates["Co-teaching"], curves["Co-teaching/kept"])


def test_of_a_comparison_each_noise_setting_has_its_means_over_seeds():
    run = Run.open(runs.compared())
    numbers, summary = read_numbers(run), run.read_json("result.json")["summary"]
    said = [
        (setting.noise, score.look, score.accuracy, score.deviation)
        for setting in numbers.settings
        for score in setting.scores
    ]
    expected = [(row["noise"], row["method"], *row["last_10_epochs"].values()) for row in summary]
    assert said == expected
    assert [len(setting.searches) for setting in numbers.settings] == [1, 1]
    assert all(curve.low is not None for setting in numbers.settings for curve in setting.test)


# Sentences


def test_the_sentence_of_a_search_tells_labels_and_all_accuracies():
    issues = int(audit_run(Run.open(runs.pictures())).verdicts.issues.sum())
    sentence = found(runs.pictures())
    assert sentence.startswith(f"{issues} of 72 labels are probably wrong (")
    rows = Run.open(runs.pictures()).read_json("result.json")["methods"]
    plain, told, own = (f"{100 * row['test']['last_10_epochs']:.1f}%" for row in rows)
    assert sentence.endswith(
        f"; the classifier trained with the schedule that was found is right on {own} of the test samples, "
        f"plain training on {plain}, Co-teaching told the noise rate on {told}."
    )


def test_without_test_data_the_sentence_says_what_the_validation_labels_are_worth():
    sentence = found(runs.table())
    assert "agrees with" in sentence
    assert "of the held-out validation labels, plain training with" in sentence
    assert sentence.endswith("(these labels are doubtful, but were relabelled first).")
    numbers = replace(read_numbers(Run.open(runs.table())), validation="clean")
    (trusted,) = sentences(numbers, None)
    assert trusted.startswith("The classifier trained with the schedule that was found is right on ")
    assert trusted.endswith("(whose labels are trusted).")


def test_the_sentence_counts_labels_as_one_would():
    audited = audit_run(Run.open(runs.trained()))
    numbers = read_numbers(Run.open(runs.trained()))

    def labels(wrong: list[tuple[int, int]]) -> str:
        """What is said where the first labels are doubted, each given as (suggested, given)."""
        issues = np.arange(90) < len(wrong)
        suggested, given = audited.labels.copy(), audited.labels.copy()
        for at, (better, worse) in enumerate(wrong):
            suggested[at], given[at] = better, worse
        verdicts = replace(audited.verdicts, issues=issues, suggested=suggested)
        (sentence,) = sentences(numbers, replace(audited, labels=given, verdicts=verdicts))
        return sentence.split(";")[0]

    assert labels([]) == "None of the 90 labels is more likely wrong than right"
    assert labels([(0, 1)]) == "1 of 90 labels is probably wrong (1.1%), 0 given as 1"
    assert labels([(0, 1)] * 3) == "3 of 90 labels are probably wrong (3.3%), all of them 0 given as 1"
    assert labels([(0, 1), (0, 1), (2, 1)]) == "3 of 90 labels are probably wrong (3.3%), most often 0 given as 1"
    assert labels([(0, 1), (2, 1)]) == "2 of 90 labels are probably wrong (2.2%)"


def test_methods_are_called_by_their_names_and_what_diverged_is_said_to_have():
    numbers = read_numbers(Run.open(runs.table()))
    (setting,) = numbers.settings
    guess = Score("Co-teaching (guessing 20%)", "coteaching", 0.5, None, 0.6, None, 1, 0)
    lost = Score("Standard", "standard", 0.0, None, 0.6, None, 1, 1)
    changed = replace(setting, scores=(lost, guess, setting.scores[-1]))
    (sentence,) = sentences(replace(numbers, settings=(changed,)), None)
    assert ", plain training diverged, Co-teaching (guessing 20%) with 50.0% (these" in sentence


def test_a_comparison_has_a_sentence_for_each_noise_and_names_the_best_once():
    numbers = read_numbers(Run.open(runs.compared()))

    def said(**accuracies: float) -> str:
        scores = [Score(name, name.lower(), share, None, 1.0, None, 1, 0) for name, share in accuracies.items()]
        setting = replace(numbers.settings[0], scores=tuple(scores))
        (sentence,) = sentences(replace(numbers, settings=(setting,)), None)
        return sentence.removeprefix("With symmetric noise, 30%, ")

    assert len(sentences(numbers, None)) == 2
    assert said(Standard=0.8, S2E=0.9) == (
        "S2E is right on 90.0% of the test samples, the best of 2 methods; plain training on 80.0%."
    )
    assert said(Standard=0.9, S2E=0.8) == (
        "S2E is right on 80.0% of the test samples; plain training, the best of 2 methods, on 90.0%."
    )
    assert said(Standard=0.9, S2E=0.9) == (
        "S2E is right on 90.0% of the test samples, as good as any of 2 methods; plain training on 90.0%."
    )
    assert said(JoCoR=0.7) == "JoCoR is right on 70.0% of the test samples."


# Samples


def test_the_gallery_shows_what_the_audit_doubts_most_in_its_order():
    run = Run.open(runs.pictures())
    audited = audit_run(run)
    shown = gallery(audited, run.read_json("config.json"), None, 5).samples
    listed = audited.table()[:5]
    assert [(one.id, one.given, one.suggested) for one in shown] == [
        (row["id"], row["given"], row["suggested"]) for row in listed
    ]
    assert [one.ranks["quality"] for one in shown] == list(range(5))
    by_id = sorted(shown, key=lambda one: one.ranks["id"])
    assert [one.id for one in by_id] == sorted((one.id for one in shown), key=int)


def test_where_few_labels_are_wrong_the_gallery_ends_soon_after_them():
    run = Run.open(runs.trained())
    audited = audit_run(run)
    issues = audited.verdicts.quality < np.sort(audited.verdicts.quality)[3]
    few = replace(audited, verdicts=replace(audited.verdicts, issues=issues))
    shown = gallery(few, run.read_json("config.json"), None, 60)
    assert [one.issue for one in shown.samples] == [True] * 3 + [False] * (FEWEST - 3)
    assert not shown.pictures
    assert shown.columns == ()
    assert shown.problem == ""


def test_pictures_are_the_pixels_of_the_sample_and_true_labels_are_known():
    run = Run.open(runs.pictures())
    shown = gallery(audit_run(run), run.read_json("config.json"), None, 60)
    images, labels = runs.labelled(0, runs.SAMPLES)
    for sample in shown.samples:
        png = Image.open(io.BytesIO(base64.b64decode(sample.picture.partition(",")[2])))
        np.testing.assert_array_equal(np.asarray(png), images[int(sample.id)])
        assert sample.true == runs.CLASSES[labels[int(sample.id)]]
        assert sample.wrong == (sample.given != sample.true)


def test_rows_of_a_table_are_shown_as_their_file_has_them():
    run = Run.open(runs.table())
    shown = gallery(audit_run(run), run.read_json("config.json"), None, 60)
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


@pytest.mark.parametrize("shape", [(8, 6), (1, 8, 6), (3, 8, 6), (4, 8, 6), (3, 300, 200)])
def test_thumbnails_keep_shape_and_channels_and_are_never_large(shape):
    pixels = np.random.default_rng(0).integers(0, 256, size=(2, *shape)).astype(np.uint8)
    addresses, size = thumbnails(pixels)
    image = Image.open(io.BytesIO(base64.b64decode(addresses[1].partition(",")[2])))
    assert image.size == size
    assert max(size) <= galleries.LARGEST_SIDE
    assert image.mode == {2: "L", 3: {1: "L", 3: "RGB", 4: "RGBA"}[shape[0]] if len(shape) == 3 else "L"}[len(shape)]
    if shape[-1] == 6:
        channels_last = pixels[1] if len(shape) == 2 else np.moveaxis(pixels[1], 0, -1).squeeze()
        np.testing.assert_array_equal(np.asarray(image), channels_last)


def test_brightness_of_floats_goes_from_0_to_1_or_from_their_least_to_their_greatest():
    def decoded(values: np.ndarray) -> list[int]:
        addresses, _ = thumbnails(values.astype(np.float32))
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(addresses[0].partition(",")[2])))).ravel().tolist()

    assert decoded(np.array([[[0.0, 0.2], [0.4, 0.8]]])) == [0, 51, 102, 204]
    assert decoded(np.array([[[-1.0, 0.0], [1.0, 3.0]]])) == [0, 64, 128, 255]


def test_row_2_comes_before_row_10():
    assert sorted(["row 10", "row 2", "7", "a7", ""], key=natural) == ["", "7", "a7", "row 2", "row 10"]


@pytest.mark.parametrize("change", ["moved", "changed"])
def test_without_its_data_a_run_keeps_ids_and_labels_and_says_why(tmp_path, change):
    path = runs.copy_of(runs.pictures, tmp_path)
    config = json.loads((path / "config.json").read_text())
    config["options"]["data"] = str(tmp_path / "elsewhere.npz")
    (path / "config.json").write_text(json.dumps(config))
    if change == "changed":
        with np.load(runs.home() / "pictures.npz") as arrays:
            np.savez(tmp_path / "elsewhere.npz", **{**arrays, "x_train": arrays["x_train"] // 2})
    run = Run.open(path)
    shown = gallery(audit_run(run), run.read_json("config.json"), None, 60)
    assert shown.samples
    assert not shown.pictures
    assert {"moved": "does not exist", "changed": "has changed since"}[change] in shown.problem
    assert str(shown.problem).split(":")[0] in report_on(path)


# The matrix


def test_of_many_classes_the_matrix_shows_those_with_the_most_mistakes():
    audited = audit_run(Run.open(runs.trained()))
    classes = MOST_CLASSES + 5
    transition = np.eye(classes)
    for row in range(5, classes):  # the first five are never mistaken for anything, nor anything for them
        transition[row, row], transition[row, 5 + (row - 4) % (classes - 5)] = 0.9, 0.1
    names = tuple(f"class {place}" for place in range(classes))
    changed = replace(audited, class_names=names, verdicts=replace(audited.verdicts, transition=transition))
    shown = matrix(changed)
    assert shown.names == names[5:]
    np.testing.assert_array_equal(shown.rows, transition[5:, 5:])
    assert shown.total == classes


# The page


def test_headings_are_in_order_and_nothing_is_loaded():
    for paths in ((runs.pictures(),), (runs.pictures(), runs.table(), runs.trained(), runs.compared())):
        page = Headings(report_on(*paths))
        assert page.levels[0] == 1
        assert page.levels.count(1) == 1
        assert all(after <= before + 1 for before, after in zip(page.levels, page.levels[1:], strict=False))
        assert all(address.startswith(("data:", "#")) for address in page.addresses)


def test_what_users_write_is_escaped_everywhere():
    page = report_on(runs.pictures(), runs.table(), runs.compared())
    assert runs.EVIL not in page
    assert "&lt;script&gt;document.title=" in page
    assert page.count("<script") == 1


def test_the_same_runs_give_the_same_page():
    assert report_on(runs.pictures(), runs.compared()) == report_on(runs.pictures(), runs.compared())


def test_a_comparison_says_that_its_labels_cannot_be_judged():
    page = report_on(runs.compared())
    assert "A comparison keeps no record of single samples" in page
    assert "data-gallery>" not in page


def test_a_run_that_is_not_finished_has_a_page(tmp_path):
    path = runs.copy_of(runs.pictures, tmp_path)
    for name in ("result.json", "curves.npz", "dynamics.npz", "model.safetensors", "schedule.json"):
        (path / name).unlink()
    assert found(path).startswith("This run is not finished: of 12 schedules tried so far, the best reached ")
    page = report_on(path)
    assert "The final training is not finished" in page
    assert "Best validation accuracy so far" in page
    (path / "study.db").unlink()
    assert found(path) == "This run is not finished, and nothing can be said yet."


# The command


def test_the_page_is_written_into_the_first_run_or_where_it_is_asked_for(tmp_path):
    path, other = runs.copy_of(runs.trained, tmp_path), tmp_path / "page.html"
    done = s2e("report", str(path))
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [found(path), f"report: {path / 'report.html'}"]
    assert s2e("report", str(path), "-o", str(other)).exit_code == 0
    assert (path / "report.html").read_bytes() == other.read_bytes()


def test_what_cannot_be_reported_on_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(s2e("report", "nothing"), "holds no run")
    path = shutil.copytree(runs.trained(), tmp_path / "copy")
    assert_refused(s2e("report", str(path), "--out", str(tmp_path)), "is a directory")
    assert_refused(s2e("report", str(path), "--out", str(tmp_path / "no" / "page.html")), "No such file or directory")
    (path / "config.json").write_text('{"command": "search"}')
    assert_refused(s2e("report", str(path)), "is not a run of this version")
