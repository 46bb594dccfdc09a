"""The options of all commands: small immutable specifications, each defined once.

`DataSpec`, `TrainingSpec` and `SearchSpec` are nested in the options of every command. `s2e.search`, `s2e.train` and
`S2EClassifier` build the same specifications from their keyword arguments. The command line makes its options from the
fields, and `config.json` stores them. Nothing heavy is imported here, so that `s2e --help` stays quick.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Literal, TypeVar

from s2e.errors import InvalidInput, raise_all
from s2e.files.fields import LONGEST_TEXT, is_integer, is_number, shown

Options = TypeVar("Options")

AUTO: Final = "auto"
GenerationSize = int | Literal["auto"]
"""K, or `AUTO` to choose it from a short measurement."""

ALL: Final = "all"
"""Selects every method, or every sampler, of a comparison."""

NO_AUGMENTATION: Final = "none"

METHODS = ("standard", "decoupling", "f-correction", "mentornet", "coteaching", "coteaching+", "reweight", "jocor")
SEARCHABLE_METHODS = ("mentornet", "coteaching", "coteaching+", "jocor")
_BY_CLASS = "; NAME:by_class=true keeps the same share of every label, the default where labels are imbalanced"
"""The names in `s2e.methods`, repeated for the help texts because importing that package imports PyTorch."""

LARGEST_COUNT: Final = 1_000_000
"""Largest number of trials, epochs, samples in a batch, …: a larger one is a mistake, and takes all memory or time."""

SMALLEST_IMAGE_SIZE: Final = 8
"""Smallest side, in pixels, that images can be resized to."""

BENCHMARK_HELP = (
    "a folder of class folders of images, a FILE.npz, hf:NAME, or digits, mnist, fashion-mnist, cifar10 or cifar100"
)
DATA_HELP = f"a table (.csv, .tsv, .jsonl, .parquet; see --label), {BENCHMARK_HELP}"
SAMPLES_HELP = (
    "Use at most this many training samples, and as many test samples, with equal shares of every class; all when not "
    "given"
)
NETWORK_HELP = (
    "auto (chosen by the shape and number of the samples), linear, mlp (options: mlp:widths=512-256,dropout=0.2 and "
    "batch_norm=true), cifar10-cnn, cifar100-cnn, resnet18, resnet34, preact-resnet18, preact-resnet34, "
    "wrn-16-4, wrn-28-10, densenet-bc-40-12 or densenet-bc-100-12"
)
NOISE_HELP = "Noise to add: symmetric:RATE, uniform:RATE, pair:RATE, instance:RATE, asymmetric:FILE, human:KIND or none"


def option(default: Any, help_text: str, **cli: Any) -> Any:
    """Return a field of a specification.

    Args:
        default: its value when not given.
        help_text: its meaning; also the help on the command line.
        cli: how the command line reads it, where that does not follow from the default: `flag` (its name there),
            `metavar`, `type`, `parse` (a function of the text), `argument` (positional), `minimum`, `separated`
            (comma-separated values), `repeated` (may be given several times) and `panel` (its group in the help).
    """
    return field(default=default, metadata={"help": help_text, **cli})


def nested(spec: type, *, without: tuple[str, ...] = (), **defaults: Any) -> Any:
    """Return a field that holds another specification, optionally with other defaults and without some options."""
    metadata = {"spec": spec, "defaults": defaults, "without": without}
    return field(default_factory=partial(spec, **defaults), metadata=metadata)


def _one_of(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _integer_or_text(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def to_seconds(name: str, value: float | str | None) -> float | None:
    """Return the seconds of a number, or of a text such as "90s", "2m", "1h30m" or "none"; None for None."""
    if value is None or value == "none":
        return None
    number = r"(\d{1,9}(?:\.\d{1,3})?)"
    match = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s?)?", str(value).strip().replace(" ", ""))
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    total = 3600 * hours + 60 * minutes + seconds
    if isinstance(value, bool) or not total > 0:
        raise InvalidInput(f"`{name}` must be a time such as 90s, 2m or 1h, but got {value!r}.")
    return total


def short_time(seconds: float) -> str:
    """Return a time as `to_seconds` reads it, rounded to seconds: "90s", "2m", "1h30m"."""
    whole = max(1, round(seconds))
    if whole < 60 or (whole < 120 and whole % 60):
        return f"{whole}s"
    parts = (whole // 3600, "h"), (whole // 60 % 60, "m"), (whole % 60, "s")
    return "".join(f"{count}{unit}" for count, unit in parts if count)


# ------------------------------------------------------------------------------------------------- specifications


@dataclass(frozen=True)
class DataSpec:
    """The data, and the origin of its validation part."""

    HELP_PANEL: ClassVar[str] = "Data"

    data: str = option("", f"Data to train on: {DATA_HELP}", argument=True)
    label: str = option("", "Label column of a table", metavar="COLUMN")
    id_column: str = option("", "ID column of a table", flag="--id", metavar="COLUMN")
    drop: tuple[str, ...] = option((), "Columns of a table to leave out", metavar="COLUMN[,…]", separated=True)
    text: tuple[str, ...] = option(
        (),
        "Columns of a table that are text, beside those whose values mostly occur once and have three words or more",
        metavar="COLUMN[,…]",
        separated=True,
    )
    annotators: tuple[str, ...] = option(
        (),
        "Label columns of a table that several annotators labelled, with gaps, instead of --label: the labels are "
        "their consensus",
        separated=True,
        metavar="COLUMN,COLUMN",
    )
    annotations: str = option(
        "",
        "Table of the labels of several annotators, instead of --label: a row for each label, with its item (a value "
        "of --id), annotator and label",
        metavar="FILE",
    )
    annotation_columns: tuple[str, ...] = option(
        (),
        "Columns of --annotations with item, annotator and label; detected by their names when not given",
        separated=True,
        metavar="ITEM,ANNOTATOR,LABEL",
    )
    image_size: int | None = option(
        None,
        "Side in pixels to which images of a folder or of the Hub are resized; when not given, the median of their "
        "shorter sides, between 16 and 64",
        type=int,
        metavar="PIXELS",
    )
    validation: str = option(
        AUTO,
        "Validation part: clean, noisy, a FILE with trusted labels (.npz, or another table for a table), or auto: "
        "clean where clean labels are known",
    )
    validation_share: float | None = option(
        None, "Share of the training samples to hold out; 0.1, or up to 0.2 of small data, when not given", type=float
    )
    reviewed: tuple[str, ...] = option(
        (),
        "Decisions on labels, as downloaded from the page of s2e report: trusted labels that replace the given ones; "
        "may be given several times",
        repeated=True,
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        raise_all(
            [
                *self._annotation_problems(),
                image_size_problem(self.image_size),
                share_problem("validation_share", self.validation_share),
            ]
        )

    def _annotation_problems(self) -> Iterator[str]:
        """Return the problems of the fields about several annotators."""
        annotators, columns = self.annotators, self.annotation_columns
        if annotators and (len(annotators) < 2 or len(set(annotators)) < len(annotators)):
            yield f"`annotators` must be two or more different columns, but got {', '.join(annotators)}."
        if annotators and self.annotations:
            yield f"`annotators` and `annotations` must not both be given, but got {self.annotations!r} too."
        if self.annotations and not self.id_column:
            yield "`annotations` must be used with `id_column` (--id), the column of the items, but got none."
        if columns and (len(columns) != 3 or not self.annotations):
            yield f"`annotation_columns` must be three columns of `annotations`, but got {', '.join(columns)}."


@dataclass(frozen=True)
class TrainingSpec:
    """How a network is trained; the network "auto", and epochs and batch size that are None, depend on the data."""

    HELP_PANEL: ClassVar[str] = "Training"
    UNDECIDED: ClassVar[tuple[None, ...]] = (None,)

    network: str | Callable[..., Any] = option(AUTO, f"Reference network: {NETWORK_HELP}")
    epochs: int | None = option(
        None,
        "Epochs of every training; when not given, 40 to 100 by the number of samples, and 200 on published data sets",
        type=int,
    )
    batch_size: int | None = option(
        None,
        "Samples in a batch; when not given, 16 to 128 by the number of samples, and 128 on published data sets",
        type=int,
    )
    learning_rate: float = option(1e-3, "Learning rate; --plan changes it by epoch")
    optimizer: str | Any = option(
        "adam", "Optimizer: adam, adamw, sgd or rmsprop, with options: sgd:momentum=0.9,weight_decay=5e-4"
    )
    plan: str | Any = option(
        "linear:start=0.4",
        "Learning-rate plan: constant, linear:start=SHARE (falls to 0 from that share of the epochs), cosine, or "
        "step:milestones=0.5-0.75,gamma=0.1; each with warmup=EPOCHS",
    )
    augment: str | Any = option(
        NO_AUGMENTATION,
        "Random changes of training images: none, or a comma-separated list of crop:padding=4, flip and cutout:size=8, "
        "also with normalize (channels to mean 0 and standard deviation 1)",
    )
    precision: str = option(
        AUTO,
        "Number format of products: float32, bfloat16, or auto: float32 on a CPU, faster formats on a GPU, which are "
        "as accurate on MNIST with an MLP",
    )

    def __post_init__(self) -> None:
        raise_all(
            [
                count_problem("epochs", self.epochs, *self.UNDECIDED),
                count_problem("batch_size", self.batch_size, *self.UNDECIDED),
                rate_problem("learning_rate", self.learning_rate),
            ]
        )


@dataclass(frozen=True)
class SizedTrainingSpec(TrainingSpec):
    """How a network is trained, with the number of epochs and the batch size decided; the defaults are the paper's."""

    UNDECIDED: ClassVar[tuple[None, ...]] = ()

    epochs: int = option(200, "Epochs of every training")
    batch_size: int = option(128, "Samples in a batch")


