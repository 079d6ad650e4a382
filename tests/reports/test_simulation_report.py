"""The report of one scenario: the same page, every metric of both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import ConfigError
from simspec.reports.dashboards.simulation import write_simulation_report
from tests.helpers.fake_results import ACCEPTANCE, fake_row
from tests.helpers.html import PageReader, read_page

OPTIONS = {"exit_layer": 4, "num_speculative_tokens": 3, "confidence_threshold": 0.6}


def result(**changes: Any) -> dict[str, Any]:
    """Return a document like that of ``simspec simulate``."""
    fields = {f"method.{k}": v for k, v in OPTIONS.items()}
    ours = fake_row({"method.name": "kangaroo", **fields}, 4)
    plain = fake_row({"method.name": "autoregressive"}, 4)
    document = {
        **{k: v for k, v in ours.items() if not k.startswith("method.")},
        "name": "chat",
        "hardware": "h100_sxm",
        "model": "vicuna-7b",
        "engine": "vllm",
        "calibrated": True,
        "method": "kangaroo",
        "method_options": OPTIONS,
        "acceptance": ACCEPTANCE,
        "workload": "Poisson arrivals at 2 requests/s",
        "baseline": {**plain, "method": "autoregressive"},
        "manifest": {
            "seed": 7,
            "scenario": {"slo": {"ttft_ms": 500.0}, "description": "One chat deployment."},
            "profile_sources": {"memory": "a data sheet"},
            "inputs": {"chat.yaml": {"sha256": "ab" * 32}},
        },
    }
    return {**document, **changes}


def report(folder: Path, document: dict[str, Any]) -> PageReader:
    """Write the document and read the page made from it."""
    (folder / "result.json").write_text(json.dumps(document))
    return read_page(write_simulation_report(folder).read_text(encoding="utf-8"))


def test_it_names_the_configuration_the_ratio_and_both_times(tmp_path: Path) -> None:
    """Everything the terminal says is on the page, with assumptions and sources."""
    page = report(tmp_path, result())
    assert page.outside == []
    text = page.text.replace("\u00a0", " ")
    for part in (
        "Kangaroo, E = 4, K = 3, τ = 0.6",
        "Speculation pays here",
        "per token instead of",
        ACCEPTANCE,
        "Poisson arrivals at 2 requests/s",
        "TTFT ≤ 500 ms",
        "a data sheet",
        "ab" * 32,
        "One chat deployment.",
    ):
        assert part in text, part


def test_every_metric_with_an_interval_is_a_row(tmp_path: Path) -> None:
    """No metric of the result is left out of the table."""
    document = result()
    page = report(tmp_path, document)
    count = sum(f"{key}_ci95_low" in document for key in document)
    assert f"{count} metrics; means over replications" in page.text


def test_latencies_say_what_most_requests_stay_below(tmp_path: Path) -> None:
    """A mean hides the slow requests: TTFT and TPOT give their 95th percentile on both sides."""
    document = result(ttft_p95_ms=98.8, tpot_p95_ms=8.25)
    document["baseline"] |= {"ttft_p95_ms": 120.0, "tpot_p95_ms": 12.5}
    text = report(tmp_path, document).text
    assert "95% of requests below 98.8 ms (autoregression: 120 ms)" in text
    assert "95% of requests below 8.25 ms (autoregression: 12.5 ms)" in text
    assert text.count("95% of requests") == 2
    del document["baseline"], document["tpot_p95_ms"]
    text = report(tmp_path, document).text
    assert "95% of requests below 98.8 ms Throughput" in text
    assert text.count("95% of requests") == 1


def test_without_a_baseline_there_is_no_ratio(tmp_path: Path) -> None:
    """Nothing is compared with what was not run."""
    document = {k: v for k, v in result().items() if not k.startswith(("speedup", "baseline"))}
    text = report(tmp_path, document).text
    assert "Speculation pays" not in text
    assert "instead of" not in text


def test_an_unstable_run_gives_its_reason(tmp_path: Path) -> None:
    """The page of a run without a steady state has no numbers, but says why."""
    reason = "offered 9 requests/s, completed 7"
    text = report(tmp_path, result(status="unstable", reason=reason)).text
    assert "No result: unstable" in text
    assert reason in text


def test_plain_decoding_is_a_report_too(tmp_path: Path) -> None:
    """A scenario without speculation has one side, and is not compared with itself."""
    plain = {k: v for k, v in result()["baseline"].items() if not k.startswith("method.")}
    text = report(tmp_path, result(**plain, method_options={})).text
    assert "All metrics" in text
    assert "Speculation pays" not in text
    for word in ("autoregression:", " against ", "Chosen", "Best"):
        assert word not in text.partition("What else it rests on")[0], word


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no result.json"),
        ("{", "not valid JSON"),
        ("[]", "not the result"),
        ("{}", "not the"),
    ],
)
def test_what_is_no_result_is_one_sentence(
    tmp_path: Path, content: str | None, message: str
) -> None:
    """The error names the path and nothing is written."""
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(ConfigError, match=message):
        write_simulation_report(tmp_path)
    assert not (tmp_path / "report.html").exists()
