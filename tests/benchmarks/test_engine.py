"""`benchmarks/engine.py`: both sides train all members, set-up is not timed, tables show the file."""

from __future__ import annotations

import json
import time

import pytest
import torch

from benchmark_programs import loaded_program

QUICK = ["--device", "cpu", "--settings", "13-64-10", "--seconds", "0.01", "--repeats", "2"]


@pytest.fixture(scope="module")
def benchmark():
    with loaded_program("engine") as program:
        yield program


def test_a_measurement_has_both_sides_of_every_population(benchmark, tmp_path, capsys):
    out = tmp_path / "engine.json"
    benchmark.main([*QUICK, "--members", "1", "3", "--out", str(out)])
    found = json.loads(out.read_text())
    assert (found["plain_adam"], found["threads"]) == ("fused", torch.get_num_threads())
    assert [(row["setting"], row["batch"], row["members"]) for row in found["rows"]] == [
        ("13-64-10", 32, 1),
        ("13-64-10", 32, 3),
    ]
    for row in found["rows"]:
        assert all(row[side][clock] > 0 for side in ("engine", "plain") for clock in ("wall_us", "cpu_us"))
        assert row["wall_ratio"] == pytest.approx(row["plain"]["wall_us"] / row["engine"]["wall_us"], abs=0.006)
        low, high = row["wall_ratio_of_repeats"]
        assert low <= high
    capsys.readouterr()
    benchmark.main(["--markdown", str(out)])
    table = capsys.readouterr().out.splitlines()
    assert table[2].startswith("| 13-64-10, 32 | 1 | ")
    assert f" {found['rows'][1]['wall_ratio']:.2f}× (" in table[3]


def test_plain_adam_may_be_the_default(benchmark, tmp_path):
    out = tmp_path / "engine.json"
    benchmark.main([*QUICK, "--members", "1", "--plain-adam", "default", "--plain-threads", "1", "--out", str(out)])
    found = json.loads(out.read_text())
    assert (found["plain_adam"], found["plain_threads"]) == ("default", 1)


def test_the_first_epoch_of_a_training_is_not_timed(benchmark):
    setting = benchmark.SETTINGS["13-64-10"]
    began = time.perf_counter()
    cost = benchmark.engine_training(setting, 2)(6 * setting.steps - 1)
    assert cost.steps == 6 * setting.steps
    assert 0 < cost.wall < time.perf_counter() - began


def test_every_network_of_the_plain_side_takes_every_step(benchmark, monkeypatch):
    networks = []

    class Counting(torch.nn.Linear):
        def __init__(self):
            super().__init__(13, 10)
            self.forwards = 0
            networks.append(self)

        def forward(self, inputs):
            self.forwards += 1
            return super().forward(inputs)

    monkeypatch.setattr(benchmark.Setting, "factory", property(lambda _: Counting))
    side = benchmark.plain_loop(benchmark.SETTINGS["13-64-10"], 3, torch.device("cpu"), fused=True, threads=1)
    assert side(4).steps == 4
    assert [network.forwards for network in networks] == [4] * 6


def test_networks_have_the_widths_of_their_names(benchmark):
    for name in ("13-64-10", "13-256-10", "256-256-10", "784-256-10"):
        layers = [layer for layer in benchmark.SETTINGS[name].factory() if isinstance(layer, torch.nn.Linear)]
        widths = [layers[0].in_features, *(layer.out_features for layer in layers)]
        assert "-".join(map(str, widths)) == name
