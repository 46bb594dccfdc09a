"""The source distribution holds what it needs to test itself, and the links of README.md lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(\s*([^)\s#]+)(?:#[^)]*)?\s*\)")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    made = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(made)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = made.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(made, filter="data")
    (directory,) = [path for path in made.iterdir() if path.is_dir()]
    return directory


@pytest.mark.slow
def test_source_distribution_tests_itself(unpacked: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(unpacked / "src"), "OMP_NUM_THREADS": "1"}
    some = ["tests/schedules", "tests/docs/test_code_blocks.py::test_commands_in_sentences_are_accepted"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow", *some]
    done = subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_links_of_the_readme_are_absolute_or_files_of_the_source_distribution(unpacked: Path) -> None:
    targets = [target for target in LINK.findall((unpacked / "README.md").read_text()) if "://" not in target]
    missing = [target for target in targets if not (unpacked / target).exists()]
    assert not missing


@pytest.mark.slow
def test_links_on_a_package_index_are_absolute(unpacked: Path) -> None:
    shown = (unpacked / "PKG-INFO").read_text().partition("Description-Content-Type: text/markdown")[2]
    targets = LINK.findall(shown)
    assert len(targets) >= 1
    assert all(target.startswith("https://") for target in targets), targets
    assert "docs/how-to-choose.md" in shown, "texts of links stay"


@pytest.mark.slow
def test_source_distribution_holds_all_that_the_commands_of_contributing_need(unpacked: Path) -> None:
    for name in ("Makefile", "constraints.txt", "mkdocs.yml", "pyproject.toml", ".ci/run", "docs/_site/hooks.py"):
        assert (unpacked / name).is_file(), name
