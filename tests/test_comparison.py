"""What `s2e compare` does: everything packed equals everything alone, who takes part, and what a death costs."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch

from conftest import blobs
from s2e import comparison, datasets, searching, stages
from s2e.comparison import CompareOptions, compare
from s2e.contestants import Setting
from s2e.data import LabelledData
from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.ledger import Ledger
from s2e.methods import (
    METHODS,
    Batch,
    Decoupling,
    JoCoR,
    Objective,
    Reweight,
    Standard,
)
from s2e.networks import reference_network
from s2e.outcomes import Outcome
from s2e.preparation import DataOptions, Prepared, corrupt_and_split
from s2e.runs import CONFIG, Run
from s2e.samplers import algorithm
from s2e.searching import GenerationDone, SearchPlan, search_schedule
from s2e.seeds import derive
from s2e.spaces import SPACES
from s2e.stages import train_in_stages
from s2e.studies import open_study
from s2e.tasks import Member, Progress, Task, Trained
from s2e.training import train_population
from s2e.workplace import Place

EPOCHS, BATCH, RATE = 4, 32, 1e-2
NOISES = ("pair:0.4", "symmetric:0.3")
WHOLE: dict[str, Any] = {"noises": NOISES, "space": "s2e", "trials": 4, "generation": 2}
KEEP_RATE = ("mentornet", "coteaching", "coteaching+", "jocor")


class Log:
    """A watch that remembers everything."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []
        self.epochs: list[Progress] = []
        self.generations: list[GenerationDone] = []

    def stage(self, name: str, epochs: int) -> None:
        self.stages.append((name, epochs))

    def epoch(self, progress: Progress) -> None:
        self.epochs.append(progress)

    def generation(self, done: GenerationDone) -> None:
        self.generations.append(done)


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """Draw no figures, which are tested elsewhere, and keep Optuna quiet."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(comparison, "figure_files", lambda _: {"accuracy.svg": b"<svg/>"})
        yield
    optuna.logging.set_verbosity(verbosity)


def save(path: Path, **changes: Any) -> str:
    """Write clusters with right labels and a test part, with some arrays replaced, added or (None) left out."""
    data, unseen = blobs(), blobs(96, wrong=0.0, seed=2)
    arrays = {"x_train": data.inputs, "y_train": data.clean_labels, "x_test": unseen.inputs, "y_test": unseen.labels}
    np.savez(path, **{name: array for name, array in {**arrays, **changes}.items() if array is not None})
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Data for benchmarks: right labels, to which noise is added."""
    return save(tmp_path_factory.mktemp("data") / "right.npz")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Data as users have them: some labels are wrong, nobody knows which, and there is no test part."""
    return save(tmp_path_factory.mktemp("data") / "own.npz", y_train=blobs().labels, x_test=None, y_test=None)


def options(data: str, *methods: str, **changes: Any) -> CompareOptions:
    tiny: dict[str, Any] = {"noises": NOISES[:1], "seeds": 2, "epochs": EPOCHS, "batch_size": BATCH, "trials": 2}
    tiny |= {"generation": 1, "learning_rate": RATE, "sampler": "random", "space": "coteaching"}
    tiny["methods"] = methods or ("all",)
    return CompareOptions(data, **{**tiny, **changes})


def compared(given: CompareOptions, path: Path, log: Log | None = None, *, resume: bool = False) -> Run:
    return compare(given, Place(path), log or Log(), resume=resume)


def result(run: Run) -> dict[str, Any]:
    content: dict[str, Any] = run.read_json("result.json")
    return content


def outcomes(run: Run) -> dict[tuple[str, str, int], Outcome]:
    return {(one.noise, one.method, one.seed): one for one in Ledger.of(run).outcomes}


def rows(run: Run, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((run.path / name).read_text())))


def files(run: Run) -> set[str]:
    return {entry.name for entry in run.path.iterdir()}


class Trainings:
    """Every population that is trained, and death instead of the one after so many."""

    def __init__(self, patched: pytest.MonkeyPatch, die_after: int | None = None) -> None:
        self.members: list[list[Member]] = []
        self.tasks: list[Task] = []

        def train(task: Task, members: Sequence[Member], **named: Any) -> Trained:
            if len(self.members) == die_after:
                raise Death
            self.tasks.append(task)
            self.members.append(list(members))
            return train_population(task, members, **named)

        for module in (stages, searching):
            patched.setattr(module, "train_population", train)

    @property
    def sizes(self) -> list[int]:
        return [len(members) for members in self.members]


class Death(BaseException):
    """The end of a process, at a chosen moment."""


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Log, Trainings]:
    """Everything at once: all methods, two searches, two noise settings, two seeds."""
    log = Log()
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        given = options(data, "all", "s2e:jocor", **WHOLE)
        return compared(given, tmp_path_factory.mktemp("whole") / "run", log), log, trainings


# Everything packed equals everything alone


def prepared(data: str, noise: str, draw: int, **changes: Any) -> Prepared:
    return corrupt_and_split(datasets.load(data, Path()), DataOptions(data, noise, **changes), Path(), draw=draw)


def told_schedule(rate: float, epochs: int = EPOCHS) -> list[float]:
    """Co-teaching's: 1 − τ·min(t/10, 1)."""
    return [1 - rate * min(t / 10, 1) for t in range(epochs)]


