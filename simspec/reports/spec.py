"""A figure whose data follow selectors, as plain JSON.

Python computes every view; the page only merges and draws. A spec is a base figure plus layers;
each layer depends on some selectors and holds one patch per combination of their options. The
figure for a selection is the base with the patch of every layer merged in, in order::

    figure(s) = base + layer_1[s restricted to uses_1] + layer_2[s restricted to uses_2] + ...

Merging: an object into an object goes key by key; an object into a list goes by index (keys
``"0"``, ``"1"``, ...); anything else replaces. ``assets/dashboard.js`` does the same in ten lines.

Colours are written as tokens (``"@ink"``) and resolved against a palette of
:mod:`simspec.reports.theme` when the figure is drawn, so one spec serves light, dark and print.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Json: TypeAlias = dict[str, object]
"""An object of JSON-compatible values."""

SIGNIFICANT_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Selector:
    """One control of the page.

    ``options`` are the texts shown; a selection is one index per selector ``id``.
    """

    id: str
    label: str
    options: tuple[str, ...]
    default: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """Patches that depend on the selectors ``uses``; ``views`` is keyed by :func:`view_key`.

    With ``paths`` (``"data.0.x"``) a view is the list of their values: the same patch without
    its key names, which would otherwise fill most of a page.
    """

    uses: tuple[str, ...]
    views: Mapping[str, Json | list[object]]
    paths: tuple[str, ...] = ()

    def patch(self, key: str) -> Json | None:
        """Return the patch of one view, None if there is none."""
        view = self.views.get(key)
        if isinstance(view, list):
            return nested(self.paths, view)
        return view


@dataclass(frozen=True, slots=True)
class FigureSpec:
    """A figure and everything its selectors can make of it.

    ``picks`` maps a selector id to ``"x"`` or ``"y"``: clicking a point sets that selector to
    the point's integer coordinate.
    """

    name: str
    title: str
    base: Json
    layers: list[Layer] = field(default_factory=list)
    picks: dict[str, str] = field(default_factory=dict)
    selectors: tuple[Selector, ...] = ()
    """Selectors of this figure alone, beside those of the axes."""

    @property
    def uses(self) -> tuple[str, ...]:
        """Selector ids this figure listens to, in the order the layers name them."""
        return tuple(dict.fromkeys(name for layer in self.layers for name in layer.uses))

    def resolve(self, selection: Mapping[str, int]) -> Json:
        """Return ``{"data", "layout", "caption", "empty"}`` for one selection.

        ``empty`` is true when a layer has no view for it.
        """
        figure = json.loads(json.dumps(self.base))
        figure.setdefault("caption", "")
        figure["empty"] = False
        for layer in self.layers:
            patch = layer.patch(view_key([selection[name] for name in layer.uses]))
            if patch is None:
                figure["empty"] = True
            else:
                figure = merge(figure, json.loads(json.dumps(patch)))
        return dict(figure)


def view_key(indices: Iterable[int]) -> str:
    """Return the key of one combination of option indices."""
    return ",".join(str(index) for index in indices)


def caption(text: str) -> Layer:
    """Return the layer that puts one caption below a figure without selectors."""
    return Layer((), {view_key(()): {"caption": text}})


def nested(paths: Sequence[str], values: Sequence[object]) -> Json:
    """Return the nested object in which each dotted path holds its value."""
    patch: Json = {}
    for path, value in zip(paths, values, strict=True):
        *parents, last = path.split(".")
        place = patch
        for name in parents:
            inner = place.setdefault(name, {})
            assert isinstance(inner, dict), f"{path} runs through a value"
            place = inner
        place[last] = value
    return patch


def merge(base: object, patch: object) -> object:
    """Return ``base`` with ``patch`` merged in; see the module docstring for the rule."""
    if not isinstance(patch, dict):
        return patch
    if isinstance(base, list):
        merged_list = list(base)
        for key, value in patch.items():
            merged_list[int(key)] = merge(merged_list[int(key)], value)
        return merged_list
    if not isinstance(base, dict):
        return patch
    merged = dict(base)
    for key, value in patch.items():
        merged[key] = merge(merged.get(key), value)
    return merged


def compact(value: float | int | None, digits: int = SIGNIFICANT_DIGITS) -> float | int | None:
    """Return the number with five significant digits, or None when it is missing or not finite.

    Five digits are more than any interval here resolves and halve the page.
    """
    if value is None or isinstance(value, int):
        return value
    rounded = float(f"{value:.{digits}g}")
    if not math.isfinite(rounded):
        return None
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def compact_all(values: Sequence[float | int | None]) -> list[float | int | None]:
    """Return :func:`compact` of each value."""
    return [compact(value) for value in values]


def script_json(document: object) -> str:
    """Return JSON that is safe inside a ``<script>`` element.

    Every ``<`` is written as an escape, so neither ``</script>`` nor ``<!--`` can occur.

    Raises
    ------
    ValueError
        The document holds NaN or infinity, which JSON cannot.
    """
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
