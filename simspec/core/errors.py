"""The exceptions simspec raises on purpose.

::

    SimspecError                    one sentence for the user, exit code 2
    ├── ConfigError (ValueError)    YAML, command line or argument is wrong
    │   └── ProfileError            a hardware, engine or model profile is wrong
    ├── TraceError (ValueError)     a request log or round trace is wrong
    ├── Infeasible                  the question is well formed, the answer is "no"
    │   ├── DoesNotFit              memory
    │   ├── SloUnreachable          latency target
    │   └── Unstable                offered load exceeds capacity
    ├── CalibrationError            a fit failed; says what to check
    └── MissingExtra (ImportError)  an optional dependency is not installed

Anything else that escapes simspec is a bug and keeps its traceback.
The message template is ``<file:line>: <field>: <what is wrong>; <nearest valid choice>``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SimspecError(Exception):
    """Base of every error a user can cause. ``str()`` of it is one clear sentence."""

    exit_code = 2

    def __init__(self, message: str, *, field: str | None = None) -> None:
        """Keep ``field``, the name of the configuration field to blame, for the message's place."""
        super().__init__(message)
        self.field = field


class ConfigError(SimspecError, ValueError):
    """A configuration value is missing, unknown, of the wrong type or out of range."""


class ProfileError(ConfigError):
    """A hardware, engine or model profile cannot be read or contradicts itself."""


class TraceError(SimspecError, ValueError):
    """A request log or a round trace cannot be read."""


class Infeasible(SimspecError):
    """The configuration is valid and cannot work; the message says what would."""


class DoesNotFit(Infeasible):
    """Weights, activations and the smallest useful KV cache exceed the device memory."""


class SloUnreachable(Infeasible):
    """No candidate meets the latency target."""


class Unstable(Infeasible):
    """The offered load exceeds the capacity, so no steady state exists."""


class CalibrationError(SimspecError):
    """A fit did not converge or its data cannot support it."""


class MissingExtra(SimspecError, ImportError):
    """An optional dependency is missing; the message holds the install command."""


def one_line(text: str) -> str:
    """Return text with line breaks and other control characters written out: ``\\n``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ``did you mean 'x'? (choices: a, b, x)`` for an unknown name.

    Parameters
    ----------
    name : str
        What the user wrote.
    choices : iterable of str
        What would have been valid.
    """
    known = sorted(choices)
    listed = ", ".join(known) if known else "none"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}? (choices: {listed})"
    return f"choices: {listed}"
