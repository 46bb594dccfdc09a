"""A data set of texts made from installed packages: which of five libraries documents this paragraph?

The libraries are torch, scikit-learn, SciPy, pandas and matplotlib. The paragraphs come from the docstrings of their
public functions, classes and methods: at least 80 characters long, without duplicates, 500 from each library. Names of
libraries and their abbreviations, examples, headings, reference markup and paragraphs that are not mostly letters are
removed; telling words such as "tensor" or "axes", and each library's notation of types, are not. The selection is
automatic: some paragraphs are lists of parameters, a few are code, and some could be from any of the libraries. The
texts are those of the installed versions.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

LIBRARIES = {
    "torch": ". nn nn.functional optim optim.lr_scheduler distributions linalg fft special utils.data autograd",
    "sklearn": "cluster compose covariance datasets decomposition ensemble feature_extraction.text feature_selection "
    "gaussian_process impute inspection linear_model manifold metrics mixture model_selection naive_bayes neighbors "
    "neural_network pipeline preprocessing svm tree",
    "scipy": "cluster.hierarchy fft integrate interpolate linalg ndimage optimize signal sparse spatial special stats",
    "pandas": ". api.types api.extensions tseries.offsets",
    "matplotlib": "pyplot axes axis artist collections colors figure lines patches text ticker transforms gridspec "
    "legend widgets animation",
}
"""Public modules whose docstrings are used; "." is the library itself."""

PARAGRAPHS, SHORTEST, LETTERS = 500, 80, 0.85
"""Largest number of paragraphs of a library; fewest characters of one; smallest share of letters and spaces in it."""

LIBRARY_NAMES = re.compile(
    r"(?<![^\W_])(pytorch|torch|aten|scikits?-learn|sklearn|scipy|pandas|matplotlib|pyplot|mpl|numpy|np|pd|plt)(?![^\W_])\.?",
    re.IGNORECASE,
)
HEADING = re.compile(r"^.*\n[ \t]*[-=~]{3,}[ \t]*$", re.MULTILINE)
ROLE = re.compile(r":[\w:]+:(?=`)")
NON_LETTERS = re.compile(r"[^A-Za-z ]+")


def docstrings() -> tuple[list[str], NDArray[np.int64]]:
    """Return N paragraphs and their labels (N,), indices into `LIBRARIES`; deterministic for the same versions."""
    texts: list[str] = []
    labels: list[int] = []
    found = [set(_paragraphs(library)) for library in LIBRARIES]
    for label, own in enumerate(found):
        elsewhere = set().union(*(other for other in found if other is not own))
        paragraphs = sorted(own - elsewhere)  # a paragraph of two libraries has no class
        order = np.random.default_rng(label).permutation(len(paragraphs))[:PARAGRAPHS]
        texts += [paragraphs[index] for index in sorted(order)]
        labels += [label] * len(order)
    return texts, np.array(labels, dtype=np.int64)


def _paragraphs(library: str) -> Iterator[str]:
    """Yield the paragraphs of prose in a library's docstrings, without the names of libraries."""
    for text in _documentation(library):
        for paragraph in re.split(r"\n\s*\n", HEADING.sub("", inspect.cleandoc(text))):
            lines = [line for line in paragraph.splitlines() if not line.lstrip().startswith((">>>", ".."))]
            plain = " ".join(LIBRARY_NAMES.sub("", ROLE.sub("", " ".join(lines))).split())
            if len(plain) >= SHORTEST and len(NON_LETTERS.sub("", plain)) >= LETTERS * len(plain):
                yield plain


def _documentation(library: str) -> Iterator[str]:
    """Yield the docstrings of the public functions and classes in a library's modules, and of the classes' methods."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names warn on access
        for path in LIBRARIES[library].split():
            module = importlib.import_module(library if path == "." else f"{library}.{path}")
            for name in sorted(name for name in dir(module) if not name.startswith("_")):
                each = getattr(module, name, None)
                home = str(getattr(each, "__module__", None) or library)  # built-in functions have no module
                if not (inspect.isclass(each) or inspect.isroutine(each)) or home.split(".")[0] != library:
                    continue
                inside = sorted(vars(each).items()) if inspect.isclass(each) else []
                for one in [each, *(held for name, held in inside if not name.startswith("_"))]:
                    if isinstance(text := getattr(one, "__doc__", None), str):
                        yield text
