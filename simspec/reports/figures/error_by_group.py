"""Error of every group of rows: median as a bar, 90th percentile as a mark."""

from __future__ import annotations

from collections.abc import Mapping

from simspec.reports.figures.predicted_vs_measured import topic_label, topics
from simspec.reports.labels import plain
from simspec.reports.spec import FigureSpec, Json, Layer, Selector, compact, view_key
from simspec.reports.theme import axis, layout
from simspec.validation._summary import Errors
from simspec.validation.api import ValidationResult

MAX_GROUPS = 40
_BAR_HEIGHT = 24
_CHOICES = ("family", "group")


def figure(result: ValidationResult) -> FigureSpec | None:
    """Return the figure; None when nothing was compared."""
    found = topics(result)
    if not found:
        return None
    topic = Selector("topic", "Measured", tuple(topic_label(topic) for topic in found))
    by = Selector("by", "By", ("family, coarse", "group, fine"))
    views: dict[str, Json | list[object]] = {}
    for place, choice in enumerate(_CHOICES):
        summary = result.summary(choice)
        for index, (kind, quantity) in enumerate(found):
            own = {key: e for key, e in summary.items() if key[:2] == (kind, quantity)}
            views[view_key([index, place])] = _view(own)
    return FigureSpec(
        name="error_by_group",
        title="Error by group",
        base={
            "data": [],
            "layout": layout(
                axis("|predicted / measured − 1| (%)", rangemode="tozero"),
                axis("", autorange="reversed"),
                height=420,
                barmode="overlay",
            ),
        },
        layers=[Layer((topic.id, by.id), views)],
        selectors=(topic, by),
    )


def _view(errors: Mapping[tuple[str, ...], Errors]) -> Json:
    """Return the groups of one quantity, largest median error first."""
    ordered = sorted(errors.items(), key=lambda item: -item[1].median_abs_error)
    shown = ordered[:MAX_GROUPS]
    names = [_name(key) for key, _ in shown]
    values = [e for _, e in shown]
    hover = [
        f"<b>{plain(key[3], width=80)}</b><br>{e.rows:,} rows, {key[2].replace('_', ' ')}<br>"
        f"median {e.median_abs_error:.1%}, mean {e.mean_abs_error:.1%}, "
        f"90th percentile {e.p90_abs_error:.1%}<br>bias {e.bias:+.1%}"
        for key, e in shown
    ]
    common: Json = {"y": names, "text": hover, "hovertemplate": "%{text}<extra></extra>"}
    more = f" The {MAX_GROUPS} largest of {len(ordered):,}." if len(ordered) > MAX_GROUPS else ""
    return {
        "data": [
            {
                **common,
                "type": "bar",
                "orientation": "h",
                "name": "median",
                "textposition": "none",
                "x": [compact(100 * e.median_abs_error) for e in values],
                "marker": {
                    "color": ["@host" if key[2] == "fitted" else "@series0" for key, _ in shown]
                },
            },
            {
                **common,
                "type": "scatter",
                "mode": "markers",
                "name": "90th percentile",
                "x": [compact(100 * e.p90_abs_error) for e in values],
                "marker": {"color": "@series1", "size": 9, "symbol": "line-ns-open"},
            },
        ],
        "layout": {"height": max(240, 120 + _BAR_HEIGHT * len(shown))},
        "caption": f"Grey bars: rows that a fit has used.{more}",
    }


def _name(key: tuple[str, ...]) -> str:
    # Two bars of one group need two names: the fitted half says so.
    return plain(key[3], width=46) + (" (fitted)" if key[2] == "fitted" else "")
