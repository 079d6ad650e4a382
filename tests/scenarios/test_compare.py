"""Methods side by side: the same figures as one at a time, memory, refusals and claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import ConfigError
from simspec.core.resources import data_dir
from simspec.core.yamlio import parse_mapping
from simspec.decoding._base import METHODS
from simspec.scenarios.api import estimate
from simspec.scenarios.claims import ClaimConfig
from simspec.scenarios.compare import ComparisonConfig, compare, load_comparison
from simspec.scenarios.proposals import propose, smallest_draft

GOLDEN = Path(__file__).resolve().parents[1] / "cli" / "golden"
PLACE = {"hardware": str(GOLDEN / "gpu.yaml"), "engine": str(GOLDEN / "engine.yaml")}
KANGAROO = {"name": "kangaroo", "num_speculative_tokens": 3, "confidence_threshold": 0}
DUAL = {"name": "dual_model", "draft_model": "llama-3.2-1b", "num_speculative_tokens": 3}
METHODS_ASKED = [
    {"method": KANGAROO, "acceptance": [0.6, 0.3, 0.2]},
    {"label": "two models", "method": DUAL, "acceptance": 0.7},
]


def comparison(**fields: Any) -> ComparisonConfig:
    data = {**PLACE, "model": "llama-3.1-8b", "batch": [1, 8], "methods": METHODS_ASKED}
    return parse_mapping({**data, **fields}, ComparisonConfig, "test")


def test_a_row_is_what_estimate_says() -> None:
    """Tokens, times and speedup of every line and batch; plain decoding beside them."""
    document = compare(comparison())
    assert [(row["label"], row["batch"]) for row in document["rows"]] == [
        ("kangaroo", 1),
        ("kangaroo", 8),
        ("two models", 1),
        ("two models", 8),
    ]
    for row in document["rows"]:
        asked = METHODS_ASKED[row["label"] == "two models"]
        alone = estimate(
            model="llama-3.1-8b",
            batch=row["batch"],
            **PLACE,
            method=asked["method"],
            acceptance=asked["acceptance"],
        )
        for key in ("tokens_per_round", "round_time_ms", "tpot_ms", "speedup"):
            assert row[key] == pytest.approx(alone[key])
        for key in ("tpot_ms_interval", "speedup_interval"):
            assert row[key] == pytest.approx(alone[key])
        plain = estimate(model="llama-3.1-8b", batch=row["batch"], **PLACE, method="autoregressive")
        assert row["autoregressive_tpot_ms"] == pytest.approx(plain["tpot_ms"])
        assert row["speedup"] == pytest.approx(row["autoregressive_tpot_ms"] / row["tpot_ms"])


def test_memory_and_the_largest_batch_are_those_of_each_method() -> None:
    """A 1B draft: its weights once, and its KV for every token, so that fewer sequences fit."""
    document = compare(comparison())
    kangaroo, two = document["methods"]
    assert two["extra_weights_bytes"] == pytest.approx(2 * 1_235_814_400, rel=1e-3)
    assert two["extra_kv_bytes_per_token"] == 16 * 2 * 8 * 64 * 2  # layers, K and V, heads, d, B
    assert two["max_batch"] < kangaroo["max_batch"] < kangaroo["autoregressive_max_batch"]
    assert kangaroo["extra_weights_bytes"] == pytest.approx(4 * 4096**2 * 2, rel=1e-3)


def test_a_batch_that_does_not_fit_is_a_row_with_the_reason() -> None:
    """Neither an error for the whole table nor a number."""
    most = compare(comparison())["methods"][1]["max_batch"]
    document = compare(comparison(batch=[most, most + 1]))
    fits, not_ = [row for row in document["rows"] if row["label"] == "two models"]
    assert (fits["status"], not_["status"]) == ("ok", "does_not_fit")
    assert f"at most {most:,} do" in not_["reason"]
    assert "tpot_ms" not in not_
    assert not_["autoregressive_tpot_ms"] > 0


def test_an_entry_may_name_another_target() -> None:
    """It is then compared with plain decoding on that target."""
    entry = {"method": KANGAROO, "acceptance": 0.6, "model": "llama-2-7b"}
    document = compare(comparison(methods=[*METHODS_ASKED[1:], entry], batch=[1]))
    own = estimate(model="llama-2-7b", **PLACE, method="autoregressive")
    assert document["rows"][1]["autoregressive_tpot_ms"] == pytest.approx(own["tpot_ms"])
    assert [line["model"] for line in document["methods"]] == ["llama-3.1-8b", "llama-2-7b"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"methods": []}, "methods"),
        ({"methods": [{"method": KANGAROO}]}, "needs an acceptance model and simspec assumes none"),
        ({"methods": [METHODS_ASKED[0], METHODS_ASKED[0]]}, "two methods are called kangaroo"),
        ({"batch": []}, "batch"),
        ({"batch": [0]}, "batch"),
        ({"context": 0}, "context"),
        ({"models": "llama-3.1-8b"}, "did you mean"),
        ({"model": "llama-3.1-8"}, "did you mean 'llama-3.1-8b'"),
        (
            {"claims": [{"says": "a", "source": "b", "method": "medusa", "low": 1}]},
            "needs low, high or both",
        ),
        (
            {
                "claims": [
                    {"says": "a", "source": "b", "method": "x", "quantity": "speedup", "low": 1}
                ]
            },
            "no line is called 'x'",
        ),
    ],
)
def test_mistakes_are_one_sentence(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compare(comparison(**fields))


def test_a_mistake_in_a_file_has_its_line(tmp_path: Path) -> None:
    """The line of the entry that is wrong, not of the file's first one."""
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"hardware: {PLACE['hardware']}\nengine: {PLACE['engine']}\nmodel: llama-3.1-8b\n"
        "methods:\n  - method: {name: kangaroo, confidence_threshold: 0}\n    acceptance: 0.5\n"
        "  - method: {name: kangaroo, exit_layer: 40, confidence_threshold: 0}\n"
        "    acceptance: 0.5\n    label: deep\n"
    )
    with pytest.raises(ConfigError, match=r"mine\.yaml:7: methods\.1\.method\.exit_layer: 40"):
        compare(*load_comparison(path))


