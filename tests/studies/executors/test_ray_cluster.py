"""A real local Ray cluster of two workers."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from command_line import process
from comparisons import save
from populations import assert_same, stop_after
from s2e import S2EClassifier
from s2e.engine import Checkpoints, EpochFinished, Member, Task, train_population
from s2e.errors import InvalidInput, WorkerFailed
from s2e.methods import MentorNet
from s2e.runs import Run, RunLocation
from s2e.specs import CompareOptions, DataSpec, Execution, SearchSpec, TrainingSpec
from s2e.studies import Search, resolve_execution, search_schedules
from s2e.studies.executors import RayExecutor
from s2e.workflows.compare import compare
from searches import make_plan, make_study, make_task, trial_records
from small_tasks import blobs, member, small_mlp, task

ray = pytest.importorskip("ray", reason="ray is not installed; install s2e[ray]")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    made = resolve_execution(Execution("cpu", "ray"))[1]  # workflows with these options use the same one
    assert isinstance(made, RayExecutor)
    yield made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of Ray's own processes and files
        made.close()
        assert not ray.is_initialized()
        gc.collect()


def remote(executor: RayExecutor, **changes: Any) -> Task:
    return task(blobs(), MentorNet(), **{"executor": executor, "evaluate": {"valid": blobs(96, seed=1)}, **changes})


def members(count: int = 4, epochs: int = 4) -> list[Member]:
    return [member(0.4 + 0.1 * seed, seed=seed, epochs=epochs) for seed in range(count)]


def pids(executor: RayExecutor) -> list[int]:
    return [ray.get(worker.ready).pid for worker in executor._workers]


def test_a_cluster_that_does_not_answer_is_refused_in_one_line() -> None:
    closed = RayExecutor("127.0.0.1:1", "cpu")
    assert not ray.is_initialized()
    with pytest.raises(WorkerFailed, match=r"^the Ray cluster at '127.0.0.1:1' could not be joined: .*refused"):
        train_population(remote(closed), members(1))


TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef0123456789abcdef"}
"""Ray may ask for a token by default, or not: both ends are told."""


@contextmanager
def running_head() -> Iterator[str]:
    """Start a cluster of two CPUs with Ray's own command; return its address."""
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        port, client_port = (free.getsockname()[1] for free in (one, other))
    command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--head", "--block"]
    command += ["--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    directory = tempfile.mkdtemp(prefix="ray-")  # short: the paths of its sockets are limited
    with Path(directory, "output").open("w") as output:
        command += [f"--temp-dir={directory}", f"--ray-client-server-port={client_port}", "--disable-usage-stats"]
        head = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, env={**os.environ, **TOKEN}
        )
    try:
        deadline = time.monotonic() + 120
        while "Ray runtime started" not in (written := Path(directory, "output").read_text()):
            assert head.poll() is None, written
            assert time.monotonic() < deadline, written
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
        assert head.poll() is None, "a cluster that was joined must keep running"
    finally:
        head.terminate()  # ends the other processes of the cluster
        try:
            head.wait(30)
        except subprocess.TimeoutExpired:
            head.kill()
            head.wait()
        for left in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended
                if directory.encode() in left.read_bytes():
                    os.kill(int(left.parent.name), signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.timeout(900)
def test_commands_join_a_cluster_that_runs_by_its_address(tmp_path: Path) -> None:
    short = ["--epochs", "2", "--batch-size", "128", "--device", "cpu"]
    train = ["train", "digits", *short, "--method", "mentornet", "--schedule", "constant:0.8"]
    methods = ["--methods", "standard,s2e", "--seeds", "1", "--trials", "2", "--searches", "1"]
    small = ["--scale", "laptop", "--data", "digits", "--samples", "300", "--noise", "pair:0.45", *methods]
    reproduce = ["reproduce", "comparison", *small, "--epochs", "2", "--device", "cpu"]
    with running_head() as address:
        join = ["--executor", "ray", "--ray-address", address, "--out"]
        refused = process(*train, *join, "none", where=tmp_path, timeout=300, variables={"RAY_AUTH_MODE": "disabled"})
        assert refused.returncode == 2
        assert "could not be joined" in refused.stderr.splitlines()[-1]
        assert "if it asks for a token, set RAY_AUTH_MODE=token" in refused.stderr.splitlines()[-1]
        for name, command in (("train", train), ("reproduce", reproduce)):
            joined = process(*command, *join, name, where=tmp_path, timeout=300, variables=TOKEN)
            assert joined.returncode == 0, joined.stderr
            assert "Traceback" not in joined.stderr
    for name, command in (("train", train), ("reproduce", reproduce)):
        alone = process(*command, "--out", f"{name}-alone", where=tmp_path, timeout=300)
        assert alone.returncode == 0, alone.stderr
    trained, alone_trained = (Run(tmp_path / name).read_arrays("curves.npz") for name in ("train", "train-alone"))
    assert trained.keys() == alone_trained.keys()
    for name, curve in trained.items():
        np.testing.assert_array_equal(curve, alone_trained[name])
    tables = sorted(path.relative_to(tmp_path / "reproduce") for path in (tmp_path / "reproduce").rglob("results.csv"))
    assert tables
    for table in tables:
        assert (tmp_path / "reproduce" / table).read_bytes() == (tmp_path / "reproduce-alone" / table).read_bytes()


def test_results_equal_those_of_this_process_and_progress_comes_back(executor: RayExecutor) -> None:
    split, seen = remote(executor), list[EpochFinished]()
    trained = train_population(split, members(), on_epoch=seen.append)
    assert_same(trained, train_population(replace(split, executor=None), members()))
    assert len(set(pids(executor)) - {os.getpid()}) == 2
    for epoch in range(1, 5):
        indices = [index for progress in seen if progress.epoch == epoch for index in progress.indices]
        assert sorted(indices) == [0, 1, 2, 3]


def test_factories_and_labels_of_members_are_sent(executor: RayExecutor) -> None:
    width = 8
    labels = np.random.default_rng(0).integers(0, 4, len(blobs()))
    own = [replace(each, labels=labels) for each in members()]
    split = remote(executor, network=lambda: torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.Linear(width, 4)))
    assert_same(train_population(split, own), train_population(replace(split, executor=None), own))


