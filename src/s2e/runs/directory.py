"""The run directory: everything one command made, written so that a crash leaves the old file or the new one.

| file | what |
|---|---|
| config.json | everything needed to repeat the command, with versions |
| study.db | the Optuna study of a search |
| schedule.json | the keep rates, by epoch |
| curves.npz | what happened by epoch in the final training |
| dynamics.npz | what happened to every training sample in it |
| model.safetensors | weights of the final classifier |
| encoding.json | how the data were read, so that others like them can be predicted |
| result.json | the figures |
| .lock | held by the process that works on the run |

A training by forward correction adds transition.csv. A comparison has config.json, study.db and result.json too, and
outcomes.npz (every training that is finished), results.csv and curves.csv (the same for a spreadsheet), figures as .png
and .svg, schedule-METHOD-NOISE.json for what was searched, and transitions.npz.
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
        """Refuse a directory in which no run can be started."""
        if self.exists:
            raise RunConflict(
                f"{str(self.path)!r} already holds a run; continue it with --resume, or give another --out."
            )
        if self.path.exists() and not self.path.is_dir():
            raise InvalidInput(f"`out` must be a directory to write to, but {str(self.path)!r} is not.")
        if self.path.is_dir() and any(not file.name.startswith(".") for file in self.path.iterdir()):
            raise RunConflict(f"`out` must be a new or an empty directory, but {str(self.path)!r} is not.")

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
        """Open a run made before."""
        run = cls(path)
        if not run.exists:
            raise UnreadableData(f"{str(run.path)!r} holds no run: there is no {CONFIG} in it.")
        return run

    @property
    def exists(self) -> bool:
        """Tell whether the directory holds a run."""
        return (self.path / CONFIG).is_file()

    @property
    def storage(self) -> str:
        """URL of the study kept in this directory."""
        return f"sqlite:///{(self.path / 'study.db').resolve()}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from working on this run at the same time."""
        with (self.path / ".lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunConflict(
                    f"another process is working on {str(self.path)!r}; wait for it or stop it first."
                ) from None
            for left_over in self.path.glob(f".*{TEMPORARY}"):  # by a process that was killed while writing
                left_over.unlink()
            yield

    def read_json(self, name: str) -> Any:
        """Read one of the run's JSON files."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            raise UnreadableData(f"{str(self.path / name)!r} could not be read: {problem}.") from problem

    def read_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Read one of the run's .npz files; nothing where it is not there yet."""
        path = self.path / name
        if not path.exists():
            return {}
        try:
            with path.open("rb") as handle:
                return _unpacked(handle)
        except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile) as problem:
            raise UnreadableData(f"{str(path)!r} could not be read: {problem}.") from problem

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file."""
        self.write_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Write a text file."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file as it is."""
        self._write(name, lambda handle: handle.write(content))

    def write_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write a compressed .npz file; arrays of Python objects, which need pickle, are refused."""
        if objects := [key for key, array in arrays.items() if array.dtype == object]:
            raise InvalidInput(
                f"`arrays` must hold numbers or strings, but got Python objects in {', '.join(objects)}."
            )
        self._write(name, lambda handle: np.savez_compressed(handle, **arrays))  # type: ignore[arg-type]

    def write_weights(self, name: str, state: Mapping[str, Any], about: Mapping[str, str]) -> None:
        """Write tensors as safetensors, with a few words about them."""
        from safetensors.torch import save

        content = save({key: tensor.contiguous() for key, tensor in state.items()}, dict(about))
        self.write_bytes(name, content)

    def read_weights(self, name: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Read what `write_weights` wrote: the tensors, and the words about them."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path / name, framework="pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # it is no dictionary
                return tensors, file.metadata() or {}
        except (OSError, SafetensorError) as problem:
            raise UnreadableData(f"{str(self.path / name)!r} could not be read: {problem}.") from problem

    def _write(self, name: str, fill: Callable[[IO[bytes]], object]) -> None:
        """Write beside the target, flush to disk, rename."""
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


def _unpacked(handle: IO[bytes]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name, all of them, each verified by its checksum before it is understood.

    `np.load` reads no further than an array's header says, and so never comes to the checksum where a damaged header
    tells of a smaller array; and it takes a damaged list of arrays for a shorter one.
    """
    arrays = {}
    with zipfile.ZipFile(handle) as archive:
        for member in archive.infolist():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{member.filename!r} is compressed in a way NumPy does not use")
            content = io.BytesIO(archive.read(member))
            arrays[member.filename.removesuffix(".npy")] = np.lib.format.read_array(content, allow_pickle=False)
    handle.seek(-12, os.SEEK_END)  # the last 22 bytes end the list, and two of them tell how long it is
    expected = int.from_bytes(handle.read(2), "little")
    if min(len(arrays), 0xFFFF) != expected:  # larger numbers do not fit there
        raise zipfile.BadZipFile(f"it must hold {expected} arrays, but got {len(arrays)}")
    return arrays
