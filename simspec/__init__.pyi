from simspec.core.errors import ConfigError as ConfigError
from simspec.core.errors import DoesNotFit as DoesNotFit
from simspec.core.errors import SimspecError as SimspecError
from simspec.hardware.load import engine_names as engine_names
from simspec.hardware.load import hardware_names as hardware_names
from simspec.hardware.load import load_engine as load_engine
from simspec.hardware.load import load_hardware as load_hardware
from simspec.models.hf_config import catalog_names as model_names
from simspec.models.hf_config import load_model as load_model
from simspec.reports.dashboards.sweep import write_sweep_dashboard as write_sweep_dashboard
from simspec.scenarios.api import break_even as break_even
from simspec.scenarios.api import compare as compare
from simspec.scenarios.api import diff as diff
from simspec.scenarios.api import estimate as estimate
from simspec.scenarios.api import simulate as simulate
from simspec.sweeps.api import sweep as sweep
from simspec.validation.api import validate as validate

__version__: str
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
