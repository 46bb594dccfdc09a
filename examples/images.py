"""Train on images of digits with 30% wrong labels, and find the wrong labels.

Compares plain training, which memorises wrong labels, with `S2EClassifier`; draws the images of lowest label quality
with their given and suggested labels; saves the classifier, loads it, and predicts with it.

    python examples/images.py            # about two minutes on one core
    python examples/images.py --quick    # a few seconds
    python examples/images.py --out DIR  # where to write label_issues.png and digits.safetensors

Your own images are arrays (N, H, W), (N, H, W, channels) or (N, channels, H, W), preferably uint8. A folder of class
folders needs no program: `s2e search photos`, then `s2e audit RUN` and `s2e report RUN`.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import s2e


def contact_sheet(images, given, suggested):
    """Draw the first 32 images, each titled "given label → suggested label"."""
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    grid = figure.subplots(4, 8, subplot_kw={"xticks": [], "yticks": []}).flat
    for axes, image, before, after in zip(grid, images, given, suggested, strict=False):
        axes.imshow(image, cmap="gray_r")
        axes.set_title(f"{before} → {after}")
    return figure


def main():
    """Corrupt labels, train both ways, print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of minutes")
    parser.add_argument("--out", type=Path, help="where to write; a new temporary directory when not given")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="s2e-images-"))
    out.mkdir(parents=True, exist_ok=True)

    digits, random = load_digits(), np.random.default_rng(0)
    images = np.round(digits.images * 255 / 16).astype(np.uint8)  # (1797, 8, 8)
    x, x_test, truth, y_test = train_test_split(images, digits.target, test_size=500, random_state=0)
    wrong = random.random(len(x)) < 0.3
    y = np.where(wrong, (truth + random.integers(1, 10, len(x))) % 10, truth)  # any other class with equal probability

    quick = {"n_trials": 4, "restarts": 1, "epochs": 40, "batch_size": 128, "learning_rate": 0.01}
    model = s2e.S2EClassifier(random_state=0, **(quick if options.quick else {})).fit(x, y)
    same = {"batch_size": model.batch_size_, "learning_rate": model.learning_rate}
    everything = np.ones(model.epochs_)  # keep rates: every sample, in every epoch
    plain = s2e.train((x, y), everything, method="standard", evaluate={"test": (x_test, y_test)}, **same)
    print(f"test accuracy, plain training: {plain.curves.last('test')[0]:.1%}")
    print(f"test accuracy, S2EClassifier: {model.score(x_test, y_test):.1%}")

    suggested = model.suggested_labels_
    issues = model.label_issues_  # lowest quality first
    found = wrong[issues].sum()
    print(f"label issues: {len(issues)}, truly wrong: {found}; wrong labels in total: {wrong.sum()}")
    print(f"correct labels: {np.mean(y == truth):.1%} as given, {np.mean(suggested == truth):.1%} as suggested")
    contact_sheet(x[issues], y[issues], suggested[issues]).savefig(out / "label_issues.png")

    model.save(out / "digits.safetensors")
    loaded = s2e.S2EClassifier.load(out / "digits.safetensors")
    print(f"loaded classifier predicts the same: {np.array_equal(loaded.predict(x_test), model.predict(x_test))}")
    print(f"written to: {out}")


if __name__ == "__main__":
    main()
