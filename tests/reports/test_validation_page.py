"""The page of a validation: every point where it belongs, every number of the summary."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from simspec.reports.dashboards.validation import validation_page
from simspec.reports.figures import error_by_group, predicted_vs_measured
from simspec.validation._base import LeftOut
from simspec.validation.api import ValidationResult
from tests.validation.test_summary import result, row

ROWS = (
    row(10, 11, "dense / x"),
    row(10, 8, "dense / x", role="fitted"),
    row(20, 20, "moe / y", interval=(18, 23)),
)


def points(found: ValidationResult, shown: int) -> dict[str, list[tuple[float, float]]]:
    """Return the drawn points of one option of the selector, by family."""
    spec = predicted_vs_measured.figure(found)
    assert spec is not None
    data = spec.resolve({"shown": shown})["data"]
    return {
        trace["name"]: list(zip(trace["x"], trace["y"], strict=True))
        for trace in data
        if trace["mode"] == "markers"
    }


def test_points_stand_where_they_were_measured() -> None:
    """All rows in the first view, one family in each other; fitted rows are hollow."""
    found = result(*ROWS)
    spec = predicted_vs_measured.figure(found)
    assert spec is not None
    assert [o.rpartition(" · ")[2] for o in spec.selectors[0].options] == [
        "serving",
        "dense",
        "moe",
    ]
    assert points(found, 0) == {"dense": [(10, 11), (10, 8)], "moe": [(20, 20)]}
    assert points(found, 2) == {"moe": [(20, 20)]}
    (dense,) = [t for t in spec.resolve({"shown": 1})["data"] if t["mode"] == "markers"]
    assert dense["marker"]["symbol"] == ["circle", "circle-open"]
    assert "measured 10.0 ms, predicted 8.00 ms (-20.0%)" in dense["text"][1]
    assert "hardware h100, concurrency 4" in dense["text"][0]


def test_axes_are_logarithmic_and_hold_every_point() -> None:
    """Both axes have the same range, which no point leaves, and the band is 10 % wide."""
    spec = predicted_vs_measured.figure(result(*ROWS))
    assert spec is not None
    shown = spec.resolve({"shown": 0})
    x, y = shown["layout"]["xaxis"], shown["layout"]["yaxis"]
    assert (x["type"], x["range"]) == ("log", y["range"])
    assert x["title"]["text"] == "Measured time per output token (ms)"
    low, high = (10**bound for bound in x["range"])
    assert low < 8
    assert high > 20
    below, above, equal = shown["data"][:3]
    for edge, factor in ((below, 0.9), (above, 1.1), (equal, 1.0)):
        ratios = [b / a for a, b in zip(edge["x"], edge["y"], strict=True)]
        assert ratios == pytest.approx([factor, factor], rel=1e-4)


def test_a_long_table_is_thinned_and_its_errors_are_not() -> None:
    """Of 10,000 rows an even selection is drawn; the caption counts all of them."""
    rows = [row(1 + n, (1 + n) * (1.3 if n % 2 else 1.05)) for n in range(10_000)]
    found = result(*rows)
    (drawn,) = points(found, 0).values()
    assert len(drawn) == predicted_vs_measured.MAX_POINTS
    assert drawn[0] == (1, 1.05)
    assert drawn[-1] == (10_000, 13_000)
    spec = predicted_vs_measured.figure(found)
    assert spec is not None
    caption = spec.resolve({"shown": 0})["caption"]
    assert caption.startswith("10,000 rows: median error 17.5%, 50% within 10%.")


def test_bars_are_the_errors_of_the_summary() -> None:
    """The longest bar is on top; the fitted half of a group is a bar of its own."""
    spec = error_by_group.figure(result(*ROWS))
    assert spec is not None
    bars, marks = spec.resolve({"topic": 0, "by": 0})["data"]
    assert bars["y"] == ["dense (fitted)", "dense", "moe"]
    assert bars["x"] == pytest.approx([20, 10, 0])
    assert bars["marker"]["color"] == ["@host", "@series0", "@series0"]
    assert marks["x"] == pytest.approx([20, 10, 0])
    assert spec.resolve({"topic": 0, "by": 1})["data"][0]["y"][2] == "moe / y"


def test_the_page_says_what_is_left_out_and_why() -> None:
    """Reasons are counted with their cause, and hostile names are text."""
    bad = "<script>alert(1)</script>"
    left_out = [LeftOut(n, "unsupported", f"no profile {bad}", {"gpu": bad}) for n in (7, 8)]
    found = result(row(10, 12, f"{bad} / x"), *left_out)
    html = validation_page(found).html()
    assert bad not in html
    assert "no profile &lt;script&gt;" in html
    assert "serving.csv:7" in html
    assert "2 unsupported" in html


def test_nothing_compared_is_a_page_too() -> None:
    """Without a comparison there is no figure, and the reasons are there."""
    found = result(LeftOut(2, "unsupported", "no profile", {}))
    assert predicted_vs_measured.figure(found) is None
    html = validation_page(found).html()
    assert "no profile" in html


def test_a_figure_far_away_has_a_finite_range() -> None:
    """Extreme values stay numbers that JSON can hold."""
    found = result(row(1e-100, 1e100), row(1, 1))
    assert "Infinity" not in validation_page(found).payload()
    assert all(math.isfinite(x) for x, _ in points(found, 0)["a"])


def test_tables_are_named(tmp_path: object) -> None:
    """Every table of the result is listed with what became of its rows."""
    found = result(*ROWS)
    both = replace(found, tables=(*found.tables, replace(found.tables[0], file="other.csv")))
    html = validation_page(both).html()
    assert "other.csv" in html
    assert "runs/serving.csv" in html
