"""`s2e reproduce spaces` as a command: its figure and its tables, its options, and what it refuses."""

from __future__ import annotations

import json

import pytest

from command_line import assert_refused, s2e, save
from s2e.cli.reproduce_spaces import tables
from s2e.errors import InvalidInput
from s2e.experiments import spaces
from s2e.experiments.figures import draw_schedules, schedule_curves
from s2e.experiments.schedule_table.build import NOISES
from s2e.experiments.spaces import SpacesOptions
from s2e.runs.directory import CONFIG, Run
from s2e.schedules.spaces import SPACES
from s2e.workflows.bench import TrainingOptions
from space_runs import SMALL, TWO_NOISES, clusters, found, in_an_empty_directory_without_figures, options, result

work = pytest.fixture(in_an_empty_directory_without_figures, autouse=True)


# ------------------------------------------------------------------------------------------------------ what is shown


def test_the_figure_has_a_panel_for_each_noise_setting_and_a_line_for_each_space_of_the_table() -> None:
    rates = {space: 0.1 * (1 + place) for place, space in enumerate(SPACES)}
    chosen = {(noise, space): found(0.5, rate) for noise in TWO_NOISES for space, rate in rates.items()}
    single = {"pair:0.4": "single-2", "symmetric:0.3": "single-4"}
    curves = schedule_curves(chosen, single, TWO_NOISES)
    spaces_drawn = [curve.methods[0] for curve in curves]
    assert spaces_drawn == ["coteaching", "single", "rbf", "mlp", "s2e"] * 2
    figure = draw_schedules([curves])
    for axes, noise in zip(figure.axes, TWO_NOISES, strict=True):
        shown = [float(line.get_ydata()[0]) for line in axes.lines]
        assert shown == [rates[each] for each in ("coteaching", single[noise], "rbf", "mlp", "s2e")]
        assert len({line.get_color() for line in axes.lines}) == 5
    legend = figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["Co-teaching", "Single", "RBF", "MLP", "S2E"]
    colours = [line.get_color() for line in legend.get_lines()]
    assert colours == [line.get_color() for line in figure.axes[0].lines]


def test_the_tables_have_the_spaces_as_rows_and_the_noise_settings_as_columns() -> None:
    last, _, best = tables(result())
    assert (str(last.title), str(best.title)) == (
        "fresh seeds: test accuracy, last 10 epochs",
        "fresh seeds: test accuracy, best epoch",
    )
    assert [str(column.header) for column in last.columns] == ["space", "pair noise, 40%", "symmetric noise, 30%"]
    cells = [[str(cell) for cell in column.cells] for column in last.columns]
    assert cells[0] == ["Co-teaching", "Single", "RBF", "MLP", "S2E"]
    assert cells[1] == [f"{figure}.00 ± 0.10" for figure in (1, 4, 6, 7, 0)]
    assert cells[2] == [f"{figure}.00 ± 0.10" for figure in (11, 12, 16, 17, 10)]
    assert [str(cell) for cell in best.columns[1].cells] == ["51.00", "54.00", "56.00", "57.00", "50.00"]
    assert [cell.style for cell in last.columns[1].cells] == ["", "", "", "bold", ""]
    assert "of 50 drawn in each space" in str(best.caption)
    assert "four spaces by validation (50 drawn in each): single-3, single-1" in str(best.caption)
    assert "the epoch is chosen by the test data" in str(best.caption)
    assert "mean ± standard deviation over 2 seeds" in str(best.caption)
    assert "diverged" not in str(best.caption)
    assert "one seed;" in str(tables(result(seeds=1))[2].caption)
    assert str(tables(result(epochs=4))[0].title).endswith("last 4 epochs")


def test_a_training_that_diverged_is_told_of() -> None:
    summary = result()["summary"]
    for row in summary:
        row["diverged"] = int(row["space"] in ("single-2", "single") and row["noise"] == "pair:0.4")
    caption = str(tables(result(summary=summary))[2].caption)
    assert "diverged, counted as 0 over the last epochs: single-2 1 of 2 (pair:0.4)\n" in caption


def test_the_command_prints_tables_or_json_and_hands_its_options_on() -> None:
    data = clusters()
    changed = ["--learning-rate", "0.002", "--network", "mlp", "--seed", "3", "--together", "99", "--device", "cpu"]
    shown = s2e("reproduce", "spaces", "--data", data, *SMALL, *changed, "--out", "run")
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.count("│ Co-teaching ") == 6
    assert shown.stdout.endswith("run: run\n")
    begun_with = Run("run").read_json(CONFIG)["options"]
    wanted = {"draws": 2, "sets": 1, "seeds": 2, "together": 99, "network": "mlp", "epochs": 3, "batch_size": 32}
    assert begun_with == {"data": data, "noises": ["pair:0.4"], **wanted, "learning_rate": 0.002, "seed": 3}
    again = s2e("reproduce", "spaces", "--resume", "--out", "run", "--json")
    numbers = json.loads(again.stdout)
    assert numbers.pop("run") == "run"
    assert numbers == Run("run").read_json("result.json")


def test_without_options_it_is_the_papers_table(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(spaces, "compare_spaces", lambda options, *_, **__: asked.append(options))
    s2e("reproduce", "spaces")
    assert asked == [SpacesOptions("mnist", NOISES, draws=50, sets=1, seeds=5, network="auto", epochs=200, seed=0)]
    assert asked[0].training_options() == TrainingOptions("mnist", method="coteaching", epochs=200)


# -------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--draws", "0"], "`draws` must be at least 1, but got 0."),
        (["--sets", "0"], "`sets` must be at least 1, but got 0."),
        (["--seeds", "0"], "`seeds` must be at least 1, but got 0."),
        (["--together", "0"], "`together` must be at least 1, but got 0."),
        (["--epochs", "0"], "`epochs` must be a positive integer, but got 0."),
        (["--batch-size", "999999"], "`batch_size` must not exceed the number of training samples"),
        (["--learning-rate", "nan"], "`learning_rate` must be positive and finite, but got nan."),
        (["--network", "vgg"], "`network` must be one of"),
        (["--device", "nowhere"], "`device` must be one this machine has"),
        (["--noise", "pair"], "`noise` must be written as pair:RATE, but got 'pair'."),
        (
            ["--noise", "pair:0.4", "--noise", "pair:0.40"],
            "`noise` must name each noise setting once, but got pair:0.4",
        ),
        (["--data", "nosuch"], "must be one of mnist"),
        (["--resume"], "'run' holds no run"),
    ],
)
def test_bad_options_are_refused_in_one_line(arguments: list[str], said: str) -> None:
    assert_refused(s2e("reproduce", "spaces", "--data", "digits", *SMALL, *arguments, "--out", "run"), said)


def test_data_without_a_test_part_are_refused() -> None:
    refused = s2e("reproduce", "spaces", "--data", save(), *SMALL, "--out", "run")
    assert_refused(refused, "`data` must come with a test part, but own.npz has none.")
    with pytest.raises(InvalidInput, match="noise setting once, but got none"):
        options("digits", noises=())
