"""Figures: their drawings by what a reader sees, their files byte for byte."""

from __future__ import annotations

import hashlib
import itertools
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from figure_outcomes import METHODS, NAN, a_band, comparison, drawn, given, legend_of, lines_of, names_in, small
from s2e.plots.epoch_curves import Band, KeepRateCurve, draw_bands, draw_keep_rates
from s2e.plots.styles import STYLES
from s2e.workflows.comparison_figures import bands, figure_files, keep_rate_curves

# Drawings


@pytest.mark.parametrize(("panels", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 3, 2), (7, 3, 3)])
def test_panels_wrap_after_three(panels: int, columns: int, rows: int) -> None:
    noises = [f"pair:0.{number + 1}" for number in range(panels)]
    figure = draw_bands([a_band(noise) for noise in noises], label="test accuracy")
    assert [axes.get_title() for axes in figure.axes] == [f"pair noise, {number + 1}0%" for number in range(panels)]
    places = [axes.get_subplotspec() for axes in figure.axes]
    assert {(place.get_gridspec().nrows, place.get_gridspec().ncols) for place in places} == {(rows, columns)}
    assert [(place.rowspan.start, place.colspan.start) for place in places] == [
        divmod(position, columns) for position in range(panels)
    ]


def test_axes_say_what_they_show_once_in_a_row() -> None:
    figure = draw_bands([a_band(f"pair:0.{number + 1}") for number in range(4)], label="test accuracy")
    assert [axes.get_ylabel() for axes in figure.axes] == ["test accuracy", "", "", "test accuracy"]
    assert {axes.get_xlabel() for axes in figure.axes} == {"epoch"}


@pytest.mark.parametrize("epochs", [1, 2, 3, 40])
def test_shares_are_written_as_percent_and_epochs_as_whole_numbers(epochs: int) -> None:
    figure = draw_bands([a_band(values=[0.6] * epochs)], label="test accuracy")
    drawn(figure)
    (axes,) = figure.axes
    assert "60%" in [label.get_text() for label in axes.get_yticklabels()]
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert "0" in ticks
    assert all(re.fullmatch(r"−?\d+", tick) for tick in ticks)


def test_every_band_has_its_line_and_its_area_in_the_panel_of_its_noise() -> None:
    made = [a_band("pair:0.2", "s2e", [0.1, 0.2]), a_band("pair:0.45", "s2e", [0.3, 0.4])]
    made.append(a_band("pair:0.45", "jocor", [0.5, 0.7], low=np.array([0.4, 0.45]), high=np.array([0.6, 0.95])))
    figure = draw_bands(made, label="test accuracy")
    first, second = figure.axes
    np.testing.assert_array_equal([line.get_ydata() for line in lines_of(first)], [[0.1, 0.2]])
    np.testing.assert_array_equal([line.get_ydata() for line in lines_of(second)], [[0.3, 0.4], [0.5, 0.7]])
    np.testing.assert_array_equal(lines_of(second)[1].get_xdata(), [0, 1])
    corners = {tuple(corner) for corner in second.collections[1].get_paths()[0].vertices.round(6).tolist()}
    assert corners == {(0, 0.4), (1, 0.45), (0, 0.6), (1, 0.95)}


def test_the_legend_names_every_method_once() -> None:
    figure = draw_bands(bands(comparison(epochs=3, seeds=2), "accuracy"), label="test accuracy")
    assert names_in(figure) == [
        "Standard",
        "Decoupling",
        "F-correction",
        "MentorNet",
        "Co-teaching",
        "Co-teaching+",
        "Reweight",
        "JoCoR",
        "S2E",
    ]
    assert all(axes.get_legend() is None for axes in figure.axes)


@pytest.mark.parametrize(
    ("seeds", "note"),
    [
        ((5, 5), "mean over 5 seeds ± one standard deviation"),
        ((5, 3), "mean over 3 to 5 seeds ± one standard deviation"),
        ((1, 1), ""),
    ],
)
def test_a_note_says_what_lines_and_areas_are(seeds: tuple[int, int], note: str) -> None:
    made = [a_band(method=method, seeds=count) for method, count in zip(("jocor", "s2e"), seeds, strict=True)]
    figure = draw_bands(made, label="test accuracy")
    assert legend_of(figure).get_title().get_text() == note
    assert len(figure.axes[0].collections) == (0 if seeds == (1, 1) else 2)


def test_a_mean_with_a_training_that_diverged_is_named_and_its_spread_not_drawn() -> None:
    made = [a_band(method="jocor", diverged=1), a_band(), a_band("pair:0.2", "s2e")]
    figure = draw_bands(made, label="test accuracy")
    note = legend_of(figure).get_title().get_text()
    assert "diverged, shown without deviation: JoCoR 1 of 3 (pair noise, 45%)" in note
    assert "S2E" not in note
    assert [len(axes.collections) for axes in figure.axes] == [1, 1]
    assert [len(lines_of(axes)) for axes in figure.axes] == [2, 1]


