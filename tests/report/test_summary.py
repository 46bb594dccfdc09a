"""Summaries of runs, word for word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import report_runs as runs
from s2e.audit import WEAK
from s2e.audit.run_audit import audit_run
from s2e.report.run_numbers import Score, read_numbers
from s2e.report.summary import summarise_run
from s2e.runs.directory import Run


def test_summary_of_a_search():
    run = Run.open(runs.images())
    audited = audit_run(run)
    (summary,) = summarise_run(read_numbers(run), audited)
    issues, labels = audited.audit.issues.sum(), len(audited.labels)
    assert issues > 0
    assert summary.startswith(f"{issues} of {labels} labels are probably wrong (")
    standard, coteaching, own = (f"{100 * row['test']['last_10_epochs']:.1f}%" for row in runs.method_rows(run))
    voted = run.read_json("result.json")["classifier"]
    assert voted["votes"] == {"networks": 1.0}
    voters = f"{voted['networks']} networks" if voted["networks"] > 1 else "one network"
    assert summary.endswith(
        f". The classifier ({voters}) has a test accuracy of {100 * voted['test']:.1f}%. "
        f"A single network trained with the searched schedule has {own}, compared with "
        f"{standard} for standard training and {coteaching} for Co-teaching given the noise rate."
    )


def test_a_single_training_is_the_classifier():
    run = Run.open(runs.training())
    (row,) = runs.method_rows(run)
    (summary,) = summarise_run(read_numbers(run), None)
    part = "test" if "test" in row else "valid"
    assert summary.startswith("The classifier trained by Standard agrees with ")
    assert f" {100 * row[part]['last_10_epochs']:.1f}% of the validation labels" in summary


def test_weak_networks_are_named():
    run = Run.open(runs.images())
    audited = audit_run(run)
    weak = replace(audited, audit=replace(audited.audit, message=WEAK, issues=np.zeros_like(audited.audit.issues)))
    (summary,) = summarise_run(read_numbers(run), weak)
    assert summary.startswith("No label is flagged: the networks are too weak to distinguish wrong labels from samples")


def test_without_test_data_the_quality_of_the_validation_labels_is_given():
    numbers = read_numbers(Run.open(runs.table()))

    def summary(validation: str) -> str:
        (found,) = summarise_run(replace(numbers, validation=validation), None)
        return found

    (setting,) = numbers.settings
    voted = setting.classifier
    own = setting.scores[-1].accuracy
    agreement = (
        f"The classifier ({voted.voters}) agrees with {100 * voted.accuracy:.1f}% of the validation labels. "
        f"A single network trained with the searched schedule agrees with {100 * own:.1f}%, compared with "
    )
    assert numbers.validation == "relabelled"
    assert summary("relabelled").startswith(agreement)
    assert summary("relabelled").endswith(
        " The validation labels were relabelled before the search and may still be wrong."
    )
    assert summary("noisy").startswith(agreement)
    assert summary("noisy").endswith(" The validation labels are as noisy as the training labels.")
    assert " has a validation accuracy of " in summary("clean")
    assert summary("clean").endswith(" The validation labels are trusted.")


def test_label_issues_are_counted_and_the_most_frequent_error_named():
    run = Run.open(runs.training())
    audited, numbers = audit_run(run), read_numbers(run)

    def labels(errors: list[tuple[int, int]]) -> str:
        """The first sentence if the first labels are issues, each (suggested, given)."""
        issues = np.arange(90) < len(errors)
        suggested, given = audited.labels.copy(), audited.labels.copy()
        for index, error in enumerate(errors):
            suggested[index], given[index] = error
        verdicts = replace(audited.audit, issues=issues, suggested=suggested)
        (summary,) = summarise_run(numbers, replace(audited, labels=given, audit=verdicts))
        return summary.split(". ")[0]

    assert labels([]) == "None of the 90 labels is more likely wrong than correct"
    assert labels([(0, 1)]) == "1 of 90 labels is probably wrong (1.1%), 0 labelled as 1"
    assert labels([(0, 1)] * 3) == "3 of 90 labels are probably wrong (3.3%), all of them 0 labelled as 1"
    assert labels([(0, 1), (0, 1), (2, 1)]) == "3 of 90 labels are probably wrong (3.3%), most often 0 labelled as 1"
    assert labels([(0, 1), (2, 1)]) == "2 of 90 labels are probably wrong (2.2%)"


def test_diverged_baselines_are_named():
    numbers = read_numbers(Run.open(runs.table()))
    (setting,) = numbers.settings
    guess = Score("Co-teaching (assumed noise rate 20%)", "coteaching", 0.5, None, 0.6, None, 1, 0)
    diverged = Score("Standard", "standard", 0.0, None, 0.6, None, 1, 1)
    changed = replace(setting, scores=(diverged, guess, setting.scores[-1]))
    (summary,) = summarise_run(replace(numbers, settings=(changed,)), None)
    assert ", compared with 50.0% for Co-teaching (assumed noise rate 20%). Standard training diverged. " in summary


def test_a_comparison_has_a_summary_for_each_noise_setting():
    numbers = read_numbers(Run.open(runs.comparison()))
    assert len(summarise_run(numbers, None)) == 2

    def summary(**accuracies: float) -> str:
        scores = [Score(name, name.lower(), share, None, 1.0, None, 1, 0) for name, share in accuracies.items()]
        setting = replace(numbers.settings[0], scores=tuple(scores))
        (found,) = summarise_run(replace(numbers, settings=(setting,)), None)
        return found.removeprefix("Symmetric noise, 30%: ")

    assert summary(Standard=0.8, S2E=0.9) == (
        "S2E has a test accuracy of 90.0%, the best of 2 methods, compared with 80.0% for standard training."
    )
    assert summary(Standard=0.9, S2E=0.8) == (
        "S2E has a test accuracy of 80.0%, compared with 90.0% for standard training (the best of 2 methods)."
    )
    assert summary(Standard=0.9, S2E=0.9) == (
        "S2E has a test accuracy of 90.0%, tied for the best of 2 methods, compared with 90.0% for standard training."
    )
    assert summary(JoCoR=0.7) == "JoCoR has a test accuracy of 70.0%."
