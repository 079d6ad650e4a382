"""Published names of devices and formats to names of simspec.

A table writes ``H100-80GB SXM``, ``NVIDIA A100 80GB`` or ``RTX 4090``; what counts is the words.
A name that fits no profile, or several, is unknown: no guess is made.
"""

from __future__ import annotations

import re

from simspec.hardware.load import hardware_names

_MAKERS = re.compile(r"\b(nvidia|apple|geforce|gpu|cores?|hbm\d*e?|gddr\d*x?)\b")
_SIZE = re.compile(r"\d+(gb|core)")
"""Memory or cores of a variant: ``80gb``, ``30core``."""

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

    A card of which the name states neither connector nor size is the common one: SXM rather than
    PCIe, as benchmarks of servers mean it, and the largest memory. A stated number of cores or
    gigabytes finds the variant of that size, or the profile that names no size.

    >>> hardware_of("H100-80GB"), hardware_of("RTX 4090"), hardware_of("TPU v5e")
    ('h100_sxm', 'rtx_4090', None)
    """
    core, sizes = _words(published)
    found: list[tuple[bool, bool, bool, int, str]] = []
    for name in hardware_names():
        own, own_sizes = _words(name)
        is_same = "".join(core) == "".join(own)
        if not core or not (is_same or set(core) <= set(own)):
            continue
        if sizes and own_sizes and not sizes & own_sizes:
            continue
        largest = max((int(re.sub(r"\D", "", size)) for size in own_sizes), default=0)
        is_plain = not own_sizes or any(size.endswith("gb") for size in own_sizes)
        found.append((bool(sizes & own_sizes), is_same or "sxm" in own, is_plain, largest, name))
    best = sorted(found, reverse=True)
    if not best or (len(best) > 1 and not any(best[0][:3])):
        return None
    return best[0][-1]


def weight_format_of(published: str) -> str | None:
    """Return the data type of a published weight or cache format; None where none fits."""
    return _FORMATS.get(published.split("(", maxsplit=1)[0].strip().lower())


def _words(name: str) -> tuple[list[str], set[str]]:
    """Return the words of a device name in lower case without the maker, and its sizes."""
    plain = re.sub(r"[-_,/()]+", " ", name.lower())
    plain = re.sub(r"(\d+) (gi?b|cores?)\b", r"\1\2", plain).replace("gib", "gb")
    plain = re.sub(r"(\dcore)s\b", r"\1", plain)
    words = re.sub(r"[^a-z0-9 ]", "", _MAKERS.sub(" ", plain)).split()
    return [w for w in words if not _SIZE.fullmatch(w)], {w for w in words if _SIZE.fullmatch(w)}