def test_a_single_training_that_diverged_is_named_too() -> None:
    figure = draw_bands([a_band(seeds=1, diverged=1)], label="test accuracy")
    assert legend_of(figure).get_title().get_text() == "diverged: S2E 1 of 1 (pair noise, 45%)"


def shown(figure: Any) -> tuple[float, float]:
    low, high = figure.axes[0].get_ylim()
    return float(low), float(high)


def test_the_panel_shows_every_band_from_the_first_twentieth_of_the_epochs_on() -> None:
    rise = np.concatenate([np.linspace(0.1, 0.75, 10), np.full(190, 0.8)])
    flat = {"low": rise - 0.02, "high": rise + 0.05}
    low, high = shown(draw_bands([a_band(values=rise, **flat)], label=""))  # type: ignore[arg-type]
    assert 0.75 < low < 0.78
    assert 0.85 < high < 0.88
    late = rise.copy()
    late[10] = 0.4
    low, _ = shown(draw_bands([a_band(values=late, low=late, high=late)], label=""))  # type: ignore[arg-type]
    assert 0.35 < low < 0.4


def test_a_short_training_is_shown_from_its_first_epoch() -> None:
    values = np.linspace(0.1, 0.9, 19)
    low, high = shown(draw_bands([a_band(values=values, low=values, high=values)], label=""))  # type: ignore[arg-type]
    assert low < 0.1 < 0.9 < high


def test_the_panel_ends_at_0_and_100_percent() -> None:
    wide = {"low": np.array([-0.3, -0.4]), "high": np.array([1.3, 1.2])}
    low, high = shown(draw_bands([a_band(**wide)], label=""))
    assert low == 0
    assert 1 <= high <= 1.01


def test_a_spread_that_is_not_drawn_takes_no_room() -> None:
    wide = {"low": np.array([-0.3, -0.4]), "high": np.array([1.3, 1.2])}
    low, high = shown(draw_bands([a_band(diverged=1, **wide)], label=""))
    assert 0.45 < low < 0.5
    assert 0.6 < high < 0.65


def test_a_flat_line_has_room_around_it() -> None:
    flat = np.ones(3)
    low, high = shown(draw_bands([a_band(values=[1, 1, 1], low=flat, high=flat)], label=""))
    assert low < 0.999
    assert high > 1


def test_unknown_epochs_are_gaps_and_lonely_ones_dots() -> None:
    values = [0.5, NAN, 0.6, 0.7, NAN, 0.8]
    band = a_band(values=values)
    figure = draw_bands([band], label="label precision")
    (line,) = lines_of(figure.axes[0])
    np.testing.assert_array_equal(line.get_ydata(), values)
    assert line.get_markevery() == [0, 5]
    assert line.get_marker() == "o"


def test_a_quantity_known_only_at_the_start_is_drawn() -> None:
    values = np.full(40, NAN)
    values[0] = 0.5
    low, high = shown(draw_bands([a_band(values=values, low=values, high=values)], label=""))  # type: ignore[arg-type]
    assert low < 0.5 < high


def test_keep_rates_are_drawn_from_0_to_100_percent_under_the_names_of_all_who_share_them() -> None:
    curves = [
        KeepRateCurve("pair:0.45", ("coteaching", "jocor"), np.array([1.0, 0.55])),
        KeepRateCurve("pair:0.45", ("s2e",), np.array([1.0, 0.3])),
    ]
    figure = draw_keep_rates(curves)
    (axes,) = figure.axes
    assert axes.get_ylabel() == "keep rate R(t)"
    assert names_in(figure) == ["Co-teaching, JoCoR", "S2E"]
    np.testing.assert_array_equal([line.get_ydata() for line in lines_of(axes)], [[1.0, 0.55], [1.0, 0.3]])
    assert [line.get_color() for line in lines_of(axes)] == [STYLES["coteaching"].color, STYLES["s2e"].color]
    assert axes.get_ylim()[0] == 0
    assert 1 < axes.get_ylim()[1] < 1.05


def overlaps(figure: Any) -> list[tuple[str, str]]:
    """Texts that lie on each other or reach out of the figure."""
    renderer = figure.canvas.get_renderer()
    legend = legend_of(figure)
    texts = [axes.title for axes in figure.axes] + [axes.xaxis.label for axes in figure.axes]
    texts += [axes.yaxis.label for axes in figure.axes] + [*legend.get_texts(), legend.get_title()]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text()]
    whole = figure.bbox
    outside = [
        (name, "figure")
        for name, box in boxes
        if box.x0 < whole.x0 or box.y0 < whole.y0 or box.x1 > whole.x1 or box.y1 > whole.y1
    ]
    return outside + [
        (one, other) for (one, first), (other, second) in itertools.combinations(boxes, 2) if first.overlaps(second)
    ]


