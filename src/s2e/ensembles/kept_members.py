"""The members of a search whose weights are kept: the best few, within a number of bytes.

With a run they are in one of its files, which is written before the study receives their scores: a search that is
killed and resumed keeps the same members. Members that were stopped early or diverged are not kept.

Letters: M networks in a member.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from s2e.engine import VALIDATION, Member, Trained
from s2e.errors import UnreadableData
from s2e.files.fields import Fields
from s2e.files.json_text import parse_json
from s2e.networks import Factory, isolated_random_state
from s2e.runs import Run

KEPT = "trials.safetensors"
"""File of a run with the members that its search keeps."""

MOST_MEMBERS = 6
MOST_BYTES = 2**29
"""Members that a search keeps, and the bytes of their weights; the best one is kept in any case."""


@dataclass(frozen=True, eq=False)
class KeptMember:
    """A trained member.

    Attributes:
        seed: seed of its initial weights, which identifies it in a search.
        score: on validation, mean over the last epochs.
        state: weights and buffers of its networks, {name: (M, ...)}.
    """

    seed: int
    score: float
    state: dict[str, Tensor]

    @property
    def bytes(self) -> int:
        """Bytes of the weights and buffers."""
        return state_bytes(self.state)


class KeptMembers:
    """The best members of a search so far.

    Args:
        run: stores them; None to keep them in memory only.
        most: number of members.
        most_bytes: bytes of all of them.

    Attributes:
        members: the members, the best first.
    """

    def __init__(self, run: Run | None = None, *, most: int = MOST_MEMBERS, most_bytes: int = MOST_BYTES) -> None:
        self._run, self._most, self._most_bytes = run, most, most_bytes
        self.members: list[KeptMember] = [] if run is None else _read(run)

    def check(self, network: Factory) -> None:
        """Raise unless the members that an earlier session kept are of this network.

        Raises:
            UnreadableData: if they are not.
        """
        with isolated_random_state(), torch.device("meta"):
            expected = {name: (tensor.shape, tensor.dtype) for name, tensor in network().state_dict().items()}
        for member in self.members:
            first = {tensor.shape[:1] for tensor in member.state.values()}  # M
            found = {name: (tensor.shape[1:], tensor.dtype) for name, tensor in member.state.items()}
            if self._run is not None and (found != expected or len(first) > 1 or first & {(), (0,)}):
                raise _damaged(self._run.path / KEPT)

    def add(self, members: Sequence[Member], trained: Trained) -> None:
        """Keep those of some trained members that are among the best."""
        epochs = trained.curves.loss.shape[1]
        complete = (trained.curves.epochs == epochs) & ~trained.curves.diverged
        scores = trained.curves.last(VALIDATION)
        before = [one.seed for one in self.members]
        fresh = [
            KeptMember(member.seed, float(scores[index]), _rows(trained, index))
            for index, member in enumerate(members)
            if complete[index] and self._may_be_kept(float(scores[index]))
        ]
        replaced = {one.seed for one in fresh}
        ranked = sorted(
            [*(one for one in self.members if one.seed not in replaced), *fresh], key=lambda one: -one.score
        )
        size = ranked[0].bytes if ranked else 1
        self.members = ranked[: max(1, min(self._most, self._most_bytes // max(1, size)))]
        if self._run is not None and (replaced & {one.seed for one in self.members} or len(before) > len(self.members)):
            _write(self._run, self.members)

    def _may_be_kept(self, score: float) -> bool:
        return len(self.members) < self._most or score > self.members[-1].score


def state_bytes(state: Mapping[str, Tensor]) -> int:
    """Return the bytes of weights and buffers."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def _rows(trained: Trained, member: int) -> dict[str, Tensor]:
    return {name: tensor[trained.rows(member)].clone() for name, tensor in trained.state.items()}


def _write(run: Run, members: Sequence[KeptMember]) -> None:
    tensors = {f"{which}.{name}": tensor for which, one in enumerate(members) for name, tensor in one.state.items()}
    about = {"seeds": [one.seed for one in members], "scores": [one.score for one in members]}
    run.write_weights(KEPT, tensors, {"trials": json.dumps(about)})


def _read(run: Run) -> list[KeptMember]:
    """Return the members that an earlier session of the run kept."""
    path = run.path / KEPT
    if not path.exists():
        return []
    tensors, metadata = run.read_weights(KEPT)
    about = Fields(parse_json(metadata.get("trials", "{}"), path), path)
    seeds, scores = about.integers("seeds", least=0, most=2**63 - 1), about.numbers("scores")
    states: list[dict[str, Tensor]] = [{} for _ in seeds]
    for key, tensor in tensors.items():
        which, _, name = key.partition(".")
        if which not in map(str, range(len(states))):
            raise _damaged(path)
        states[int(which)][name] = tensor
    if len(seeds) != len(scores) or not all(states):
        raise _damaged(path)
    return [KeptMember(*each) for each in zip(seeds, scores, states, strict=True)]


def _damaged(path: Path) -> UnreadableData:
    return UnreadableData(f"{str(path)!r} is damaged; remove it and resume the run.")
