"""How many sequences the KV cache holds: whole blocks, as the simulator hands them out."""

from __future__ import annotations

from typing import Any

import pytest

from simspec.core.errors import DoesNotFit
from simspec.core.yamlio import parse_mapping
from simspec.memory.blocks import BlockPool
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_form import estimate
from simspec.scenarios.schema import DeploymentConfig

KANGAROO = {
    "method": {"name": "kangaroo", "num_speculative_tokens": 6, "confidence_threshold": 0},
    "acceptance": 0.5,
}


def deployment(**fields: Any) -> Deployment:
    data = {"model": "vicuna-7b", "hardware": "h100_sxm", "method": "autoregressive", **fields}
    return build(parse_mapping(data, DeploymentConfig, "test"))


@pytest.mark.parametrize("fields", [{}, KANGAROO], ids=["plain", "kangaroo"])
@pytest.mark.parametrize("context", [1, 15, 16, 1024, 1039])
@pytest.mark.parametrize("block_size_tokens", [1, 16, 64])
def test_as_many_as_the_pool_hands_out(
    fields: dict[str, Any], context: int, block_size_tokens: int
) -> None:
    """A sequence of c tokens needs ceil((c + K + 1) / block size) blocks before a round."""
    memory = {"num_kv_blocks": 300, "block_size_tokens": block_size_tokens}
    found = deployment(memory=memory, **fields)
    pool = BlockPool(found.num_blocks, found.block_size_tokens)
    slots = context + found.method.max_draft + 1
    served = 0
    while pool.can_allocate(pool.blocks_for(slots)):
        pool.allocate(served, pool.blocks_for(slots))
        served += 1
    assert found.max_sequences(context) == served


def test_a_batch_that_only_fits_without_blocks_is_refused() -> None:
    """Eleven times 1024 + 1 slots are fewer than 713 * 16, but 65 blocks each are 715."""
    pool = deployment(memory={"num_kv_blocks": 713})
    assert estimate(pool, 10, 1024)["fits"] is True
    assert pool.kv_capacity_tokens // 1025 == 11
    with pytest.raises(DoesNotFit, match="715 blocks of 16 tokens.* has 713; .* at most 10 fit"):
        estimate(pool, 11, 1024)
