"""Colours, fonts and the layout every figure starts from.

Two palettes, light and dark, with the same token names. Series colours are those of Okabe and Ito
("Color Universal Design", 2008), lightened where they would vanish on a dark page; the
sequential scale is cividis (Nuñez, Anderton and Renslow, PLOS ONE 13(7), 2018); the diverging
one runs orange to blue, which no common colour-vision deficiency confuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from simspec.reports.spec import Json, merge

Scheme = Literal["light", "dark"]

FONT = '-apple-system, "Segoe UI", Roboto, Inter, "Helvetica Neue", Arial, system-ui, sans-serif'

PALETTES: dict[Scheme, dict[str, str]] = {
    "light": {
        "page": "#f5f6f8",
        "card": "#ffffff",
        "ink": "#161b26",
        "muted": "#566073",
        "line": "#dfe3ea",
        "grid": "#e9ecf1",
        "accent": "#0b5cad",
        "good": "#00734f",
        "warn": "#a34700",
        "series0": "#0072b2",
        "series1": "#d55e00",
        "series2": "#009e73",
        "series3": "#cc79a7",
        "series4": "#b8860b",
        "series5": "#56b4e9",
        "series6": "#6a3d9a",
        "draft": "#e69f00",
        "verify": "#0072b2",
        "prefill": "#009e73",
        "host": "#8b94a3",
        "hatch": "#a9b1bd",
        "onverify": "#ffffff",
        "onpart": "#161b26",
        "low": "#b5480c",
        "lowmid": "#e9a876",
        "mid": "#f1f1ef",
        "highmid": "#82b1d9",
        "high": "#0a5796",
    },
    "dark": {
        "page": "#0f131a",
        "card": "#171c25",
        "ink": "#e8ebf1",
        "muted": "#9aa5b8",
        "line": "#2b3342",
        "grid": "#252c39",
        "accent": "#7ab8ff",
        "good": "#3fcf9f",
        "warn": "#ffab6b",
        "series0": "#4fa8e0",
        "series1": "#ff8544",
        "series2": "#2fc296",
        "series3": "#e09cc4",
        "series4": "#e6b93f",
        "series5": "#9ad4f5",
        "series6": "#b59ae0",
        "draft": "#e9ac2b",
        "verify": "#4fa8e0",
        "prefill": "#2fc296",
        "host": "#7d8899",
        "hatch": "#566073",
        "onverify": "#0f131a",
        "onpart": "#0f131a",
        "low": "#f08f4c",
        "lowmid": "#8f5a36",
        "mid": "#2b313d",
        "highmid": "#3a6d9b",
        "high": "#69b5f4",
    },
}
"""Token to colour, by scheme."""

NUM_SERIES = 7
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "solid", "dash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down")

DIVERGING: list[list[object]] = [
    [0, "@low"],
    [0.25, "@lowmid"],
    [0.5, "@mid"],
    [0.75, "@highmid"],
    [1, "@high"],
]
"""Around a neutral middle: orange below, blue above."""

SEQUENTIAL: list[list[object]] = [
    [0, "#00224e"],
    [0.25, "#414d6b"],
    [0.5, "#7d7c78"],
    [0.75, "#bcae6c"],
    [1, "#fee838"],
]
"""Cividis, dark to bright."""


def series(index: int) -> Json:
    """Return line, marker and symbol of the ``index``-th series; colour is never the only cue."""
    slot = index % NUM_SERIES
    return {
        "line": {"color": f"@series{slot}", "width": 2, "dash": DASHES[slot]},
        "marker": {"color": f"@series{slot}", "size": 7, "symbol": SYMBOLS[slot]},
    }


def axis(title: str, **more: object) -> Json:
    """Return an axis with its title; the title carries the unit."""
    base: Json = {
        "title": {"text": title, "standoff": 12, "font": {"size": 13, "color": "@muted"}},
        "gridcolor": "@grid",
        "linecolor": "@line",
        "zeroline": False,
        "ticks": "",
        "automargin": True,
        "fixedrange": True,
    }
    return {**base, **more}


def layout(xaxis: Json, yaxis: Json, *, height: int, **more: object) -> Json:
    """Return the layout of a figure of ``height`` pixels; ``more`` is merged in."""
    base: Json = {
        "height": height,
        "margin": {"l": 60, "r": 16, "t": 12, "b": 52, "pad": 4},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": "@ink"},
        "hoverlabel": {
            "bgcolor": "@card",
            "bordercolor": "@line",
            "align": "left",
            "font": {"family": FONT, "size": 13, "color": "@ink"},
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.03,
            "yanchor": "bottom",
            "xanchor": "left",
            "itemclick": False,
            "itemdoubleclick": False,
        },
        "dragmode": False,
        "xaxis": xaxis,
        "yaxis": yaxis,
    }
    merged = merge(base, dict(more))
    assert isinstance(merged, dict)
    return merged


def break_even() -> Json:
    """Return the line at 1."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": 1,
        "y1": 1,
        "layer": "below",
        "line": {"color": "@muted", "width": 1.5, "dash": "dash"},
    }


def break_even_label() -> Json:
    """Return the words on the line at 1."""
    return {
        "xref": "paper",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "text": "break-even",
        "showarrow": False,
        "font": {"size": 12, "color": "@muted"},
    }


def paint(value: object, palette: Mapping[str, str]) -> object:
    """Return a figure with every colour token replaced.

    Strings that begin with ``@`` and name a token are colours; user text never begins a
    figure string with ``@`` because :func:`simspec.reports.labels.plain` escapes it.
    """
    if isinstance(value, str) and value[:1] == "@":
        return palette.get(value[1:], value)
    if isinstance(value, Mapping):
        return {key: paint(item, palette) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [paint(item, palette) for item in value]
    return value
