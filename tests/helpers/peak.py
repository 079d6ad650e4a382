"""The most memory this process has had."""

from __future__ import annotations

import re
import resource
from pathlib import Path


def peak_bytes() -> int:
    """Return the peak of the resident memory since this program started.

    ``ru_maxrss`` survives ``exec``: right after a fork it is the peak of the parent.
    """
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        found = None
    kilobytes = found[1] if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(kilobytes)
