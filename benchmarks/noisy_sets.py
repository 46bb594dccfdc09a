"""Data sets like those that people hold: mixed columns, rare classes, many classes, images, crowds; and their noise.

All are made here or embedded in scikit-learn, so nothing is downloaded. Each set has the kind of wrong labels that such
data have:

- orders: a table of 2,667 rows with numbers, categories and missing values, three classes; `symmetric:0.25`.
- rare: 20 numbers, 7% positives, two classes; `missing:0.4`: 40% of the positives are labelled negative.
- many_classes: 50 classes, 40 numbers; `symmetric:0.3`.
- grey_images: scikit-learn's digits as 8×8 images; `symmetric:0.21`.
- instance: four classes, 16 numbers; `instance:0.3`, which depends on the sample.
- confused: six classes, 20 numbers; `pair:0.4`.
- crowd: five classes, 20 numbers; `annotators:5`, each of whom labels 60% of the samples and is right in 40 to 90% of
  them. Methods that take one label for each sample receive the most frequent one.

Letters: N samples, F columns, C classes, A annotators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import train_test_split

from s2e.data.noise import corrupt, corrupt_by_instance, parse_noise, symmetric, transition_matrix

Labels = NDArray[np.int64]

NOT_LABELLED = -1
"""Label of a sample that an annotator has not seen."""


class LabelledSet(NamedTuple):
    """Samples, (N, F), (N, H, W), a DataFrame of N rows or N texts, with their right labels (N,)."""

    samples: Any
    labels: Labels


class GivenLabels(NamedTuple):
    """The labels that methods receive.

    Attributes:
        labels: (N,) one for each sample.
        annotations: (N, A) those of each annotator, `NOT_LABELLED` where there is none; None without annotators.
    """

    labels: Labels
    annotations: Labels | None = None


# --------------------------------------------------------------------------------------------------------------- sets


def orders() -> LabelledSet:
    """Make a table of orders: which of three ways a customer pays depends on numbers, categories and both together."""
    generator = np.random.default_rng(0)
    rows = 2667
    country = generator.choice(["AT", "CH", "DE", "FR", "IT", "NL"], rows, p=[0.1, 0.1, 0.4, 0.2, 0.1, 0.1])
    channel = generator.choice(["app", "phone", "shop", "web"], rows)
    amount = np.exp(generator.normal(4.0, 1.0, rows))
    items = 1 + generator.poisson(2.5, rows)
    age = generator.normal(45, 14, rows).clip(18, 90).round()
    orders_before = generator.poisson(4.0, rows)
    is_abroad, is_digital = country != "DE", np.isin(channel, ["app", "web"])
    scores = np.stack(
        [
            1.6 * is_digital + 0.03 * (50 - age) + 0.8 * is_abroad,
            0.9 * np.log(amount) - 2.2 + 0.12 * orders_before - 0.9 * is_abroad,
            1.3 * ~is_digital + 0.04 * (age - 45) + 0.25 * items - 0.5,
        ],
        axis=1,
    )
    labels = (2.0 * scores + generator.gumbel(size=scores.shape)).argmax(axis=1)
    table = pd.DataFrame(
        {
            "country": country,
            "channel": channel,
            "amount": amount.round(2),
            "items": items,
            "age": age,
            "orders_before": orders_before,
        }
    )
    table.loc[generator.random(rows) < 0.1, "age"] = np.nan
    return LabelledSet(table, labels.astype(np.int64))


def _made(samples: int, **settings: Any) -> LabelledSet:
    made, labels = datasets.make_classification(samples, random_state=0, **settings)
    return LabelledSet(made, labels.astype(np.int64))


def rare() -> LabelledSet:
    """Make two classes, of which one is rare."""
    return _made(4000, n_features=20, n_informative=8, n_redundant=4, weights=[0.93], flip_y=0.0, class_sep=1.5)


def many_classes() -> LabelledSet:
    """Make 50 classes."""
    return _made(5000, n_features=40, n_informative=20, n_classes=50, n_clusters_per_class=1, flip_y=0.0, class_sep=2.0)


def grey_images() -> LabelledSet:
    """Return the embedded digits as images of bytes, (N, 8, 8)."""
    bunch = datasets.load_digits()
    return LabelledSet((bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64))


def instance() -> LabelledSet:
    """Make four classes."""
    return _made(2667, n_features=16, n_informative=8, n_classes=4, n_clusters_per_class=2, flip_y=0.0, class_sep=1.5)


def confused() -> LabelledSet:
    """Make six classes."""
    return _made(3000, n_features=20, n_informative=10, n_classes=6, n_clusters_per_class=2, flip_y=0.0, class_sep=1.6)


def crowd() -> LabelledSet:
    """Make five classes."""
    return _made(2667, n_features=20, n_informative=8, n_classes=5, n_clusters_per_class=2, flip_y=0.0, class_sep=1.5)


NOISY_SETS: dict[str, tuple[Callable[[], LabelledSet], str]] = {
    "orders": (orders, "symmetric:0.25"),
    "rare": (rare, "missing:0.4"),
    "many_classes": (many_classes, "symmetric:0.3"),
    "grey_images": (grey_images, "symmetric:0.21"),
    "instance": (instance, "instance:0.3"),
    "confused": (confused, "pair:0.4"),
    "crowd": (crowd, "annotators:5"),
}
"""The sets, each with its noise."""


# -------------------------------------------------------------------------------------------------------------- noise


def noisy_split(
    load: Callable[[], tuple[Any, Any]], noise: str, seed: int
) -> tuple[NDArray[np.float64], Labels, Labels, Labels, Labels]:
    """Return samples, right labels, given labels of the training samples, and the indices of training and test samples.

    A quarter of the samples, stratified by class, is the test part.
    """
    loaded, classes = load()
    samples, right = np.asarray(loaded, dtype=np.float64), np.asarray(classes, dtype=np.int64)
    train, test = train_test_split(np.arange(len(right)), test_size=0.25, random_state=seed, stratify=right)
    given = given_labels(samples[train], right[train], noise, np.random.default_rng(seed)).labels
    return samples, right, given, train, test


def given_labels(samples: Any, right: Labels, noise: str, generator: np.random.Generator) -> GivenLabels:
    """Draw the labels that methods receive.

    Args:
        samples: (N, ...), for noise that depends on them.
        right: (N,) right labels.
        noise: as for `s2e search --noise`, or "missing:RATE" or "annotators:COUNT"; see the module's description.
        generator: source of random numbers.
    """
    classes = int(right.max()) + 1
    kind, _, value = noise.partition(":")
    if kind == "missing":
        return GivenLabels(corrupt(right, [[1.0, 0.0], [float(value), 1 - float(value)]], generator))
    if kind == "annotators":
        annotations = _annotations(right, classes, int(value), generator)
        return GivenLabels(most_frequent(annotations, classes), annotations)
    if kind == "instance":
        inputs = np.asarray(samples, dtype=np.float32)
        return GivenLabels(corrupt_by_instance(inputs, right, classes, float(value), generator))
    return GivenLabels(corrupt(right, transition_matrix(parse_noise(noise), classes), generator))


def _annotations(right: Labels, classes: int, annotators: int, generator: np.random.Generator) -> Labels:
    """Draw the labels (N, A) of annotators; every sample has at least one."""
    accuracies = np.linspace(0.9, 0.4, annotators)
    columns = [corrupt(right, symmetric(classes, 1 - accuracy), generator) for accuracy in accuracies]
    given = np.stack(columns, axis=1)
    seen = generator.random(given.shape) < 0.6
    seen[np.arange(len(right)), generator.integers(0, annotators, len(right))] = True
    return np.where(seen, given, NOT_LABELLED)


def most_frequent(annotations: Labels, classes: int) -> Labels:
    """Return the most frequent label of every sample, (N,), the smallest of equals."""
    counts = np.stack([(annotations == each).sum(axis=1) for each in range(classes)], axis=1)  # (N, C)
    return counts.argmax(axis=1).astype(np.int64)
