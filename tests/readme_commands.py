"""Run every command that a Markdown file shows in a ``console`` block, in order.

``python tests/readme_commands.py README.md`` stops at the first command that fails. Lines that
begin with ``$ `` are commands; ``git clone`` and ``cd`` of the checkout itself are left out,
since the check runs inside it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

SKIP = ("git clone", "cd simspec")


def commands(text: str) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.S)
    joined = "\n".join(blocks).replace("\\\n", " ")
    shown = [line[2:].strip() for line in joined.splitlines() if line.startswith("$ ")]
    return [command for command in shown if not command.startswith(SKIP)]


def main(path: Path) -> int:
    found = commands(path.read_text(encoding="utf-8"))
    if not found:
        sys.stderr.write(f"{path}: no command found\n")
        return 1
    for command in found:
        start = time.monotonic()
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        sys.stdout.write(f"{time.monotonic() - start:6.1f} s  {command}\n")
        if done.returncode:
            sys.stdout.write(done.stdout + done.stderr)
            return 1
    sys.stdout.write(f"{len(found)} commands ran\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
