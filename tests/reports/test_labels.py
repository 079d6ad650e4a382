"""Number formats, names and the escaping of what users wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.reports.labels import METRICS, metric, number_text, plain, shorten, value_text, visible


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1.6166, "ratio", "1.62"),
        (7.0999, "significant", "7.10"),
        (11.54, "significant", "11.5"),
        (99.96, "significant", "100"),
        (9.996, "significant", "10.0"),
        (12345.0, "significant", "12,300"),
        (0.00123, "significant", "0.00123"),
        (0.0, "significant", "0.00"),
        (-2.345, "significant", "-2.35"),
        (0.456, "share", "45.6%"),
        (14483456.0, "integer", "14,483,456"),
    ],
)
def test_numbers_read_as_a_person_would_write_them(value: float, kind: str, text: str) -> None:
    """Three significant digits, two decimals for ratios, thousands separators."""
    assert number_text(value, kind) == text  # type: ignore[arg-type]


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_three_significant_digits_are_within_half_a_digit(value: float) -> None:
    """The printed number differs from the value by at most half a unit of its third digit."""
    printed = float(number_text(value, "significant").replace(",", ""))
    assert abs(printed - value) <= 0.00501 * value


def test_every_metric_has_a_unit_and_a_label_of_its_own() -> None:
    """No two columns are called alike, and only dimensionless shares may go without a unit."""
    labels = [m.label for m in METRICS.values()]
    assert len(set(labels)) == len(labels)
    assert all(m.unit for m in METRICS.values())


def test_an_unknown_column_names_itself_with_the_unit_in_its_key() -> None:
    """A metric added by somebody else is shown without touching this package."""
    found = metric("queue_wait_ms")
    assert (found.title, found.better) == ("Queue wait (ms)", 0)
    assert metric("weird").title == "Weird"


def test_missing_values_are_a_dash() -> None:
    """Absent and infinite numbers are not printed as numbers."""
    assert metric("tpot_ms").text(None) == "–"
    assert metric("tpot_ms").text(float("nan")) == "–"
    assert metric("speedup").text(1.5) == "1.50×"
    assert metric("tpot_ms").text(7.1, unit=False) == "7.10"


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (0.6, "0.6"), (True, "yes"), (None, "–"), ("busy", "busy"), (1e-7, "1e-07")],
)
def test_axis_values_as_text(value: float | str | None, text: str) -> None:
    """Numbers lose trailing zeros, names stay."""
    assert value_text(value) == text


def test_plain_text_means_nothing_to_plotly() -> None:
    """Tags, entities, templates and colour tokens of a name are shown, not obeyed."""
    assert plain("<b>x</b>") == "&lt;b&gt;x&lt;/b&gt;"
    assert plain("a &lt; b") == "a &amp;lt; b"
    assert "%{" not in plain("%{customdata}")
    assert not plain("@high").startswith("@")
    assert plain("x" * 50, width=10) == "x" * 9 + "…"
    assert plain("one two three", line=4) == "one<br>two<br>thre<br>e"


@given(st.text(max_size=60))
def test_visible_text_cannot_reorder_its_sentence(text: str) -> None:
    """No control character and no directional override survives; isolates are balanced."""
    shown = visible(text)
    assert not any(c in shown for c in "\u202a\u202b\u202d\u202e\u2066\u2067\x1b\x00\n")
    assert shown.count("\u2068") == shown.count("\u2069")


def test_right_to_left_names_are_isolated() -> None:
    """A Hebrew name stands between isolates so that the numbers after it stay in place."""
    assert visible("שלום\u202e") == "\u2068שלום\u2069"
    assert shorten("abc", 3) == "abc"
