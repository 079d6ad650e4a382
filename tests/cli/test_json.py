"""``--json``: one document on stdout, the same keys everywhere, everything else on stderr."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command

MEMORY = {"weights_bytes", "kv_bytes_per_token", "kv_capacity_tokens", "fits"}
POINT = MEMORY | {
    "round_time_ms",
    "step_time_ms",
    "drafted_per_round",
    "tokens_per_round",
    "tpot_ms",
    "ttft_ms",
    "speedup",
    "throughput_tokens_per_s",
}
KANGAROO = ("--method", "kangaroo", "--confidence-threshold", "0", "--acceptance", "0.6,0.3,0.2")
TABLES = {
    "estimate": (("estimate",), POINT),
    "estimate kangaroo": (("estimate", *KANGAROO), POINT),
    "cost": (("cost", "--batch", "4"), {"step_time_ms", "network_share", "operators"}),
    "memory": (("memory",), MEMORY | {"max_sequences"}),
    "hardware list": (("hardware", "list"), {"hardware"}),
    "hardware show": (("hardware", "show", "h100_sxm"), {"name", "sources"}),
    "models list": (("models", "list"), {"models"}),
    "models show": (
        ("models", "show", "llama-3.1-8b"),
        {"name", "params_total", "kv_bytes_per_token"},
    ),
    "simulate": (("simulate", "scenario.yaml"), POINT),
    "diff": (
        ("diff", "scenario.yaml", "scenario_short.yaml"),
        {"a", "b", "samples", "changed", "metrics"},
    ),
    "sweep --dry-run": (("sweep", "sweep.yaml", "--dry-run"), {"points", "to_compute", "axes"}),
}


def values(document: Any) -> Iterator[Any]:
    """Yield every leaf of a document."""
    if isinstance(document, dict):
        for item in document.values():
            yield from values(item)
    elif isinstance(document, list):
        for item in document:
            yield from values(item)
    else:
        yield document


@pytest.mark.parametrize("name", TABLES)
def test_one_document_and_nothing_else(simspec: Command, golden: Path, name: str) -> None:
    """stdout is one JSON document with the common keys and no NaN; stderr is silent."""
    arguments, keys = TABLES[name]
    said = simspec(*arguments, "--json")
    assert (said.code, said.err) == (0, "")
    assert keys <= set(said.json)
    numbers = [value for value in values(said.json) if isinstance(value, float)]
    assert all(math.isfinite(value) for value in numbers)
    if {"tpot_ms", "fits"} <= set(said.json):
        assert said.json["fits"] is True


@pytest.mark.parametrize("name", TABLES)
def test_without_it_a_table(simspec: Command, golden: Path, name: str) -> None:
    """People get text that is no JSON, on stdout alone."""
    said = simspec(*TABLES[name][0])
    assert (said.code, said.err) == (0, "")
    assert said.out.strip()
    with pytest.raises(ValueError, match="."):
        said.json  # noqa: B018


def test_a_sweep_prints_one_document(simspec: Command, golden: Path) -> None:
    """Progress and the places of the files go to stderr; best and baseline have the keys."""
    said = simspec("sweep", "sweep.yaml", "--output", "out", "--executor", "serial", "--json")
    assert said.code == 0
    assert set(said.json["best"]) >= POINT - {"fits"}
    assert set(said.json["baseline"]) >= POINT - {"fits", "speedup"}
    assert said.json["points"] == 8
    assert Path(said.json["dashboard"]).exists()
    assert "points 8/8" in said.err


def test_the_methods_of_a_round_have_the_same_keys(simspec: Command) -> None:
    """Plain decoding says what speculation says: speedup 1, one token a round, nothing drafted."""
    plain, ours = simspec("estimate", "--json").json, simspec("estimate", *KANGAROO, "--json").json
    assert set(plain) == set(ours)
    assert plain["speedup"] == 1.0
    assert (plain["drafted_per_round"], plain["tokens_per_round"]) == (0, 1)
    assert plain["step_time_ms"] == plain["round_time_ms"] == ours["step_time_ms"]
    assert plain["tpot_ms"] / ours["tpot_ms"] == pytest.approx(ours["speedup"])


def test_closed_form_and_simulation_share_their_keys(simspec: Command, golden: Path) -> None:
    """A program that reads one reads the other."""
    estimated = simspec("estimate", *KANGAROO, "--json").json
    simulated = simspec("simulate", "scenario.yaml", "--json").json
    # A simulation keeps the intervals of each metric together, and its chance beside calibration.
    intervals = {key for key in estimated if key.endswith("_interval")}
    only_closed_form = {"batch", "context", "prompt"} | intervals
    assert intervals
    assert set(estimated) - set(simulated) == only_closed_form
    for key in set(estimated) & set(simulated):
        kinds = {type(document[key]) for document in (estimated, simulated)}
        assert kinds <= {int, float} or len(kinds) == 1, key


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("estimate", "--model", "llama-3.1-70b"), "does_not_fit"),
        (("estimate", "--batch", "100000"), "does_not_fit"),
        (("estimate", "--engine", "pytorch", "--prompt", "70000"), "refused"),
    ],
)
def test_a_refusal_is_a_document_too(
    simspec: Command, arguments: tuple[str, ...], status: str
) -> None:
    """What cannot be: the memory on stdout as JSON, why on stderr, exit code 2."""
    said = simspec(*arguments, "--json")
    assert said.code == 2
    assert said.json["status"] == status
    assert said.json["fits"] is (status == "refused")
    assert set(said.json) >= MEMORY
    assert said.err == f"simspec: {said.json['reason']}\n"
    human = simspec(*arguments)
    assert (human.code, human.out, human.err) == (2, "", said.err)


def test_memory_says_whose_it_is(simspec: Command) -> None:
    """Every default that moves the pool is in the document: formats, engine, the largest step."""
    found = simspec("memory", "--dtype", "fp8", "--json").json
    assert (found["model"], found["hardware"], found["engine"]) == (
        "llama-3.1-8b", "h100_sxm", "vllm",
    )  # fmt: skip
    assert (found["tp"], found["dtype"], found["kv_dtype"]) == (1, "fp8", "bf16")
    assert found["method"] == "autoregressive"
    (activations,) = (line for line in found["lines"] if line.startswith("activations"))
    assert "(8,192 tokens, 256 rows of logits)" in activations


def test_the_prompt_of_the_ttft_is_said(simspec: Command) -> None:
    """TTFT is that of a prompt as long as the context, unless another one is asked for."""
    point = ("estimate", "--context", "2000", "--json")
    assert simspec(*point).json["prompt"] == 2000
    assert simspec(*point, "--prompt", "100").json["prompt"] == 100


def test_memory_that_does_not_fit_is_shown_and_refused(simspec: Command) -> None:
    """The budget is printed with the reason beside it."""
    said = simspec("memory", "--model", "llama-3.1-70b", "--json")
    assert said.code == 2
    assert said.json["fits"] is False
    assert said.json["max_sequences"] == 0
    assert "would fit: tp=2" in said.err


def test_the_breakdown_adds_up(simspec: Command) -> None:
    """The operators' times are the device time, their shares with the host's are everything."""
    found = simspec("cost", "--tp", "2", "--batch", "8", "--json").json
    total_us = sum(row["time_us"] for row in found["operators"])
    assert total_us / 1e3 == pytest.approx(found["device_time_ms"], rel=1e-9)
    host = found["host_time_ms"] / found["pass_time_ms"]
    assert sum(row["share"] for row in found["operators"]) + host == pytest.approx(1.0)
    flop = sum(row["gflop"] for row in found["operators"]) * 1e9
    assert flop == pytest.approx(found["flop"], rel=1e-9)


@pytest.mark.parametrize(
    "asked", [(), ("--new-tokens", "5"), ("--last-layer", "2"), ("--prefill", "--new-tokens", "64")]
)
def test_a_step_is_plain_decoding_whatever_pass_is_shown(
    simspec: Command, asked: tuple[str, ...]
) -> None:
    """``step_time_ms`` means the same in ``cost`` as in ``estimate``; the pass has its own key."""
    point = ("--batch", "4", "--context", "300", "--dtype", "fp8")
    step_ms = simspec("estimate", *point, "--json").json["step_time_ms"]
    found = simspec("cost", *point, *asked, "--json").json
    assert found["step_time_ms"] == pytest.approx(step_ms, rel=1e-12)
    assert found["pass_time_ms"] == pytest.approx(found["device_time_ms"] + found["host_time_ms"])
    assert (found["pass_time_ms"] == pytest.approx(step_ms)) is (not asked)
    assert (found["dtype"], found["kv_dtype"]) == ("fp8", "bf16")
