"""Lines of a text log that nobody here wrote: plain or gzip, read as a stream, bounded.

Everything that can be wrong with such a file is one :class:`~simspec.core.errors.TraceError`
that names the line: missing, a folder, not UTF-8, damaged gzip, a line or a file that is too
long (a few kilobytes of gzip can unfold to many gigabytes).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from simspec.core.errors import TraceError, nearest

MAX_BYTES = 4 * 2**30
"""Most bytes read from one file after decompression."""

MAX_LINE_BYTES = 16 * 2**20
"""Most bytes in one line."""

_GZIP_MAGIC = b"\x1f\x8b"


def read_lines(
    path: Path, *, max_bytes: int = MAX_BYTES, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, str]]:
    """Yield ``(line number, text without its line end)``, counting from 1.

    LF and CRLF line ends are removed, also a byte-order mark before the first line. Gzip is
    recognised by its first two bytes, whatever the file is called.

    Parameters
    ----------
    path : Path
        The file.
    max_bytes, max_line_bytes : int, bytes
        Bounds on the decompressed size of the file and of one line.

    Raises
    ------
    TraceError
        The file cannot be read to its end.
    """
    number = 0
    try:
        with path.open("rb") as file:
            is_gzip = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            source = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_gzip else file
            total = 0
            while raw := source.readline(max_line_bytes + 1):
                number += 1
                total += len(raw)
                if len(raw) > max_line_bytes:
                    raise TraceError(
                        f"{path}:{number}: the line is longer than {max_line_bytes:,} bytes; "
                        "one record per line is expected"
                    )
                if total > max_bytes:
                    raise TraceError(
                        f"{path}:{number}: more than {max_bytes:,} bytes after decompression; "
                        "split the file"
                    )
                yield number, _text(path, number, raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(
            f"{path}:{number + 1}: damaged gzip data ({error}); copy the file again"
        ) from error
    except OSError as error:
        raise TraceError(_unreadable(path, error)) from error


def _text(path: Path, number: int, raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise TraceError(
            f"{path}:{number}: byte 0x{byte:02x} is not UTF-8 text; "
            "expected a UTF-8 text file, plain or gzip"
        ) from error
    return text.rstrip("\r\n")


def _unreadable(path: Path, error: OSError) -> str:
    if isinstance(error, IsADirectoryError) or path.is_dir():
        return f"{path}: this is a folder; give a file"
    if isinstance(error, FileNotFoundError):
        folder = path.parent
        names = [p.name for p in folder.iterdir() if p.is_file()] if folder.is_dir() else []
        hint = nearest(path.name, names) if len(names) <= 20 else "check the spelling"
        return f"{path}: no such file; {hint}"
    return f"{path}: cannot be read ({error.strerror or error}); check the path and its rights"
