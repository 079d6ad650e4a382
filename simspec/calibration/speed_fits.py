"""The fits behind the profiles of Apple chips and of llama.cpp on CUDA: what, on what, how.

Each plan names the kernel set it makes, the devices that share it, the coefficients fitted and
those fixed with their reason. :func:`run` repeats it from the tables; a test holds the profiles
to what comes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simspec.calibration.families import FamilyFit, FamilyRow, Regime, fit_family
from simspec.calibration.speed_tables import DEVICES, FORMATS, curve_row, speed_row
from simspec.calibration.splits import is_fitted
from simspec.core.errors import ProfileError
from simspec.hardware.load import load_hardware

_DECODE = ("bandwidth_efficiency", "overhead_us", "decode_attention_bandwidth_efficiency")
_PREFILL = ("matrix_efficiency", "prefill_attention_flop_efficiency")
_SHARE = "matrix_share_weight_only"
_FREE_UNPACKING = {"vector_efficiency": 1.0, "vector_efficiency_weight_only": 1.0}
"""At one row unpacking simple formats hides behind reading: 1 does not show."""

OLD_METAL = Regime(vector_rows=1, tile_rows=32)
"""Before 2025 two tokens already went through the matrix kernel: on an M3 Max a pass over 2 to 8
tokens takes 77 ms and over one 15.7 (verify curves of Mistral-7B Q4_0)."""
METAL = Regime(vector_rows=8, tile_rows=64)
"""Up to 8 columns ``mul_mv_ext``, then tiles of 32 columns, of which one alone leaves half of the
cores idle: 16 and 32 sequences take the same time, that of 64."""
OLD_CUDA = Regime(vector_rows=1, tile_rows=1)
CUDA = Regime(vector_rows=8, tile_rows=16)
"""``MMVQ_MAX_BATCH_SIZE`` is 8 in llama.cpp's mmvq.cuh; then tiles, of which 10 to 16 tokens
fill one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One fit."""

    profile: str
    """The profile that carries the result."""
    kernels: str
    """Kernel set there; empty: the device's own."""
    devices: tuple[str, ...]
    """Profiles whose rows are used, each with its own peaks."""
    subsets: tuple[str, ...]
    """Documents whose rows are used; ``verify_curves``: the cost curves."""
    fitted: tuple[str, ...]
    """Coefficients, of :data:`simspec.calibration.families.COEFFICIENTS`."""
    regime: Regime
    fixed: Mapping[str, float] = field(default_factory=dict)
    borrowed: Mapping[str, str] = field(default_factory=dict)
    """Coefficients of another plan, by name."""
    judged_subsets: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    """Other devices whose rows judge whether shares of the peaks carry over."""

    @property
    def name(self) -> str:
        """What messages and other plans call it."""
        return f"{self.profile} {self.kernels}".strip()


_APPLE = ("llamacpp_4167_apple", "xiongjiedai_llama3")
_APPLE_FITTED = (*_DECODE, *_PREFILL, _SHARE, "vector_efficiency_q4_k_m")
_LONG = ("decode_attention_bandwidth_efficiency", "prefill_attention_flop_efficiency")
_FEW_ROWS = ("vector_efficiency_weight_only", "vector_sharpness")


def _cuda(profile: str, *, has_fp16_prompts: bool = True) -> Plan:
    """One card, 8B in F16 and Q4_K_M; the share of quantised prompts is that of an RTX pair."""
    fitted = (*_DECODE, *_PREFILL) if has_fp16_prompts else (*_DECODE, _PREFILL[1])
    borrowed = {} if has_fp16_prompts else {"matrix_efficiency": "a100_pcie llama_cpp_2024"}
    return Plan(
        profile, "llama_cpp_2024", (profile,), ("xiongjiedai_llama3",), fitted, OLD_CUDA,
        fixed={**_FREE_UNPACKING, _SHARE: 0.8}, borrowed=borrowed,
    )  # fmt: skip


