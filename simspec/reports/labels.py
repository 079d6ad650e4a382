"""Words, units and number formats of result columns and axes.

The one place that knows how a key of a result is called, in which unit it stands, how it is
printed and whether more of it is better.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from dataclasses import dataclass
from typing import Literal, TypeAlias

Value: TypeAlias = float | int | str | bool | None
"""What stands in a cell of an axis column."""

NumberFormat = Literal["ratio", "significant", "share", "decimal", "integer"]

_D3 = {
    "ratio": ".2f",
    "significant": ",.3r",
    "share": ".1%",
    "decimal": ".2f",
    "integer": ",.0f",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """How one result column is shown. ``better`` is 1 (more), -1 (less) or 0 (neither)."""

    key: str
    label: str
    unit: str
    number: NumberFormat
    better: int

    @property
    def title(self) -> str:
        """Label with its unit, for axes, colour bars and column heads."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def d3_format(self) -> str:
        """The number format in d3's notation, as Plotly templates take it."""
        return _D3[self.number]

    @property
    def suffix(self) -> str:
        """What follows a value in running text, including the space if one belongs there."""
        if self.number == "ratio":
            return "×"
        return "" if self.number == "share" or not self.unit else f" {self.unit}"

    def text(self, value: float | None, *, unit: bool = True) -> str:
        """Return the value as read in a sentence, ``"–"`` when there is none."""
        if value is None or not math.isfinite(value):
            return "–"
        return number_text(value, self.number) + (self.suffix if unit else "")


def _latencies() -> list[Metric]:
    names = {
        "ttft": "Time to first token",
        "tpot": "Time per output token",
        "itl": "Inter-token latency",
        "e2e": "End-to-end latency",
    }
    short = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E latency"}
    found = []
    for key, name in names.items():
        mean = f"{name}, {short[key]}" if key != "e2e" else name
        found.append(Metric(f"{key}_ms", mean, "ms", "significant", -1))
        found.extend(
            Metric(f"{key}_p{p}_ms", f"{short[key]}, {p}th percentile", "ms", "significant", -1)
            for p in (50, 90, 95, 99)
        )
    return found


METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric("speedup", "Speedup over autoregression", "×", "ratio", 1),
        Metric("e2e_speedup", "End-to-end speedup", "×", "ratio", 1),
        *_latencies(),
        Metric("throughput_tokens_per_s", "Throughput", "tokens/s", "significant", 1),
        Metric("requests_per_s", "Requests finished", "requests/s", "significant", 1),
        Metric("goodput_requests_per_s", "Goodput", "requests/s", "significant", 1),
        Metric("slo_attainment", "Requests within the SLO", "share", "share", 1),
        Metric("tokens_per_round", "Tokens per round", "tokens", "decimal", 1),
        Metric("drafted_per_round", "Drafted per round", "tokens", "decimal", 0),
        Metric("accepted_per_round", "Accepted per round", "tokens", "decimal", 1),
        Metric("acceptance_rate", "Acceptance rate", "accepted/drafted", "share", 1),
        Metric("wasted_draft_share", "Drafts rejected", "share of drafted", "share", -1),
        Metric("round_time_ms", "Round time", "ms", "significant", -1),
        Metric("step_time_ms", "Autoregressive step time", "ms", "significant", -1),
        Metric("time_draft_ms", "Draft time per round", "ms", "significant", -1),
        Metric("time_verify_ms", "Verify time per round", "ms", "significant", -1),
        Metric("time_prefill_ms", "Prefill time per round", "ms", "significant", -1),
        Metric("time_host_ms", "Host time per round", "ms", "significant", -1),
        Metric("engine_step_time_ms", "Engine step time", "ms", "significant", -1),
        Metric("ttft_queue_ms", "Queueing part of TTFT", "ms", "significant", -1),
        Metric("ttft_prefill_ms", "Prefill part of TTFT", "ms", "significant", -1),
        Metric("energy_per_token_j", "Energy per output token", "J", "significant", -1),
        Metric("energy_per_request_j", "Energy per request", "J", "significant", -1),
        Metric("rejected_energy_share", "Energy of rejected drafts", "share", "share", -1),
        Metric(
            "cost_per_million_tokens_usd", "Rent per million output tokens", "$", "significant", -1
        ),
        Metric("cost_per_request_usd", "Rent per request", "$", "significant", -1),
        Metric("rejected_cost_share", "Rent of rejected drafts", "share", "share", -1),
        Metric("num_still_running", "Requests running at the end", "count", "significant", 0),
        Metric("num_still_waiting", "Requests waiting at the end", "count", "significant", 0),
        Metric("num_not_arrived", "Requests not arrived by the end", "count", "significant", 0),
        Metric("burst_gap_ms", "Gap between bursts", "ms", "significant", -1),
        *(
            Metric(
                f"burst_gap_p{p}_ms",
                f"Gap between bursts, {p}th percentile",
                "ms",
                "significant",
                -1,
            )
            for p in (50, 90, 95, 99)
        ),
        Metric("longest_gap_ms", "Longest gap of a request", "ms", "significant", -1),
        Metric("queue_ms", "Time in the waiting queue", "ms", "significant", -1),
        Metric("kv_transfer_ms", "KV on its way to decode", "ms", "significant", -1),
        Metric("queueing_share", "Queueing", "share of latency", "share", -1),
        Metric("busy_share", "Engine busy", "share of time", "share", 0),
        Metric("recomputed_share", "Prompt tokens recomputed", "share", "share", -1),
        Metric("num_measured", "Requests measured", "count", "significant", 0),
        Metric("num_censored", "Requests cut off by the clock", "count", "significant", 0),
        Metric("num_refused", "Requests refused", "count", "significant", 0),
        Metric("mean_batch_size", "Sequences in the batch", "sequences", "significant", 0),
        Metric("kv_utilisation", "KV cache in use", "share", "share", 0),
        Metric("compute_utilisation", "Compute roof used", "share", "share", 0),
        Metric("bandwidth_utilisation", "Bandwidth roof used", "share", "share", 0),
        Metric("network_share", "Time in collectives", "share", "share", -1),
        Metric("preemptions", "Preemptions", "count", "significant", -1),
        Metric("weights_bytes", "Weights per GPU", "bytes", "integer", -1),
        Metric("kv_bytes_per_token", "KV cache per token and GPU", "bytes", "integer", -1),
        Metric("kv_capacity_tokens", "KV capacity per GPU", "tokens", "integer", 1),
    )
}
"""Every result column with a name of its own; others are named after their key."""