def alone(made: Prepared, name: str, draw: int, schedule: Sequence[float], *, seed: int = 0) -> Trained:
    """Train one contestant from one seed on one noise setting, by itself."""
    splits = made.splits
    parts = {"valid": splits.valid, "test": splits.test}
    task = Task(
        splits.train,
        reference_network("mlp", splits.train.sample_shape, splits.train.classes),
        METHODS[name],
        {part: data for part, data in parts.items() if data is not None},
        len(schedule),
        BATCH,
        derive(seed, "comparison"),
        clean=splits.valid if name == "reweight" else None,
    )
    return train_in_stages(task, [Member(np.array(schedule), derive(seed, "compared", draw), RATE)]).trained


def assert_outcome(found: Outcome, trained: Trained, judged_on: str = "test") -> None:
    curves = trained.curves
    np.testing.assert_array_equal(found.accuracy, curves.accuracy[judged_on][0])
    np.testing.assert_array_equal(found.valid_accuracy, curves.accuracy["valid"][0])
    for name in ("train_accuracy", "label_precision", "kept", "loss"):
        np.testing.assert_array_equal(getattr(found, name), getattr(curves, name)[0], err_msg=name)
    assert found.diverged == curves.diverged[0]
    assert found.judged_on == judged_on


@pytest.mark.parametrize("name", [*METHODS, "s2e", "s2e:jocor"])
def test_an_outcome_of_a_packed_comparison_is_that_of_a_training_alone(
    whole: tuple[Run, Log, Trainings], data: str, name: str
) -> None:
    found = outcomes(whole[0])
    for noise in NOISES:
        for draw in range(2):
            made = prepared(data, noise, draw)
            schedule = [1.0] * EPOCHS
            if name in KEEP_RATE:
                assert made.noise_rate is not None
                schedule = told_schedule(made.noise_rate)
            elif name.startswith("s2e"):
                written = f"schedule-{name}-{noise}.json".replace(":", "-")
                schedule = whole[0].read_json(written)["keep_rates"]
            base = {"s2e": "coteaching", "s2e:jocor": "jocor"}.get(name, name)
            one = found[noise, name, draw]
            assert_outcome(one, alone(made, base, draw, schedule))
            if base in KEEP_RATE:
                assert one.keep_rates is not None
                np.testing.assert_allclose(one.keep_rates, schedule, rtol=1e-15)
            else:
                assert one.keep_rates is None


def test_all_settings_ride_in_as_few_populations_as_the_work_allows(whole: tuple[Run, Log, Trainings]) -> None:
    """8 methods, 2 settings, 2 seeds, forward correction second; 2 searches in 2 settings by generations; S2E."""
    assert whole[2].sizes == [7 * 4, 4, 2 * 2 * 2, 2 * 2 * 2, 2 * 4]
    assert {each.method for each in whole[2].members[1]} == {METHODS["f-correction"]}


def test_what_is_announced_is_what_is_trained(whole: tuple[Run, Log, Trainings]) -> None:
    _, log, _ = whole
    assert log.stages == [("8 methods", 2 * EPOCHS), ("search", 2 * EPOCHS), ("s2e, s2e:jocor", EPOCHS)]
    assert len(log.epochs) == 5 * EPOCHS
    assert [(done.finished, done.trials, len(done.best)) for done in log.generations] == [(8, 16, 4), (16, 16, 4)]


def test_a_few_methods_are_announced_by_their_names(data: str, tmp_path: Path) -> None:
    log = Log()
    compared(options(data, "jocor", "standard", seeds=1, epochs=1), tmp_path / "run", log)
    assert log.stages == [("jocor, standard", 1)]


# Seeds, noise and splits


def test_a_seed_has_other_weights_and_other_noise_on_the_same_samples(whole: tuple[Run, Log, Trainings]) -> None:
    trainings = whole[2]
    plain = [each for each in trainings.members[0] if each.method == Standard()]
    assert len({each.seed for each in plain}) == 2
    assert len({each.labels.tobytes() for each in plain if each.labels is not None}) == 4
    rows = {task.train.rows.tobytes() for task in trainings.tasks}
    assert len(rows) == 1
    for members in (trainings.members[0], trainings.members[-1]):  # methods differ in nothing else
        by_setting: dict[bytes, set[int]] = {}
        for each in members:
            assert each.labels is not None
            by_setting.setdefault(each.labels.tobytes(), set()).add(each.seed)
        assert by_setting.keys() == {each.labels.tobytes() for each in plain if each.labels is not None}
        assert all(len(seeds) == 1 for seeds in by_setting.values())


def test_the_first_seed_has_the_noise_of_a_search_of_the_same_data(
    whole: tuple[Run, Log, Trainings], data: str
) -> None:
    from s2e.preparation import prepare

    first = [each for each in whole[2].members[0] if each.seed == derive(0, "compared", 0)]
    labels = {each.labels.tobytes() for each in first if each.labels is not None}
    assert labels == {prepare(DataOptions(data, noise), Path()).splits.train.labels.tobytes() for noise in NOISES}


