"""Where each configuration stops paying, not only the best one.

The best configuration of a load hides how narrow the choice has become: long drafts without an
exit stop paying long before short ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from simspec.reports.data import Point, finite
from simspec.reports.phrases import SPEEDUP, listed
from simspec.reports.verdicts import break_even_batch, pays
from simspec.reports.view import SweepView


def stops_by_configuration(view: SweepView) -> tuple[str, str] | None:
    """Return headline and text on how many configurations pay at each load.

    None when there is only one load or configuration, or when all pay everywhere.
    """
    counts = [_paying(view, position) for position in range(view.num_loads)]
    known = [(i, paying, of) for i, (paying, of) in enumerate(counts) if of > 1]
    if len(known) < 2 or all(paying == of for _, paying, of in known):
        return None
    told = listed([f"{paying} of {of} at {view.load_text(i)}" for i, paying, of in known])
    _, least, among = min(known, key=lambda item: item[1] / item[2])
    where = next(view.load_text(i) for i, paying, of in known if (paying, of) == (least, among))
    text = f"Configurations whose interval lies above 1: {told}.{_first_to_stop(view)}"
    return f"{among - least} of {among} configurations do not pay at {where}", text


def _paying(view: SweepView, position: int) -> tuple[int, int]:
    verdicts = [verdict for p in view.at_load(position) if (verdict := pays(p)) is not None]
    return sum(verdicts), len(verdicts)


def _first_to_stop(view: SweepView) -> str:
    """Return a sentence on the closed-form curve that falls to 1 at the smallest batch."""
    curves: dict[tuple[Hashable, ...], list[tuple[float, float]]] = {}
    rows: dict[tuple[Hashable, ...], Mapping[str, object]] = {}
    for row in view.data.curves:
        batch, speedup = finite(row.get("batch")), finite(row.get(SPEEDUP))
        if batch is not None and speedup is not None:
            key = tuple(row[name] for name in row if name in _fields(view))
            curves.setdefault(key, []).append((batch, speedup))
            rows.setdefault(key, row)
    limits = {key: break_even_batch(sorted(curve)) for key, curve in curves.items()}
    crossing = {key: limit for key, limit in limits.items() if limit is not None}
    if not crossing:
        return ""
    first = min(crossing, key=lambda key: crossing[key])
    point = Point({**rows[first]})
    return (
        f" In the closed form {len(crossing)} of {len(curves)} curves fall to 1, the first at a "
        f"batch of about {crossing[first]:.0f}: {view.describe(point, without=[view.roles.load])}."
    )


def _fields(view: SweepView) -> set[str]:
    return {axis.field for axis in view.data.axes} | {"context", "method.name"}
