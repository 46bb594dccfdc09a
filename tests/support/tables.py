"""Small tables with columns of several kinds."""

from __future__ import annotations

import numpy as np
import pandas as pd


def small_table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "key": ["p1", "p2", "p3", "p4"],
            "age": [20.0, np.nan, 40.0, 30.0],
            "smoker": [True, False, True, True],
            "city": ["Rom", "Bonn", None, "Rom"],
            "planet": ["Earth"] * 4,
            "ill": [0.0, 1.0, 1.0, 0.0],
        }
    )


def random_table(generator: np.random.Generator, rows: int) -> pd.DataFrame:
    """Return columns of every kind, with or without missing values, in random order."""
    columns = {
        "whole": generator.integers(-50, 50, rows).astype(float),
        "wide": generator.standard_cauchy(rows) * 10.0 ** generator.integers(-9, 9),
        "written": pd.Series(generator.normal(size=rows).round(3)).astype(str),
        "flag": pd.Series(generator.random(rows) < 0.3).astype(object),
        "few": generator.choice(["a", "b", "c d"], rows),
        "many": generator.choice([f"v{number}" for number in range(45)], rows),
        "kind": pd.Categorical(generator.choice([1, 2, 3], rows)),
        "day": pd.Series(pd.Timestamp(2020, 1, 1) + pd.to_timedelta(generator.integers(0, 999, rows), "D")).astype(str),
        "price": [f"€{amount:,.2f}" for amount in generator.lognormal(7, 2, rows)],
        "text": [f"text {generator.integers(10**9)}" for _ in range(rows)],
    }
    frame = pd.DataFrame(columns)
    for name in frame.columns:
        if generator.random() < 0.5:
            frame.loc[generator.random(rows) < 0.2, name] = None
    frame["label"] = generator.choice(["x", "y", "z"], rows)
    return frame[generator.permutation(frame.columns)]