@dataclass(frozen=True)
class SearchSpec:
    """How a schedule is searched; `space` may be an `s2e.Space`, `sampler` an `optuna.samplers.BaseSampler`."""

    HELP_PANEL: ClassVar[str] = "Search"

    space: str | Any = option("s2e", "Family of schedules: s2e, coteaching, single-1 … single-4, rbf or mlp")
    sampler: str | Any = option(
        "curve",
        "Sampler: curve, curve-dynamics, newton, newton-curve, natural, gradient, or Optuna's random, tpe, "
        "tpe-multivariate, gp, cmaes or hyperband",
    )
    trials: int | None = option(
        None,
        "Budget in full trainings; when not given 30 (60 on a published data set, unless in a comparison), or five "
        "(ten) generations where --generation-size is auto",
        type=int,
    )
    generation_size: GenerationSize = option(
        6,
        "Schedules trained at once, as one population; auto: 6 on a CPU, on a GPU up to 32 if they take little longer "
        "than 6, measured in a second or two, but at most a fifth of --trials",
        metavar="INTEGER|auto",
        parse=_integer_or_text,
    )
    time_budget: float | None = option(
        None,
        "Time for the whole command, such as 90s, 2m or 1h: the search ends early enough for the final training; none "
        "for any time",
        type=float,
        metavar="TIME",
        parse=partial(to_seconds, "time_budget"),
    )
    stop_early: bool = option(
        True,
        "End the search before --trials when no schedule is expected to be better by more than validation can tell",
    )

    def __post_init__(self) -> None:
        raise_all(
            [
                count_problem("trials", self.trials, None),
                count_problem("generation_size", self.generation_size, AUTO),
                None if self.time_budget is None else rate_problem("time_budget", self.time_budget),
            ]
        )


