"""The memory that is left to a process, with the files of several systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from s2e.files.memory import available_memory

MACHINE = {"proc/meminfo": "MemTotal: 900 kB\nMemAvailable:     500 kB\n"}
GROUP = "sys/fs/cgroup"


def second(folder: str, limit: str, use: int, stat: str = "") -> dict[str, str]:
    place = f"{GROUP}/{folder}".rstrip("/")
    return {f"{place}/memory.max": f"{limit}\n", f"{place}/memory.current": f"{use}\n", f"{place}/memory.stat": stat}


def first(folder: str, limit: int, use: int, stat: str = "") -> dict[str, str]:
    place = f"{GROUP}/memory/{folder}".rstrip("/")
    limits = {f"{place}/memory.limit_in_bytes": f"{limit}\n", f"{place}/memory.usage_in_bytes": f"{use}\n"}
    return {**limits, f"{place}/memory.stat": stat}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        (MACHINE, 512_000),
        ({**MACHINE, "proc/self/cgroup": "0::/\n", **second("", "300000", 100_000)}, 200_000),
        ({**MACHINE, "proc/self/cgroup": "0::/\n", **second("", "max", 100_000)}, 512_000),
        ({**MACHINE, **second("", "9000000", 100_000)}, 512_000),
        (second("", "300000", 100_000), 200_000),
        # of a file cache that can be given back
        ({**MACHINE, **second("", "300000", 290_000, "file 9\ninactive_file 60000\n")}, 70_000),
        # of a job, whose step has no limit of its own
        (
            {
                **MACHINE,
                "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
                **second("slurm/job_7/step_0", "max", 60_000),
                **second("slurm/job_7", "250000", 80_000),
            },
            170_000,
        ),
        ({**MACHINE, "proc/self/cgroup": "0::/../../other\n", **second("", "300000", 310_000)}, 0),
        # version 1; without a namespace, a container sees the path of the host
        (
            {
                **MACHINE,
                "proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/docker/1f\n0::/\n",
                **first("", 300_000, 250_000, "total_inactive_file 20000\n"),
            },
            70_000,
        ),
        (
            {
                **MACHINE,
                "proc/self/cgroup": "4:memory:/slurm/job_7\n",
                **first("", 2**63 - 4096, 400_000),
                **first("slurm/job_7", 100_000, 40_000),
            },
            60_000,
        ),
        ({**MACHINE, "proc/self/cgroup": "nonsense", **second("", "nonsense", 1)}, 512_000),
    ],
)
def test_memory_is_the_least_of_the_machine_and_its_control_groups(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_memory(tmp_path) == expected
