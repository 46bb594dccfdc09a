"""Read files, with errors that name the file; and the suffixes of tables."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from s2e.errors import S2EError, UnreadableData

TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_SUFFIX = ".parquet"
GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any exception that a missing or damaged file causes into `UnreadableData`."""
    try:
        yield
    except S2EError:
        raise
    except FileNotFoundError as error:
        raise UnreadableData(f"{path} does not exist; check the path.") from error
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise UnreadableData(
            f"{path} could not be read ({error}); if it is truncated or corrupted, copy or download it again."
        ) from error


def read_bytes(path: Path) -> bytes:
    """Return the contents of a file, decompressed if it is in gzip format."""
    with reading(path):
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
