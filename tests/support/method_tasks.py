"""Small tasks for every method: data, networks with buffers, batch norm and dropout, members."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from s2e.data.samples import LabelledData
from s2e.engine.task import Member, Task
from s2e.methods import Coteaching, MentorNet, Method, Standard
from s2e.methods.coteaching_plus import CoteachingPlus
from s2e.methods.decoupling import Decoupling
from s2e.methods.forward_correction import ForwardCorrection
from s2e.methods.jocor import JoCoR
from s2e.methods.reweight import Reweight
from small_tasks import blobs, small_mlp

EPOCHS, BATCH, CLASSES = 4, 32, 4

CASES: dict[str, Method] = {
    "standard": Standard(),
    "mentornet": MentorNet(),
    "coteaching": Coteaching(),
    "coteaching_plus": CoteachingPlus(warm_up=0),
    "coteaching_plus after 2 epochs": CoteachingPlus(warm_up=2),
    "decoupling": Decoupling(),
    "f_correction": ForwardCorrection(),
    "reweight": Reweight(),
    "jocor": JoCoR(agreement=0.9),
    "jocor with less agreement": JoCoR(agreement=0.3),
}
every_method = pytest.mark.parametrize("method", CASES.values(), ids=CASES)

TRANSITION = np.array(
    [[0.7, 0.3, 0.0, 0.0], [0.0, 0.6, 0.3, 0.1], [0.05, 0.05, 0.8, 0.1], [0.4, 0.0, 0.0, 0.6]]
)  # row = true class, all different and not symmetric


# ------------------------------------------------------------------------------------------------------ data, networks


def shared_task(method: Method, **changes: object) -> Task:
    """104 samples, of which an epoch of 3 batches leaves out 8; 40 clean ones, more than a batch."""
    settings = {
        "train": blobs(104, CLASSES),
        "network": small_mlp,
        "evaluate": {},
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "seed": 5,
        "clean": blobs(40, CLASSES, wrong=0.0, seed=2),
    }
    return Task(method=method, **{**settings, **changes})  # type: ignore[arg-type]


def images(samples: int, seed: int) -> LabelledData:
    """Small images whose brightest quadrant is their class, a third of them mislabelled."""
    generator = np.random.default_rng(seed)
    clean = generator.permutation(np.arange(samples) % CLASSES).astype(np.int64)
    pixels = generator.integers(0, 180, size=(samples, 1, 8, 8))
    for image, label in zip(pixels[:, 0], clean, strict=True):
        row, column = divmod(int(label), 2)
        image[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 75
    noisy = np.where(generator.random(samples) < 0.3, (clean + 1) % CLASSES, clean)
    return LabelledData(pixels.astype(np.uint8), noisy, tuple("abcd"), clean_labels=clean)


def clean_images(samples: int, seed: int) -> LabelledData:
    drawn = images(samples, seed)
    return replace(drawn, labels=drawn.clean_labels)


def small_cnn() -> nn.Module:
    # No bias before a norm: its gradient is 0 up to rounding, which Adam turns into full steps.
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 2, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, CLASSES),
    )


class DrawnScale(nn.Module):
    """Scale each feature by a random buffer, which differs between networks and affects the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", 0.5 + torch.rand(6))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.scale


def mlp_with_buffers() -> nn.Module:
    return nn.Sequential(
        DrawnScale(), nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)
    )


def mlp_with_buffers_and_dropout() -> nn.Module:
    return nn.Sequential(*[*mlp_with_buffers()][:-1], nn.Dropout(0.3), nn.Linear(16, CLASSES))


def twin_mlp() -> nn.Module:
    """A network with the same weights for every seed, so that both networks of a pair are equal."""
    torch.manual_seed(7)
    return small_mlp()


def member(method: Method | None = None, *, keep: float = 0.6, seed: int = 1, **changes: object) -> Member:
    needs_transition = isinstance(method, ForwardCorrection)
    settings = {"method": method, "transition": TRANSITION if needs_transition else None, **changes}
    return Member(np.linspace(1.0, keep, EPOCHS), seed, **settings)  # type: ignore[arg-type]
