"""Labels that people gave to CIFAR-10 and CIFAR-100 (CIFAR-N), beyond the paper: declarations over `s2e compare`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from s2e.data import needs_download
from s2e.errors import UnreadableData
from s2e.experiments.claims import Claim, Verdict
from s2e.experiments.comparison_results import Compared, write_comparisons
from s2e.experiments.pages import Section, cell, percent, table
from s2e.experiments.parts import OF_ITS_PARTS, Part, made_parts
from s2e.experiments.published import HUMAN_WORST
from s2e.experiments.targets import LAST
from s2e.plots import display_name
from s2e.runs import Run, RunLocation, Session
from s2e.specs import LAPTOP, CompareOptions, DataSpec, HumanOptions, SearchSpec, SizedTrainingSpec
from s2e.studies import resolve_execution
from s2e.workflows import CLEAN_ORACLE, SEARCHED, SILENT, ProgressListener
from s2e.workflows.compare import compare

COMMAND = "reproduce human"

ABOUT = """Labels that people gave (CIFAR-N, Wei et al. 2022) instead of drawn noise: CIFAR-10 with the aggregate of
three people, one of them (random) and the worst of three, and CIFAR-100, with the networks of the paper; and the
worst labels of CIFAR-10 with a ResNet-18, SGD and augmentation, beside published results. The labels are the same for
every seed, which decides initial weights only. No published method receives clean validation samples; S2E is given
some."""

METHODS = ("standard", "coteaching", "jocor", SEARCHED, CLEAN_ORACLE)


@dataclass(frozen=True)
class HumanPart:
    """A comparison on labels of people.

    Attributes:
        title: its title.
        data: the data set.
        noises: the kinds of labels.
        training: how networks are trained, at the scale of the paper.
        trials: schedules of each search.
        searches: most searches.
        generation_size: schedules trained at once.
    """

    title: str
    data: str
    noises: tuple[str, ...]
    training: SizedTrainingSpec
    trials: int
    searches: int = 3
    generation_size: int = 10


RESNET = SizedTrainingSpec(
    network="resnet18",
    epochs=120,
    batch_size=128,
    learning_rate=0.05,
    optimizer="sgd:momentum=0.9,weight_decay=5e-4",
    plan="cosine",
    augment="crop:padding=4,flip,normalize",
)

PARTS = {
    "cifar10n": HumanPart(
        "CIFAR-10N, network of the paper",
        "cifar10",
        ("human:aggre", "human:random1", "human:worst"),
        SizedTrainingSpec(),
        30,
    ),
    "cifar100n": HumanPart(
        "CIFAR-100N, network of the paper", "cifar100", ("human:noisy",), SizedTrainingSpec(), 12, 1, 6
    ),
    "cifar10n-resnet": HumanPart(
        "CIFAR-10N worst, ResNet-18 with augmentation", "cifar10", ("human:worst",), RESNET, 6, 1, 6
    ),
}


def reproduce_human(
    options: HumanOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Compare methods on labels of people, and write tables, figures and the page."""
    session = Session(COMMAND, options, location, resume=resume)
    if options.scale == LAPTOP:  # nothing stands in for labels of people
        for data in dict.fromkeys(PARTS[name].data for name in options.parts):
            if needs_download(data, location.root):
                raise UnreadableData(
                    f"{data} must be in {str(location.root)!r} at the scale of a laptop, which downloads nothing; run "
                    f"s2e train {data} --epochs 1 to download it, and put the labels of CIFAR-N into cifar-n there."
                )
    parts = [Part(name, "compare", compare, options_of(PARTS[name], options)) for name in options.parts]
    with session.start({**OF_ITS_PARTS, "parts": list(options.parts)}) as run:
        made = {part.name: each for part, each in made_parts(parts, session.location, listener)}
        titles = {name: PARTS[name].title for name in made}
        compared = {name: Compared.of(name, each, titles[name]) for name, each in made.items()}
        resnet = compared.get("cifar10n-resnet")
        further, claims = ([], []) if resnet is None else ([published_section(resnet)], [published_claim(resnet)])
        return write_comparisons(
            run,
            session,
            resolve_execution(location.execution)[0],
            made,
            title="Labels of people",
            about=ABOUT,
            titles=titles,
            further=further,
            claims=claims,
            source="beyond the paper",
        )


def options_of(part: HumanPart, options: HumanOptions) -> CompareOptions:
    """Return the options of a comparison."""
    given: dict[str, Any] = {} if options.epochs is None else {"epochs": options.epochs}
    trials = options.trials or part.trials
    return CompareOptions(
        DataSpec(part.data),
        part.noises,
        METHODS,
        options.seeds,
        training=replace(part.training, **given),
        search=SearchSpec(trials=trials, generation_size=min(part.generation_size, max(2, trials // 2))),
        searches=min(options.searches, part.searches, options.seeds),
        samples=options.samples,
        seed=options.seed,
    )


def published_section(resnet: Compared) -> Section:
    """Return a section with the published results on the worst labels beside those of the ResNet."""
    (noise,) = resnet.noises
    ours = [
        [f"{display_name(row['method'])} (here)", cell(row, LAST), cell(row, "best_epoch")]
        for row in resnet.rows(noise)
    ]
    published = [[f"{name} (published)", "—", f"{number:.1f}"] for name, number in HUMAN_WORST.items()]
    text = (
        "Published: test accuracy as reported by Wei et al. (2022). ELR+ and DivideMix also train on the samples that "
        "they consider wrong; the methods here leave them out."
    )
    return Section("Beside published results", [text, table(["", "last epochs", "best epoch"], [*ours, *published])])


def published_claim(resnet: Compared) -> Claim:
    """Return how S2E compares with the published Co-teaching on the worst labels."""
    (noise,) = resnet.noises
    mean = resnet.row(noise, SEARCHED)[LAST]["mean"]
    below = [f"{name} {number:.1f}" for name, number in HUMAN_WORST.items() if 100 * mean < number]
    return Claim(
        "beyond the paper",
        f"CIFAR-10N worst, ResNet-18: S2E ends above the published Co-teaching ({HUMAN_WORST['Co-teaching']:.1f})",
        Verdict.of(holds=int(100 * mean >= HUMAN_WORST["Co-teaching"]), of=1),
        f"{percent(mean)}; below {', '.join(below)}" if below else percent(mean),
    )
