"""The paper's Figures 3 to 5: all methods on MNIST, CIFAR-10 and CIFAR-100, as declarations over `s2e compare`."""

from __future__ import annotations

from dataclasses import dataclass

from s2e.data import check_preparation
from s2e.experiments.comparison_results import write_comparisons
from s2e.experiments.parts import OF_ITS_PARTS, Part, folder_of, made_parts
from s2e.experiments.published import MNIST_HALF
from s2e.experiments.scales import data_sets
from s2e.methods import METHODS
from s2e.runs import Run, RunLocation, Session
from s2e.specs import CompareOptions, ComparisonOptions, DataSpec, SearchSpec, TrainingSpec
from s2e.studies import resolve_execution
from s2e.workflows import NOISY_VALIDATION, ORACLES, SEARCHED, SILENT, ProgressListener, check_entrant_names
from s2e.workflows.compare import compare

COMMAND = "reproduce comparison"

TITLE = "Methods compared"

ABOUT = """Test accuracy of all methods under label noise (the paper's Figure 3), the searched R(t) beside the fixed
one (Figure 4), and label precision (Figure 5). Every method is trained on the same noisy labels from the same seeds;
a seed decides initial weights and the draw of the noise."""


@dataclass(frozen=True)
class Budget:
    """What is trained on a data set at the scale of the paper.

    Attributes:
        methods: names of the entrants.
        seeds: trainings of each.
        searches: searches for each noise setting.
        trials: schedules of each search.
        generation_size: schedules trained at once.
    """

    methods: tuple[str, ...]
    seeds: int = 5
    searches: int = 3
    trials: int = 60
    generation_size: int = 10


ALL_METHODS = (*METHODS, SEARCHED, *ORACLES)

BUDGETS = {
    "mnist": Budget((*METHODS, SEARCHED, NOISY_VALIDATION, *ORACLES)),
    "cifar10": Budget(ALL_METHODS, trials=30),
    "cifar100": Budget(
        ("standard", "coteaching", "jocor", SEARCHED), seeds=3, searches=1, trials=12, generation_size=6
    ),
}
"""Budgets of the data sets of the paper; other data sets have that of MNIST. A network of CIFAR-100 takes twenty
times as long as one of CIFAR-10. Searches with noisy validation are trained one after the other, so they are on MNIST
only."""

TEST_PARTS = {"mnist": MNIST_HALF}
"""Parts of the test samples that are reported too, where the paper's code tests on them."""


def reproduce_comparison(
    options: ComparisonOptions, location: RunLocation, listener: ProgressListener = SILENT, *, resume: bool = False
) -> Run:
    """Compare the methods on each data set, and write tables, figures and the page."""
    for name in options.data:
        check_preparation(DataSpec(name), options.noises)
    check_entrant_names(options.methods)
    session = Session(COMMAND, options, location, resume=resume)
    names = data_sets(options.data, options.scale, location.root, listener)
    parts = [Part(folder_of(name), "compare", compare, options_of(name, options)) for name in names]
    with session.start({**OF_ITS_PARTS, "data_sets": list(names)}) as run:
        made = {part.name: each for part, each in made_parts(parts, session.location, listener)}
        device = resolve_execution(location.execution)[0]
        return write_comparisons(run, session, device, made, title=TITLE, about=ABOUT)


def options_of(data: str, options: ComparisonOptions) -> CompareOptions:
    """Return the options of the comparison on one data set."""
    budget = BUDGETS.get(data, BUDGETS["mnist"])
    trials = options.trials or budget.trials
    seeds = options.seeds or budget.seeds
    return CompareOptions(
        DataSpec(data),
        options.noises,
        options.methods or budget.methods,
        seeds,
        training=TrainingSpec(epochs=options.epochs, batch_size=128),
        search=SearchSpec(trials=trials, generation_size=min(budget.generation_size, max(2, trials // 2))),
        searches=min(options.searches or budget.searches, seeds),
        test_part=TEST_PARTS.get(data, ""),
        samples=options.samples,
        seed=options.seed,
    )
