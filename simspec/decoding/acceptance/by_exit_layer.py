"""Acceptance measured at several exit layers, and between them.

Each entry is an acceptance of its own, measured at its exit layer. Between two measured layers the
log-odds of every conditional acceptance are taken as linear in the layer; LayerSkip's TOPv2 model
(arXiv 2404.16710) shows how much they bend: of 8 drafts 76.0, 97.6 and 98.9 % are accepted at
layers 6, 12 and 18. Outside the measured layers there is no answer: a method that exits there is
refused.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, field_validator

from simspec.core.errors import ConfigError
from simspec.decoding._base import AcceptanceConfig
from simspec.decoding.acceptance._process import LatentProcess
from simspec.decoding.acceptance._shorthand import parse_acceptance

_MAX_LOG_ODDS = 36.0
"""Stands for a rate of 0 or 1 between two layers; 1 - expit(36) is the last bit of a double."""


class MeasuredLayer(BaseModel):
    """What is accepted of drafts made at one exit layer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exit_layer: int = Field(ge=1)
    acceptance: Annotated[SerializeAsAny[AcceptanceConfig], BeforeValidator(parse_acceptance)]
    """Of ``constant``, ``per_position`` or ``tokens_per_round``, without a confidence."""

    @field_validator("acceptance")
    @classmethod
    def _has_no_confidence(cls, acceptance: AcceptanceConfig) -> AcceptanceConfig:
        if acceptance.name not in {"constant", "per_position", "tokens_per_round"} or getattr(
            acceptance, "confidence", None
        ):
            raise ValueError(
                "only constant, per_position and tokens_per_round, without a confidence, can be "
                "interpolated"
            )
        return acceptance


class Config(AcceptanceConfig):
    """Acceptance at two or more exit layers."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "by_exit_layer",
                    "layers": [
                        {"exit_layer": 2, "acceptance": 0.5},
                        {"exit_layer": 6, "acceptance": [0.7, 0.4]},
                    ],
                }
            ]
        }
    )

    name: Literal["by_exit_layer"] = "by_exit_layer"
    layers: tuple[MeasuredLayer, ...] = Field(min_length=2, max_length=64)
    """Measured layers, from shallow to deep."""
    source: str = ""
    """Where the numbers come from; printed in every report."""

    @field_validator("layers")
    @classmethod
    def _rising(cls, layers: tuple[MeasuredLayer, ...]) -> tuple[MeasuredLayer, ...]:
        for shallow, deep in pairwise(layers):
            if deep.exit_layer <= shallow.exit_layer:
                raise ValueError(
                    f"layer {deep.exit_layer} follows layer {shallow.exit_layer}; list each layer "
                    "once, from shallow to deep"
                )
        return layers

    def at(self, exit_layer: int | None) -> LatentProcess:
        """Return the process for drafts made at ``exit_layer``.

        Raises
        ------
        ConfigError
            The method has no exit layer, or one outside the measured layers.
        """
        measured = [layer.exit_layer for layer in self.layers]
        if exit_layer is None or not measured[0] <= exit_layer <= measured[-1]:
            what = "a method without an exit layer" if exit_layer is None else f"layer {exit_layer}"
            raise ConfigError(
                f"acceptance is known at exit layers {', '.join(map(str, measured))} and not "
                f"outside them, so not for {what}"
            )
        # Of the nested sentences only the law: the source is this model's.
        end = next(i for i, layer in enumerate(measured) if layer >= exit_layer)
        deep = self._process(end)
        if measured[end] == exit_layer:
            law = f"measured at exit layer {exit_layer}: {_law(deep)}"
            return replace(deep, sentence=self._sentence(law))
        shallow = self._process(end - 1)
        low, high = measured[end - 1], measured[end]
        share = (exit_layer - low) / (high - low)
        log_odds = tuple(
            (1.0 - share) * _bounded(before) + share * _bounded(after)
            for before, after in zip(shallow.log_odds, deep.log_odds, strict=True)
        )
        law = (
            f"acceptance at exit layer {exit_layer} between those measured at {low} and {high}, "
            f"linear in log-odds ({low}: {_law(shallow)}; {high}: {_law(deep)})"
        )
        return replace(deep, log_odds=log_odds, sentence=self._sentence(law))

    def _process(self, index: int) -> LatentProcess:
        layer = self.layers[index]
        return cast(LatentProcess, layer.acceptance.at(layer.exit_layer))

    def _sentence(self, law: str) -> str:
        return f"{law}; source: {self.source}" if self.source else f"{law}; no source given"


def _law(process: LatentProcess) -> str:
    return process.sentence.partition("; ")[0]


def _bounded(log_odds: float) -> float:
    return min(max(log_odds, -_MAX_LOG_ODDS), _MAX_LOG_ODDS)
