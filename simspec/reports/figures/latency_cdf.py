"""Distribution of one latency over requests: best configuration against autoregression.

Drawn from 101 stored quantiles over requests, averaged over replications; the latency target is
a vertical line. The axis ends at the 99.5th percentile so that one straggler does not flatten
the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from simspec.reports.data import Point, finite
from simspec.reports.labels import metric
from simspec.reports.spec import FigureSpec, Json, Layer, compact, compact_all
from simspec.reports.theme import axis, layout
from simspec.reports.view import SweepView

LATENCIES = {
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "e2e": "End-to-end latency",
}
BEST, BASELINE, TARGET = range(3)
_LOG_SPREAD = 40.0


def figure(view: SweepView, latency: str) -> FigureSpec | None:
    """Return the distribution of ``ttft``, ``tpot`` or ``e2e``, None when none is stored."""
    target = _target(view, latency)
    views = {
        key: _view(view, best, latency, target)
        for key, (_, best) in view.best_by_condition().items()
        if best.quantiles(latency) is not None
    }
    if not views:
        return None
    return FigureSpec(
        name=f"latency_{latency}",
        title=f"{LATENCIES[latency]}, share of requests",
        base=_base(view, latency, target),
        layers=[Layer(tuple(a.field for a in view.conditions), views)],
    )


def _target(view: SweepView, latency: str) -> float | None:
    slo = view.data.manifest.get("slo")
    return finite(slo.get(f"{latency}_ms")) if isinstance(slo, Mapping) else None


def _base(view: SweepView, latency: str, target: float | None) -> Json:
    best = "Best" if any(not point.is_baseline for point in view.shown) else "Autoregression"
    hover = "%{y:.0f}% of requests within %{x:,.3r} ms<extra></extra>"
    line: Json = {"type": "scatter", "mode": "lines", "x": [], "y": [], "hovertemplate": hover}
    traces: list[Json] = [
        {**line, "name": best, "line": {"color": "@series0", "width": 2.5}},
        {
            **line,
            "name": "Autoregression",
            "line": {"color": "@series1", "width": 2.5, "dash": "dash"},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"SLO {target:g} ms" if target is not None else "SLO",
            "visible": target is not None,
            "x": [target, target],
            "y": [0, 100],
            "line": {"color": "@muted", "width": 1.5, "dash": "dot"},
            "hoverinfo": "skip",
        },
    ]
    return {
        "data": traces,
        "layout": layout(
            axis(f"{LATENCIES[latency]} (ms)", nticks=6),
            axis("Requests (%)", range=[0, 101], tickvals=[0, 25, 50, 75, 100]),
            height=300,
        ),
    }


def _view(view: SweepView, best: Point, latency: str, target: float | None) -> Json:
    baseline = view.data.baseline(best)
    mine = best.quantiles(latency) or []
    theirs = (baseline.quantiles(latency) if baseline is not None else None) or []
    curves = [curve for curve in (mine, theirs) if curve]
    data: Json = {str(BEST): _curve(mine), str(BASELINE): _curve(theirs)}
    data[str(BASELINE)] = {**_curve(theirs), "visible": bool(theirs)}
    return {
        "data": data,
        "layout": {"xaxis": _range(curves, target)},
        "caption": _caption(view, best, mine, theirs),
    }


def _curve(quantiles: Sequence[float]) -> Json:
    steps = max(1, len(quantiles) - 1)
    shares = [100 * i / steps for i in range(len(quantiles))]
    return {"x": compact_all(quantiles), "y": compact_all(shares)}


def _range(curves: Sequence[Sequence[float]], target: float | None) -> Json:
    """Return a logarithmic axis for a wide spread, else one that starts at zero."""
    highs = [_quantile(curve, 0.995) for curve in curves]
    lows = [_quantile(curve, 0.02) for curve in curves]
    top, bottom = max(highs), min(lows)
    if target is not None and target < 4 * top:
        top = max(top, target)
    if bottom > 0 and top / bottom > _LOG_SPREAD:
        return {"type": "log", "autorange": True, "tickmode": "array", "tickvals": _decades(top)}
    return {"type": "linear", "range": [0, compact(1.06 * top)], "tickmode": "auto"}


def _decades(top: float) -> list[float]:
    """Return 1 and 3 of each decade up to ``top`` milliseconds, written out in full.

    Few readers know what the bare 2 and 5 of a logarithmic axis stand for.
    """
    powers = range(-1, math.ceil(math.log10(top)) + 1)
    return [compact(mantissa * 10.0**power) or 0 for power in powers for mantissa in (1, 3)]


def _quantile(curve: Sequence[float], share: float) -> float:
    position = share * (len(curve) - 1)
    low = int(position)
    high = min(low + 1, len(curve) - 1)
    return curve[low] + (position - low) * (curve[high] - curve[low])


def _caption(view: SweepView, best: Point, mine: Sequence[float], theirs: Sequence[float]) -> str:
    shown = metric("ttft_ms")
    words = []
    for name, share in (("median", 0.5), ("99th percentile", 0.99)):
        text = f"{name} {shown.text(_quantile(mine, share))}"
        if theirs:
            text += f" against {shown.text(_quantile(theirs, share))}"
        words.append(text)
    conditions = [a for a in view.data.axes if not a.field.startswith("method.")]
    return f"{view.describe(best, without=conditions)}: {', '.join(words)}."
