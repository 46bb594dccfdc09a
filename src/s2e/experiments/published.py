"""Published numbers that results are shown beside. Declarations only; all in percent."""

from __future__ import annotations

SPACES_TABLE: dict[str, dict[str, dict[str, float]]] = {
    "mnist": {
        "symmetric:0.2": {"coteaching": 97.83, "single": 97.67, "rbf": 96.94, "mlp": 97.69, "s2e": 97.87},
        "symmetric:0.5": {"coteaching": 96.54, "single": 96.56, "rbf": 95.53, "mlp": 96.16, "s2e": 96.90},
        "pair:0.45": {"coteaching": 93.27, "single": 94.99, "rbf": 89.37, "mlp": 93.25, "s2e": 95.47},
    },
    "cifar10": {
        "symmetric:0.2": {"coteaching": 57.24, "single": 57.83, "rbf": 56.58, "mlp": 56.82, "s2e": 58.73},
        "symmetric:0.5": {"coteaching": 47.14, "single": 47.81, "rbf": 45.15, "mlp": 46.18, "s2e": 50.82},
        "pair:0.45": {"coteaching": 44.87, "single": 45.19, "rbf": 42.61, "mlp": 44.26, "s2e": 47.58},
    },
    "cifar100": {
        "symmetric:0.2": {"coteaching": 44.89, "single": 44.93, "rbf": 44.24, "mlp": 44.57, "s2e": 45.32},
        "symmetric:0.5": {"coteaching": 36.53, "single": 36.71, "rbf": 30.99, "mlp": 35.88, "s2e": 38.74},
        "pair:0.45": {"coteaching": 27.30, "single": 31.25, "rbf": 27.96, "mlp": 28.06, "s2e": 32.44},
    },
}
"""Table 2 of the S2E paper (Yao et al., ICML 2020): best test accuracy over all epochs, random search in each space, by
data set, noise setting and space. The code of its authors tests MNIST on test images 5,000 to 9,999."""

MNIST_HALF = "5000-9999"
"""The test images of MNIST that the paper's public code tests on; it validates on the others."""

HUMAN_WORST = {"Co-teaching": 83.8, "ELR+": 91.1, "DivideMix": 92.6}
"""Test accuracy on CIFAR-10N with the labels "worst", as reported by Wei et al. (ICLR 2022). Networks and training
differ between the methods, and from ours; ELR+ and DivideMix also train on the samples that they consider wrong."""
