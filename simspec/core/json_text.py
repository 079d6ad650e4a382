"""JSON that nobody here wrote: whatever is wrong with it is one ``ValueError``."""

from __future__ import annotations

import json
from typing import Any, NoReturn


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says.

    Raises
    ------
    ValueError
        It is no JSON, no UTF-8, too deeply nested, or holds NaN, an infinity or a number of
        thousands of digits; the text says which.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("too deeply nested") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        # Python's advice about its own limit is not for the user.
        if "integer string conversion" in str(error):
            raise ValueError("a number of thousands of digits") from None
        raise


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
