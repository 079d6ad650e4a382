"""The method as the scenario says it, whatever the load."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import ConfigDict

from simspec.cost.work import Stack
from simspec.decoding._base import MethodConfig
from simspec.serving.speculation._base import Mode, SpeculationConfig
from simspec.serving.speculation._modes import given_mode


class Config(SpeculationConfig):
    """``speculation: fixed``; it has no fields."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "fixed"}]})
    is_fixed: ClassVar[bool] = True

    name: Literal["fixed"] = "fixed"

    def modes(self, method: MethodConfig, target: Stack) -> tuple[Mode, ...]:
        """Return the method itself."""
        return (given_mode(method, target),)