SCORES = ("accuracy", "balanced-accuracy", "average-precision")
"""The names in `s2e.engine.scores`, repeated for the same reason as `METHODS`."""


@dataclass(frozen=True)
class ClassifierSpec:
    """Which of the trained networks make the classifier, and by what they are chosen."""

    HELP_PANEL: ClassVar[str] = "Classifier"

    ensemble: int = option(
        6,
        "Members that vote together at most, chosen on validation among the restarts, fixed schedules and the best six "
        "trials (of up to 512 MiB together); 1: the selected restart alone",
    )
    distil: bool = option(False, "Train one network on the probabilities of the ensemble, and keep only that one")
    models: bool = option(
        True,
        "Let models of scikit-learn vote beside the networks, chosen by the likelihood of the given labels; not with "
        "--ensemble 1, --distil or --folds 0, nor where samples times inputs, or samples times "
        "classes, are more than 20 million",
    )
    score: str = option(
        "accuracy",
        f"What is maximised on validation: {_one_of(SCORES)} (of the last of two classes, or mean over more)",
    )

    def __post_init__(self) -> None:
        raise_all(
            [
                count_problem("ensemble", self.ensemble),
                None if self.score in SCORES else f"`score` must be {_one_of(SCORES)}, but got {self.score!r}.",
            ]
        )


LOCAL: Final = "local"
RAY: Final = "ray"
EXECUTORS = (LOCAL, RAY)

DEVICE_HELP = "cpu, cuda, cuda:1, …, or auto; several separated by commas share the training"
EXECUTOR_HELP = f"What trains: {LOCAL} (this process) or {RAY} (a Ray cluster)"
RAY_ADDRESS_HELP = "Address of a running Ray cluster; one is started on this machine when not given"


@dataclass(frozen=True)
class Execution:
    """Where members are trained; results do not depend on it beyond rounding, and a resumed run may change it.

    Attributes:
        device: cpu, cuda, …, or auto; several of this machine separated by commas.
        executor: "local", or "ray" for the devices of a Ray cluster.
        ray_address: address of a running Ray cluster; None to start one on this machine.
    """

    device: str = AUTO
    executor: str = LOCAL
    ray_address: str | None = None

    def __post_init__(self) -> None:
        raise_all(
            [
                None
                if self.executor in EXECUTORS
                else f"`executor` must be {_one_of(EXECUTORS)}, but got {self.executor!r}.",
                None
                if self.ray_address is None or self.executor == RAY
                else f"`ray_address` must be used with `executor` ray, but got {self.ray_address!r}.",
                None
                if self.executor != RAY or self.device in (AUTO, "cpu", "cuda")
                else f"`device` must be auto, cpu or cuda with `executor` ray, but got {self.device!r}.",
            ]
        )


# ----------------------------------------------------------------------------------------------- options of commands


def _seed() -> Any:
    return option(0, "Seed of everything that is drawn at random", minimum=0, panel="Training")


def _folds(default: int) -> Any:
    return option(
        default,
        "Parts of the samples, each held out by one more training, so that networks that were not trained on a label "
        "audit it; 0 for none",
        minimum=0,
        panel="Training",
    )


def _noises(default: tuple[str, ...] = ("none",), otherwise: str = "") -> Any:
    return option(
        default, f"{NOISE_HELP}; may be given several times{otherwise}", flag="--noise", repeated=True, panel="Data"
    )


@dataclass(frozen=True)
class SearchOptions:
    """`s2e search`: the search of a schedule and the final training with it."""

    MUTABLE_ON_RESUME: ClassVar[frozenset[str]] = frozenset(
        {"trials", "time_budget", "stop_early", "baselines", "restarts", "folds"}
    )

    dataset: DataSpec = nested(DataSpec)
    noise: str = option("none", NOISE_HELP, panel="Data")
    method: str = option(
        "coteaching",
        f"Method whose schedule is searched: {_one_of(SEARCHABLE_METHODS)}{_BY_CLASS}; auto: these compete",
        panel="Training",
    )
    training: TrainingSpec = nested(TrainingSpec)
    search: SearchSpec = nested(SearchSpec)
    baselines: bool = option(True, "Also train Standard and Co-teaching on the same data", panel="Training")
    restarts: int = option(3, "Seeds of the final training, of which validation selects one", panel="Training")
    folds: int = _folds(5)
    relabel: bool = option(True, "Relabel a noisy validation part before schedules are compared on it", panel="Search")
    classifier: ClassifierSpec = nested(ClassifierSpec)
    seed: int = _seed()

    def __post_init__(self) -> None:
        raise_all([count_problem("restarts", self.restarts)])


