"""`--image-size`: the side that images are resized to, in training, prediction and the report."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from command_line import TINY, assert_refused, s2e, save
from image_files import save as save_image
from s2e.data import image_folders

pytestmark = pytest.mark.usefixtures("work")


def photos(count: int = 24) -> str:
    """Write bright and dark images of 20 x 20 pixels."""
    noise = np.random.default_rng(0).integers(0, 60, (count, 20, 20), dtype=np.uint8)
    for number, pixels in enumerate(noise):
        save_image(Path("photos", "dark" if number % 2 else "bright", f"{number}.png"), pixels + 190 * (1 - number % 2))
    return "photos"


@pytest.mark.slow
def test_later_commands_read_images_of_the_same_size() -> None:
    trained = s2e(
        *("train", photos(), "--image-size", "12", "--schedule", "constant:0.9", "--out", "run"),
        *(*TINY[:2], "--batch-size", "8"),
    )
    assert trained.exit_code == 0, trained.output
    encoding = json.loads(Path("run/encoding.json").read_text())
    assert encoding == {"kind": "images", "side": 12, "channels": 1}
    for command in ("predict run photos -o out.csv", "audit run", "report run"):
        done = s2e(*shlex.split(command))
        assert done.exit_code == 0, done.output
    assert len(Path("out.csv").read_text().splitlines()) == 25
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert "data:image/png" in page
    assert "has changed since the run" not in page


@pytest.mark.parametrize("data", ["digits", "own.npz", "own.csv --label kind"])
def test_data_that_are_not_images_on_disk_are_refused(data: str) -> None:
    save()
    Path("own.csv").write_text("size,kind\n1,a\n2,b\n")
    name = data.split()[0]
    for command in ("search", "compare"):
        assert_refused(
            s2e(command, *data.split(), "--image-size", "32", "--out", "run"),
            f"`image_size` must be given for a folder of images or images of the Hub only, but got 32 for {name}; omit",
        )


def test_sizes_that_cannot_be_used_are_refused_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_folders, "decode_images", lambda *_: pytest.fail("decoded"))
    for size, mention in (
        ("7", "`image_size` must be an integer of at least 8 pixels, but got 7."),
        ("-3", "at least 8 pixels, but got -3"),
        ("9000000", "fit into memory, but 24 of 9000000 x 9000000 pixels and 1 channel(s) take 3,620,9"),
    ):
        assert_refused(s2e("search", photos(), "--image-size", size, "--out", "run"), mention)