def test_the_seed_of_the_comparison_decides_noise_split_weights_and_batches(data: str, tmp_path: Path) -> None:
    run = compared(options(data, "standard", seed=7), tmp_path / "run")
    for draw in range(2):
        made = prepared(data, NOISES[0], draw, seed=7)
        expected = alone(made, "standard", draw, [1.0] * EPOCHS, seed=7)
        assert_outcome(outcomes(run)[NOISES[0], "standard", draw], expected)


def test_the_seed_of_the_comparison_decides_the_search(data: str, tmp_path: Path) -> None:
    one, other = (compared(options(data, "s2e", seed=seed, seeds=1), tmp_path / str(seed)) for seed in (0, 1))
    points = [run.read_json("schedule-s2e-pair-0.4.json")["point"] for run in (one, other)]
    assert points[0] != points[1]


def test_more_seeds_leave_the_earlier_ones_as_they_were(data: str, tmp_path: Path) -> None:
    two, three = (compared(options(data, "standard", seeds=n), tmp_path / str(n)) for n in (2, 3))
    assert rows(three, "curves.csv")[: 2 * EPOCHS] == rows(two, "curves.csv")


# Searched schedules


def test_a_search_is_handed_train_and_validation_but_never_test(whole: tuple[Run, Log, Trainings]) -> None:
    tasks = whole[2].tasks
    assert [set(task.evaluate) for task in tasks[2:4]] == [{"valid"}, {"valid"}]
    assert [set(task.evaluate) for task in (*tasks[:2], tasks[4])] == [{"valid", "test"}] * 3


@pytest.mark.parametrize("name", ["s2e", "s2e:jocor"])
def test_a_schedule_is_searched_on_the_first_draw_as_if_it_were_searched_alone(
    whole: tuple[Run, Log, Trainings], data: str, name: str
) -> None:
    run = whole[0]
    for noise in NOISES:
        splits = prepared(data, noise, 0).splits
        task = Task(
            splits.train,
            reference_network("mlp", (6,), 4),
            METHODS["jocor" if name == "s2e:jocor" else "coteaching"],
            {"valid": splits.valid},
            EPOCHS,
            BATCH,
            derive(0, "comparison"),
        )
        family = SPACES["s2e"]
        plan = SearchPlan(family, algorithm("random", family, EPOCHS, 2), 4, 2, RATE)
        expected = search_schedule(task, plan, open_study(None, "alone", {}))
        written = run.read_json(f"schedule-{name}-{noise}.json".replace(":", "-"))
        assert written == {"keep_rates": expected.schedule.tolist(), "point": expected.point.tolist()}
        (said,) = [row for row in result(run)["search"] if (row["noise"], row["method"]) == (noise, name)]
        assert said["trials"] == 4
        assert said["best_trial"] == expected.trial
        assert said["validation_accuracy"] == expected.validation_accuracy