@dataclass(frozen=True)
class TrainOptions:
    """`s2e train`: one training with a given schedule."""

    dataset: DataSpec = nested(DataSpec)
    noise: str = option("none", NOISE_HELP, panel="Data")
    method: str = option("coteaching", f"Method: {_one_of(METHODS)}", panel="Training")
    schedule: str = option(
        "", "Keep rates: constant:RATE, coteaching:NOISE_RATE, or the schedule.json of a run", panel="Training"
    )
    transition: str = option(
        "",
        "For f-correction: a .csv, .json or .npy matrix, row = true class; estimated when not given",
        metavar="FILE",
        panel="Training",
    )
    training: TrainingSpec = nested(TrainingSpec)
    folds: int = _folds(0)
    seed: int = _seed()


@dataclass(frozen=True)
class CompareOptions:
    """`s2e compare`: the methods to compare, and the data."""

    MUTABLE_ON_RESUME: ClassVar[frozenset[str]] = frozenset({"methods"})

    dataset: DataSpec = nested(DataSpec, without=("reviewed",))
    noises: tuple[str, ...] = _noises()
    methods: tuple[str, ...] = option(
        (ALL,),
        f"Methods: all, or a comma-separated list of {', '.join(METHODS)}, s2e, s2e:METHOD, s2e-noisy-validation; "
        "and oracles, which use the true labels: oracle:selected (Standard on the right labels only), oracle:clean (on "
        "clean labels)",
        separated=True,
        panel="Training",
    )
    seeds: int = option(
        5, "Trainings of each method, with different initial weights and different noise", panel="Training"
    )
    noise_rate: float | None = option(
        None,
        "Noise rate given to the methods that need one; when not given, the true share of wrong labels where it is "
        "known",
        type=float,
        panel="Training",
    )
    training: TrainingSpec = nested(TrainingSpec)
    search: SearchSpec = nested(SearchSpec, without=("time_budget", "stop_early"))
    searches: int = option(
        1,
        "Searches for each noise setting, each on its own draw of the noise; search i of N makes the schedule of the "
        "seeds i, i + N, …, so that deviations over seeds include those of searches",
        panel="Search",
    )
    test_part: str = option(
        "",
        "Report the accuracy on a part of the test samples too, such as 5000-9999 (rows from 0, both included)",
        metavar="FIRST-LAST",
        panel="Data",
    )
    samples: int | None = option(None, SAMPLES_HELP, type=int, panel="Data")
    seed: int = _seed()

    @property
    def test_rows(self) -> range | None:
        """The rows of `test_part`; None for no part."""
        return rows_of("test_part", self.test_part) if self.test_part else None

    def __post_init__(self) -> None:
        rate = self.noise_rate
        raise_all(
            [
                count_problem("seeds", self.seeds),
                count_problem("searches", self.searches)
                or (
                    None
                    if self.searches <= self.seeds
                    else f"`searches` must be at most `seeds`, but got searches={self.searches}, seeds={self.seeds}."
                ),
                count_problem("samples", self.samples, None),
                None if rate is None or 0 <= rate < 1 else f"`noise_rate` must lie in [0, 1), but got {rate}.",
                None if self.noises else "`noises` must hold at least one noise setting, but got none.",
            ]
        )
        _ = self.test_rows  # raises if it is no range


PAPER, LAPTOP = "paper", "laptop"
SCALES = (PAPER, LAPTOP)
"""Sizes of an experiment: that of the paper, for a GPU, and a small one, for minutes on two cores."""

HUMAN_PARTS = ("cifar10n", "cifar100n", "cifar10n-resnet")
"""Parts of the experiment with labels of people: the paper's networks, and a ResNet with augmentation."""

PAPER_DATA = ("mnist", "cifar10", "cifar100")
"""The data sets of the paper."""


def _scale() -> Any:
    return option(
        PAPER,
        "paper, or laptop: minutes on two cores, with fewer samples, epochs, seeds and searches; given options "
        "override it, and data sets that are not in --data-root are replaced by digits instead of downloaded",
        panel="Data",
    )


def _data_sets(default: tuple[str, ...], about: str = "") -> Any:
    return option(
        default,
        f"Data sets, separated by commas{about}: {BENCHMARK_HELP}",
        separated=True,
        metavar="NAME[,…]",
        panel="Data",
    )


def _samples() -> Any:
    return option(None, SAMPLES_HELP, type=int, panel="Data")


def with_scale(options: type, values: Mapping[str, Any], given: Iterable[str]) -> dict[str, Any]:
    """Return the values of options in which those that were not given are those of the scale.

    Args:
        options: a class of options; `AT_LAPTOP` of it has the values at the small scale.
        values: values by name, with `scale`.
        given: names of the values that were given, which stay.
    """
    smaller: Mapping[str, Any] = getattr(options, "AT_LAPTOP", {}) if values.get("scale") == LAPTOP else {}
    return {**values, **{name: value for name, value in smaller.items() if name not in set(given)}}


PAPER_NOISES = ("symmetric:0.2", "symmetric:0.5", "pair:0.45")
"""The noise settings of the paper."""

_PAPER = "; the paper's three when not given"
_TOGETHER = "Trainings at a time, as one population; stored when they are finished"
_SHARE = "Share of the training samples to hold out; 0.1, or up to 0.2 of small data, when not given"


