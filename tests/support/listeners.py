"""A progress listener for tests."""

from __future__ import annotations

from s2e.engine.task import EpochFinished
from s2e.studies import GenerationFinished


class Log:
    """A progress listener that records all calls."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []
        self.epochs: list[EpochFinished] = []
        self.generations: list[GenerationFinished] = []
        self.notes: list[str] = []

    @property
    def stage_names(self) -> list[str]:
        return [name for name, _ in self.stages]

    def stage(self, name: str, epochs: int) -> None:
        self.stages.append((name, epochs))

    def epoch(self, progress: EpochFinished) -> None:
        self.epochs.append(progress)

    def generation(self, done: GenerationFinished) -> None:
        self.generations.append(done)

    def note(self, text: str) -> None:
        self.notes.append(text)
