"""What a run found, in a sentence that says no more than the run holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from s2e.audit.run_audit import AuditedRun
from s2e.report.formatting import accuracy, count, listing, percent
from s2e.report.run_numbers import FOUND, RunNumbers, Score, Setting


def sentences(run: RunNumbers, audited: AuditedRun | None) -> tuple[str, ...]:
    """Say in one sentence which labels are wrong and how well the classifiers do; of a comparison, one for each noise.

    Args:
        run: its numbers.
        audited: the verdicts on its labels; None where there are none.
    """
    if run.command == "compare":
        found = tuple(_compared(run, setting) for setting in run.settings if setting.scores)
        return found or ("This comparison has not finished a training yet.",)
    parts = [part for part in (_labels(audited), _classifier(run)) if part]
    return (f"{_capital('; '.join(parts))}.",) if parts else (_unfinished(run),)


def _unfinished(run: RunNumbers) -> str:
    tried = [one for setting in run.settings for story in setting.searches for one in story.tried if not one.stopped]
    if not tried:
        return "This run is not finished, and nothing can be said yet."
    best = percent(max(one.accuracy for one in tried))
    return f"This run is not finished: of {count(len(tried))} schedules tried so far, the best reached {best}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# Labels


def _labels(audited: AuditedRun | None) -> str:
    if audited is None:
        return ""
    found, total = audited.verdicts, len(audited.ids)
    issues = int(found.issues.sum())
    if not issues:
        return f"none of the {count(total)} labels is more likely wrong than right"
    are = "label is" if total == 1 else "labels is" if issues == 1 else "labels are"
    text = f"{count(issues)} of {count(total)} {are} probably wrong ({percent(issues / total)})"
    return text + _commonest(audited)


def _commonest(audited: AuditedRun) -> str:
    """Name the commonest mistake, where one stands out."""
    found, names = audited.verdicts, audited.class_names
    wrong = zip(found.suggested[found.issues].tolist(), audited.labels[found.issues].tolist(), strict=True)
    (first, often), *others = Counter(wrong).most_common(2)
    mistake = f"{names[first[0]]} given as {names[first[1]]}"
    if not others:
        return f", {'all of them ' if often > 1 else ''}{mistake}"
    return f", most often {mistake}" if often > others[0][1] else ""


# Classifiers


def _classifier(run: RunNumbers) -> str:
    (setting,) = run.settings
    if not setting.scores:
        return ""
    own = next((score for score in setting.scores if score.name == FOUND), setting.scores[-1])
    if run.command == "search":
        who = "the classifier trained with the schedule that was found"
    else:
        given = " with the given schedule" if setting.keep_rates else ""
        who = f"the classifier trained by {own.name}{given}"
    if own.diverged:
        return f"{who} diverged"
    others = [score for score in setting.scores if score is not own]
    beside = "".join(f", {_called(score, setting)} {_reached(run, score)}" for score in others)
    return f"{who} {_is_right(run, percent(own.accuracy))}{beside}{_judges(run)}"


def _doubted(run: RunNumbers) -> bool:
    """Whether accuracies are agreement with labels that may be wrong themselves."""
    return run.evaluated_on != "test" and run.validation != "clean"


def _is_right(run: RunNumbers, share: str) -> str:
    if _doubted(run):
        return f"agrees with {share} of the held-out validation labels"
    return f"is right on {share} of the {'test' if run.evaluated_on == 'test' else 'held-out validation'} samples"


def _judges(run: RunNumbers) -> str:
    """Say what the labels are worth that accuracies are judged by; nothing of test labels."""
    if _doubted(run):
        relabelled = run.validation == "relabelled"
        return f" (these labels are {'doubtful, but were relabelled first' if relabelled else 'as doubtful as the others'})"
    return "" if run.evaluated_on == "test" else " (whose labels are trusted)"


def _reached(run: RunNumbers, score: Score) -> str:
    if score.diverged == score.trainings:
        return "diverged"
    return f"{'with' if _doubted(run) else 'on'} {accuracy(score.accuracy, score.deviation)}"


def _called(score: Score, setting: Setting) -> str:
    """Name a method by what it is: Standard is plain training, Co-teaching has been told the noise rate."""
    if score.look == "standard":
        return "plain training"
    if score.name == "Co-teaching" and setting.noise_rate is not None:
        return "Co-teaching told the noise rate"
    return score.name


# Comparisons


def _compared(run: RunNumbers, setting: Setting) -> str:
    """Say how the searched method did, or else the best, beside the best of the others, Standard and Co-teaching."""
    best = max(setting.scores, key=lambda score: score.accuracy or 0.0)
    own = next((score for score in setting.scores if score.look.startswith("s2e")), best)
    known = [score for score in setting.scores if score.look in ("standard", "coteaching")]
    place = _place(own, setting.scores)
    others = dict.fromkeys(score for score in (known if place else [best, *known]) if score is not own)
    said = [
        f"{_called(score, setting)}{'' if place or score is not best else _place(score, setting.scores) + ','} "
        f"{_reached(run, score)}"
        for score in others
    ]
    seeds = f", mean of {own.trainings} seeds" if own.trainings > 1 else ""
    rest = f"; {listing(said)}" if said else ""
    share = accuracy(own.accuracy, own.deviation)
    return f"With {setting.title}, {own.name} {_is_right(run, share)}{seeds}{place}{rest}{_judges(run)}."


def _place(score: Score, scores: Sequence[Score]) -> str:
    """Say that no method is better, as far as a reader can see; nothing of the only method."""
    shown = [percent(other.accuracy) for other in scores]
    top = percent(max(other.accuracy or 0.0 for other in scores))
    if len(scores) == 1 or percent(score.accuracy) != top:
        return ""
    return f", {'the best' if shown.count(top) == 1 else 'as good as any'} of {len(scores)} methods"