@dataclass(frozen=True)
class MemorizationOptions:
    """`s2e reproduce memorization`: training and test accuracy by epoch, in many settings (the paper's Figure 1)."""

    MUTABLE_ON_RESUME: ClassVar[frozenset[str]] = frozenset({"data"})
    AT_LAPTOP: ClassVar[Mapping[str, Any]] = {"data": ("mnist", "cifar10"), "epochs": 200, "seeds": 1, "samples": 1000}

    data: tuple[str, ...] = _data_sets(PAPER_DATA)
    noises: tuple[str, ...] = _noises(PAPER_NOISES, _PAPER)
    epochs: int = option(200, "Epochs of every training", panel="Training")
    seeds: int = option(3, "Trainings in every setting; one in those of ResNet and DenseNet", panel="Training")
    samples: int | None = _samples()
    scale: str = _scale()
    seed: int = _seed()

    def __post_init__(self) -> None:
        raise_all(
            [*_scaled_problems(self), *(count_problem(name, getattr(self, name)) for name in ("epochs", "seeds"))]
        )


@dataclass(frozen=True)
class ComparisonOptions:
    """`s2e reproduce comparison`: the paper's Figures 3 to 5, a comparison on each data set."""

    MUTABLE_ON_RESUME: ClassVar[frozenset[str]] = frozenset({"data", "methods"})
    AT_LAPTOP: ClassVar[Mapping[str, Any]] = {
        "data": ("mnist",),
        "epochs": 100,
        "seeds": 2,
        "searches": 2,
        "trials": 12,
        "samples": 1000,
    }

    data: tuple[str, ...] = _data_sets(PAPER_DATA)
    noises: tuple[str, ...] = _noises(PAPER_NOISES, _PAPER)
    methods: tuple[str, ...] = option(
        (),
        "Methods, as for s2e compare; when not given, those of the paper with S2E, noisy validation and oracles "
        "(fewer on cifar100)",
        separated=True,
        panel="Training",
    )
    epochs: int = option(200, "Epochs of every training", panel="Training")
    seeds: int | None = option(
        None, "Trainings of each method; 5, or 3 on cifar100, when not given", type=int, panel="Training"
    )
    searches: int | None = option(
        None,
        "Searches for each noise setting, whose schedules the seeds share; 3, or 1 on cifar100, when not given",
        type=int,
        panel="Search",
    )
    trials: int | None = option(
        None,
        "Schedules of each search; 60, or 30 on cifar10 and 12 on cifar100, when not given",
        type=int,
        panel="Search",
    )
    samples: int | None = _samples()
    scale: str = _scale()
    seed: int = _seed()

    def __post_init__(self) -> None:
        raise_all(
            [
                *_scaled_problems(self),
                count_problem("epochs", self.epochs),
                *(count_problem(name, getattr(self, name), None) for name in ("seeds", "searches", "trials")),
            ]
        )


@dataclass(frozen=True)
class HumanOptions:
    """`s2e reproduce human`: labels that people gave to CIFAR-10 and CIFAR-100."""

    MUTABLE_ON_RESUME: ClassVar[frozenset[str]] = frozenset({"parts"})
    AT_LAPTOP: ClassVar[Mapping[str, Any]] = {
        "parts": ("cifar10n",),
        "epochs": 12,
        "seeds": 2,
        "searches": 2,
        "trials": 2,
        "samples": 1000,
    }

    parts: tuple[str, ...] = option(
        HUMAN_PARTS, f"Parts, separated by commas: {', '.join(HUMAN_PARTS)}", separated=True, panel="Data"
    )
    epochs: int | None = option(
        None, "Epochs of every training; 200, or 120 with ResNet, when not given", type=int, panel="Training"
    )
    seeds: int = option(3, "Trainings of each method", panel="Training")
    searches: int = option(3, "Searches for each kind of labels; one with ResNet", panel="Search")
    trials: int | None = option(
        None,
        "Schedules of each search; 60, or 12 on cifar100 and 6 with ResNet, when not given",
        type=int,
        panel="Search",
    )
    samples: int | None = _samples()
    scale: str = _scale()
    seed: int = _seed()

    def __post_init__(self) -> None:
        unknown = [part for part in self.parts if part not in HUMAN_PARTS]
        raise_all(
            [
                *_scaled_problems(self),
                None
                if self.parts and not unknown
                else f"`parts` must be some of {', '.join(HUMAN_PARTS)}, but got {', '.join(unknown) or 'none'}.",
                *(count_problem(name, getattr(self, name)) for name in ("seeds", "searches")),
                *(count_problem(name, getattr(self, name), None) for name in ("epochs", "trials")),
            ]
        )


@dataclass(frozen=True)
class BasisOptions:
    """`s2e reproduce basis`: plots of the basis functions of the space (the paper's Figure 2)."""

    epochs: int = option(200, "Epochs of the curves", panel="Training")

    def __post_init__(self) -> None:
        raise_all([count_problem("epochs", self.epochs)])


@dataclass(frozen=True)
class ConvergenceOptions:
    """`s2e reproduce convergence`: numerical checks of the paper's claims about its search."""

    AT_LAPTOP: ClassVar[Mapping[str, Any]] = {"repeats": 100}

    repeats: int = option(300, "Estimates whose errors are averaged, for each number of points", panel="Search")
    scale: str = _scale()
    seed: int = _seed()

    def __post_init__(self) -> None:
        raise_all([scale_problem(self.scale), count_problem("repeats", self.repeats)])


def _scaled_problems(options: Any) -> list[str | None]:
    """Return the problems of the fields that experiments share."""
    data = getattr(options, "data", ("",))
    return [
        scale_problem(options.scale),
        count_problem("samples", options.samples, None),
        None if data and len(set(data)) == len(data) else f"`data` must name each data set once, but got {data!r}.",
    ]


