"""The drawings of a report, and how a search is told: against values worked out by hand or slowly."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

import report_runs as runs
from s2e.plots.styles import STYLES
from s2e.report.charts import LEFT, RIGHT, TOP, Chart, Dot, Line, Look, looks, palette, svg, ticks
from s2e.report.search_story import Group, SearchStory, Tried, read_trials, search_story
from s2e.runs.directory import Run
from s2e.schedules.spaces import space

RED = Look("--of-s2e")


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[0-9.]+", text)]


def lines_of(chart: Chart) -> list[str]:
    return re.findall(r'<path class="line[^>]* d="([^"]*)"', svg(chart))


def drawn(*values: float, **options: object) -> Chart:
    y = np.array(values)
    return Chart("a title", "in words", "epoch", (Line("", RED, np.arange(len(y), dtype=float), y),), **options)


# Charts


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 199.0, [0, 50, 100, 150]),
        (0.62, 0.94, [0.65, 0.7, 0.75, 0.8, 0.85, 0.9]),
        (0.0, 3.0, [0, 1, 2, 3]),
        (0.931, 0.9345, [0.931, 0.932, 0.933, 0.934]),
    ],
)
def test_ticks_are_round_numbers_within_the_range(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


def test_there_are_never_more_ticks_than_asked_for_and_hardly_ever_fewer_than_three():
    generator = np.random.default_rng(0)
    for _ in range(300):
        low = generator.uniform(-5, 5)
        high = low + 10 ** generator.uniform(-4, 4)
        found = ticks(low, high)
        assert 2 <= len(found) <= 6
        assert all(low - 1e-9 * abs(low) <= value <= high * (1 + 1e-9) for value in found)
        np.testing.assert_allclose(np.diff(found), found[1] - found[0])


def test_a_line_goes_from_edge_to_edge_and_shares_from_bottom_to_top():
    (path,) = lines_of(drawn(0.0, 0.5, 1.0, whole=True))
    bottom = 236 - 40
    expected = [LEFT, bottom, (LEFT + 380 - RIGHT) / 2, (bottom + TOP) / 2, 380 - RIGHT, TOP]
    assert numbers(path) == pytest.approx(expected, abs=0.06)


def test_a_line_is_cut_where_a_value_is_missing():
    (path,) = lines_of(drawn(0.1, 0.2, math.nan, 0.4, 0.5))
    assert path.count("M") == 2
    assert len(numbers(path)) == 8
    assert "nan" not in svg(drawn(0.1, math.nan, 0.3)).lower()


def test_nothing_but_missing_values_and_a_single_value_are_drawn_too():
    assert lines_of(drawn(math.nan, math.nan)) == [""]
    assert len(numbers(lines_of(drawn(0.5))[0])) == 3  # a point, and a stroke of no length that round caps would show


def test_long_lines_are_thinned_and_keep_both_ends():
    (path,) = lines_of(drawn(*np.linspace(0.2, 0.8, 5000)))
    points = np.array(numbers(path)).reshape(-1, 2)
    assert 200 < len(points) < 300
    assert points[0, 0] == LEFT
    assert points[-1, 0] == 380 - RIGHT


def test_a_chart_tells_in_words_what_it_shows_and_escapes_them():
    chart = Chart("a <b> title", 'in "words"', "epoch", (Line("", RED, np.arange(2.0), np.array([0.1, 0.2])),))
    text = svg(chart)
    assert "<b>" not in text
    assert 'role="img"' in text
    assert "<title>a &lt;b&gt; title</title><desc>in &#34;words&#34;</desc>" in text


def test_dots_say_what_they_are_and_costs_are_counted_from_0():
    chart = Chart("t", "a", "trainings", (), (Dot(5.0, 0.5, "trial 4", hollow=True), Dot(10.0, 0.6, "trial 9")))
    centres = [float(x) for x in re.findall(r'cx="([0-9.]+)"', svg(chart))]
    assert centres == pytest.approx([(LEFT + 380 - RIGHT) / 2, 380 - RIGHT])
    assert "<title>trial 4</title>" in svg(chart)


def test_every_line_of_a_figure_has_dashes_of_its_own_and_every_method_a_colour():
    shown = looks([*STYLES, "coteaching", "coteaching", "something else"])
    assert len({(look.colour, look.dashes) for look in shown}) == len(shown)
    assert len({look.dashes for look in shown[: len(STYLES)]}) == len(STYLES)
    for dark in (False, True):
        assert {look.colour for look in shown} <= set(re.findall(r"--[\w-]+", palette(dark=dark)))
    assert "#222222" in palette(dark=False)
    assert "#222222" not in palette(dark=True)


# The search


def test_the_best_so_far_never_falls_and_counts_no_trial_that_was_stopped():
    accuracies = [(0.5, False), (0.9, True), (0.4, False), (0.7, False), (0.6, False)]
    story = SearchStory("", tuple(Tried(i, i + 1.0, share, stopped) for i, (share, stopped) in enumerate(accuracies)))
    assert story.best_so_far.tolist() == [0.5, 0.5, 0.5, 0.7, 0.7]


def test_the_spread_of_equal_schedules_is_0_and_that_of_others_is_worked_out_slowly():
    assert Group(1, 1, np.full((4, 7), 0.3)).spread == pytest.approx(0.0)
    schedules = np.random.default_rng(0).random((5, 3))
    total = 0.0
    for t in range(3):
        mean = sum(schedules[i, t] for i in range(5)) / 5
        total += sum((schedules[i, t] - mean) ** 2 for i in range(5)) / 5
    assert Group(1, 1, schedules).spread == pytest.approx(math.sqrt(total / 3))


def test_a_search_is_told_as_its_study_has_it():
    run = Run.open(runs.pictures())
    config, result = run.read_json("config.json"), run.read_json("result.json")
    story = search_story(run, config, config["study"], "")
    trials = read_trials(run.storage, config["study"])
    assert [one.accuracy for one in story.tried] == [1 - trial.values[0] for trial in trials]
    assert [one.spent for one in story.tried] == pytest.approx(range(1, 13))
    assert story.chosen == result["search"]["best_trial"]
    assert story.best_so_far[-1] >= result["search"]["validation_accuracy"]
    assert [group.title for group in story.phases] == ["Generation 1", "Generation 2", "Generation 3"]
    schedules = np.concatenate([group.schedules for group in story.groups])
    family = space("s2e")
    for trial, schedule in zip(trials, schedules, strict=True):
        point = [trial.params[name] for name in family.names]
        np.testing.assert_allclose(schedule, family.decode([point], 4)[0])


def test_generations_too_small_to_have_a_spread_are_looked_at_together():
    run = Run.open(runs.pictures())
    config = run.read_json("config.json")
    for size, expected in ((1, [(1, 4), (5, 8), (9, 12)]), (3, [(1, 2), (3, 4)]), (5, [(1, 1), (2, 3)])):
        changed = {**config, "options": {**config["options"], "generation": size}}
        groups = search_story(run, changed, config["study"], "").groups
        assert [(group.first, group.last) for group in groups] == expected
        assert sum(len(group.schedules) for group in groups) == 12


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        ("sqlite:///{here}/gone.db", "there is no such file"),
        ("nonsense", "Could not parse"),
        ("nosuchdatabase://me:secret@host/x", "could not be read"),
    ],
)
def test_a_study_that_cannot_be_reached_costs_its_own_section_only(tmp_path, storage, reason):
    from s2e.report.page import report

    path = runs.copy_of(runs.pictures, tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "storage": storage.format(here=tmp_path)}))
    page = report([Run.open(path)]).html
    assert reason in page
    assert "secret" not in page
    assert "Best validation accuracy so far" not in page
    assert "Validation accuracy by epoch" in page
    assert not (tmp_path / "gone.db").exists()


def test_a_study_of_another_name_is_not_made(tmp_path):
    run = Run.open(runs.copy_of(runs.pictures, tmp_path))
    config = run.read_json("config.json")
    assert "holds no study 'another'" in search_story(run, config, "another", "").problem
    assert "holds no study 'another'" in search_story(run, config, "another", "").problem
