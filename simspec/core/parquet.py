"""Parquet files, read by the calling thread alone.

Arrow's readers start threads of their own, and a busy machine now and then still has one of them
starting when the process ends: it then dies of ``terminate called without an active exception``,
with exit code 134 after all its results are written. The tables here are read in milliseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


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
