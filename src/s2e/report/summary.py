"""The result of a run in a few sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from s2e.audit import WEAK, AuditedRun
from s2e.report.formatting import accuracy, count, listing, percent
from s2e.report.run_numbers import RunNumbers, Score, Setting
from s2e.workflows import is_oracle


def summarise_run(run: RunNumbers, audited: AuditedRun | None) -> tuple[str, ...]:
    """Summarise the label issues and accuracies of a run; a comparison has a summary for each noise setting.

    Args:
        run: numbers of the run.
        audited: label audit of the run; None if there is none.
    """
    if run.command == "compare":
        found = tuple(_comparison(run, setting) for setting in run.settings if setting.scores)
        return found or ("This comparison has not finished any training yet.",)
    sentences = [sentence for sentence in (_labels(audited), _classifier(run)) if sentence]
    return (" ".join(sentences) if sentences else _unfinished(run),)


def _unfinished(run: RunNumbers) -> str:
    trials = [trial for setting in run.settings for search in setting.searches for trial in search.trials]
    accuracies = [trial.accuracy for trial in trials if not trial.pruned]
    if not accuracies:
        return "This run is not finished and has no results yet."
    best = f"The best of {count(len(accuracies))} schedules so far has a validation accuracy of"
    return f"This run is not finished. {best} {percent(max(accuracies))}."


# Labels


def _labels(audited: AuditedRun | None) -> str:
    if audited is None:
        return ""
    issues, total = int(audited.audit.issues.sum()), len(audited.ids)
    if audited.audit.message == WEAK:
        return f"No label is flagged: {WEAK.partition(':')[0]}."
    if not issues:
        return f"None of the {count(total)} labels is more likely wrong than correct."
    are = "label is" if total == 1 else "labels is" if issues == 1 else "labels are"
    share = percent(issues / total)
    return f"{count(issues)} of {count(total)} {are} probably wrong ({share}){_most_frequent_error(audited)}."


def _most_frequent_error(audited: AuditedRun) -> str:
    """Return the most frequent error as text; "" if two are equally frequent."""
    found, names = audited.audit, audited.class_names
    errors = zip(found.suggested[found.issues].tolist(), audited.labels[found.issues].tolist(), strict=True)
    ((suggested, given), frequency), *others = Counter(errors).most_common(2)
    error = f"{names[suggested]} labelled as {names[given]}"
    if not others:
        return f", {'all of them ' if frequency > 1 else ''}{error}"
    return f", most often {error}" if frequency > others[0][1] else ""


# Accuracies


def _classifier(run: RunNumbers) -> str:
    (setting,) = run.settings
    if not setting.scores:
        return ""
    main = next((score for score in setting.scores if score.searched), setting.scores[-1])
    schedule = " with the given schedule" if setting.keep_rates else ""
    how = "with the searched schedule" if main.searched else f"by {main.name}{schedule}"
    voting, trained = "", f"The classifier trained {how} {_has(run)} {percent(main.accuracy)}{_of_labels(run)}"
    if setting.classifier is not None:
        voters, reached = setting.classifier.voters, percent(setting.classifier.accuracy)
        voting = f"The classifier ({voters}) {_has(run)} {reached}{_of_labels(run)}. "
        verb = "agrees with" if _agreement_only(run) else "has"
        trained = f"A single network trained {how} {verb} {percent(main.accuracy)}"
    if main.diverged:
        return f"{voting}The training {how} diverged."
    others = [score for score in setting.scores if score is not main]
    compared = f"{_compared_with(others, setting)}.{_diverged(others, setting)}"
    return f"{voting}{trained}{compared}{_label_quality(run)}"


def _comparison(run: RunNumbers, setting: Setting) -> str:
    """Compare the searched method, or else the best one, with the best of the others, Standard and Co-teaching.

    Oracles are not compared.
    """
    scores = [score for score in setting.scores if not is_oracle(score.method)]
    if not scores:
        return f"{_capital(setting.title)}: only oracles have been trained."
    setting = replace(setting, scores=tuple(scores))
    best = max(setting.scores, key=lambda score: score.accuracy or 0.0)
    main = next((score for score in setting.scores if score.searched), best)
    known = [score for score in setting.scores if score.method in ("standard", "coteaching")]
    rank = _rank(main, setting.scores)
    others = list(dict.fromkeys(score for score in (known if rank else [best, *known]) if score is not main))
    seeds = f" (mean of {main.trainings} seeds)" if main.trainings > 1 else ""
    best_other = None if rank else best
    return (
        f"{_capital(setting.title)}: {main.name} {_has(run)} {accuracy(main.accuracy, main.deviation)}{_of_labels(run)}"
        f"{seeds}{f', {rank}' if rank else ''}{_compared_with(others, setting, best_other)}."
        f"{_diverged(others, setting)}{_label_quality(run)}"
    )


def _agreement_only(run: RunNumbers) -> bool:
    """Return whether accuracies are agreement with labels that may be wrong."""
    return run.evaluated_on != "test" and run.validation != "clean"


def _has(run: RunNumbers) -> str:
    if _agreement_only(run):
        return "agrees with"
    return f"has {'a test' if run.evaluated_on == 'test' else 'a validation'} accuracy of"


def _of_labels(run: RunNumbers) -> str:
    return f" of the {_part(run)} labels" if _agreement_only(run) else ""


def _part(run: RunNumbers) -> str:
    return "held-out" if run.evaluated_on == "held-out" else "validation"


def _label_quality(run: RunNumbers) -> str:
    """Return a sentence on the reliability of the validation labels."""
    if run.evaluated_on == "test":
        return ""
    if run.validation == "clean":
        return " The validation labels are trusted."
    if run.validation == "relabelled":
        return " The validation labels were relabelled before the search and may still be wrong."
    return f" The {_part(run)} labels are as noisy as the training labels."


def _compared_with(scores: Sequence[Score], setting: Setting, best: Score | None = None) -> str:
    """Compare with the methods that did not all diverge; `best` is marked as the best of all methods."""
    others = [
        f"{accuracy(score.accuracy, score.deviation)} for {_description(score, setting)}"
        f"{f' ({_rank(score, setting.scores)})' if score is best else ''}"
        for score in scores
        if score.diverged < score.trainings
    ]
    return f", compared with {listing(others)}" if others else ""


def _diverged(scores: Sequence[Score], setting: Setting) -> str:
    names = [_description(score, setting) for score in scores if score.diverged == score.trainings]
    return f" {_capital(listing(names))} diverged." if names else ""


def _description(score: Score, setting: Setting) -> str:
    """Describe a baseline: Standard is standard training, Co-teaching is given the noise rate if it is known."""
    if score.method == "standard":
        return "standard training"
    if score.name == "Co-teaching" and setting.noise_rate is not None:
        return "Co-teaching given the noise rate"
    return score.name


def _rank(score: Score, scores: Sequence[Score]) -> str:
    """Return a note that no method has a higher accuracy, as printed; "" if one has, and for a single method."""
    shown = [percent(other.accuracy) for other in scores]
    top = percent(max(other.accuracy or 0.0 for other in scores))
    if len(scores) == 1 or percent(score.accuracy) != top:
        return ""
    return f"{'the best' if shown.count(top) == 1 else 'tied for the best'} of {len(scores)} methods"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
