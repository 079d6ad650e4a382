"""The closed form: arrays, prompts in chunks, and what it refuses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from simspec.core.errors import DoesNotFit, Infeasible
from simspec.core.yamlio import parse_mapping
from simspec.cost.work import Pass, Rows
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_form import (
    cautions,
    estimate,
    estimate_round,
    prefill_time_s,
    refusal_document,
)
from simspec.scenarios.schema import DeploymentConfig

KANGAROO = {"name": "kangaroo", "confidence_threshold": 0}


def deployment(**fields: Any) -> Deployment:
    data = {"model": "llama-3.2-1b", "hardware": "h100_sxm", "method": "autoregressive", **fields}
    return build(parse_mapping(data, DeploymentConfig, "test"))


@pytest.mark.parametrize("fields", [{}, {"method": KANGAROO, "acceptance": 0.7}, {"tp": 4}])
def test_arrays_give_what_numbers_give(fields: dict[str, Any]) -> None:
    """A grid of batches and contexts at once is the same as one point at a time."""
    one = deployment(**fields)
    batches = np.array([[1.0], [3.0], [20.0]])
    contexts = np.array([10.0, 500.0])
    grid = estimate_round(one, batches, contexts)
    for i, batch in enumerate((1, 3, 20)):
        for j, context in enumerate((10, 500)):
            alone = estimate_round(one, batch, context)
            for name in ("step_time_s", "round_time_s", "draft_s", "verify_s", "network_s", "flop"):
                cell = np.broadcast_to(getattr(grid, name), (3, 2))[i, j]
                assert cell == pytest.approx(getattr(alone, name), rel=1e-12), name


def test_a_plain_step_is_the_step_of_the_cost_model() -> None:
    """B sequences that add one token each to c: the pass written out by hand."""
    one = deployment()
    rows = Rows("decode", 6, 6, 6 * 301, 6 * 301, 6)
    layers = one.architecture.num_layers
    by_hand = one.cost.step([Pass("target", 0, layers, "decode", (rows,), True)], 6)
    found = estimate(one, 6, 300)
    assert found["round_time_ms"] == pytest.approx(float(by_hand.total_s) * 1e3, rel=1e-12)
    assert found["throughput_tokens_per_s"] == pytest.approx(6 / float(by_hand.total_s), rel=1e-12)
    bandwidth = one.hardware.memory_bandwidth_bytes_per_s
    used = float(by_hand.bytes) / (float(by_hand.total_s) * bandwidth)
    assert found["bandwidth_utilisation"] == pytest.approx(used, rel=1e-12)


def test_a_prompt_is_computed_in_chunks() -> None:
    """TTFT on an idle replica is the sum of its chunks; the last one alone has a head."""
    one = deployment(scheduler={"max_num_batched_tokens": 100})
    layers = one.architecture.num_layers

    def chunk(done: int, new: int, heads: int) -> float:
        rows = Rows("prefill", 1, new, done + new, new * (done + (new + 1) / 2), heads)
        return float(
            one.cost.step([Pass("target", 0, layers, "prefill", (rows,), True)], 1).total_s
        )

    by_hand = chunk(0, 100, 0) + chunk(100, 100, 0) + chunk(200, 30, 1)
    assert prefill_time_s(one, 230) == pytest.approx(by_hand, rel=1e-12)
    assert prefill_time_s(one, 100) == pytest.approx(chunk(0, 100, 1), rel=1e-12)


def test_the_prompt_is_the_context_unless_given() -> None:
    """``prompt`` is said, moves TTFT and nothing else."""
    one = deployment()
    default, given, other = (
        estimate(one, 1, 512),
        estimate(one, 1, 512, 512),
        estimate(one, 1, 512, 64),
    )
    assert default == given
    changed = {key for key in default if default[key] != other[key]}
    assert changed == {"prompt", "ttft_ms", "ttft_ms_interval"}


@pytest.mark.parametrize(
    ("batch", "context", "prompt", "error", "says"),
    [
        (1, 10**8, None, DoesNotFit, "does not fit"),
        (10**6, 1000, None, DoesNotFit, r"at this context at most [\d,]+ fit"),
        (1, 10, 10**8, DoesNotFit, "does not fit"),
    ],
)
def test_what_memory_does_not_hold_is_refused(
    batch: int, context: int, prompt: int | None, error: type[Infeasible], says: str
) -> None:
    """One long context, many short ones, or a long prompt."""
    with pytest.raises(error, match=says):
        estimate(deployment(), batch, context, prompt)


def test_the_largest_batch_fits_exactly() -> None:
    """The number in the refusal is the largest batch that is not refused."""
    one = deployment(method=KANGAROO, acceptance=0.7, memory={"num_kv_blocks": 1000})
    with pytest.raises(DoesNotFit) as refused:
        estimate(one, 10_000, 300)
    found = re.search(r"at most ([\d,]+) fit", str(refused.value))
    assert found is not None
    most = int(found[1].replace(",", ""))
    # A sequence takes whole blocks: 300 + K + 1 slots are 20 blocks of 16.
    assert most == 1000 // 20
    assert estimate(one, most, 300)["fits"] is True
    with pytest.raises(DoesNotFit, match=f"at most {most} fit"):
        estimate(one, most + 1, 300)


def test_a_prompt_an_engine_cannot_split_is_refused() -> None:
    """Without chunked prefill a prompt is one step, and a step has a token budget."""
    one = deployment(scheduler={"chunked_prefill": False, "max_num_batched_tokens": 100})
    assert estimate(one, 1, 500, 100)["status"] == "ok"
    with pytest.raises(Infeasible, match="101 tokens exceed the 100") as refused:
        estimate(one, 1, 500, 101)
    document = refusal_document(one, 1, 500, refused.value)
    assert (document["status"], document["fits"]) == ("refused", True)


def test_cautions() -> None:
    """Beyond the engine's batch and the model's context a clause each; else silence."""
    one = deployment(model="llama-2-7b")
    assert cautions(one, 1, 100) == []
    said = cautions(one, 257, 4097)
    assert len(said) == 2
    assert "257 is above the 256 sequences" in said[0]
    assert "4,097 is beyond the 4,096 tokens" in said[1]


def test_a_draft_as_large_as_its_target_is_said() -> None:
    """Nothing forbids it, and nobody means it."""
    for draft, is_large in (("llama-68m", False), ("llama-2-7b", True), ("llama-2-13b", True)):
        method = {"name": "dual_model", "draft_model": draft}
        one = deployment(model="llama-2-7b", method=method, acceptance=0.5)
        assert any("meant to be the smaller one" in c for c in cautions(one, 1, 100)) == is_large