_UNITS = (
    ("_tokens_per_s", "tokens/s"),
    ("_requests_per_s", "requests/s"),
    ("_per_s", "1/s"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("_bytes", "bytes"),
    ("_tokens", "tokens"),
    ("_share", "share"),
    ("_usd", "$"),
    ("_j", "J"),
)

_AXES = {
    "method.name": ("Method", ""),
    "method.exit_layer": ("Exit layer E", "layers"),
    "method.num_speculative_tokens": ("Draft length K", "tokens"),
    "method.confidence_threshold": ("Confidence threshold τ", "probability"),
    "load": ("Load", ""),
    "batch": ("Batch size", "sequences"),
    "context": ("Context", "tokens"),
    "hardware": ("Hardware", ""),
    "model": ("Model", ""),
    "engine": ("Engine", ""),
    "tp": ("Tensor-parallel degree", "GPUs"),
    "dtype": ("Weight data type", ""),
}

_SYMBOLS = {
    "method.exit_layer": "E",
    "method.num_speculative_tokens": "K",
    "method.confidence_threshold": "τ",
}


def metric(key: str) -> Metric:
    """Return how the column ``key`` is shown; an unknown key names itself."""
    if key in METRICS:
        return METRICS[key]
    for suffix, unit in _UNITS:
        if key.endswith(suffix):
            label = key.removesuffix(suffix).replace("_", " ").strip().capitalize()
            return Metric(key, label or key, unit, "significant", 0)
    return Metric(key, key.replace("_", " ").capitalize(), "", "significant", 0)


def axis_label(field: str, given: str | None = None) -> str:
    """Return the name of an axis: the project's own, the manifest's, or made from the field."""
    if field in _AXES:
        return _AXES[field][0]
    if "+" in field:
        return " · ".join(axis_label(part) for part in field.split("+"))
    if given and given != field:
        return given
    return field.rpartition(".")[2].replace("_", " ").capitalize() or field


def axis_title(field: str, given: str | None = None) -> str:
    """Return the name of an axis with its unit where it has one."""
    unit = _AXES.get(field, ("", ""))[1]
    label = axis_label(field, given)
    return f"{label} ({unit})" if unit else label


def axis_symbol(field: str, given: str | None = None) -> str:
    """Return the short name used in ``K = 3``."""
    return _SYMBOLS.get(field) or axis_label(field, given).lower()


def value_text(value: Value) -> str:
    """Return an axis value as text: numbers without trailing zeros, names as they are."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return visible(str(value))


def method_title(name: str) -> str:
    """Return a decoding method's name for a sentence."""
    return visible(name.replace("_", " ")).capitalize()


def number_text(value: float, number: NumberFormat) -> str:
    """Format a number exactly as the page's d3 formats do.

    ``significant`` means three significant digits in plain decimal notation with thousands
    separators, like d3's ``,.3r``.
    """
    if number == "share":
        return f"{100 * value:.1f}%"
    if number in ("ratio", "decimal"):
        return f"{value:.2f}"
    if number == "integer":
        return f"{value:,.0f}"
    if value == 0:
        return "0.00"
    exponent = math.floor(math.log10(abs(float(f"{value:.2e}"))))
    decimals = max(0, 2 - exponent)
    rounded = round(value, 2 - exponent)
    return f"{rounded:,.{decimals}f}"


def visible(text: str) -> str:
    """Return text without control characters, isolated if it runs right to left.

    Directional overrides in a name could otherwise reorder the sentence around it.
    """
    kept = "".join(
        character
        for character in text
        if unicodedata.category(character) not in {"Cc", "Cs"}
        and character not in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )
    if any(unicodedata.bidirectional(character) in {"R", "AL", "AN"} for character in kept):
        return f"\u2068{kept}\u2069"
    return kept


def shorten(text: str, width: int) -> str:
    """Return the text cut to ``width`` characters with an ellipsis."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def plain(text: str, *, width: int = 10_000, line: int = 0) -> str:
    """Return text for a Plotly label, where ``<b>``, ``&amp;``, ``%{x}`` and ``@`` mean something.

    Parameters
    ----------
    text : str
        Anything, also hostile.
    width : int
        Cut to this many characters.
    line : int
        Wrap lines at this many characters; 0 keeps one line.
    """
    short = shorten(visible(text), width)
    lines = textwrap.wrap(short, line, break_long_words=True) if line else [short]
    return "<br>".join(_escape(part.strip()) for part in lines or [""])


def _escape(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = escaped.replace("%{", "&#37;{")
    return "&#64;" + escaped[1:] if escaped[:1] == "@" else escaped
