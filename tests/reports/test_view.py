"""Which axis plays which part in sweeps over other things than E, K and τ."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simspec.reports.data import read_sweep
from simspec.reports.view import SweepView, axis_selectors, sweep_view
from tests.helpers.fake_results import fake_manifest, fake_row, write_fake_results


def swept(
    tmp_path: Path,
    axes: dict[str, Sequence[Any]],
    *,
    method: str = "kangaroo",
    baseline: bool = True,
) -> SweepView:
    """Return the view of a full grid over some axes."""
    rows = []
    for values in itertools.product(*axes.values()):
        cells = dict(zip(axes, values, strict=True))
        rows.append(fake_row({"method.name": method, **cells}, 4))
        if baseline:
            shown = {k: v for k, v in cells.items() if not k.startswith("method.")}
            rows.append(fake_row({"method.name": "autoregressive", **shown}, 4))
    listed = [{"field": f, "label": None, "values": list(v)} for f, v in axes.items()]
    manifest = fake_manifest(axes=listed)
    write_fake_results(tmp_path, points=rows, manifest=manifest, with_curves=False)
    return sweep_view(read_sweep(tmp_path))


def fields(view: SweepView) -> tuple[str | None, str | None, str | None, list[str]]:
    """Return x, y, load and selector fields."""
    roles = view.roles
    return (
        roles.x.field if roles.x else None,
        roles.y.field if roles.y else None,
        roles.load.field if roles.load else None,
        [axis.field for axis in roles.pages],
    )


K, TAU, E = "method.num_speculative_tokens", "method.confidence_threshold", "method.exit_layer"


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        (
            {E: [2, 4], K: [1, 2], TAU: [0, 0.5], "load": ["a", "b"]},
            (K, TAU, "load", [E, "load"]),
        ),
        ({"tp": [1, 2, 4], "hardware": ["h100", "l40s"]}, ("tp", "hardware", None, [])),
        (
            {"hardware": list("abcd"), "tp": [1, 2], "context": [1, 2, 3]},
            ("context", "tp", None, ["hardware"]),
        ),
        ({K: [1, 2, 3], "load": ["a", "b"]}, (K, "load", "load", [])),
        ({"load": ["a", "b"]}, ("load", None, "load", [])),
        ({K: [3]}, (K, None, None, [])),
        ({}, (None, None, None, [])),
    ],
)
def test_roles(tmp_path: Path, axes: dict[str, Any], expected: object) -> None:
    """K by τ when both vary, else the longest numeric axes; the load fills in when it must."""
    assert fields(swept(tmp_path, axes)) == expected


def test_a_numeric_load_is_sorted(tmp_path: Path) -> None:
    """Rates are ordered by size whatever order the file lists them in."""
    view = swept(tmp_path, {"workload.arrivals.rate_per_s": [8, 1, 4], K: [1, 2], TAU: [0, 0.5]})
    assert view.roles.load is not None
    assert view.roles.load.values == (1, 4, 8)


def test_selectors_start_at_the_best_point(tmp_path: Path) -> None:
    """Every varied axis has one selector and together they name the best point."""
    view = swept(tmp_path, {E: [2, 4], K: [1, 2, 3], TAU: [0, 0.5]})
    best = view.best(view.shown)
    assert best is not None
    selectors = axis_selectors(view, best)
    assert [s.id for s in selectors] == [E, K, TAU]
    assert view.at({s.id: s.default for s in selectors}) is best


def test_a_sweep_of_autoregression_alone_shows_its_points(tmp_path: Path) -> None:
    """Comparing hardware without speculation ranks by time per token, not by a ratio of 1."""
    view = swept(tmp_path, {"tp": [1, 2], "hardware": ["a", "b"]}, method="autoregressive")
    assert view.primary.key == "tpot_ms"
    assert len(view.by_coordinates) == 4
