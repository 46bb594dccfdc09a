"""What is told how things go along."""

from __future__ import annotations

from s2e.engine.task import Progress
from s2e.studies.loop import GenerationDone


class Log:
    """A watch that remembers everything."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []
        self.epochs: list[Progress] = []
        self.generations: list[GenerationDone] = []

    def stage(self, name: str, epochs: int) -> None:
        self.stages.append((name, epochs))

    def epoch(self, progress: Progress) -> None:
        self.epochs.append(progress)

    def generation(self, done: GenerationDone) -> None:
        self.generations.append(done)

    def note(self, text: str) -> None: ...
