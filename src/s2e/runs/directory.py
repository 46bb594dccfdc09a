"""The run directory: all files of one command, written atomically: a crash leaves the old file or the new one.

| file | content |
|---|---|
| config.json | everything needed to repeat the command, with versions |
| study.db | the Optuna study of a search |
| trials.safetensors | weights of the best members of a search, for the ensemble |
| schedule.json | the keep rates, by epoch |
| curves.npz | losses and accuracies of the final training, by epoch |
| dynamics.npz | records of every training sample, for the label audit |
| model.safetensors | weights of the networks of the classifier |
| models.safetensors | what the models that vote beside the networks were fitted to |
| encoding.json | how the data were read, to read other samples in the same way |
| columns.json | what became of every column of a table |
| result.json | the results |
| .lock | locked by the process that writes to the run |

Until the run is finished, also when it is resumed, the file .unfinished marks it, and the directory checkpoints holds
the states of populations in training. The files of a result are committed together (`Run.committed_together`): a crash
leaves all the old ones or all the new ones.

A search with a noisy validation part adds validation.npz, its relabelled labels, and a training by forward correction
adds transition.csv. A comparison has config.json, study.db and result.json too, and outcomes.npz (every finished
training), results.csv and curves.csv (the same for a spreadsheet), figures as .png and .svg, schedule-METHOD-NOISE.json
for each search, and transitions.npz.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from s2e.atomic_write import TEMPORARY, replacing
from s2e.errors import InvalidInput, RunConflict, UnreadableData
from s2e.files.arrays import read_npz
from s2e.files.fields import Fields
from s2e.files.json_text import read_json
from s2e.files.tensors import read_tensors
from s2e.studies import sqlite_url

log = logging.getLogger(__name__)

CONFIG, RESULT = "config.json", "result.json"
UNFINISHED = ".unfinished"
COMMITTED = ".results"
"""Directory of files that were committed together and that are about to be moved into the run."""
STAGED = COMMITTED + TEMPORARY
"""Directory of files that will be committed together."""
LOCK = ".lock"
STUDY = "study.db"
DATABASE = (STUDY, *(f"{STUDY}-{suffix}" for suffix in ("journal", "wal", "shm")))
"""Files that SQLite writes to, without replacing them."""
CHECKPOINTS = "checkpoints"
"""Directory with the states of populations in training."""


class Run:
    """A run directory on disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._folder = self.path  # where files are written

    def check_new(self) -> None:
        """Raise an error if no run can be created in the directory."""
        if not _is_unicode(str(self.path)):  # safetensors opens no such path
            raise InvalidInput(f"`out` must be a name in UTF-8, but got {str(self.path)!r}.")
        try:
            exists = self.exists
        except OSError as problem:  # a name that is too long
            raise self._not_writable(problem) from None
        if exists:
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
        with run.created():
            run.write_json(CONFIG, config)
        return run

    @contextmanager
    def created(self) -> Iterator[None]:
        """Make the directory and lock it while the body runs; only one of several processes finds it new."""
        self.check_new()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._open_lock().close()
        except OSError as problem:
            raise self._not_writable(problem) from None
        with self.locked():
            self.check_new()  # another process may have used it in between
            yield

    @classmethod
    def open(cls, path: Path | str, *, resuming: bool = False) -> Run:
        """Open an existing run; log a warning if it was resumed and is not finished, unless it is being resumed."""
        run = cls(path)
        if not run.exists:
            raise UnreadableData(f"{str(run.path)!r} holds no run: there is no {CONFIG} in it.")
        run._complete_commit()
        if not resuming and run.has_results and (run.path / UNFINISHED).exists():
            log.warning("%s was resumed and is not finished; its results are those from before", run.path)
        return run

    @property
    def exists(self) -> bool:
        """Return whether the directory holds a run."""
        return (self.path / CONFIG).is_file()

    @property
    def has_results(self) -> bool:
        """Return whether the directory holds complete results, perhaps of a session before the last."""
        return (self.path / RESULT).is_file()

    @property
    def is_finished(self) -> bool:
        """Return whether the directory holds the results of its last session."""
        return self.has_results and not (self.path / UNFINISHED).exists()

    @property
    def storage(self) -> str:
        """Return the URL of the database in this directory."""
        return sqlite_url((self.path / STUDY).resolve())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run against other processes while the body runs."""
        self.check_own_files()
        with self._open_lock() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunConflict(
                    f"another process is working on {str(self.path)!r}; wait until it ends, or stop it."
                ) from None
            # Left by a process that was killed while writing; a database has a journal beside it.
            for temporary in self.path.glob(f".*{TEMPORARY}*"):
                if temporary.is_dir() and not temporary.is_symlink():
                    shutil.rmtree(temporary)
                else:
                    temporary.unlink()
            self._complete_commit()
            yield

    def _open_lock(self) -> IO[bytes]:
        """Open the file to lock, or create it; a link or a pipe, which a run from elsewhere may hold, is refused."""
        path = self.path / LOCK
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as problem:
            if problem.errno not in (errno.ELOOP, errno.EISDIR):
                raise
        else:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return os.fdopen(descriptor, "wb")
            os.close(descriptor)
        raise UnreadableData(f"{str(path)!r} must be a regular file, but is not; remove it.")

    def check_own_files(self) -> None:
        """Raise an error if the database, its journals or the checkpoints are links: files elsewhere would change."""
        for name in DATABASE:
            path = self.path / name
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise UnreadableData(f"{str(path)!r} must be a regular file, but is not; copy the file to this place.")
        if (checkpoints := self.path / CHECKPOINTS).is_symlink():
            raise UnreadableData(f"{str(checkpoints)!r} must be a directory of the run, but is a link; remove it.")

    def mark_unfinished(self) -> None:
        """Mark the run as unfinished until the next `committed_together`."""
        mark = self.path / UNFINISHED
        if mark.is_symlink():  # would create a file elsewhere
            mark.unlink()
        mark.touch()

    def discard_if_empty(self) -> None:
        """Remove the configuration of a run that holds nothing else, so that the directory can be used again."""
        if all(file.name == CONFIG or file.name.startswith(".") for file in self.path.iterdir()):
            for name in (CONFIG, UNFINISHED):
                (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def committed_together(self) -> Iterator[None]:
        """Write the files of the body all or not at all: a crash leaves all the old ones or all the new ones.

        They are written into a hidden directory, which is renamed; then they are moved into the run. A process that is
        killed in between leaves the renamed directory, and the next process that opens or locks the run moves the rest.
        """
        staged = self.path / STAGED
        staged.mkdir()
        self._folder = staged
        try:
            yield
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
        finally:
            self._folder = self.path
        os.replace(staged, self.path / COMMITTED)
        self._complete_commit()

    def _complete_commit(self) -> None:
        """Move committed files into the run, if there are some; several processes may do so at the same time."""
        committed = self.path / COMMITTED
        if not committed.exists():
            return
        if committed.is_symlink():  # files of another directory would be moved
            raise UnreadableData(f"{str(committed)!r} must be a directory of the run, but is a link; remove it.")
        try:
            with suppress(FileNotFoundError):  # another process was faster
                for file in committed.iterdir():
                    with suppress(FileNotFoundError):
                        os.replace(file, self.path / file.name)
                (self.path / UNFINISHED).unlink(missing_ok=True)
                committed.rmdir()
        except OSError as problem:
            reason = problem.strerror or problem
            raise UnreadableData(
                f"{str(self.path)!r} is not finished: its results could not be moved from {COMMITTED}: {reason}."
            ) from None

    def read_json(self, name: str) -> Any:
        """Read a JSON file."""
        return read_json(self.path / name)

    def read_fields(self, name: str) -> Fields:
        """Read a JSON file that holds an object."""
        return Fields(self.read_json(name), self.path / name)

    def read_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Read an .npz file; return no arrays if it does not exist."""
        path = self.path / name
        return read_npz(path) if path.exists() else {}

    def read_floats(self, name: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float64]]:
        """Read an .npz file that must hold arrays of float64 of these shapes."""
        found = self.read_arrays(name)
        for key, shape in shapes.items():
            if key not in found or found[key].dtype != np.float64 or found[key].shape != shape:
                got = f"{found[key].dtype} of shape {found[key].shape}" if key in found else "none"
                raise UnreadableData(
                    f"{str(self.path / name)!r} is damaged: `{key}` must be float64 of shape {shape}, but got {got}; "
                    f"remove it and resume the run."
                )
        return {key: found[key] for key in shapes}

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file."""
        text = json.dumps(content, indent=2, ensure_ascii=False)
        if not _is_unicode(text):  # a file name that is not UTF-8; JSON can store it in ASCII only
            text = json.dumps(content, indent=2)
        self.write_text(name, text + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Write a text file; bytes of file names that are not UTF-8 are written as \\udcXX."""
        self.write_bytes(name, text.encode(errors="backslashreplace"))

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
        return read_tensors(self.path / name)

    def _write(self, name: str, fill: Callable[[IO[bytes]], object]) -> None:
        """Replace a file atomically."""
        with replacing(self._folder / name) as temporary, temporary.open("wb") as handle:
            fill(handle)

    def _not_writable(self, problem: OSError) -> InvalidInput:
        reason = problem.strerror or problem
        return InvalidInput(f"`out` must be a directory to write to, but {str(self.path)!r} is not: {reason}.")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