def test_a_study_kept_elsewhere_has_the_name_of_the_run(data: str, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/elsewhere.db"
    run = compare(options(data, "s2e", seeds=1, epochs=1), Place(tmp_path / "run", storage=storage), Log())
    assert "study.db" not in files(run)
    assert optuna.get_all_study_names(storage) == ["run/pair:0.4/s2e"]


# What is written


def test_a_comparison_leaves_exactly_the_documented_files(whole: tuple[Run, Log, Trainings]) -> None:
    found = {
        f"schedule-{name}-{noise}.json" for name in ("s2e", "s2e-jocor") for noise in ("pair-0.4", "symmetric-0.3")
    }
    written = {"config.json", "study.db", "outcomes.npz", "results.csv", "curves.csv", "transitions.npz", "result.json"}
    assert files(whole[0]) == {*found, *written, "accuracy.svg", ".lock"}


def test_a_result_says_what_was_compared_on_what(whole: tuple[Run, Log, Trainings], data: str) -> None:
    found = result(whole[0])
    said = {"summary", "judged_on", "validation", "epochs", "seeds", "noise_rates", "samples", "left_out", "search"}
    assert found.keys() == said | {"device", "seconds"}
    first = [prepared(data, noise, 0) for noise in NOISES]
    assert found["noise_rates"] == dict(zip(NOISES, [each.noise_rate for each in first], strict=True))
    splits = first[0].splits
    assert splits.test is not None
    assert found["samples"] == {"train": len(splits.train), "valid": len(splits.valid), "test": len(splits.test)}
    assert (found["judged_on"], found["validation"]) == ("test", "clean")
    assert (found["epochs"], found["seeds"], found["left_out"], found["device"]) == (EPOCHS, 2, [], "cpu")
    names = [*METHODS, "s2e", "s2e:jocor"]
    assert [(row["noise"], row["method"]) for row in found["summary"]] == [(n, m) for n in NOISES for m in names]


def test_means_and_deviations_are_those_of_the_trainings(whole: tuple[Run, Log, Trainings]) -> None:
    found = outcomes(whole[0])
    for row in result(whole[0])["summary"]:
        two = [found[row["noise"], row["method"], seed] for seed in range(2)]
        assert (row["seeds"], row["diverged"]) == (2, 0)
        for name, values in (
            ("last_10_epochs", [one.accuracy.mean() for one in two]),  # fewer than ten epochs: all of them
            ("best_epoch", [one.accuracy.max() for one in two]),
            ("label_precision", [np.nanmean(one.label_precision) for one in two]),
        ):
            assert row[name]["mean"] == pytest.approx(sum(values) / 2), (row["method"], name)
            assert row[name]["std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5, abs=1e-12)


def test_the_tables_have_a_row_for_each_training_and_for_each_of_its_epochs(
    whole: tuple[Run, Log, Trainings],
) -> None:
    names = [*METHODS, "s2e", "s2e:jocor"]
    order = [(noise, name, str(seed)) for noise in NOISES for name in names for seed in range(2)]
    results, curves = rows(whole[0], "results.csv"), rows(whole[0], "curves.csv")
    assert [(row["noise"], row["method"], row["seed"]) for row in results] == order
    assert [(row["noise"], row["method"], row["seed"], row["epoch"]) for row in curves] == [
        (*one, str(epoch)) for one in order for epoch in range(EPOCHS)
    ]
    found = outcomes(whole[0])
    for row in results:
        one = found[row["noise"], row["method"], int(row["seed"])]
        assert float(row["last_10_epochs"]) == pytest.approx(one.accuracy.mean(), abs=1e-6)
        assert float(row["best_epoch"]) == pytest.approx(one.accuracy.max(), abs=1e-6)
        assert row["judged_on"] == "test"
    for row in curves:
        one = found[row["noise"], row["method"], int(row["seed"])]
        assert float(row["valid_accuracy"]) == pytest.approx(one.valid_accuracy[int(row["epoch"])], abs=1e-6)


def test_the_estimated_matrices_are_written_under_their_training(
    whole: tuple[Run, Log, Trainings],
) -> None:
    second = whole[2].members[1]
    with np.load(whole[0].path / "transitions.npz", allow_pickle=False) as stored:
        assert set(stored) == {f"{noise}/f-correction/{draw}" for noise in NOISES for draw in range(2)}
        for (noise, draw), each in zip([(n, d) for n in NOISES for d in range(2)], second, strict=True):
            np.testing.assert_array_equal(stored[f"{noise}/f-correction/{draw}"], each.transition)


def test_the_config_says_everything_needed_to_repeat_the_comparison(
    whole: tuple[Run, Log, Trainings], data: str
) -> None:
    config = whole[0].read_json(CONFIG)
    assert config["command"] == "compare"
    stored = {name: tuple(value) if isinstance(value, list) else value for name, value in config["options"].items()}
    assert CompareOptions(**stored) == options(data, "all", "s2e:jocor", **WHOLE)
    assert config["network"] == "mlp"


def test_a_matrix_may_lie_at_the_end_of_any_path(data: str, tmp_path: Path) -> None:
    """Its path is a part of the names of files and of arrays."""
    deep = tmp_path / ("ü" * 100) / ("y" * 200)
    deep.mkdir(parents=True)
    np.save(deep / "m.npy", np.eye(4) * 0.6 + 0.1)
    noise = f"asymmetric:{deep / 'm.npy'}"
    run = compared(options(data, "s2e", "f-correction", noises=(noise,), seeds=1, epochs=1), tmp_path / "run")
    (name,) = (name for name in files(run) if name.startswith("schedule-s2e-"))
    assert name.endswith("yyy-m.npy.json")
    assert [row["noise"] for row in rows(run, "results.csv")] == [noise] * 2
    assert run.read_arrays("transitions.npz").keys() == {f"{noise}/f-correction/0"}
    assert {one.noise for one in Ledger.of(run).outcomes} == {noise}


# Validation


def test_noisy_validation_trains_each_setting_on_its_own_split(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings, log = Trainings(monkeypatch), Log()
    names = ("standard", "f-correction", "coteaching", "s2e")
    run = compared(options(data, *names, noises=NOISES, validation="noisy"), tmp_path / "run", log)
    assert trainings.sizes == 2 * [2, 1, 1, 1, 1, 2, 1, 1]  # the first draw of each setting has the search between
    given, searched = ("standard, f-correction, coteaching", 2 * EPOCHS), ("s2e", EPOCHS)
    assert log.stages == 2 * [given, ("search", 2 * EPOCHS), searched, given, searched]
    assert result(run)["validation"] == "noisy"
    assert {task.clean for task in trainings.tasks} == {None}  # doubtful samples are never handed out as clean ones
    found = outcomes(run)
    assert len(found) == 16
    for noise in NOISES:
        schedule = run.read_json(f"schedule-s2e-{noise}.json".replace(":", "-"))["keep_rates"]
        for draw in range(2):
            made = prepared(data, noise, draw, validation="noisy")
            assert made.noise_rate is not None
            assert_outcome(found[noise, "standard", draw], alone(made, "standard", draw, [1.0] * EPOCHS))
            assert_outcome(found[noise, "f-correction", draw], alone(made, "f-correction", draw, [1.0] * EPOCHS))
            told = told_schedule(made.noise_rate)
            assert_outcome(found[noise, "coteaching", draw], alone(made, "coteaching", draw, told))
            assert_outcome(found[noise, "s2e", draw], alone(made, "coteaching", draw, schedule))


@pytest.mark.parametrize("noises", [("none", "pair:0.4"), ("pair:0.4", "none")], ids=lambda noises: noises[0])
def test_labels_as_given_beside_noisy_ones_keep_their_precision_unknown_and_that_of_the_others_known(
    data: str, tmp_path: Path, noises: tuple[str, ...]
) -> None:
    """The split of both is the same; what is known of them is not."""
    run = compared(options(data, "standard", "f-correction", noises=noises), tmp_path / "run")
    found = outcomes(run)
    for noise in noises:
        for draw in range(2):
            for name in ("standard", "f-correction"):
                made = prepared(data, noise, draw)
                assert_outcome(found[noise, name, draw], alone(made, name, draw, [1.0] * EPOCHS))
    precision = {row["noise"]: row["label_precision"]["mean"] for row in result(run)["summary"]}
    assert precision["none"] is None
    assert precision["pair:0.4"] == pytest.approx(0.6, abs=0.15)


def test_settings_share_a_population_where_they_differ_in_nothing_but_the_given_labels(data: str) -> None:
    first = Setting("pair:0.4", 0, prepared(data, "pair:0.4", 0))
    train, valid = first.prepared.splits.train, first.prepared.splits.valid
    assert train.clean_labels is not None

    def other(**changes: LabelledData) -> Setting:
        return replace(first, prepared=replace(first.prepared, splits=replace(first.prepared.splits, **changes)))

    apart = [
        other(train=replace(train, rows=train.rows[::-1].copy())),
        other(train=replace(train, clean_labels=None)),
        other(train=replace(train, clean_labels=train.clean_labels[::-1].copy())),
        other(valid=replace(valid, labels=valid.labels[::-1].copy())),
    ]
    alike = other(train=replace(train, labels=train.labels[::-1].copy()))
    groups = comparison._groups(options(data), [first, *apart, alike], Place(Path()))
    assert [group.settings for group in groups] == [[first, alike], *([each] for each in apart)]


def test_a_validation_file_gives_reweight_its_clean_samples(own: str, tmp_path: Path) -> None:
    trusted = blobs(96, wrong=0.0, seed=1)
    np.savez(tmp_path / "trusted.npz", X=trusted.inputs, y=trusted.labels)
    file = str(tmp_path / "trusted.npz")
    run = compared(options(own, "reweight", noises=("none",), validation=file), tmp_path / "run")
    assert result(run)["validation"] == "clean"
    made = prepared(own, "none", 1, validation=file)
    one = outcomes(run)["none", "reweight", 1]
    assert_outcome(one, alone(made, "reweight", 1, [1.0] * EPOCHS), judged_on="valid")


def test_without_a_test_part_methods_are_judged_on_validation(data: str, tmp_path: Path) -> None:
    no_test = save(tmp_path / "no_test.npz", x_test=None, y_test=None)
    run = compared(options(no_test, "standard"), tmp_path / "run")
    assert result(run)["judged_on"] == "valid"
    assert result(run)["samples"].keys() == {"train", "valid"}
    assert {row["judged_on"] for row in rows(run, "results.csv")} == {"valid"}
    for one in outcomes(run).values():
        np.testing.assert_array_equal(one.accuracy, one.valid_accuracy)


# An unknown noise rate


NEEDS_RATE = "needs a noise rate to make its schedule from; give your guess with --noise-rate, or search with s2e"
NEEDS_CLEAN = "needs clean validation samples to train with; give some with --validation FILE.npz"


def test_all_leaves_out_what_unknown_data_do_not_allow_and_says_why(own: str, tmp_path: Path) -> None:
    run = compared(options(own, noises=("none",), seeds=1), tmp_path / "run")
    left_out = {row["method"]: row["reason"] for row in result(run)["left_out"]}
    assert left_out == {**dict.fromkeys(KEEP_RATE, NEEDS_RATE), "reweight": NEEDS_CLEAN}
    assert [row["method"] for row in result(run)["summary"]] == ["standard", "decoupling", "f-correction", "s2e"]
    assert result(run)["noise_rates"] == {"none": None}


def test_a_guess_of_the_noise_rate_brings_the_methods_with_a_keep_rate_back(own: str, tmp_path: Path) -> None:
    run = compared(options(own, noises=("none",), seeds=1, noise_rate=0.2), tmp_path / "run")
    assert result(run)["left_out"] == [{"method": "reweight", "reason": NEEDS_CLEAN}]
    found = outcomes(run)
    for name in KEEP_RATE:
        one = found["none", name, 0]
        assert one.keep_rates is not None
        np.testing.assert_allclose(one.keep_rates, told_schedule(0.2))
    assert result(run)["noise_rates"] == {"none": None}  # a guess is not knowledge


def test_a_noise_rate_that_is_told_is_believed_even_where_the_true_one_is_known(data: str, tmp_path: Path) -> None:
    run = compared(options(data, "coteaching", noise_rate=0.0, epochs=12, seeds=1), tmp_path / "run")
    (one,) = outcomes(run).values()
    assert one.keep_rates is not None
    np.testing.assert_array_equal(one.keep_rates, 1.0)


def test_methods_are_told_the_share_of_wrong_labels_of_their_own_draw(data: str, tmp_path: Path) -> None:
    run = compared(options(data, "mentornet", epochs=12), tmp_path / "run")
    shares = [prepared(data, NOISES[0], draw).noise_rate for draw in range(2)]
    assert shares[0] != shares[1]
    for draw, one in enumerate(outcomes(run).values()):
        assert one.keep_rates is not None
        assert one.keep_rates[-1] == pytest.approx(1 - (shares[draw] or 0))


# Options that cannot be


@pytest.mark.parametrize(
    ("changes", "mention"),
    [
        ({"seeds": 0}, "`seeds` must be at least 1, but got 0"),
        ({"seeds": -1}, "`seeds` must be at least 1, but got -1"),
        ({"noise_rate": 1.0}, r"`noise_rate` must lie in \[0, 1\), but got 1.0"),
        ({"noise_rate": -0.1}, r"`noise_rate` must lie in \[0, 1\)"),
        ({"noise_rate": float("nan")}, r"`noise_rate` must lie in \[0, 1\)"),
        ({"noises": ()}, "`noises` must name each noise setting once, but got none"),
        ({"noises": ("pair:0.4", "none", "pair:0.4")}, "once, but got pair:0.4, none, pair:0.4"),
        ({"noises": ("pair:0.4", "pair:0.40")}, "once, but got pair:0.4, pair:0.40"),
        ({"noises": ("none", " none")}, "`noises` must name each noise setting once"),
        ({"noises": ("pear:0.4",)}, r"`noise` must be one of pair:RATE"),
    ],
)
def test_an_impossible_option_is_refused(changes: dict[str, Any], mention: str) -> None:
    with pytest.raises(InvalidInput, match=mention):
        CompareOptions("digits", **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": ("standard", "nothing")},
        {"epochs": 0},
        {"batch_size": 1000},
        {"learning_rate": 0.0},
        {"network": "cifar10-cnn"},
        {"trials": 0},
        {"generation": 0},
        {"space": "nowhere"},
        {"sampler": "newton", "generation": 1},
        {"noises": ("pair:0.4", "human:worst")},
        {"validation": "cleanish"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_bad_input_is_refused_before_anything_is_trained_or_made(
    data: str, tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = Trainings(monkeypatch)
    with pytest.raises(InvalidInput):
        compared(options(data, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not trainings.sizes


# Death and return


DYING = ("standard", "mentornet", "f-correction", "s2e")


@pytest.fixture(scope="module")
def never_killed(data: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compared(options(data, *DYING, noises=NOISES), tmp_path_factory.mktemp("never_killed") / "run")


@pytest.fixture
def copied(never_killed: Run, tmp_path: Path) -> Run:
    """A finished comparison to play with."""
    return Run(shutil.copytree(never_killed.path, tmp_path / "copied"))


def assert_same_comparison(one: Run, other: Run) -> None:
    assert {**result(one), "seconds": 0} == {**result(other), "seconds": 0}
    assert files(one) == files(other)
    for name in (name for name in files(one) if name.endswith((".csv", ".json")) and name != "result.json"):
        assert (one.path / name).read_bytes() == (other.path / name).read_bytes(), name
    matrices = [run.read_arrays("transitions.npz") for run in (one, other)]
    assert matrices[0].keys() == matrices[1].keys()
    for name, matrix in matrices[0].items():
        np.testing.assert_array_equal(matrix, matrices[1][name])


def killed(given: CompareOptions, path: Path, after: int, *, resume: bool = False) -> list[int]:
    """Let a comparison die instead of the population after so many; return the sizes of those it trained."""
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched, after)
        with pytest.raises(Death):
            compared(given, path, resume=resume)
        return trainings.sizes


@pytest.mark.parametrize(
    ("after", "left"),
    [(0, [8, 4]), (1, [4, 4])],  # what gives forward correction its matrices is trained again, and nothing else
)
def test_a_comparison_killed_in_a_population_ends_as_one_never_killed(
    data: str, tmp_path: Path, after: int, left: list[int]
) -> None:
    given = options(data, "standard", "mentornet", "f-correction", noises=NOISES)
    expected = compared(given, tmp_path / "whole")
    assert len(killed(given, tmp_path / "run", after)) == after
    assert not (tmp_path / "run" / "result.json").exists()
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        run = compared(given, tmp_path / "run", resume=True)
    assert trainings.sizes == left
    assert_same_comparison(run, expected)


def test_what_the_first_population_finished_is_not_lost_with_the_second(data: str, tmp_path: Path) -> None:
    killed(options(data, *DYING, noises=NOISES), tmp_path / "run", 1)
    finished = outcomes(Run(tmp_path / "run"))
    assert {method for _, method, _ in finished} == {"standard", "mentornet"}
    assert len(finished) == 8


def test_a_comparison_that_dies_after_every_population_ends_as_one_never_killed_and_trains_nothing_again(
    never_killed: Run, data: str, tmp_path: Path
) -> None:
    given, path = options(data, *DYING, noises=NOISES), tmp_path / "run"
    assert killed(given, path, 2) == [8, 4]
    assert killed(given, path, 0, resume=True) == []
    assert killed(given, path, 1, resume=True) == [2]  # a trial of each setting
    assert killed(given, path, 1, resume=True) == [2]
    assert not (path / "result.json").exists()
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        run = compared(given, path, resume=True)
    assert trainings.sizes == [4]
    assert_same_comparison(run, never_killed)


def test_noisy_validation_goes_on_with_the_setting_it_died_in(data: str, tmp_path: Path) -> None:
    given = options(data, "standard", "s2e", validation="noisy")
    expected = compared(given, tmp_path / "whole")
    assert killed(given, tmp_path / "run", 4) == [1, 1, 1, 1]
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        run = compared(given, tmp_path / "run", resume=True)
    assert trainings.sizes == [1, 1]
    assert_same_comparison(run, expected)


@pytest.mark.parametrize("moment", ["figures", "result.json"])
def test_a_death_while_the_tables_are_written_costs_no_training(
    never_killed: Run, data: str, tmp_path: Path, moment: str
) -> None:
    given, write = options(data, *DYING, noises=NOISES), Run._write

    def dying(run: Run, name: str, fill: Callable[..., object]) -> None:
        if name == moment:
            raise Death
        write(run, name, fill)

    def no_figures(_: Any) -> None:
        raise Death

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Run, "_write", dying)
        if moment == "figures":
            patched.setattr(comparison, "figure_files", no_figures)
        with pytest.raises(Death):
            compared(given, tmp_path / "run")
    with pytest.MonkeyPatch.context() as patched:
        trainings = Trainings(patched)
        run = compared(given, tmp_path / "run", resume=True)
    assert not trainings.sizes
    assert_same_comparison(run, never_killed)


def test_continuing_what_is_finished_trains_nothing_and_changes_nothing(
    never_killed: Run, copied: Run, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings, log = Trainings(monkeypatch), Log()
    compared(options(data, *DYING, noises=NOISES), copied.path, log, resume=True)
    assert not trainings.sizes
    assert log.stages == [("search", 0)]
    assert_same_comparison(copied, never_killed)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": 3}, "seeds was 2 and is now 3"),
        ({"epochs": 5}, f"epochs was {EPOCHS} and is now 5"),
        ({"noises": NOISES[:1]}, "noises was ['pair:0.4', 'symmetric:0.3'] and is now ['pair:0.4']"),
        ({"noise_rate": 0.3}, "noise_rate was None and is now 0.3"),
        ({"trials": 6, "sampler": "curve"}, "sampler was 'random' and is now 'curve'; trials was 2 and is now 6"),
        ({"validation": "noisy"}, "validation was 'auto' and is now 'noisy'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_continuing_with_other_options_is_refused_by_their_names(
    never_killed: Run, copied: Run, data: str, changes: dict[str, Any], said: str
) -> None:
    given = replace(options(data, *DYING, noises=NOISES), **changes)
    with pytest.raises(RunConflict) as refused:
        compared(given, copied.path, resume=True)
    assert str(refused.value) == f"{str(copied.path)!r} was made with other settings: {said}."
    assert_same_comparison(copied, never_killed)


@pytest.mark.parametrize("part", ["x_train", "y_train", "x_valid", "y_valid", "x_test", "y_test"])
def test_continuing_on_data_that_have_changed_is_refused(tmp_path: Path, part: str) -> None:
    trusted = blobs(96, wrong=0.0, seed=1)
    arrays: dict[str, Any] = {"x_valid": trusted.inputs, "y_valid": trusted.labels}
    file = save(tmp_path / "own.npz", **arrays)
    given = options(file, "standard", noises=("none",), seeds=1, epochs=1)
    compared(given, tmp_path / "run")
    with np.load(file) as stored:
        arrays = dict(stored)
    arrays[part] = arrays[part][::-1]
    np.savez(file, **arrays)
    with pytest.raises(RunConflict, match="the data have changed since"):
        compared(replace(given, methods=("standard", "decoupling")), tmp_path / "run", resume=True)


def test_a_second_comparison_in_the_same_place_is_refused(never_killed: Run, copied: Run, data: str) -> None:
    with pytest.raises(RunConflict, match="already holds a run"):
        compared(options(data, "standard"), copied.path)
    assert_same_comparison(copied, never_killed)


# numpy leaves the file of a truncated archive open until it is collected
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", ["truncated", "not an archive", "of another kind"])
def test_a_damaged_record_of_finished_trainings_is_refused_and_left_alone(copied: Run, data: str, damage: str) -> None:
    record = copied.path / "outcomes.npz"
    if damage == "truncated":
        record.write_bytes(record.read_bytes()[:-100])
    elif damage == "not an archive":
        record.write_bytes(b"nothing to be read" * 50)
    else:
        np.savez(record, accuracy=np.zeros(3))
    left = record.read_bytes()
    with pytest.raises(UnreadableData, match=r"outcomes\.npz' could not be read"):
        compared(options(data, *DYING, noises=NOISES), copied.path, resume=True)
    assert record.read_bytes() == left


# More methods


def test_methods_that_join_are_trained_and_the_finished_ones_are_not_trained_again(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = compared(options(data, "jocor", "s2e", "standard"), tmp_path / "at_once")
    joined = compared(options(data, "standard", "s2e"), tmp_path / "joined")
    trainings = Trainings(monkeypatch)
    compared(options(data, "jocor", "s2e", "standard"), joined.path, resume=True)
    assert [[each.method for each in members] for members in trainings.members] == [[JoCoR()] * 2]
    assert_same_comparison(joined, at_once)


def test_a_search_that_joins_leaves_the_finished_one_alone(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = compared(options(data, "s2e"), tmp_path / "run")
    before = rows(run, "curves.csv")
    trainings = Trainings(monkeypatch)
    compared(options(data, "s2e", "s2e:mentornet"), run.path, resume=True)
    assert trainings.sizes == [1, 1, 2]
    assert {each.method for members in trainings.members for each in members} == {METHODS["mentornet"]}
    assert rows(run, "curves.csv")[: len(before)] == before


def test_methods_that_are_no_longer_asked_for_stay_in_the_tables(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = compared(options(data, "standard", "f-correction"), tmp_path / "run")
    before = rows(run, "curves.csv")
    trainings = Trainings(monkeypatch)
    compared(options(data, "jocor"), run.path, resume=True)
    assert trainings.sizes == [2]
    assert [row["method"] for row in result(run)["summary"]] == ["jocor", "standard", "f-correction"]
    assert rows(run, "curves.csv")[2 * EPOCHS :] == before
    assert run.read_arrays("transitions.npz").keys() == {"pair:0.4/f-correction/0", "pair:0.4/f-correction/1"}


def test_a_joining_method_that_cannot_take_part_costs_nothing(own: str, tmp_path: Path) -> None:
    run = compared(options(own, "standard", noises=("none",)), tmp_path / "run")
    before = {name: (run.path / name).read_bytes() for name in files(run)}
    with pytest.raises(InvalidInput, match="coteaching needs a noise rate"):
        compared(options(own, "standard", "coteaching", noises=("none",)), run.path, resume=True)
    assert {name: (run.path / name).read_bytes() for name in files(run)} == before


# Methods that diverge


def spoiled(objective: Callable[[Any, Batch], Objective]) -> Callable[[Any, Batch], Objective]:
    def broken(self: Any, batch: Batch) -> Objective:
        whole = objective(self, batch)
        return whole._replace(loss=whole.loss * torch.nan)

    return broken


@pytest.mark.parametrize(("broken", "lost"), [(Decoupling, {"decoupling"}), (Standard, {"standard", "f-correction"})])
def test_a_method_that_diverges_does_not_spoil_the_others(
    whole: tuple[Run, Log, Trainings],
    data: str,
    tmp_path: Path,
    broken: type,
    lost: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broken, "objective", spoiled(broken.objective))
    names = ("standard", "decoupling", "f-correction", "coteaching", "reweight")
    run = compared(options(data, *names), tmp_path / "run")
    sound, found = outcomes(whole[0]), outcomes(run)
    assert {method for _, method, _ in found} == set(names)
    for key, one in found.items():
        assert one.diverged == (key[1] in lost)
        if not one.diverged:
            np.testing.assert_array_equal(one.accuracy, sound[key].accuracy)
            np.testing.assert_array_equal(one.loss, sound[key].loss)
    for row in result(run)["summary"]:
        assert row["diverged"] == (2 if row["method"] in lost else 0)
        assert (row["last_10_epochs"]["mean"] == 0) == (row["method"] in lost)
    assert "NaN" not in (run.path / "result.json").read_text()
    json.loads((run.path / "result.json").read_text())


def test_one_seed_that_diverges_does_not_spoil_the_other_seeds(
    whole: tuple[Run, Log, Trainings], data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = Reweight.objective

    def broken(self: Any, batch: Batch) -> Objective:
        sound = objective(self, batch)
        return sound._replace(loss=torch.cat([sound.loss[:1] * torch.nan, sound.loss[1:]]))

    monkeypatch.setattr(Reweight, "objective", broken)
    run = compared(options(data, "reweight"), tmp_path / "run")
    first, second = outcomes(run).values()
    assert (first.diverged, second.diverged) == (True, False)
    np.testing.assert_array_equal(second.accuracy, outcomes(whole[0])["pair:0.4", "reweight", 1].accuracy)
    assert result(run)["summary"][0]["diverged"] == 1
