"""Parquet files, read by the calling thread alone.

Arrow's readers start threads of their own, and a busy machine now and then still has one of them
starting when the process ends: it then dies of ``terminate called without an active exception``,
with exit code 134 after all its results are written. The tables here are read in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq


def read_arrow(path: Path) -> pa.Table:
    """Return the table in a Parquet file.

    Raises
    ------
    OSError, pyarrow.ArrowException
        It cannot be read, or is no Parquet file.
    """
    import pyarrow
    from pyarrow.parquet import ParquetFile

    # Read here: pyarrow would take a path for a URI and refuse names that are no text.
    content = pyarrow.BufferReader(path.read_bytes())
    return ParquetFile(content, pre_buffer=False).read(use_threads=False)


def read_frame(path: Path) -> pd.DataFrame:
    """Return the table in a Parquet file as a frame; raises what :func:`read_arrow` raises."""
    frame: pd.DataFrame = read_arrow(path).to_pandas(use_threads=False)
    return frame


class TableWriter:
    """A Parquet file that grows by row groups, so that only one of them is in memory.

    The first row group says the columns and their types. NaN is written as null. The file is
    nothing before the ``with`` block has ended.

    Parameters
    ----------
    path : Path
        Replaced if it exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> TableWriter:
        self._file = self._path.open("wb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._file is not None:
            self._file.close()

    def append(self, columns: Mapping[str, Sequence[Any] | Any]) -> None:
        """Write one row group.

        Parameters
        ----------
        columns : mapping
            Equally long arrays or lists by column name, the same names each time.
        """
        import pyarrow
        import pyarrow.parquet as pq

        table = pyarrow.table(
            {
                name: pyarrow.array(values, from_pandas=True, type=_text_of(values))
                for name, values in columns.items()
            }
        )
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)


def _text_of(values: object) -> Any:
    """Return the type of a list, which is of text and may hold nothing but None."""
    import pyarrow

    return pyarrow.string() if isinstance(values, list) else None
