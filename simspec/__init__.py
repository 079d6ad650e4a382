"""simspec: simulate and model language-model serving with speculative decoding.

The names below are imported when they are first used, so ``import simspec`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "ConfigError": "simspec.core.errors",
    "DoesNotFit": "simspec.core.errors",
    "SimspecError": "simspec.core.errors",
    "break_even": "simspec.scenarios.api",
    "compare": "simspec.scenarios.api",
    "diff": "simspec.scenarios.api",
    "engine_names": "simspec.hardware.load",
    "estimate": "simspec.scenarios.api",
    "hardware_names": "simspec.hardware.load",
    "load_engine": "simspec.hardware.load",
    "load_hardware": "simspec.hardware.load",
    "load_model": "simspec.models.hf_config",
    "model_names": "simspec.models.hf_config",
    "simulate": "simspec.scenarios.api",
    "sweep": "simspec.sweeps.api",
    "validate": "simspec.validation.api",
    "write_sweep_dashboard": "simspec.reports.dashboards.sweep",
}
"""Where each public name lives; ``__init__.pyi`` says the same to type checkers."""
_OTHER_NAMES = {"model_names": "catalog_names"}

__all__ = [
    "ConfigError",
    "DoesNotFit",
    "SimspecError",
    "__version__",
    "break_even",
    "compare",
    "diff",
    "engine_names",
    "estimate",
    "hardware_names",
    "load_engine",
    "load_hardware",
    "load_model",
    "model_names",
    "simulate",
    "sweep",
    "validate",
    "write_sweep_dashboard",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'simspec' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), _OTHER_NAMES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names too."""
    return sorted({*globals(), *__all__})
