"""`benchmarks/speed.py large`: the plain pair trains as the engine does, and both sides are measured."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import pytest
import torch

from benchmark_programs import loaded_program
from s2e.engine import optimizer_of, train_population
from s2e.engine.population import Population
from s2e.networks import reference_network

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def benchmark():
    with loaded_program("speed") as program:
        yield program


@pytest.fixture
def shared(benchmark):
    """The task of the tiny version."""
    return benchmark._large_task(argparse.Namespace(tiny=True, device=CPU))


def test_targets_are_of_existing_networks_and_optimizers(benchmark):
    for network, members, optimizer, per, microseconds in benchmark.TARGETS:
        reference_network(network, benchmark.SHAPES[network], benchmark.CLASSES[network])
        assert optimizer_of(optimizer).state_tensors in (1, 2)
        assert per in ("step", "member", "network")
        assert members > 0
        assert microseconds > 0


def test_an_optimizer_with_less_state_moves_fewer_bytes(benchmark):
    batch, network = torch.zeros(2, 1, 28, 28), reference_network("mlp", (1, 28, 28), 10)
    adam, sgd = (benchmark.work(network, batch, 4, state_tensors=count) for count in (2, 1))
    assert adam.moved - sgd.moved == 2 * 4 * 203_530
    assert benchmark.work(network, batch, 4) == adam


def test_a_plain_pair_equals_the_pair_of_the_engine(benchmark, shared):
    if hasattr(shared, "precision"):
        shared = replace(shared, precision="float32")
    (member,) = benchmark.members(1)
    first = Population.create(shared, [member]).networks.tensors()
    keep = int(benchmark.keep_counts(member.schedule, shared.batch_size)[0])
    pair = benchmark.PlainPair(shared, keep, "none", torch.float32)
    for row, network in enumerate(pair.networks):
        network.load_state_dict({name: tensor[row] for name, tensor in first.items()})
    pair.run(len(shared.train) // shared.batch_size)
    trained = train_population(shared, [member]).modules(shared.network)
    for plain, own, row in zip(pair.networks, trained, range(2), strict=True):
        for name, tensor in own.state_dict().items():
            torch.testing.assert_close(plain.state_dict()[name], tensor, rtol=1e-3, atol=1e-4, msg=name)
            assert tensor.dtype != torch.float32 or not torch.equal(tensor, first[name][row]), f"{name} is not trained"


@pytest.mark.slow
def test_a_tiny_measurement_has_both_sides(benchmark, tmp_path):
    benchmark.main(["large", "--tiny", "--pairs", "1", "2", "--device", "cpu", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "large.json").read_text())
    plain, one, two = found["rows"]
    assert [(row["side"], row["pairs"]) for row in found["rows"]] == [("plain, none", 1), ("engine", 1), ("engine", 2)]
    assert found["batch"] == 8
    assert one["target"] == 0.95
    assert two["target"] is None
    for row in (one, two):
        assert row["images_per_second"] == pytest.approx(row["pairs"] * 8 / (row["milliseconds"] / 1e3))
        assert row["ratio"] == pytest.approx(row["images_per_second"] / plain["images_per_second"])