@dataclass(frozen=True)
class SpacesOptions:
    """`s2e reproduce spaces`: the schedules drawn in each space, trained and tested."""

    MUTABLE_ON_RESUME: ClassVar[frozenset[str]] = frozenset({"data", "together"})
    AT_LAPTOP: ClassVar[Mapping[str, Any]] = {
        "data": ("mnist",),
        "draws": 4,
        "seeds": 2,
        "epochs": 50,
        "samples": 1000,
    }

    data: tuple[str, ...] = _data_sets(("mnist", "cifar10"))
    noises: tuple[str, ...] = _noises(PAPER_NOISES, _PAPER)
    draws: int = option(50, "Schedules drawn in each space, under each noise setting")
    sets: int = option(1, "Repetitions of the whole search with other draws, for standard errors")
    seeds: int = option(5, "Trainings of the schedule found in a space, in each set")
    together: int = option(250, _TOGETHER)
    training: SizedTrainingSpec = nested(SizedTrainingSpec)
    samples: int | None = _samples()
    scale: str = _scale()
    seed: int = _seed()

    def __post_init__(self) -> None:
        counts = ("draws", "sets", "seeds", "together")
        raise_all([*_scaled_problems(self), *(count_problem(name, getattr(self, name)) for name in counts)])


@dataclass(frozen=True)
class SamplersOptions:
    """`s2e reproduce searchers`: the samplers to compare, the data, and the budget."""

    MUTABLE_ON_RESUME: ClassVar[frozenset[str]] = frozenset({"samplers", "jobs"})
    AT_LAPTOP: ClassVar[Mapping[str, Any]] = {"repeats": 4, "random_trials": 120, "trials": 30}

    on: str = option(
        "table", f"The table of schedules, table:FILE for another one, or data to train on: {BENCHMARK_HELP}"
    )
    only_draws: bool = option(False, "Use the uniform draws of the table only, not its other points")
    resample: int | None = option(
        None, "Fit the model of the table to a bootstrap sample of its trainings, drawn with this seed", type=int
    )
    samplers: tuple[str, ...] = option((ALL,), "Samplers: all, or a comma-separated list", separated=True)
    noises: tuple[str, ...] = _noises((), _PAPER)
    repeats: int = option(100, "Searches of each sampler under each noise setting")
    random_trials: int = option(300, "Full trainings of random search")
    validation_share: float | None = option(None, _SHARE, type=float)
    training: SizedTrainingSpec = nested(SizedTrainingSpec, epochs=40)
    search: SearchSpec = nested(SearchSpec, trials=60, without=("sampler", "time_budget", "stop_early"))
    jobs: int | None = option(None, "Processes that search on a table; one for each core when not given", type=int)
    scale: str = _scale()
    seed: int = _seed()

    def __post_init__(self) -> None:
        raise_all(
            [
                scale_problem(self.scale),
                *(count_problem(name, getattr(self, name)) for name in ("repeats", "random_trials")),
                count_problem("jobs", self.jobs, None),
                None
                if self.resample is None or self.resample >= 0
                else f"`resample` must be at least 0, but got {self.resample}.",
                count_problem("trials", self.search.trials),
                count_problem("generation_size", self.search.generation_size),
            ]
        )


@dataclass(frozen=True)
class StepsOptions:
    """`s2e reproduce steps`: the steps and generation sizes to compare, and the budget."""

    AT_LAPTOP: ClassVar[Mapping[str, Any]] = {"repeats": 10}

    on: str = option("table", "The table of schedules, or table:FILE for another one")
    only_draws: bool = option(False, "Use the uniform draws of the table only, not its other points")
    noises: tuple[str, ...] = _noises((), _PAPER)
    steps: tuple[str, ...] = option(("newton", "natural", "gradient"), "Comma-separated list of steps", separated=True)
    sizes: tuple[str, ...] = option(
        ("6", "12", "24", "48", "96"), "Comma-separated list of points in a generation", separated=True
    )
    trials: int = option(960, "Trainings of each search, a multiple of every size")
    repeats: int = option(100, "Searches with each step and size under each noise setting")
    scale: str = _scale()
    seed: int = _seed()

    def __post_init__(self) -> None:
        counts = ("trials", "repeats")
        raise_all([scale_problem(self.scale), *(count_problem(name, getattr(self, name)) for name in counts)])


@dataclass(frozen=True)
class TableOptions:
    """`s2e reproduce table`: the schedule table that samplers are compared on."""

    data: str = option("mnist", f"Data to train on: {BENCHMARK_HELP}")
    noises: tuple[str, ...] = _noises(PAPER_NOISES, _PAPER)
    space: str = option("s2e", "Family of schedules")
    draws: int = option(2048, "Uniform draws from the space")
    again: int = option(64, "Draws that are also trained from other initial weights")
    times: int = option(2, "Further trainings of each of these")
    visited: tuple[str, ...] = option(
        (),
        "Also train all points of a run of reproduce searchers on data; may be given several times",
        flag="--visited",
        repeated=True,
        metavar="RUN",
    )
    rounds: int = option(2, "Rounds in which promising points are proposed by a model and trained")
    together: int = option(252, _TOGETHER)
    method: str = option("coteaching", f"Method whose schedules are trained: {_one_of(SEARCHABLE_METHODS)}")
    validation_share: float | None = option(None, _SHARE, type=float)
    training: SizedTrainingSpec = nested(SizedTrainingSpec, epochs=40)
    seed: int = _seed()

    def __post_init__(self) -> None:
        raise_all(
            [
                count_problem("draws", self.draws),
                count_problem("times", self.times),
                None
                if 0 <= self.again <= self.draws
                else f"`0 <= again <= draws` must hold, but got again={self.again}, draws={self.draws}.",
                None if self.rounds >= 0 else f"`rounds` must be at least 0, but got {self.rounds}.",
                None
                if self.together >= len(self.noises)
                else f"`together` must be at least {len(self.noises)}, but got {self.together}.",
            ]
        )