def test_data_are_stored_once_for_all_generations(executor: RayExecutor) -> None:
    split = remote(executor)
    train_population(split, members())
    stored = dict(executor._objects._arrays)
    for seed in (5, 6):
        train_population(split, [member(seed=seed), member(seed=seed + 10)])
    train_population(replace(split, seed=3), members())
    assert executor._objects._arrays == stored


@pytest.mark.parametrize("sampler", ["newton", "hyperband"])
def test_a_search_has_the_same_trials(executor: RayExecutor, sampler: str) -> None:
    records = []
    for used in (None, executor):
        study, plan = make_study(), make_plan(sampler, trials=6, epochs=3)
        search_schedules(make_task(epochs=3, executor=used), [Search(plan, study)])
        records.append(trial_records(study))
    assert records[0] == records[1]


@pytest.mark.parametrize("stops", [{}, {1: 1, 3: 5}])
def test_a_killed_worker_changes_no_result(
    executor: RayExecutor, stops: dict[int, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = Checkpoints(tmp_path / "checkpoints", interval=0.0, max_share=np.inf)
    epochs = 8 if stops else 100  # without decisions to wait for, the worker must not have finished when it is killed
    split, killed, seen = remote(executor, epochs=epochs, checkpoints=written), list[int](), list[tuple[int, int]]()
    stop = stop_after(stops) if stops else None

    def kill_one(progress: EpochFinished) -> None:
        seen.extend((progress.epoch, index) for index in progress.indices)
        if progress.epoch == 4 and 0 in progress.indices:  # of the first worker
            killed.extend(pids(executor)[:1])
            os.kill(killed[0], signal.SIGKILL)

    trained = train_population(split, members(epochs=epochs), on_epoch=kill_one, stop=stop)
    alone = replace(split, executor=None, checkpoints=None)
    assert_same(trained, train_population(alone, members(epochs=epochs), stop=stop))
    assert len(seen) == len(set(seen)), "an epoch was reported twice"
    assert {(epoch, index) for epoch in range(1, epochs + 1) for index in set(range(4)) - stops.keys()} <= set(seen)
    assert len(killed) == 1
    assert killed[0] not in pids(executor)
    assert "its members are trained elsewhere" in caplog.text
    assert "members after epoch" in caplog.text, "the checkpoint was not used"


def test_an_error_of_a_worker_is_raised_in_one_line(executor: RayExecutor) -> None:
    here = os.getpid()

    class FailsElsewhere(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = small_mlp()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if self.training and os.getpid() != here:
                raise RuntimeError("cannot be trained here\nbut elsewhere")
            outputs: torch.Tensor = self.network(inputs)
            return outputs

    with pytest.raises(WorkerFailed, match=r"^training on worker \d+ on \S+ failed: cannot be trained here$"):
        train_population(remote(executor, network=FailsElsewhere), members())


def test_a_network_that_cannot_be_built_on_a_worker_is_named(executor: RayExecutor) -> None:
    here = os.getpid()

    def fails_elsewhere() -> torch.nn.Module:
        if os.getpid() != here:
            raise RuntimeError("cannot be built here\nbut elsewhere")
        return small_mlp()

    with pytest.raises(InvalidInput, match=r"^`network` must .* but raises RuntimeError: cannot be built here\.$"):
        train_population(remote(executor, network=fails_elsewhere), members())
    good = remote(executor)  # the executor can be used again
    assert_same(train_population(good, members(1)), train_population(replace(good, executor=None), members(1)))


def test_an_executor_uses_a_cluster_that_runs_and_shuts_down_only_its_own(executor: RayExecutor) -> None:
    train_population(remote(executor), members(1))
    other = RayExecutor(device="cuda")
    with pytest.raises(InvalidInput, match="`device` cuda needs a Ray cluster with GPUs, but it has none"):
        train_population(remote(other), members(1))
    other.close()
    assert ray.is_initialized()


def test_a_comparison_has_the_same_results(executor: RayExecutor, tmp_path: Path) -> None:
    dataset = DataSpec(save(tmp_path / "own.npz"))
    given = CompareOptions(
        dataset,
        ("pair:0.4",),
        ("standard", "f-correction", "s2e"),
        seeds=1,
        training=TrainingSpec(epochs=2, batch_size=64),
        search=SearchSpec(sampler="random", trials=4, generation_size=2),
    )
    one = compare(given, RunLocation(tmp_path / "one", device="cpu"))
    other = compare(given, RunLocation(tmp_path / "other", device="cpu", executor="ray"))
    for name in ("results.csv", "curves.csv", "transitions.npz"):
        assert (one.path / name).read_bytes() == (other.path / name).read_bytes(), name
    assert other.read_json("config.json")["executor"] == "ray"


def test_a_classifier_has_the_same_results(executor: RayExecutor) -> None:
    data = blobs()
    settings = {"n_trials": 2, "epochs": 2, "generation_size": 2, "restarts": 1, "random_state": 0, "device": "cpu"}
    one = S2EClassifier(**settings).fit(data.inputs, data.labels)
    other = S2EClassifier(**settings, executor="ray").fit(data.inputs, data.labels)
    np.testing.assert_array_equal(one.predict_proba(data.inputs), other.predict_proba(data.inputs))
    assert clone(other).executor == "ray"
