"""Every chain method: the closed form prices a round like the mean of rounds read from tapes."""

from __future__ import annotations

import numpy as np
import pytest

from simspec.cost.forward import CostModel
from simspec.decoding._base import ACCEPTANCE_MODELS, METHODS, Method
from tests.cost.factory import engine
from tests.decoding.factories import target, walk
from tests.decoding.test_expected_cost import device

EXITS = {"num_speculative_tokens": 5, "confidence_threshold": 0.6}
METHODS_WITH_DRAFTS = [
    {"name": "dual_model", "draft_model": "llama-2-7b", "draft_dtype": "int4_g128", **EXITS},
    {"name": "dual_model", "draft_model": "llama-2-7b", "num_speculative_tokens": 2},
    {"name": "dual_model", "draft_model": "llama-2-7b", "catch_up": "first_step", **EXITS},
    {"name": "layerskip", **EXITS},
    {"name": "layerskip", "num_speculative_tokens": 3},
    {"name": "layerskip", "share_kv": False, **EXITS},
    {"name": "prompt_lookup"},
    {"name": "windowed", **EXITS},
    {"name": "windowed", "num_speculative_tokens": 2},
    {"name": "draft_and_verify", "skipped_attention": 19, "skipped_mlp": 8, **EXITS},
]
CONTEXT, NUM_ROUNDS = 1000, 400


def acceptance_for(method: Method):  # type: ignore[no-untyped-def]
    if method.name == "prompt_lookup":
        return ACCEPTANCE_MODELS.parse(
            {"name": "lookup", "hit_probability": 0.4, "rates": [0.7, 0.5, 0.4]}
        ).at(None)
    return ACCEPTANCE_MODELS.parse(
        {"name": "constant", "alpha": 0.8, "confidence": {"a": 4.5, "b": 1.8}}
    ).at(None)


@pytest.mark.parametrize("config", METHODS_WITH_DRAFTS, ids=lambda c: str(c)[10:60])
@pytest.mark.parametrize("batch_size", [1, 16, 64])
def test_expected_round_time_is_the_mean_over_tapes(
    config: dict[str, object], batch_size: int
) -> None:
    """Within 0.5 % plus 4 standard errors: total, draft and catch-up, verify and decode, host.

    Rounds of one sequence that follow each other can be correlated (a copied stretch goes on), so
    errors are taken over 20 blocks of 20 rounds; false alarm 6e-5 per comparison.
    """
    method = METHODS.parse(config).build(target())
    acceptance = acceptance_for(method)
    serving = engine(per_draft_step_s=7e-4, per_step_s=1e-3, per_lookup_s=5e-5)
    cost = CostModel(method.stacks(), device(4.0), serving)
    length = (NUM_ROUNDS + 50) * (method.max_draft + 1)
    rounds = [
        walk(method.outcomes(acceptance.tape(5, request, length)), NUM_ROUNDS + 20)
        for request in range(batch_size)
    ]
    # A steady state is meant: the first 20 rounds are left out.
    drafted = np.array([m for m, _ in rounds])[:, 20:].T.tolist()
    accepted = np.array([a for _, a in rounds])[:, 20:].T.tolist()
    contexts = [CONTEXT] * batch_size
    seen = np.zeros((NUM_ROUNDS, 4))
    for row, m, a in zip(seen, drafted, accepted, strict=True):
        step = cost.step(method.round_passes(contexts, m, a, None), batch_size)
        row[:] = _parts(step)
    weighted = method.expected_passes(batch_size, CONTEXT, method.statistics(acceptance))
    expected = cost.expected_step(weighted, batch_size)
    blocks = seen.reshape(20, -1, 4).mean(axis=1)
    errors = blocks.std(axis=0, ddof=1) / np.sqrt(20)
    for mean, error, value in zip(seen.mean(axis=0), errors, _parts(expected), strict=True):
        assert mean == pytest.approx(value, abs=0.005 * mean + 4 * error + 1e-12)


def _parts(step):  # type: ignore[no-untyped-def]
    phases = step.by_phase
    return (
        step.total_s,
        phases["draft"] + phases["catch_up"],
        phases["verify"] + phases["decode"],
        step.host_s,
    )
