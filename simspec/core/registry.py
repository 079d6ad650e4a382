"""Plug-ins found by file name.

A registry watches one package. Every module in it whose name does not start with ``_`` is a
plug-in of that name and exposes one class ``Config`` (a pydantic model). Listing names reads
the folder without importing; a module is imported when it is first used. One new method,
policy or model is therefore one new file and nothing else.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Mapping
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from simspec.core._explain import explained, shown
from simspec.core.errors import ConfigError, nearest


class PluginConfig(BaseModel):
    """Base of every plug-in's ``Config``: frozen, strict about unknown keys, finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    described_as: ClassVar[str] = "a name, or a mapping with a key 'name'"
    """What messages call a value of this type."""

    name: str = ""
    """The plug-in's file name; filled in by the registry."""


class Registry:
    """The plug-ins of one package.

    Parameters
    ----------
    package : str
        Dotted name, for example ``"simspec.decoding"``.
    kind : str
        What one of them is called in messages, for example ``"decoding method"``.
    other_modules : collection of str
        Public modules of the package that are not plug-ins.
    """

    def __init__(self, package: str, kind: str, *, other_modules: Collection[str] = ()) -> None:
        self.package = package
        self.kind = kind
        self.other_modules = frozenset(other_modules)

    def names(self) -> tuple[str, ...]:
        """Return the sorted names, without importing any plug-in."""
        return tuple(n for n in _module_names(self.package) if n not in self.other_modules)

    def module(self, name: str) -> ModuleType:
        """Import and return the plug-in ``name``.

        Raises
        ------
        ConfigError
            The name is unknown; the message offers the nearest one.
        """
        if name not in self.names():
            raise ConfigError(f"unknown {self.kind} {name!r}; {nearest(name, self.names())}")
        return importlib.import_module(f"{self.package}.{name}")

    def config_class(self, name: str) -> type[PluginConfig]:
        """Return the ``Config`` class of the plug-in ``name``."""
        config: type[PluginConfig] = self.module(name).Config
        return config

    def parse_mapping(self, value: Any) -> Any:
        """Turn a mapping with a name into the right ``Config`` and leave the rest as it is.

        Meant as a pydantic ``BeforeValidator`` of fields in which a bare name stays a name.
        """
        return self.parse(value) if isinstance(value, Mapping) else value

    def parse(self, value: Any) -> Any:
        """Turn ``"name"`` or ``{"name": ..., ...}`` into the right ``Config``.

        Meant as a pydantic ``BeforeValidator``: errors inside the plug-in's fields keep
        their own path, and an unknown name carries the nearest valid one.
        """
        if isinstance(value, PluginConfig):
            return value
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            raise PydanticCustomError(
                "plugin_name",
                "give the name of {a} {kind}, or a mapping with a key 'name'; {choices}",
                {
                    "a": "an" if self.kind[0] in "aeiou" else "a",
                    "kind": self.kind,
                    "choices": nearest("", self.names()),
                },
            )
        name = str(value["name"])
        if name not in self.names():
            raise PydanticCustomError(
                "plugin_unknown",
                "unknown {kind} {name}; {choices}",
                {"kind": self.kind, "name": shown(name), "choices": nearest(name, self.names())},
            )
        config = self.config_class(name)
        try:
            return config.model_validate(dict(value))
        except ValidationError as error:
            # Only here is it known which fields would have been valid.
            raise explained(error, config, value) from None


@cache
def _module_names(package: str) -> tuple[str, ...]:
    paths = importlib.import_module(package).__path__
    return tuple(
        sorted(m.name for m in pkgutil.iter_modules(paths) if not m.ispkg and m.name[0] != "_")
    )