# --------------------------------------------------------------------------------------- from fields to values and back


def leaves(options: type) -> Iterator[tuple[Field[Any], Any]]:
    """Return every field of a class of options with its default, those of nested specifications included."""
    for each in fields(options):
        if "spec" not in each.metadata:
            yield each, each.default
            continue
        inner, defaults = leaves(each.metadata["spec"]), each.metadata["defaults"]
        yield from (
            (leaf, defaults.get(leaf.name, default))
            for leaf, default in inner
            if leaf.name not in each.metadata["without"]
        )


def flatten(options: Any) -> dict[str, Any]:
    """Return the values of all fields by name, those of nested specifications included."""
    flat: dict[str, Any] = {}
    for each in fields(options):
        value, without = getattr(options, each.name), each.metadata.get("without", ())
        inner = flatten(value) if "spec" in each.metadata else {each.name: value}
        flat |= {name: own for name, own in inner.items() if name not in without}
    return flat


def assemble(options: type[Options], values: Mapping[str, Any]) -> Options:
    """Return options from the values of their fields by name; lists, as JSON has them, become tuples.

    A field without a value keeps its default.
    """
    given: dict[str, Any] = {}
    for each in fields(options):  # type: ignore[arg-type]
        if "spec" in each.metadata:
            given[each.name] = assemble(each.metadata["spec"], {**each.metadata["defaults"], **values})
        elif each.name in values:
            value = values[each.name]
            given[each.name] = tuple(value) if isinstance(value, list) else value
    return options(**given)


def stored_problems(options: type, values: Mapping[str, Any]) -> list[str]:
    """Return the problems of values from a file: each must have the type of its field, as JSON has it."""
    return [
        f"`{leaf.name}` must be {_kind(leaf, default)}, but got {shown(values[leaf.name])}."
        for leaf, default in leaves(options)
        if leaf.name in values and not _is_stored_value(leaf, default, values[leaf.name])
    ]


def _is_stored_value(leaf: Field[Any], default: Any, value: Any) -> bool:
    """Return whether a JSON value can be the value of a field."""
    kind = leaf.metadata.get("type") or type(default)
    if value is None:
        return default is None
    if any(
        isinstance(each, str) and len(each) > LONGEST_TEXT for each in (value if isinstance(value, list) else [value])
    ):
        return False
    if kind is tuple:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if "parse" in leaf.metadata and isinstance(value, str):
        return True
    if kind is int:
        return is_integer(value) and value >= leaf.metadata.get("minimum", -math.inf)
    if kind is float:
        return is_number(value)
    return isinstance(value, str)


def _kind(leaf: Field[Any], default: Any) -> str:
    """Return the type of a field in words."""
    kind = leaf.metadata.get("type") or type(default)
    names = {int: "an integer", float: "a number", bool: "true or false", tuple: "a list of texts"}
    lower = f" of at least {leaf.metadata['minimum']}" if "minimum" in leaf.metadata else ""
    return f"{names.get(kind, 'text')}{lower}{' or null' if default is None else ''}"


# ------------------------------------------------------------------------------------------------ names with options


def parse_named_options(kind: str, text: str) -> tuple[str, dict[str, str]]:
    """Split `NAME` or `NAME:key=value,key=value` into the name and its options, as texts.

    Networks, optimizers and learning-rate plans are written this way: "mlp:widths=512-256,dropout=0.2". A value with
    several parts separates them by hyphens. Neither names nor keys are compared with the known ones here.

    Args:
        kind: the parameter that holds the text, for messages, such as "network".
        text: the text; spaces around names, keys and values are ignored.
    """
    name, colon, rest = (part.strip() for part in text.partition(":"))
    pairs = [tuple(part.strip() for part in pair.partition("=")) for pair in rest.split(",")] if colon else []
    if not name or not all(key and value for key, _, value in pairs):
        raise InvalidInput(
            f"`{kind}` must be written as NAME or NAME:key=value,key=value with all values given, but got {text!r}."
        )
    options = {key: value for key, _, value in pairs}
    if len(options) < len(pairs):
        raise InvalidInput(f"`{kind}` must give every option once, but got {text!r}.")
    return name, options