PLANS: tuple[Plan, ...] = (
    Plan(
        "m1_max", "llama_cpp_2024", ("m1", "m1_pro", "m1_max"), _APPLE, _APPLE_FITTED, OLD_METAL,
        fixed=_FREE_UNPACKING,
    ),
    Plan(
        "m1_ultra", "llama_cpp_2024", ("m1_ultra",), _APPLE, ("bandwidth_efficiency",), OLD_METAL,
        fixed=_FREE_UNPACKING,
        borrowed={
            name: "m1_max llama_cpp_2024"
            for name in _APPLE_FITTED if name != "bandwidth_efficiency"
        },
    ),
    Plan(
        "m2_ultra", "llama_cpp_2024", ("m2_ultra",), _APPLE, _APPLE_FITTED, OLD_METAL,
        fixed=_FREE_UNPACKING,
    ),
    Plan(
        "m2_max", "llama_cpp_2024", ("m2", "m2_pro", "m2_max"), _APPLE,
        ("bandwidth_efficiency", "overhead_us", "matrix_efficiency", _SHARE), OLD_METAL,
        fixed=_FREE_UNPACKING,
        borrowed=dict.fromkeys((*_LONG, "vector_efficiency_q4_k_m"), "m2_ultra llama_cpp_2024"),
    ),
    Plan(
        "m3_max", "llama_cpp_2024", ("m3_max",), _APPLE,
        (*_PREFILL, _SHARE, "vector_efficiency_q4_k_m", "decode_attention_bandwidth_efficiency"),
        OLD_METAL,
        fixed=_FREE_UNPACKING,
        borrowed=dict.fromkeys(("bandwidth_efficiency", "overhead_us"), "m2_max llama_cpp_2024"),
    ),
    Plan(
        "m2_ultra", "", ("m2_ultra",), ("llamacpp_batched_m2u",),
        (*_DECODE, *_PREFILL, *_FEW_ROWS), METAL,
        fixed={_SHARE: 1.0},
    ),
    Plan(
        "m4_max", "mlx", ("m4_max",), ("mlx_m4max",),
        ("bandwidth_efficiency", "overhead_us", "matrix_efficiency", _SHARE), METAL,
        # On an M5 Max a pass over 5 tokens of a 70B model takes 1.4 times that over one, over 8
        # tokens 2.2 times: reading hides most of the unpacking, then none.
        fixed={"vector_sharpness": 3.0},
        borrowed=dict.fromkeys((*_LONG, _FEW_ROWS[0]), "m2_ultra"),
    ),
    _cuda("rtx_3090"),
    _cuda("rtx_4090"),
    _cuda("a100_pcie"),
    _cuda("h100_pcie"),
    _cuda("a100_sxm_80gb", has_fp16_prompts=False),
    _cuda("l40s", has_fp16_prompts=False),
    Plan(
        "rtx_3090", "llama_cpp", ("rtx_3090",), ("verify_curves",),
        (*_DECODE, _PREFILL[1], *_FEW_ROWS), CUDA,
        fixed={_SHARE: 1.0, "vector_efficiency": 1.0, "matrix_efficiency": 1.0},
        judged_subsets=("llamacpp_15013_cuda",), judges=("rtx_4090", "rtx_5090"),
    ),
)  # fmt: skip
"""In an order in which what is borrowed has been fitted before."""


def run(
    plan: Plan,
    speeds: Sequence[Mapping[str, Any]],
    curves: Sequence[Mapping[str, Any]],
    done: Mapping[str, FamilyFit],
) -> FamilyFit:
    """Return the result of one plan.

    Parameters
    ----------
    plan : Plan
        Of :data:`PLANS`.
    speeds, curves : sequence of mappings
        The rows of the two tables.
    done : mapping
        Results of the plans it borrows from, by name.

    Raises
    ------
    CalibrationError
        Too few rows, or no convergence.
    """
    rows, judged = _rows(plan, speeds, curves)
    fixed = dict(plan.fixed)
    fixed |= {name: done[source].values[name] for name, source in plan.borrowed.items()}
    names = {row.device for row in (*rows, *judged)}
    devices = {name: replace(load_hardware(name), kernel_sets={}) for name in sorted(names)}
    return fit_family(
        rows, judged, devices, fitted=plan.fitted, fixed=fixed, regime=plan.regime, what=plan.name
    )


def run_all(
    speeds: Sequence[Mapping[str, Any]], curves: Sequence[Mapping[str, Any]]
) -> dict[str, FamilyFit]:
    """Return the results of all plans by name."""
    done: dict[str, FamilyFit] = {}
    for plan in PLANS:
        done[plan.name] = run(plan, speeds, curves, done)
    return done


def _rows(
    plan: Plan, speeds: Iterable[Mapping[str, Any]], curves: Iterable[Mapping[str, Any]]
) -> tuple[list[FamilyRow], list[FamilyRow]]:
    """Return the rows a plan is fitted to, and those that judge it."""
    fitted: list[FamilyRow] = []
    judged: list[FamilyRow] = []
    for row in speeds:
        if row["subset"] not in (*plan.subsets, *plan.judged_subsets) or not _is_usable(row):
            continue
        device = DEVICES.get(str(row["hardware"]), "")
        if family_of(device) not in (*plan.devices, *plan.judges):
            continue
        try:
            speed = speed_row(row)
        except ProfileError:
            continue
        is_used = row["subset"] in plan.subsets and is_fitted(row)
        (fitted if is_used else judged).append(FamilyRow(device, speed))
    if "verify_curves" in plan.subsets:
        for row in curves:
            device = DEVICES.get(str(row["hardware"]), "")
            if row["engine"] == "llama.cpp" and "verify" in str(row["kind"]):
                if device in plan.devices:
                    fitted.append(FamilyRow(device, curve_row(row)))
                elif device in plan.judges:
                    judged.append(FamilyRow(device, curve_row(row)))
    return fitted, judged


def family_of(device: str) -> str:
    """Return the profile of the chip that ``device`` is a version of, by its GPU cores."""
    return re.sub(r"_\d+core$", "", device)


def _is_usable(row: Mapping[str, Any]) -> bool:
    if row["quality"] == "suspect" or row["metric"] != "tokens_per_s_total":
        return False
    # Prompts of several sequences or over several devices are scheduled in ways not stated.
    is_plain = float(row["batch_or_concurrency"] or 1) == 1 and float(row["num_gpus"]) == 1
    return row["weight_dtype"] in FORMATS and (row["phase"] == "decode" or is_plain)
