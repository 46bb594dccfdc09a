"""Cost of `s2e reproduce` at the scale of the paper: networks trained, from its declarations, and time on one GPU.

    python benchmarks/paper_cost.py --out docs/results/cost

Nothing is trained. The time of a training step of each network was measured (docs/results/speed-h200, the largest
population there). Evaluation, compilation and loading are not included, and Reweight counts as three networks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from s2e.experiments import comparison, human, memorization
from s2e.methods import Need, method
from s2e.schedules import SPACES
from s2e.specs import (
    HUMAN_PARTS,
    PAPER_DATA,
    PAPER_NOISES,
    CompareOptions,
    ComparisonOptions,
    HumanOptions,
    MemorizationOptions,
    SamplersOptions,
    SpacesOptions,
)
from s2e.workflows import is_oracle, is_searched

RESULTS = Path(__file__).parents[1] / "docs" / "results"

TRAINING_SAMPLES = {"mnist": 54_000, "cifar10": 45_000, "cifar100": 45_000}
"""Samples without those held out for validation."""

NETWORK_OF = {"mnist": "mlp", "cifar10": "cifar10-cnn", "cifar100": "cifar100-cnn"}

SEARCHERS: dict[str, Any] = {
    "samplers": ("curve", "newton", "gradient", "natural", "random", "tpe", "hyperband"),
    "repeats": 5,
    "random_trials": 60,
}
"""Options of `s2e reproduce searchers --on DATA`: the samplers of Figure 6 and the default, 60 trials each."""

REWEIGHT_COST = 3
"""Networks as which one of Reweight counts: it differentiates twice more in each step."""


@dataclass(frozen=True)
class Cost:
    """Trainings of a part of an experiment.

    Attributes:
        command: the command and its part.
        networks: trained networks, all alike.
        steps: of each.
        microseconds: of one step and network; None if it was not measured.
    """

    command: str
    networks: int
    steps: int
    microseconds: float | None

    @property
    def minutes(self) -> float | None:
        """The time of all steps."""
        return None if self.microseconds is None else self.networks * self.steps * self.microseconds / 60e6


def step_times(folder: Path) -> dict[str, float]:
    """Return the measured microseconds of a step and network: the smallest of those of pairs, by network."""
    rows = json.loads((folder / "steps.json").read_text())["rows"]
    times = {
        network: min(row["microseconds_per_member"] / 2 for row in rows if row["network"] == network)
        for network in {row["network"] for row in rows}
    }
    large = json.loads((folder / "large.json").read_text())["rows"]
    engine = min(row["milliseconds"] / row["pairs"] for row in large if row["side"] == "engine")
    return times | {"resnet18": 1000 * engine / 2}


def networks_of(options: CompareOptions) -> int:
    """Return the networks that a comparison trains, its searches included."""
    settings, count = len(options.noises), 0
    for name in options.methods:
        base, searched = method(_base(name)), is_searched(name)
        cost = base.networks
        if Need.CLEAN_SAMPLES in base.needs:
            cost *= REWEIGHT_COST
        if Need.TRANSITION in base.needs:
            cost *= 2  # its matrix is estimated by a training of its own
        count += settings * options.seeds * cost
        count += settings * options.searches * (options.search.trials or 0) * cost if searched else 0
    return count


def _base(name: str) -> str:
    """Return the method that an entrant trains."""
    if is_searched(name):
        return name.partition(":")[2] or "coteaching"
    return "standard" if is_oracle(name) else name


def costs(times: Mapping[str, float]) -> list[Cost]:
    """Return the costs of every part of the experiments at the scale of the paper."""
    return [*_comparisons(times), *_memorization(times), *_spaces(times), *_searchers(times), *_human(times)]


def _steps(data: str, epochs: int, batch_size: int = 128) -> int:
    return epochs * -(-TRAINING_SAMPLES[data] // batch_size)


def _comparisons(times: Mapping[str, float]) -> Iterable[Cost]:
    for data in PAPER_DATA:
        options = comparison.options_of(data, ComparisonOptions())
        steps = _steps(data, options.training.epochs)
        yield Cost(f"comparison, {data}", networks_of(options), steps, times[NETWORK_OF[data]])


def _memorization(times: Mapping[str, float]) -> Iterable[Cost]:
    options = MemorizationOptions()
    declared = memorization.studies(options.data)
    settings = list(dict.fromkeys(setting for study in declared.values() for setting in study.values()))
    found: dict[tuple[str, int], int] = {}
    for setting in settings:
        trainings = memorization.entries_of([setting], options)
        network = NETWORK_OF[setting.data] if setting.network == "auto" else setting.network.partition(":")[0]
        key = network, _steps(setting.data, options.epochs, setting.batch_size)
        found[key] = found.get(key, 0) + len(trainings) * (1 if setting.schedule is None else 2)
    for (network, steps), networks in found.items():
        yield Cost(f"memorization, {network}, {steps} steps", networks, steps, times.get(network))


def _spaces(times: Mapping[str, float]) -> Iterable[Cost]:
    options = SpacesOptions()
    networks = 2 * len(options.noises) * len(SPACES) * options.sets * (options.draws + options.seeds)
    for data in options.data:
        steps = _steps(data, options.training.epochs)
        yield Cost(f"spaces, {data}", networks, steps, times[NETWORK_OF[data]])


def _searchers(times: Mapping[str, float]) -> Iterable[Cost]:
    for data in ("mnist", "cifar10"):
        options = SamplersOptions(data, **SEARCHERS)
        networks = 2 * len(options.samplers) * len(PAPER_NOISES) * options.repeats * options.random_trials
        steps = _steps(data, options.training.epochs)
        yield Cost(f"searchers, on {data}", networks, steps, times[NETWORK_OF[data]])


def _human(times: Mapping[str, float]) -> Iterable[Cost]:
    for name in HUMAN_PARTS:
        part = human.PARTS[name]
        options = human.options_of(part, HumanOptions())
        network = "resnet18" if part.training.network == "resnet18" else NETWORK_OF[part.data]
        steps = _steps(part.data, part.training.epochs, part.training.batch_size)
        yield Cost(f"human, {name}", networks_of(options), steps, times[network])


def markdown(found: Iterable[Cost]) -> str:
    """Return the costs as a table."""
    lines = [
        "| experiment, part | networks | steps of each | µs a step and network | minutes |",
        "|---|---|---|---|---|",
    ]
    for cost in found:
        time = "not measured" if cost.microseconds is None else f"{cost.microseconds:.1f}"
        minutes = "—" if cost.minutes is None else f"{cost.minutes:.1f}"
        lines.append(f"| {cost.command} | {cost.networks:,} | {cost.steps:,} | {time} | {minutes} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compute the costs, and write `cost.json` and `table.md`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for cost.json and table.md")
    folder: Path = parser.parse_args().out
    found = costs(step_times(RESULTS / "speed-h200"))
    rows: list[dict[str, Any]] = [{**asdict(cost), "minutes": cost.minutes} for cost in found]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cost.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    (folder / "table.md").write_text(markdown(found))


if __name__ == "__main__":
    main()
