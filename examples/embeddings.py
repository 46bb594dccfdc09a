"""Compute embeddings of images once, then search a schedule and find wrong labels on the embeddings.

The recommended way for images and texts: a pretrained network, the backbone, turns every sample into a vector, and the
schedule is searched for a small network on these vectors. The backbone runs once for every sample, so that a search
takes minutes for photographs too. `backbone` below is a stand-in that needs no download; its comments show where a
pretrained network goes.

    python examples/embeddings.py            # about three minutes on one core
    python examples/embeddings.py --quick    # a few seconds
    python examples/embeddings.py --out DIR  # where to write embeddings.npz and label_issues.csv
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from s2e import S2EClassifier


def backbone():
    """Return a network that maps images (B, 1, 8, 8) to embeddings (B, 256): random convolutions, a stand-in."""
    # A pretrained network of torchvision:
    #     weights = torchvision.models.ResNet50_Weights.DEFAULT
    #     network = torchvision.models.resnet50(weights=weights)
    #     network.fc = nn.Identity()  # embeddings (B, 2048) instead of logits
    #     preprocess = weights.transforms()  # the `transform` of your dataset of images
    # or of timm:
    #     network = timm.create_model("vit_small_patch14_dinov2.lvd142m", pretrained=True, num_classes=0)
    #     config = timm.data.resolve_model_data_config(network)
    #     preprocess = timm.data.create_transform(**config, is_training=False)
    # For texts, one call replaces `embed`:
    #     embeddings = sentence_transformers.SentenceTransformer("all-MiniLM-L6-v2").encode(texts)  # (N, 384)
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


def embed(network, images):
    """Return the embeddings (N, D) of a dataset of images, computed in batches without gradients."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = network.eval().to(device)
    with torch.inference_mode():
        batches = [network(batch.to(device)).float().cpu() for (batch,) in DataLoader(images, batch_size=256)]
    return torch.cat(batches).numpy()


def main():
    """Corrupt labels, compute embeddings, train on them, print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of minutes")
    parser.add_argument("--out", type=Path, help="where to write; a new temporary directory when not given")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="s2e-embeddings-"))
    out.mkdir(parents=True, exist_ok=True)

    digits, random = load_digits(), np.random.default_rng(0)
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]  # (1797, 1, 8, 8)
    embeddings = embed(backbone(), TensorDataset(images))  # (1797, 256)
    x, x_test, truth, y_test = train_test_split(embeddings, digits.target, test_size=500, random_state=0)
    wrong = random.random(len(x)) < 0.3
    y = np.where(wrong, (truth + random.integers(1, 10, len(x))) % 10, truth)  # any other class with equal probability

    quick = {"n_trials": 4, "restarts": 1, "epochs": 40, "batch_size": 128, "learning_rate": 0.003}
    model = S2EClassifier(random_state=0, **(quick if options.quick else {})).fit(x, y)
    plain = LogisticRegression(max_iter=1000).fit(x, y)
    print(f"embeddings: {len(x)} of {x.shape[1]} numbers")
    print(f"test accuracy, LogisticRegression: {plain.score(x_test, y_test):.1%}")
    print(f"test accuracy, S2EClassifier: {model.score(x_test, y_test):.1%}")

    audited = model.find_label_issues().assign(truly_wrong=wrong).sort_values("label_quality")
    audited.to_csv(out / "label_issues.csv", index_label="row")
    issues = audited[audited["is_label_issue"]]
    print(issues[["given_label", "suggested_label", "label_quality"]].head(5).to_string())
    found = issues["truly_wrong"].sum()
    print(f"label issues: {len(issues)}, truly wrong: {found}; wrong labels in total: {wrong.sum()}")

    scaler = StandardScaler().fit(x)  # `S2EClassifier` scales arrays itself, the command line takes them as they are
    arrays = {"x_train": scaler.transform(x), "y_train": y, "x_test": scaler.transform(x_test), "y_test": y_test}
    np.savez(out / "embeddings.npz", **arrays)
    print(f"on the command line: s2e search {out / 'embeddings.npz'}")
    print(f"written to: {out}")


if __name__ == "__main__":
    main()
