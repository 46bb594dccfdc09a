"""`s2e reproduce comparison` and `human`: their declarations, parts, claims and pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from figure_outcomes import comparison as outcomes_of
from listeners import Log
from s2e.errors import RunConflict, UnreadableData
from s2e.experiments import comparison, human
from s2e.experiments.claims import Claim
from s2e.experiments.comparison import BUDGETS, options_of, reproduce_comparison
from s2e.experiments.comparison_results import Compared, claims_of, margins, margins_sections, section_of
from s2e.experiments.human import PARTS, published_claim, reproduce_human
from s2e.runs import Run, RunLocation
from s2e.specs import ComparisonOptions, HumanOptions
from s2e.workflows import ORACLES, SEARCHED, summarise
from s2e.workflows import compare as workflow
from space_runs import save_clean_clusters

pytestmark = pytest.mark.usefixtures("work")


@pytest.fixture(autouse=True)
def _no_figures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workflow, "figure_files", lambda _: {})
        yield


def options(*data: str, **changes: Any) -> ComparisonOptions:
    small: dict[str, Any] = {"noises": ("pair:0.4",), "epochs": 2, "seeds": 2, "searches": 2, "trials": 2}
    return ComparisonOptions(**{"data": data, "methods": ("standard", "s2e", "oracle:clean"), **small, **changes})


def made(given: ComparisonOptions, *, resume: bool = False, log: Log | None = None) -> Run:
    return reproduce_comparison(given, RunLocation(Path("run"), device="cpu"), log or Log(), resume=resume)


def test_parts_are_comparisons_and_finished_ones_are_skipped() -> None:
    one, other = (save_clean_clusters(name) for name in ("one.npz", "other.npz"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(comparison, "compare", stopped_at("other.npz", comparison.compare))
        with pytest.raises(KeyboardInterrupt):
            made(options(one, other))
    assert Run("run/one.npz").is_finished
    assert not Path("run/README.md").exists()
    before, log = Path("run/one.npz/result.json").stat().st_mtime_ns, Log()
    run = made(options(one, other), resume=True, log=log)
    assert Path("run/one.npz/result.json").stat().st_mtime_ns == before
    assert "one.npz: finished before" in log.notes
    assert run.read_json("result.json")["parts"] == ["one.npz", "other.npz"]
    page = (run.path / "README.md").read_text()
    assert page.count("\n| oracle: clean labels | ") == 8  # three accuracies and label precision, on both data sets
    assert "(one.npz/accuracy.png)" in page
    with pytest.raises(RunConflict, match="epochs was 2 and is now 3"):
        made(options(one, other, epochs=3), resume=True)


def stopped_at(name: str, compare: Any) -> Any:
    def stopping(given: Any, *others: Any, **named: Any) -> Run:
        if given.dataset.data.endswith(name):
            raise KeyboardInterrupt
        run: Run = compare(given, *others, **named)
        return run

    return stopping


def test_budgets_follow_the_data_unless_given() -> None:
    mnist, large = (options_of(name, ComparisonOptions()) for name in ("mnist", "cifar100"))
    assert (mnist.seeds, mnist.searches, mnist.search.trials, mnist.test_part) == (5, 3, 60, "5000-9999")
    assert {*ORACLES, SEARCHED, "reweight"} < {*mnist.methods}
    assert (large.seeds, large.searches, large.search.trials, large.test_part) == (3, 1, 12, "")
    assert {"standard", "coteaching", "jocor", SEARCHED} <= {*large.methods}
    given = options_of("mnist", ComparisonOptions(seeds=2, trials=4, searches=9))
    assert (given.seeds, given.searches, given.search.trials) == (2, 2, 4)
    assert set(BUDGETS) == {"mnist", "cifar10", "cifar100"}


def compared(**ahead: float) -> Compared:
    """A comparison in which S2E is the best, or behind methods by as much as given."""
    outcomes = outcomes_of(["standard", "coteaching", "s2e"], ["pair:0.45"], seeds=2, epochs=20)
    rows = summarise(outcomes)
    for row in rows:
        for column in ("last_10_epochs", "chosen_epoch", "best_epoch"):
            mean = 0.7 if row["method"] == "s2e" else 0.7 + ahead.get(row["method"], -0.1)
            row[column] = {"mean": mean, "std": None}
    samples = {"train": 90, "valid": 10, "test": 50}
    about = {"samples": samples, "validation": "clean", "epochs": 20, "search": [], "noise_rates": {"pair:0.45": 0.45}}
    return Compared("part", "MNIST", {"summary": rows, **about}, outcomes, "mnist")


def test_methods_ahead_of_s2e_are_named_with_the_difference() -> None:
    assert all(margin.is_first for margin in margins(compared()))
    found = margins(compared(coteaching=0.05, standard=0.01))
    assert [margin.is_first for margin in found] == [False] * 3
    assert found[0].line() == (
        "MNIST, pair noise, 45%, last 10 epochs: Co-teaching by 5.00 points, Standard by 1.00 points"
    )
    (section,) = margins_sections(found)
    assert section.paragraphs[0].startswith("S2E is first in 0 of 3 columns")
    assert "| MNIST, last 10 epochs | -5.00 (Co-teaching) |" in section.markdown()
    assert margins_sections([]) == []
    first, behind_others = (claims_of([each])[0] for each in (compared(), compared(coteaching=0.05)))
    assert (first.verdict.value, behind_others.verdict.value) == ("reproduced", "not reproduced")


def test_oracles_and_other_searches_are_no_rivals_of_s2e() -> None:
    outcomes = outcomes_of(["standard", "s2e", "s2e:jocor", "s2e-noisy-validation", "oracle:clean"], ["pair:0.45"])
    found = margins(Compared("part", "MNIST", {"summary": summarise(outcomes)}, outcomes, "mnist"))
    assert {name for margin in found for name in margin.others} == {"standard"}


def test_a_searched_schedule_should_be_smaller_for_more_noise_of_the_same_kind() -> None:
    def claim(less: float, more: float) -> Claim:
        noises = {"symmetric:0.2": less, "symmetric:0.5": more, "pair:0.45": 0.9}
        outcomes = [
            replace(one, keep_rates=np.full(20, noises[one.noise]))
            for one in outcomes_of(["standard", "s2e"], list(noises), seeds=2, epochs=20)
        ]
        rates = {noise: float(noise.partition(":")[2]) for noise in noises}
        result = {"summary": summarise(outcomes), "noise_rates": rates}
        _, _, second = claims_of([Compared("part", "MNIST", result, outcomes, "mnist")])
        return second

    assert (claim(0.6, 0.4).source, claim(0.6, 0.4).verdict.value) == ("Figure 4", "reproduced")
    assert claim(0.4, 0.6).verdict.value == "not reproduced"
    assert claim(0.6, 0.4).found == "symmetric noise, 20%: 60.00%, symmetric noise, 50%: 40.00%"


def test_methods_that_are_not_trained_are_named() -> None:
    text = section_of(compared()).markdown()
    assert "Not trained here: Decoupling; F-correction; MentorNet; Co-teaching+; Reweight; JoCoR; S2E, noisy" in text


def test_tables_have_the_best_in_bold() -> None:
    text = section_of(compared()).markdown()
    assert text.count("| S2E | **70.00** |") == 3
    assert "| Standard | 60.00 |" in text


def test_parts_with_labels_of_people_are_those_of_the_issue() -> None:
    worst = human.options_of(PARTS["cifar10n-resnet"], HumanOptions())
    assert (worst.noises, worst.training.network, worst.training.augment != "none") == (
        ("human:worst",),
        "resnet18",
        True,
    )
    three = human.options_of(PARTS["cifar10n"], HumanOptions(seeds=3)).noises
    assert three == ("human:aggre", "human:random1", "human:worst")
    claim = published_claim(compared())
    assert (claim.verdict.value, claim.found) == (
        "not reproduced",
        "70.00; below Co-teaching 83.8, ELR+ 91.1, DivideMix 92.6",
    )


def test_labels_of_people_need_their_data() -> None:
    with pytest.raises(UnreadableData, match=r"^cifar10 must be in 'data' at the scale of a laptop"):
        reproduce_human(HumanOptions(("cifar10n",), scale="laptop"), RunLocation(Path("run")), Log())
