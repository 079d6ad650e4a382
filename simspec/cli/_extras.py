"""What commands say when an optional extra is not installed."""

from __future__ import annotations

from importlib.util import find_spec

from simspec.core.errors import MissingExtra


def require_companion(command: str) -> None:
    """Refuse a command that runs a decoder where torch and its company are missing.

    Raises
    ------
    MissingExtra
        With the line that installs them.
    """
    needed = ("torch", "safetensors", "tokenizers", "gguf")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"{command} runs a decoder and needs {', '.join(missing)}, which this Python does "
            "not have; pip install 'simspec[companion]'"
        )