def convert_options(
    kind: str, name: str, options: Mapping[str, str], converters: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    """Return the options of a name as values.

    Args:
        kind: the parameter that holds the name, for messages.
        name: the name that takes the options.
        options: what `parse_named_options` returned.
        converters: a function of the text for every option that the name takes; its `ValueError` states what must
            hold, such as "must be at least 0".
    """
    unknown = [key for key in options if key not in converters]
    if unknown:
        takes = f"must be one of {', '.join(converters)}" if converters else "must not be given"
        raise InvalidInput(f"options of `{kind}` {name} {takes}, but got {unknown[0]!r}.")

    def converted(key: str, text: str) -> Any:
        try:
            return converters[key](text)
        except ValueError as problem:
            raise InvalidInput(f"`{key}` of {kind} {name} {problem}, but got {text!r}.") from None

    return {key: converted(key, text) for key, text in options.items()}


def to_boolean(text: str) -> bool:
    """Return the value of "true" or "false"; a converter for `convert_options`."""
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def rows_of(name: str, text: str) -> range:
    """Return the rows of a text such as "5000-9999", both included."""
    match = re.fullmatch(r"(\d{1,9})-(\d{1,9})", text.strip())
    if match is None or int(match[1]) > int(match[2]):
        raise InvalidInput(f"`{name}` must be written as FIRST-LAST, such as 5000-9999, but got {text!r}.")
    return range(int(match[1]), int(match[2]) + 1)


def to_bytes(name: str, text: str | None) -> int | None:
    """Return the number of bytes of a text such as "2G", "500M" or "1.5G"; None for None."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,3})?)\s*([kmgt]?)i?b?", text.strip(), re.IGNORECASE)
    size = 0 if match is None else int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))
    if match is None or size < 1:
        raise InvalidInput(f"`{name}` must be a size such as 2G or 500M, but got {text!r}.")
    return size


def to_count(text: str) -> int:
    """Return an integer in 1..`LARGEST_COUNT`; a converter for `convert_options`."""
    if not text.isdecimal() or len(text) > len(str(LARGEST_COUNT)) or not 1 <= int(text) <= LARGEST_COUNT:
        raise ValueError(f"must be an integer of at least 1 and at most {LARGEST_COUNT:,}")
    return int(text)


def to_numbers(text: str) -> tuple[float, ...]:
    """Return the numbers of a text such as "0.5-0.75"; a converter for `convert_options`."""
    try:
        return tuple(to_number(part) for part in text.split("-"))
    except ValueError:
        raise ValueError("must be numbers separated by hyphens, such as 0.5-0.75") from None


def option_converters(description: type) -> dict[str, Callable[[str], Any]]:
    """Return a converter for every field of a dataclass that is chosen by name, from the type of its default."""
    converters: dict[type, Callable[[str], Any]] = {
        bool: to_boolean,
        int: to_count,
        float: to_number,
        tuple: to_numbers,
    }
    return {each.name: converters[type(each.default)] for each in fields(description)}


def to_number(text: str, *, minimum: float = -math.inf, below: float = math.inf) -> float:
    """Return a finite number in [minimum, below); a converter for `convert_options`."""
    lower = f" of at least {minimum:g}" if minimum > -math.inf else ""
    upper = f" below {below:g}" if below < math.inf else ""
    requirement = f"must be a finite number{lower}{' and' if lower and upper else ''}{upper}"
    try:
        number = float(text)
    except ValueError:
        raise ValueError(requirement) from None
    if not (math.isfinite(number) and minimum <= number < below):
        raise ValueError(requirement)
    return number


# --------------------------------------------------------------------------------------------------------------- checks


def count_problem(name: str, value: object, *others: str | None) -> str | None:
    """Return the problem of a value that must be a count, or one of a few others; None if it is valid."""
    if isinstance(value, (int, Integral)) and not isinstance(value, bool) and 1 <= int(value) <= LARGEST_COUNT:
        return None
    if isinstance(value, (str, type(None))) and value in others:
        return None
    or_other = "".join(f" or {other}" for other in others)
    if isinstance(value, (int, Integral)) and int(value) > LARGEST_COUNT:
        return f"`{name}` must be at most {LARGEST_COUNT:,}{or_other}, but got {value}."
    return f"`{name}` must be an integer of at least 1{or_other}, but got {value!r}."


def folds_problem(value: object) -> str | None:
    """Return the problem of a number of folds; None if it is valid."""
    if isinstance(value, (int, Integral)) and not isinstance(value, bool) and 0 <= int(value) <= LARGEST_COUNT:
        return None
    return f"`folds` must be an integer of at least 0, but got {value!r}."


def rate_problem(name: str, value: object) -> str | None:
    """Return the problem of a value that must be positive and finite; None if it is valid."""
    if isinstance(value, Real) and 0 < float(value) < math.inf:
        return None
    return f"`{name}` must be positive and finite, but got {value!r}."


def share_problem(name: str, value: object) -> str | None:
    """Return the problem of a value that must be a share between 0 and 1, or None; None if it is valid."""
    if value is None or (isinstance(value, Real) and 0 < float(value) < 1):
        return None
    return f"`{name}` must lie strictly between 0 and 1, but got {value!r}."


def image_size_problem(value: object) -> str | None:
    """Return the problem of a value that must be a side of images, or None; None if it is valid."""
    if value is None or (isinstance(value, (int, Integral)) and int(value) >= SMALLEST_IMAGE_SIZE):
        return None
    return f"`image_size` must be an integer of at least {SMALLEST_IMAGE_SIZE} pixels, but got {value!r}."


def scale_problem(value: object) -> str | None:
    """Return the problem of a value that must be a scale; None if it is valid."""
    return None if value in SCALES else f"`scale` must be {_one_of(SCALES)}, but got {value!r}."


def seed_problem(value: object) -> str | None:
    """Return the problem of a value that must be a seed; None if it is valid."""
    if isinstance(value, (int, Integral)) and not isinstance(value, bool) and int(value) >= 0:
        return None
    return f"`seed` must be an integer of at least 0, but got {value!r}."
