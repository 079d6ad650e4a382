"""Published names of devices and formats to names of simspec.

A table writes ``H100-80GB SXM``, ``NVIDIA A100 80GB`` or ``RTX 4090``; what counts is the words.
A name that fits no profile, or several, is unknown: no guess is made.
"""

from __future__ import annotations

import re

from simspec.hardware.load import hardware_names

_WITHOUT_MEANING = re.compile(r"\b(nvidia|apple|geforce|gpu|hbm\d*e?|\d+ ?gi?b|\d+[- ]core)\b")

_FORMATS = {
    "fp16": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8": "fp8",
    "int8": "int8",
    "int4-awq": "int4_g128",
    "awq": "int4_g128",
    "gptq": "int4_g128",
    "int4": "int4_g128",
}


def hardware_of(published: str) -> str | None:
    """Return the profile of a published device name; None where none fits.

    Where a card comes with several connectors and the name does not say which, the SXM one is
    meant, as benchmarks of servers mean it.

    >>> hardware_of("H100-80GB"), hardware_of("RTX 4090"), hardware_of("TPU v5e")
    ('h100_sxm', 'rtx_4090', None)
    """
    words = _words(published)
    by_words = {name: name.split("_") for name in hardware_names()}
    joined = [name for name, own in by_words.items() if "".join(own) == "".join(words)]
    if joined or not words:
        return joined[0] if joined else None
    longer = [name for name, own in by_words.items() if set(words) <= set(own)]
    sxm = [name for name in longer if "sxm" in by_words[name]]
    return longer[0] if len(longer) == 1 else sxm[0] if len(sxm) == 1 else None


def weight_format_of(published: str) -> str | None:
    """Return the data type of a published weight or cache format; None where none fits."""
    return _FORMATS.get(published.split("(", maxsplit=1)[0].strip().lower())


def _words(name: str) -> list[str]:
    """Return the words of a device name in lower case, without maker and size."""
    plain = re.sub(r"[-_,/()]+", " ", name.lower())
    return re.sub(r"[^a-z0-9 ]", "", _WITHOUT_MEANING.sub(" ", plain)).split()
