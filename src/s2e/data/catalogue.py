"""The published data sets: contents, files on disk and download addresses. Declarations only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2e.data.published_formats import Files, parse_cifar_split, parse_idx_split

if TYPE_CHECKING:
    from s2e.data.samples import Array, Labels


@dataclass(frozen=True)
class Layout:
    """Files of a data set under the root: a folder, and in it the files of each split, plain or .gz.

    Attributes:
        folder: folder under the root, "." for the root itself.
        train: file names of the training split.
        test: file names of the test split.
        parse: returns inputs (N, ...) and labels (N,) in 0..C-1, given the files of one split and C.
        names_file: optional text file with one class name per line.
    """

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    parse: Callable[[Files, int], tuple[Array, Labels]]
    names_file: str | None = None


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: a file of a layout, or a .tar.gz archive of its files."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        """File name in the address."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class DatasetInfo:
    """A data set that can be loaded by name.

    Attributes:
        name: argument of `load`.
        description: description of the samples.
        class_names: C names, used unless the files contain names.
        layouts: layouts of the files, of which the first complete one is read; empty for data embedded in a library.
        downloads: files fetched into the first layout when no layout is complete.
    """

    name: str
    description: str
    class_names: tuple[str, ...]
    layouts: tuple[Layout, ...] = ()
    downloads: tuple[RemoteFile, ...] = ()

    @property
    def classes(self) -> int:
        """C, the number of classes."""
        return len(self.class_names)

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of the layouts."""
        return tuple(layout.folder for layout in self.layouts)

    @property
    def urls(self) -> tuple[str, ...]:
        """Download addresses."""
        return tuple(remote.url for remote in self.downloads)


def _idx_layouts(*folders: str) -> tuple[Layout, ...]:
    train = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
    test = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    return tuple(Layout(folder, train, test, parse_idx_split) for folder in folders)


_DIGITS = tuple("0123456789")
_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_CIFAR_URL = "https://www.cs.toronto.edu/~kriz"
_CIFAR10_TRAIN = tuple(f"data_batch_{k}.bin" for k in range(1, 6))

# fmt: off
_PUBLISHED = (
    DatasetInfo("digits", "handwritten digits of 8 x 8 pixels, embedded in scikit-learn", _DIGITS),
    DatasetInfo(
        "mnist", "handwritten digits of 28 x 28 pixels", _DIGITS,
        layouts=_idx_layouts("mnist", "MNIST/raw", "."),
        downloads=(
            RemoteFile(f"{_MNIST_URL}/train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            RemoteFile(f"{_MNIST_URL}/train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            RemoteFile(f"{_MNIST_URL}/t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            RemoteFile(f"{_MNIST_URL}/t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
    ),
    DatasetInfo(
        "fashion-mnist", "articles of clothing of 28 x 28 pixels",
        ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        layouts=_idx_layouts("fashion-mnist", "FashionMNIST/raw"),
        downloads=(
            RemoteFile(f"{_FASHION_URL}/train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            RemoteFile(f"{_FASHION_URL}/train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            RemoteFile(f"{_FASHION_URL}/t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            RemoteFile(f"{_FASHION_URL}/t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
    ),
    DatasetInfo(
        "cifar10", "colour photographs of 32 x 32 pixels",
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        layouts=(
            Layout("cifar-10-batches-bin", _CIFAR10_TRAIN, ("test_batch.bin",), parse_cifar_split, "batches.meta.txt"),
        ),
        downloads=(RemoteFile(f"{_CIFAR_URL}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
    ),
    DatasetInfo(
        "cifar100", "colour photographs of 32 x 32 pixels", tuple(str(label) for label in range(100)),
        layouts=(
            Layout("cifar-100-binary", ("train.bin",), ("test.bin",), parse_cifar_split, "fine_label_names.txt"),
        ),
        downloads=(RemoteFile(f"{_CIFAR_URL}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
    ),
)
# fmt: on
CATALOGUE = {info.name: info for info in _PUBLISHED}

HUMAN_LABEL_KEYS = {
    "cifar10": {
        "worst": "worse_label",
        "aggre": "aggre_label",
        "random1": "random_label1",
        "random2": "random_label2",
        "random3": "random_label3",
    },
    "cifar100": {"noisy": "noisy_label"},
}
"""Kinds of human labels of each data set, with their keys in the files of CIFAR-N."""
