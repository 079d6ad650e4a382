"""Named, keyed random streams.

A stream is a function of ``(seed, *key)`` only, so a new consumer of randomness, another
scheduler or another GPU never shifts the draws of an old one: this is what gives common
random numbers across a sweep. The generator is NumPy's counter-based Philox, keyed with a
BLAKE2b hash of the seed and the key parts.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *key: str | int) -> np.random.Generator:
    """Return the generator of the stream named ``key`` under ``seed``.

    Parameters
    ----------
    seed : int
        Experiment seed.
    *key : str or int
        Purpose and identity, for example ``("acceptance", request_id)``.
    """
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in key)])
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
