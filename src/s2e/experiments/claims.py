"""What the paper claims, and what was found: one claim for each figure or table, decided from numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Verdict(Enum):
    """Whether a claim of the paper was found again."""

    BETTER = "better"
    REPRODUCED = "reproduced"
    IN_PART = "in part"
    NOT = "not reproduced"

    @classmethod
    def of(cls, *, holds: int, of: int, better: bool = False) -> Verdict:
        """Return the verdict on a claim that holds in some of all cases; `better` than the paper's numbers."""
        if holds == of:
            return cls.BETTER if better else cls.REPRODUCED
        return cls.IN_PART if holds else cls.NOT


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        source: figure, table or section of the paper, or "beyond the paper".
        text: what is claimed.
        verdict: whether it was found again.
        found: the numbers behind the verdict.
    """

    source: str
    text: str
    verdict: Verdict
    found: str

    def row(self) -> dict[str, str]:
        """Return the claim, ready for JSON."""
        return {"source": self.source, "text": self.text, "verdict": self.verdict.value, "found": self.found}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Claim:
        """Invert `row`."""
        return cls(str(row["source"]), str(row["text"]), Verdict(row["verdict"]), str(row["found"]))