@pytest.mark.parametrize("panels", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["bands", "diverged", "keep rates"])
def test_no_text_lies_on_another_or_is_cut_off(panels: int, kind: str) -> None:
    noises = [f"symmetric:0.{number + 1}" for number in range(panels)]
    fallen = (
        [(noise, method, 0) for noise in noises for method in ("jocor", "coteaching+")] if kind == "diverged" else []
    )
    made = comparison([*METHODS, "s2e:coteaching+"], noises, seeds=2, epochs=6, diverged=fallen)
    if kind == "keep rates":
        figure = draw_keep_rates(keep_rate_curves(made))
    else:
        figure = draw_bands(bands(made, "accuracy"), label="test accuracy")
    drawn(figure)
    assert overlaps(figure) == []
    heights = [axes.get_window_extent().height / figure.dpi for axes in figure.axes]
    assert min(heights) > 1.2, "the legend must not squeeze the panels"


def test_a_dollar_in_a_name_is_a_dollar() -> None:
    noise = "asymmetric:$cost_{$.csv"
    files = figure_files(given([[0.5, 0.6]], noise=noise, keep_rates=np.ones(2)))
    figure = draw_bands([a_band(noise, diverged=1)], label="test accuracy")
    drawn(figure)
    assert len(files) == 6
    assert figure.axes[0].get_title() == "asymmetric noise, $cost_{$.csv"


# Files


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return figure_files(small())


@pytest.fixture(scope="module")
def files_of_two_seeds() -> dict[str, bytes]:
    return figure_files(small(seeds=2))


def test_there_are_three_figures_as_png_and_svg(files: dict[str, bytes]) -> None:
    assert list(files) == [
        f"{name}.{kind}" for name in ("accuracy", "label_precision", "keep_rate") for kind in ("png", "svg")
    ]
    for name, content in files.items():
        assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml"), name


def test_figures_without_data_are_left_out() -> None:
    assert {name.partition(".")[0] for name in figure_files(small(known=False))} == {"accuracy", "keep_rate"}
    untold = small(methods=["standard", "decoupling"])
    assert {name.partition(".")[0] for name in figure_files(untold)} == {"accuracy", "label_precision"}
    assert figure_files([]) == {}


@pytest.mark.parametrize(("evaluated_on", "label"), [("test", "test accuracy"), ("valid", "validation accuracy")])
def test_the_accuracy_figure_says_what_it_was_evaluated_on(
    evaluated_on: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = []

    def noted(made: Sequence[Band], *, label: str) -> Any:
        labels.append(label)
        return draw_bands(made, label=label)

    monkeypatch.setattr("s2e.plots.epoch_curves.draw_bands", noted)
    figure_files(small(evaluated_on=evaluated_on))
    assert labels == [label, "label precision"]


def test_a_training_of_one_epoch_can_be_drawn() -> None:
    assert len(figure_files(small(epochs=1))) == 6


def test_a_whole_comparison_can_be_drawn_even_where_trainings_diverged() -> None:
    fallen = [("pair:0.45", "coteaching", seed) for seed in range(5)] + [("symmetric:0.5", "s2e", 2)]
    assert len(figure_files(comparison(epochs=40, diverged=fallen))) == 6


def test_the_same_outcomes_give_the_same_files(files_of_two_seeds: dict[str, bytes]) -> None:
    assert figure_files(small(seeds=2)) == files_of_two_seeds


def test_an_svg_holds_no_date(files: dict[str, bytes]) -> None:
    for name, content in files.items():
        if name.endswith("svg"):
            assert not re.search(rb"<dc:date>|20\d\d-\d\d-\d\d", content), name


def test_users_own_settings_neither_show_nor_change(files_of_two_seeds: dict[str, bytes]) -> None:
    with matplotlib.rc_context({"font.size": 23, "axes.facecolor": "black", "lines.linestyle": "--"}):
        before = dict(matplotlib.rcParams)
        assert figure_files(small(seeds=2)) == files_of_two_seeds
        assert dict(matplotlib.rcParams) == before


PROGRAM = """
import hashlib, sys
sys.path.insert(0, {tests!r})
import s2e.plots.epoch_curves
print("matplotlib" in sys.modules)
from figure_outcomes import small
files = s2e.plots.epoch_curves.figure_files(small())
print("matplotlib.pyplot" in sys.modules)
print(hashlib.sha256(files["accuracy.svg"]).hexdigest())
"""


def test_matplotlib_is_imported_when_drawing_and_pyplot_never_and_every_process_draws_the_same(
    files: dict[str, bytes],
) -> None:
    program = PROGRAM.format(tests=str(Path(__file__).parents[1] / "support"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    digest = hashlib.sha256(files["accuracy.svg"]).hexdigest()
    assert done.stdout.split() == ["False", "False", digest]
