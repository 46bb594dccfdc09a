"""What is told how things go along."""

from __future__ import annotations

from s2e.engine.task import EpochFinished
from s2e.studies.loop import GenerationFinished


class Log:
    """A watch that remembers everything."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []
        self.epochs: list[EpochFinished] = []
        self.generations: list[GenerationFinished] = []

    def stage(self, name: str, epochs: int) -> None:
        self.stages.append((name, epochs))

    def epoch(self, progress: EpochFinished) -> None:
        self.epochs.append(progress)

    def generation(self, done: GenerationFinished) -> None:
        self.generations.append(done)

    def note(self, text: str) -> None: ...