# -- claims ------------------------------------------------------------------------------------


def claim(**fields: Any) -> dict[str, Any]:
    return {"says": "a claim", "source": "a text", "method": "two models", **fields}


def judged(*claims: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return list(compare(comparison(claims=list(claims), **fields))["claims"])


def test_a_claim_is_held_against_every_batch() -> None:
    """Bounds between the two batches: it holds at one of them."""
    slow, fast = sorted(
        row["speedup"] for row in compare(comparison())["rows"] if row["label"] == "two models"
    )
    middle = (slow + fast) / 2
    both, part, none = judged(
        claim(quantity="speedup", low=slow - 0.01, high=fast + 0.01),
        claim(quantity="speedup", low=middle),
        claim(quantity="speedup", low=fast + 0.01),
    )
    assert (both["verdict"], part["verdict"], none["verdict"]) == (
        "holds",
        "holds in part",
        "lower",
    )
    assert len(part["holds_at_batches"]) == 1
    assert [entry["batch"] for entry in both["values"]] == [1, 8]


def test_memory_claims_are_over_all_ranks() -> None:
    """2.47 GB of a 1B draft in 16 bit, however divided; its KV is a quarter of the target's."""
    for tp in (1, 2):
        weights, kv, caches = judged(
            claim(quantity="extra_weights_gb", low=2.4, high=2.6),
            claim(quantity="extra_kv_gb", tokens=65536, low=2.1, high=2.2),
            claim(quantity="kv_caches", low=1.24, high=1.26),
            tp=tp,
        )
        assert weights["verdict"] == "holds"
        assert kv["values"][0]["value"] == pytest.approx(32768 * 65536 / 1e9)
        assert caches["values"][0]["value"] == pytest.approx(1.25)


def test_what_is_not_computed_says_why() -> None:
    (found,) = judged(claim(because="training is outside the model"))
    assert (found["verdict"], found["values"]) == ("not judged", [])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quantity": "speedup"}, "needs low, high or both"),
        ({}, "says why it is not judged"),
        ({"quantity": "speedup", "low": 3, "high": 2}, "low 3 is above high 2"),
        ({"quantity": "extra_kv_gb", "low": 1}, "needs tokens"),
        ({"quantity": "speedup", "low": 1, "tokens": 5}, "needs tokens"),
    ],
)
def test_claims_that_say_nothing_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_mapping(claim(**fields), ClaimConfig, "test")


# -- the packaged experiments -------------------------------------------------------------------


def test_the_introductions_tables_are_judged_cell_by_cell() -> None:
    """What follows from sizes alone; speedups are judged where the cost model is."""
    document = compare(*load_comparison(data_dir("experiments") / "seed_tables.yaml"))
    verdicts = {entry["says"]: entry["verdict"] for entry in document["claims"]}
    assert verdicts["an 8B draft costs 16 to 24 GB"] == "holds"
    assert verdicts["the draft's KV takes 8 GB at 64k tokens"] == "holds"
    assert verdicts["Medusa's heads take about 0.5 GB"] == "higher"
    assert verdicts["Kangaroo's adapter takes less than 0.2 GB"] == "holds"
    assert verdicts["Kangaroo's adapter takes less than 0.2 GB beside a 70B too"] == "higher"
    assert verdicts["Kangaroo has no KV cache of its own"] == "higher"
    assert verdicts["LayerSkip takes no memory"] == "holds"
    assert verdicts["LayerSkip's KV cache is shared"] == "holds"
    assert verdicts["prompt lookup is 2.5 to 4.2 times as fast on grounded text"] == "lower"
    judged_by_quantity = [entry for entry in document["claims"] if entry["quantity"]]
    assert len(judged_by_quantity) >= 25
    assert all(entry["because"] for entry in document["claims"] if entry["verdict"] != "holds")


