"""Small targets, tapes and walks along a tape, with defaults for everything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from simspec.core.registry import PluginConfig, Registry
from simspec.cost.work import Stack
from simspec.decoding.tape import Outcomes, Tape
from simspec.models.arch import Block


def target(
    num_layers: int = 32, hidden_size: int = 4096, num_heads: int = 32, tp: int = 1
) -> Stack:
    """Return a Llama-2-7B-shaped target unless told otherwise (Vicuna-7B has this shape)."""
    block = Block(
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        intermediate_size=11008,
    )
    return Stack("target", (block,) * num_layers, hidden_size, 32000, "bf16", "bf16", tp)


def tape(
    num_positions: int = 200,
    *,
    seed: int = 0,
    accept_share: float = 0.6,
    depth: int = 16,
    confidences: bool = True,
) -> Tape:
    """Return a tape of independent uniform confidences and coin flips."""
    rng = np.random.default_rng(seed)
    unknown = np.full(num_positions, np.nan)
    return Tape(
        confidence=rng.random(num_positions) if confidences else unknown,
        off_track_confidence=rng.random(num_positions) if confidences else unknown,
        accept=rng.random((depth, num_positions)) < accept_share,
    )


def walk(
    outcomes: Outcomes, num_rounds: int, first: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return m and a of consecutive rounds, each starting where the one before left off."""
    accepted = outcomes.accepted.tolist()
    starts = []
    position = first
    for _ in range(num_rounds):
        starts.append(position)
        position += accepted[position] + 1
    return outcomes.drafted[starts], outcomes.accepted[starts]


def examples(registry: Registry) -> Iterator[PluginConfig]:
    """Yield every example configuration that the plug-ins of a registry give of themselves."""
    for name in registry.names():
        config = registry.config_class(name)
        schema = config.model_config["json_schema_extra"]
        assert isinstance(schema, dict), f"{name}.Config needs json_schema_extra with examples"
        given = schema["examples"]
        assert isinstance(given, list)
        assert given, f"{name}.Config gives no example of itself"
        for example in given:
            yield registry.parse(example)
