"""The words: what is best, where speculation stops paying, what has no result and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from simspec.reports.data import read_sweep
from simspec.reports.figures import speedup_vs_batch
from simspec.reports.findings import Finding, findings
from simspec.reports.verdicts import best_curves, break_even_batch, crossings, verdicts
from simspec.reports.view import SweepView, sweep_view
from tests.helpers.fake_results import failed_row, fake_manifest, write_fake_results

LOADS = ["calm", "busy", "full"]
AXES = [
    {"field": "method.num_speculative_tokens", "label": "K", "values": [2, 4]},
    {"field": "load", "label": "Load", "values": LOADS},
]


def method_row(
    load: str, k: int, speedup: float, half: float = 0.02, tpot: float = 10.0
) -> dict[str, Any]:
    """Return a speculative point whose TPOT is that of a baseline of ``tpot`` over the speedup."""
    return {
        "method.name": "kangaroo",
        "method.num_speculative_tokens": k,
        "load": load,
        "status": "ok",
        "speedup": speedup,
        "speedup_ci95_low": speedup - half,
        "speedup_ci95_high": speedup + half,
        "tpot_ms": tpot / speedup,
    }


def baseline_row(load: str, tpot: float = 10.0, **more: Any) -> dict[str, Any]:
    """Return the autoregressive point of a load."""
    row = {"method.name": "autoregressive", "load": load, "status": "ok", "tpot_ms": tpot}
    return {**row, **more}


def viewed(tmp_path: Path, rows: Sequence[Mapping[str, Any]], **manifest: Any) -> SweepView:
    """Return the view of a directory with these points and no curves."""
    document = fake_manifest(**{"axes": AXES, **manifest})
    write_fake_results(tmp_path, points=rows, manifest=document, with_curves=False)
    return sweep_view(read_sweep(tmp_path))


def said(view: SweepView) -> dict[str, Finding]:
    """Return the findings by kind."""
    return {finding.kind: finding for finding in findings(view)}


def grid(speedups: Mapping[str, tuple[float, float]], half: float = 0.02) -> list[dict[str, Any]]:
    """Return baselines and the points K = 2 and K = 4 of each load."""
    rows = [baseline_row(load) for load in speedups]
    for load, pair in speedups.items():
        rows += [method_row(load, k, s, half) for k, s in zip((2, 4), pair, strict=True)]
    return rows


def test_the_best_point_is_named_with_interval_and_both_times(tmp_path: Path) -> None:
    """Configuration, ratio, interval and the milliseconds of both sides stand in one sentence."""
    view = viewed(tmp_path, grid({"calm": (1.25, 1.6), "busy": (1.1, 1.05), "full": (0.9, 0.7)}))
    best = said(view)["best"]
    for part in ("Kangaroo, K = 4, load: calm", "1.60×", "1.58–1.62", "6.25 ms", "10.0 ms"):
        assert part in best.text
    assert "best of 6 points" in best.text
    assert best.tone == "good"


def test_stops_paying_at_the_smallest_load_whose_best_interval_reaches_one(tmp_path: Path) -> None:
    """A mean above 1 is not enough: the interval has to lie above it."""
    view = viewed(tmp_path, grid({"calm": (1.25, 1.6), "busy": (1.01, 0.9), "full": (0.9, 0.7)}))
    found = said(view)["stops_paying"]
    assert found.headline == "Stops paying at busy"
    assert "K = 2" in found.text
    assert "0.99–1.03" in found.text
    assert "the interval reaches 1" in found.text
    assert "at calm, Kangaroo, K = 4, reaches 1.60×" in found.text


def test_an_interval_that_touches_one_does_not_pay(tmp_path: Path) -> None:
    """The boundary case counts as reaching 1."""
    rows = grid({"calm": (1.25, 1.6), "busy": (1.125, 0.9), "full": (0.9, 0.7)}, half=0.125)
    assert said(viewed(tmp_path, rows))["stops_paying"].headline == "Stops paying at busy"


def test_always_and_never_are_said_as_such(tmp_path: Path) -> None:
    """Both extremes are stated, with the numbers of the closest case."""
    always = viewed(tmp_path / "a", grid(dict.fromkeys(LOADS, (1.3, 1.2))))
    found = said(always)["stops_paying"]
    assert found.headline == "Speculation always pays here"
    assert "1.30×" in found.text
    assert "If it stops, then outside the loads swept" in found.text
    never = viewed(tmp_path / "b", grid(dict.fromkeys(LOADS, (0.9, 1.01))))
    found = said(never)["stops_paying"]
    assert found.headline == "Speculation never pays here"
    assert "1.01×" in found.text
    assert "9.90 ms per token instead of 10.0 ms" in found.text


def test_paying_again_at_a_heavier_load_is_not_hidden(tmp_path: Path) -> None:
    """A gap in the middle is reported together with where it ends."""
    view = viewed(tmp_path, grid({"calm": (1.3, 1.2), "busy": (0.9, 0.8), "full": (1.2, 1.1)}))
    text = said(view)["stops_paying"].text
    assert "It pays again at full" in text


def test_the_configuration_left_alone_stops_earlier(tmp_path: Path) -> None:
    """Held fixed, the best point of the calm load loses where another one still pays."""
    view = viewed(tmp_path, grid({"calm": (1.3, 1.6), "busy": (1.2, 0.9), "full": (1.1, 0.7)}))
    found = said(view)
    assert found["stops_paying"].headline == "Speculation always pays here"
    assert found["fixed"].headline == "Left unchanged, it stops paying at busy"
    assert "K = 4" in found["fixed"].text


def test_undecided_points_are_counted_and_losing_ones_named(tmp_path: Path) -> None:
    """Points whose interval includes 1 are neither wins nor losses."""
    view = viewed(tmp_path, grid({"calm": (1.3, 1.01), "busy": (0.99, 1.3), "full": (1.2, 0.6)}))
    found = said(view)
    assert found["undecided"].text.startswith("The interval of 2 of 6 points includes 1")
    assert "Kangaroo, K = 4, load: full" in found["worst"].text
    assert "0.60×" in found["worst"].text


def test_loads_without_results_are_unknown_not_lost(tmp_path: Path) -> None:
    """When nothing ran at a load, nothing is claimed about it."""
    rows = grid({"calm": (1.3, 1.2), "busy": (1.2, 1.1)})
    rows += [
        failed_row({"method.name": "kangaroo", "method.num_speculative_tokens": k, "load": "full"},
                   "unstable", "offered load 9 exceeds capacity 7")
        for k in (2, 4)
    ]  # fmt: skip
    rows.append(failed_row({"method.name": "autoregressive", "load": "full"}, "unstable", "same"))
    found = said(viewed(tmp_path, rows))
    assert found["stops_paying"].headline == "Speculation always pays here"
    assert "Nothing is known at full" in found["stops_paying"].text
    assert "3 points unstable" in found["unstable"].headline
    assert "2 points (load: full): offered load 9 exceeds capacity 7." in found["unstable"].text


def test_losing_stability_to_speculation_is_a_loss(tmp_path: Path) -> None:
    """If only autoregression keeps up at a load, speculation has stopped paying there."""
    rows = grid({"calm": (1.3, 1.2), "busy": (1.2, 1.1)})
    rows.append(baseline_row("full"))
    rows.append(
        failed_row(
            {"method.name": "kangaroo", "method.num_speculative_tokens": 2, "load": "full"},
            "unstable",
            "too much",
        )
    )
    found = said(viewed(tmp_path, rows))["stops_paying"]
    assert found.headline == "Stops paying at full"
    assert "while autoregression has" in found.text


def test_keeping_up_where_autoregression_cannot_is_a_finding(tmp_path: Path) -> None:
    """Without a stable baseline there is no ratio, but there is something to say."""
    rows = grid({"calm": (1.3, 1.2), "busy": (1.2, 1.1)})
    rows.append(failed_row({"method.name": "autoregressive", "load": "full"}, "unstable", "queue"))
    point = method_row("full", 2, 1.0)
    for key in ("speedup", "speedup_ci95_low", "speedup_ci95_high"):
        point.pop(key)
    found = said(viewed(tmp_path, [*rows, {**point, "tpot_ms": 12.5}]))
    assert "12.5 ms per token" in found["only_speculation"].text
    assert "1 of 1 point keep up" in found["only_speculation"].text
    assert "Nothing is known" not in found["stops_paying"].text


def test_without_a_baseline_the_best_point_is_ranked_by_time_per_token(tmp_path: Path) -> None:
    """No speedup is invented; the sentence says that there is no baseline."""
    rows = [method_row("calm", k, 1.0 + k / 10) for k in (2, 4)]
    for row in rows:
        for key in ("speedup", "speedup_ci95_low", "speedup_ci95_high"):
            row.pop(key)
    found = said(viewed(tmp_path, rows))
    assert "K = 4" in found["best"].text
    assert "7.14 ms" in found["best"].text
    assert "no autoregressive baseline" in found["best"].text
    assert "stops_paying" not in found


def test_a_sweep_without_any_result_says_so(tmp_path: Path) -> None:
    """All points refused is a sentence and a reason, not an error."""
    axes = {"method.name": "kangaroo", "method.num_speculative_tokens": 2, "load": "calm"}
    found = said(viewed(tmp_path, [failed_row(axes, "does_not_fit", "needs 90 GB, has 80 GB")]))
    assert found["best"].headline == "No point has results"
    assert "needs 90 GB, has 80 GB" in found["does_not_fit"].text


def test_the_slo_is_compared_with_autoregression(tmp_path: Path) -> None:
    """Attainment and goodput of both sides stand together with the targets."""
    good = {"slo_attainment": 0.98, "goodput_requests_per_s": 4.9}
    rows = [
        baseline_row("calm", slo_attainment=0.91, goodput_requests_per_s=4.55),
        {**method_row("calm", 2, 1.5), **good},
        {**method_row("calm", 4, 1.4), **good},
    ]
    found = said(viewed(tmp_path, rows, slo={"ttft_ms": 500, "tpot_ms": 25}))["slo"]
    assert found.headline == "98.0% instead of 91.0% within the SLO"
    text = found.text
    assert "98.0%" in text
    assert "91.0%" in text
    assert "TTFT ≤ 500 ms and TPOT ≤ 25 ms" in text
    assert "4.90 requests/s against 4.55" in text


def test_the_slo_is_shown_where_it_differs_most(tmp_path: Path) -> None:
    """At a calm load everybody meets it; the finding names the load where that changes."""
    rows = grid({"calm": (1.6, 1.5), "busy": (1.3, 1.2)})
    for row in rows:
        speculative = row["method.name"] == "kangaroo"
        row["slo_attainment"] = 1.0 if row["load"] == "calm" else 0.9 if speculative else 0.3
    text = said(viewed(tmp_path, rows))["slo"].text
    assert "load: busy" in text
    assert "90.0%" in text
    assert "30.0%" in text
    assert "No other load differs more" in text


def hardware_grid(speedups: Mapping[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """Return baselines and the points K = 2 and K = 4 of each device, slower ones first."""
    rows = []
    for index, (device, pair) in enumerate(speedups.items()):
        tpot = 20.0 / (1 + index)
        rows.append(baseline_row("calm", tpot, hardware=device))
        rows += [
            {**method_row("calm", k, s, tpot=tpot), "hardware": device}
            for k, s in zip((2, 4), pair, strict=True)
        ]
    return rows


HARDWARE_AXES = [AXES[0], {"field": "hardware", "label": None, "values": ["slow", "fast"]}]


def test_a_verdict_is_given_for_each_device_not_across_them(tmp_path: Path) -> None:
    """A ratio on one device says nothing of another; both are told, and which is faster in ms."""
    rows = hardware_grid({"slow": (1.5, 1.4), "fast": (0.95, 0.9)})
    view = viewed(tmp_path, rows, axes=HARDWARE_AXES)
    told = [f for f in findings(view) if f.kind == "stops_paying"]
    assert [f.headline for f in told] == [
        "Speculation pays here (hardware: slow)",
        "Speculation never pays here (hardware: fast)",
    ]
    fastest = said(view)["fastest"]
    assert "Autoregressive, hardware: fast is the fastest: 10.0 ms" in fastest.text


def test_many_settings_are_counted_instead(tmp_path: Path) -> None:
    """With more settings than fit in a list, the outcomes are counted."""
    names = [f"gpu{i}" for i in range(8)]
    rows = hardware_grid({name: (1.5 if i < 5 else 0.9, 0.8) for i, name in enumerate(names)})
    axes = [AXES[0], {"field": "hardware", "label": None, "values": names}]
    (told,) = [f for f in findings(viewed(tmp_path, rows, axes=axes)) if f.kind == "stops_paying"]
    assert told.headline == "Pays at every load in 5 of 8"
    assert "pays at every load in 5, never pays in 3" in told.text


def test_one_replication_has_no_interval_and_says_so(tmp_path: Path) -> None:
    """A missing interval is named; the mean decides."""
    rows = grid({"calm": (1.3, 1.2), "busy": (0.9, 0.8)})
    for row in rows:
        row.pop("speedup_ci95_low", None)
        row.pop("speedup_ci95_high", None)
    found = said(viewed(tmp_path, rows))
    assert "no interval: it needs at least two replications" in found["best"].text
    assert found["stops_paying"].headline == "Stops paying at busy"


def test_labelled_loads_are_ordered_by_the_batch_they_lead_to(tmp_path: Path) -> None:
    """'Smallest load' means the smallest batch, whatever order the file lists the labels in."""
    rows = grid({"full": (0.8, 0.7), "calm": (1.5, 1.4), "busy": (1.2, 1.1)})
    sizes = {"calm": 1.0, "busy": 8.0, "full": 60.0}
    for row in rows:
        if row["method.name"] == "autoregressive":
            row["mean_batch_size"] = sizes[row["load"]]
    axes = [AXES[0], {"field": "load", "label": "Load", "values": ["full", "calm", "busy"]}]
    view = viewed(tmp_path, rows, axes=axes)
    assert [verdict.load for verdict in verdicts(view)] == ["calm", "busy", "full"]
    assert said(view)["stops_paying"].headline == "Stops paying at full"


def test_break_even_is_interpolated_in_log_batch() -> None:
    """Halfway in log batch between 16 and 64 lies 32; a curve that never crosses has none."""
    assert break_even_batch([(16, 1.2), (64, 0.8)]) == pytest.approx(32)
    assert break_even_batch([(1, 1.5), (8, 1.0)]) == pytest.approx(8)
    assert break_even_batch([(1, 1.5), (64, 1.1)]) is None
    assert break_even_batch([(1, 0.9), (64, 0.8)]) is None
    crossing = break_even_batch([(1, 1.6), (4, 1.3), (16, 0.9)])
    assert crossing is not None
    assert crossing == pytest.approx(math.exp(math.log(4) + 0.75 * math.log(4)))


def test_a_curve_that_rises_through_1_is_not_above_it_throughout(tmp_path: Path) -> None:
    """A mixture of experts may pay from a batch on: halfway in log batch between 1 and 4 lies 2."""
    rising = [(1, 0.8), (4, 1.2), (16, 1.3)]
    assert break_even_batch(rising) is None
    batches, rises = zip(*crossings([*rising, (64, 0.7)]), strict=True)
    assert batches == pytest.approx((2, 32))
    assert rises == (True, False)
    view = sweep_view(read_sweep(write_fake_results(tmp_path)))
    for row in view.data.curves:
        bend = (math.log2(row["batch"]) - 4) ** 2  # type: ignore[arg-type]
        row.update(speedup=1.3 - 0.06 * bend)  # type: ignore[attr-defined]
    text = said(view)["break_even_batch"].text
    assert "gives 0.34× at batch 1 and rises above 1 at a batch of about 3, then falls" in text
    assert "stays above" not in text
    assert "Break-even batch: above 1 from 3 to 74" in str(speedup_vs_batch.figure(view))


def test_the_closed_form_limit_belongs_to_the_best_configuration(tmp_path: Path) -> None:
    """The curve quoted has the E, K and τ of the best point, and its crossing is in the text."""
    view = sweep_view(read_sweep(write_fake_results(tmp_path)))
    best = view.best(view.shown)
    assert best is not None
    (curve,) = best_curves(view, best).values()
    rows = [
        row
        for row in view.data.curves
        if all(
            row[key] == best.row[key]
            for key in (
                "method.exit_layer",
                "method.num_speculative_tokens",
                "method.confidence_threshold",
            )
        )
    ]
    assert [speedup for _, speedup in curve] == [row["speedup"] for row in rows]
    limit = break_even_batch(curve)
    assert limit is not None
    assert f"a batch of about {limit:.0f}" in said(view)["break_even_batch"].text