def test_the_comparison_of_all_methods_runs() -> None:
    document = compare(*load_comparison(data_dir("experiments") / "compare_methods.yaml"))
    assert len(document["methods"]) == 7
    assert all(row["status"] == "ok" for row in document["rows"] if row["batch"] == 1)


# -- methods by name ---------------------------------------------------------------------------


def test_a_method_by_name_runs_as_its_acceptance_was_measured() -> None:
    proposal = propose("kangaroo", "vicuna-7b")
    assert proposal.method["exit_layer"] == 2
    assert proposal.method["confidence_threshold"] == 0.6
    assert proposal.acceptance == "kangaroo-vicuna-7b-math"
    assert proposal.cautions == ()


def test_another_target_or_drafter_is_said() -> None:
    proposal = propose("dual_model", "llama-3.1-8b")
    assert proposal.method["draft_model"] == "llama-3.2-1b"
    target, drafter = proposal.cautions
    assert "measured on vicuna-7b, not on llama-3.1-8b" in target
    assert "not of llama-3.2-1b" in drafter


def test_the_smallest_draft_speaks_the_targets_vocabulary() -> None:
    assert smallest_draft("llama-3.1-70b") == "llama-3.2-1b"
    with pytest.raises(ConfigError, match="no model of the catalog is smaller"):
        smallest_draft("llama-3.2-1b")


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_is_proposed_or_says_why_not(name: str) -> None:
    try:
        proposal = propose(name, "vicuna-7b")
    except ConfigError:
        assert name not in {"kangaroo", "layerskip", "dual_model", "medusa", "eagle"}
    else:
        assert proposal.method["name"] == name
        assert (proposal.acceptance is not None) == proposal.drafts


# -- under a load --------------------------------------------------------------------------------

LOAD = {
    "workload": {
        "arrivals": {"name": "poisson", "rate_per_s": 3},
        "lengths": {"name": "fixed", "prompt_len": 100, "output_len": 40},
        "num_requests": 20,
    },
    "simulation": {"seed": 3, "replications": 3},
}


def test_every_line_meets_the_same_requests_and_tapes() -> None:
    """Twice the same method: the same numbers; one plain decoding beside all of them."""
    twice = [
        {"label": "one", "method": KANGAROO, "acceptance": 0.6},
        {"label": "two", "method": KANGAROO, "acceptance": 0.6},
        {"label": "better", "method": KANGAROO, "acceptance": 0.9},
    ]
    one, two, better = compare(comparison(methods=twice, batch=[1], **LOAD))["simulated"]
    assert {**one, "label": ""} == {**two, "label": ""}
    assert better["tokens_per_round"] > one["tokens_per_round"]
    assert better["autoregressive_tpot_ms"] == one["autoregressive_tpot_ms"]
    assert one["speedup_ci95_low"] <= one["speedup"] <= one["speedup_ci95_high"]
    ratio = one["autoregressive_tpot_ms"] / one["tpot_ms"]
    assert one["speedup"] == pytest.approx(ratio, rel=0.02)


def test_a_line_is_what_the_simulation_of_its_scenario_gives() -> None:
    from simspec.scenarios.api import simulate

    row = compare(comparison(methods=METHODS_ASKED[:1], batch=[1], **LOAD))["simulated"][0]
    alone = simulate(
        {
            "model": "llama-3.1-8b",
            **PLACE,
            "method": KANGAROO,
            "acceptance": [0.6, 0.3, 0.2],
            **LOAD,
        }
    )
    for key in ("tpot_ms", "ttft_ms", "throughput_tokens_per_s", "speedup"):
        assert row[key] == pytest.approx(alone[key]), key


def test_a_line_that_cannot_hold_the_load_says_so() -> None:
    """The others keep their numbers."""
    heavy = {"label": "heavy", "method": KANGAROO, "acceptance": 0.6, "model": "llama-3.1-70b"}
    document = compare(comparison(methods=[METHODS_ASKED[0], heavy], batch=[1], **LOAD))
    fits, not_ = document["simulated"]
    assert (fits["status"], not_["status"]) == ("ok", "does_not_fit")
    assert "fit" in not_["reason"]
