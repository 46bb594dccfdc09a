"""Files that are replaced atomically: a crash leaves the old file or the new one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY = ".tmp"
"""End of the names of unfinished files, which are hidden."""
LONGEST_NAME = 50
"""Characters of a file's name that its temporary name ends with: a file system allows 255 bytes."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path` to write to; then flush it to disk and rename it to `path`.

    The file has the permissions of any new file (666 without the bits of the umask).
    """
    temporary = path.with_name(f".{path.name[-LONGEST_NAME:]}.{secrets.token_hex(8)}{TEMPORARY}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    except BaseException as problem:
        temporary.unlink(missing_ok=True)
        if isinstance(problem, OSError) and problem.errno is not None and problem.filename is None:
            problem.filename = str(path)  # an error of writing, such as a full disk, does not name the file
        raise


def replace_output(path: Path, content: bytes) -> None:
    """Write a file that the user named: atomically, but through links, with the permissions that it has already.

    A device or a pipe, such as /dev/stdout, is written to and not replaced.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    target = Path(os.path.realpath(path))
    with replacing(target) as temporary:
        temporary.write_bytes(content)
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o7777)
