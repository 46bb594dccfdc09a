"""The run directory: all files of one command, written atomically: a crash leaves the old file or the new one.

| file | content |
|---|---|
| config.json | everything needed to repeat the command, with versions |
| study.db | the Optuna study of a search |
| schedule.json | the keep rates, by epoch |
| curves.npz | losses and accuracies of the final training, by epoch |
| dynamics.npz | records of every training sample, for the label audit |
| model.safetensors | weights of the final classifier |
| encoding.json | how the data were read, to read other samples in the same way |
| result.json | the results |
| .lock | locked by the process that writes to the run |

A search with a noisy validation part adds validation.npz, its relabelled labels, and a training by forward correction
adds transition.csv. A comparison has config.json, study.db and result.json too, and outcomes.npz (every finished
training), results.csv and curves.csv (the same for a spreadsheet), figures as .png and .svg, schedule-METHOD-NOISE.json
for each search, and transitions.npz.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from s2e.errors import InvalidInput, RunConflict, UnreadableData

CONFIG = "config.json"
TEMPORARY = ".tmp"


class Run:
    """A run directory on disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def check_new(self) -> None:
        """Raise an error if no run can be created in the directory."""
        if self.exists:
            raise RunConflict(
                f"{str(self.path)!r} already holds a run; continue it with --resume, or give another --out."
            )
        if self.path.is_dir() and any(not file.name.startswith(".") for file in self.path.iterdir()):
            raise RunConflict(f"`out` must be a new or an empty directory, but {str(self.path)!r} is not.")
        existing = next(path for path in (self.path, *self.path.absolute().parents) if path.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise InvalidInput(
                f"`out` must be a directory to write to, but {str(self.path)!r} is not: {str(existing)!r} is not one."
            )

    @classmethod
    def create(cls, path: Path | str, config: Mapping[str, Any]) -> Run:
        """Start a run in a directory that holds none yet."""
        run = cls(path)
        run.check_new()
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            run.write_json(CONFIG, config)
        except OSError as problem:
            reason = problem.strerror or problem
            raise InvalidInput(
                f"`out` must be a directory to write to, but {str(run.path)!r} is not: {reason}."
            ) from None
        return run

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """Open an existing run."""
        run = cls(path)
        if not run.exists:
            raise UnreadableData(f"{str(run.path)!r} holds no run: there is no {CONFIG} in it.")
        return run

    @property
    def exists(self) -> bool:
        """Return whether the directory holds a run."""
        return (self.path / CONFIG).is_file()

    @property
    def storage(self) -> str:
        """Return the URL of the database in this directory."""
        return f"sqlite:///{(self.path / 'study.db').resolve()}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run against other processes while the body runs."""
        with (self.path / ".lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunConflict(
                    f"another process is working on {str(self.path)!r}; wait until it ends, or stop it."
                ) from None
            for temporary in self.path.glob(f".*{TEMPORARY}"):  # left by a process that was killed while writing
                temporary.unlink()
            yield

    def read_json(self, name: str) -> Any:
        """Read a JSON file."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            raise UnreadableData(f"{str(self.path / name)!r} could not be read: {problem}.") from problem

    def read_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Read an .npz file; return no arrays if it does not exist."""
        path = self.path / name
        if not path.exists():
            return {}
        try:
            with path.open("rb") as handle:
                return _verified_arrays(handle)
        except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile) as problem:
            raise UnreadableData(f"{str(path)!r} could not be read: {problem}.") from problem

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file."""
        self.write_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Write a text file."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a binary file."""
        self._write(name, lambda handle: handle.write(content))

    def write_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write a compressed .npz file; arrays of Python objects are refused, because they need pickle."""
        if objects := [key for key, array in arrays.items() if array.dtype == object]:
            raise InvalidInput(
                f"`arrays` must hold numbers or strings, but got Python objects in {', '.join(objects)}."
            )
        self._write(name, lambda handle: np.savez_compressed(handle, **arrays))  # type: ignore[arg-type]

    def write_weights(self, name: str, state: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
        """Write tensors and metadata as safetensors."""
        from safetensors.torch import save

        content = save({key: tensor.contiguous() for key, tensor in state.items()}, dict(metadata))
        self.write_bytes(name, content)

    def read_weights(self, name: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Read the tensors and the metadata that `write_weights` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path / name, framework="pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a dictionary
                return tensors, file.metadata() or {}
        except (OSError, SafetensorError) as problem:
            raise UnreadableData(f"{str(self.path / name)!r} could not be read: {problem}.") from problem

    def _write(self, name: str, fill: Callable[[IO[bytes]], object]) -> None:
        """Write to a temporary file, flush it to disk, rename it."""
        descriptor, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}.", suffix=TEMPORARY)
        try:
            with os.fdopen(descriptor, "wb") as handle:
                fill(handle)
                handle.flush()
                os.fsync(handle.fileno())
            Path(temporary).chmod(0o644)
            os.replace(temporary, self.path / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _verified_arrays(handle: IO[bytes]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name, each verified by its checksum before it is parsed.

    `np.load` stops at the size in an array's header, and so never reaches the checksum if a damaged header states a
    smaller size; and it accepts a damaged list of arrays as a shorter one.
    """
    arrays = {}
    with zipfile.ZipFile(handle) as archive:
        for member in archive.infolist():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{member.filename!r} has a compression that NumPy does not use")
            content = io.BytesIO(archive.read(member))
            arrays[member.filename.removesuffix(".npy")] = np.lib.format.read_array(content, allow_pickle=False)
    handle.seek(-12, os.SEEK_END)  # the end record has 22 bytes; these two are the number of entries
    expected = int.from_bytes(handle.read(2), "little")
    if min(len(arrays), 0xFFFF) != expected:  # the largest number of two bytes
        raise zipfile.BadZipFile(f"it must hold {expected} arrays, but got {len(arrays)}")
    return arrays
