"""Make the picture of the report page, docs/assets/report.png: a small table with text and wrong labels, searched here.

    python docs/_site/picture.py    # minutes on two cores; needs chromium and the extra `dev`

The picture is the top of the page at a width of 1200 pixels, without its margins.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[1] / "assets" / "report.png"
WIDTH, HEIGHT = 1200, 916
MARGIN = 64
"""Empty border of the page, which is cut off on the left and on the right."""

ROWS, SHARE_OF_WRONG_LABELS = 800, 0.25

OPENINGS = ("Hello,", "Hi,", "Good morning,", "Dear team,", "Please help:", "Again:", "")
CLOSINGS = ("Thanks.", "Please answer soon.", "Order {order}.", "This is urgent.", "My account is {account}.", "")
SENTENCES = {
    "billing": (
        "the card was charged twice in {month}",
        "the invoice for {month} is too high",
        "I was charged for a plan that I cancelled in {month}",
        "the refund of {amount} has not arrived",
        "the discount code is not on my invoice",
    ),
    "delivery": (
        "the parcel has not arrived since {month}",
        "the box arrived damaged",
        "the tracking page shows no parcel",
        "the courier left the parcel at the wrong address",
        "half of the items are missing in the box",
    ),
    "login": (
        "I cannot sign in since {month}",
        "the password reset mail never arrives",
        "the sign-in code is refused",
        "my account is locked after three attempts",
        "the app asks for a password that I never set",
    ),
    "return": (
        "I want to send back the shoes, they are too small",
        "where do I send the items back",
        "the return label cannot be printed",
        "the colour is wrong and I want to exchange it",
        "I sent the box back in {month}, what happens now",
    ),
}
UNCLEAR = (
    "when do I get my money back",
    "I am waiting for an answer since {month}",
    "the amount and the items do not match",
    "your app shows an error",
    "please cancel my order of {month}",
)
SHARE_OF_UNCLEAR_MESSAGES = 0.2
MONTHS = ("January", "February", "March", "April", "May", "June")


def tickets() -> pd.DataFrame:
    """Return tickets with dates, categories, numbers and text, and their topics, some of them wrong."""
    random = np.random.default_rng(0)
    topics = random.choice(list(SENTENCES), ROWS)

    def message(topic: str) -> str:
        sentences = UNCLEAR if random.random() < SHARE_OF_UNCLEAR_MESSAGES else SENTENCES[topic]
        parts = random.choice(OPENINGS), random.choice(sentences) + ".", random.choice(CLOSINGS)
        return (
            " ".join(part for part in parts if part)
            .replace("{month}", str(random.choice(MONTHS)))
            .replace("{amount}", f"{random.integers(5, 90)}.00 EUR")
            .replace("{order}", str(random.integers(10_000, 99_999)))
            .replace("{account}", str(random.integers(1_000, 9_999)))
        )

    names = list(SENTENCES)
    other = [random.choice([name for name in names if name != topic]) for topic in topics]
    wrong = random.random(ROWS) < SHARE_OF_WRONG_LABELS
    received = pd.Timestamp("2026-01-05") + pd.to_timedelta(random.integers(0, 170, ROWS), unit="D")
    return pd.DataFrame(
        {
            "ticket": [f"T{row:04d}" for row in range(ROWS)],
            "received": received.strftime("%Y-%m-%d"),
            "channel": random.choice(["mail", "chat", "form"], ROWS),
            "orders": random.poisson(3, ROWS),
            "message": [message(topic) for topic in topics],
            "topic": np.where(wrong, other, topics),
        }
    )


def main() -> None:
    """Search on the table, write the page, photograph it."""
    with tempfile.TemporaryDirectory() as folder:
        data, run = Path(folder) / "tickets.csv", Path(folder) / "runs" / "tickets"
        tickets().to_csv(data, index=False)
        search = "search tickets.csv --label topic --id ticket --text message --out runs/tickets"
        for command in (search, "report runs/tickets"):
            subprocess.run([sys.executable, "-m", "s2e", *command.split()], cwd=folder, check=True)  # noqa: S603
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            page.goto((run / "report.html").as_uri())
            part = {"x": MARGIN, "y": 20, "width": WIDTH - 2 * MARGIN, "height": HEIGHT - 20}
            page.screenshot(path=PICTURE, clip=part)
            browser.close()


if __name__ == "__main__":
    main()
