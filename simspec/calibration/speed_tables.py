"""Tables of whole-model speeds, row by row as the cost model predicts them.

Columns are those of a table with one measured speed per line: ``hardware``, ``model``,
``weight_dtype``, ``phase``, ``batch_or_concurrency``, ``input_len``, ``output_len``,
``context_depth``, ``value`` in tokens/s. llama-bench ``tgN`` has no prompt and grows its context
from 0 to N while measured; ``ppN`` is a prompt of N tokens. Cost curves give the time of one
forward pass over n tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from simspec.calibration.single_stream import MICROBATCH_TOKENS, SpeedRow
from simspec.models.arch import Architecture
from simspec.models.hf_config import load_model
from simspec.models.names import catalog_name_of

DEVICES = {
    **{
        f"Apple {chip} {cores}-core GPU": name
        for chip, cores, name in (
            ("M1", 7, "m1_7core"), ("M1", 8, "m1"),
            ("M1 Pro", 14, "m1_pro_14core"), ("M1 Pro", 16, "m1_pro"),
            ("M1 Max", 24, "m1_max_24core"), ("M1 Max", 32, "m1_max"),
            ("M1 Ultra", 48, "m1_ultra_48core"), ("M1 Ultra", 64, "m1_ultra"),
            ("M2", 8, "m2_8core"), ("M2", 10, "m2"),
            ("M2 Pro", 16, "m2_pro_16core"), ("M2 Pro", 19, "m2_pro"),
            ("M2 Max", 30, "m2_max_30core"), ("M2 Max", 38, "m2_max"),
            ("M2 Ultra", 60, "m2_ultra_60core"), ("M2 Ultra", 76, "m2_ultra"),
            ("M3", 10, "m3"), ("M3 Pro", 14, "m3_pro_14core"), ("M3 Pro", 18, "m3_pro"),
            ("M3 Max", 30, "m3_max_30core"), ("M3 Max", 40, "m3_max"),
            ("M3 Ultra", 60, "m3_ultra_60core"), ("M3 Ultra", 80, "m3_ultra"),
            ("M4", 10, "m4"), ("M4 Pro", 16, "m4_pro_16core"), ("M4 Pro", 20, "m4_pro"),
            ("M4 Max", 32, "m4_max_32core"), ("M4 Max", 40, "m4_max"),
        )
    },
    "Apple M2 Ultra": "m2_ultra",
    "Apple M2 Ultra (GPU cores not stated)": "m2_ultra",
    "Apple M4 Max 64GB (GPU cores not stated)": "m4_max",
    "RTX 3090": "rtx_3090",
    "RTX 4090": "rtx_4090",
    "RTX 5090": "rtx_5090",
    "L40S": "l40s",
    "A100 SXM 40GB": "a100_sxm_40gb",
    "A100 SXM 80GB": "a100_sxm_80gb",
    "A100 PCIe 80GB": "a100_pcie",
    "A100 PCIe": "a100_pcie",
    "H100 PCIe 80GB": "h100_pcie",
    "H100 NVL 94GB": "h100_nvl",
    "H100 SXM 80GB": "h100_sxm",
    "H100 SXM5 80GB": "h100_sxm",
    "H200 SXM 141GB": "h200_sxm",
    "B200 SXM 180GB": "b200_sxm",
}  # fmt: skip
"""Hardware profile by the name a table uses; where the GPU cores are not stated, the most."""

FORMATS = {
    "f16": "fp16",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8_wo": "int8_weight_only",
    "int4_g32_wo": "int4_g32",
    "int4_awq": "int4_g128",
    "gptq_4bit_g128": "int4_g128",
    "int4": "q4_0",
    **{
        name: name
        for name in (
            "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q6_k", "q4_k_m", "q5_k_m", "mxfp4",
            "mlx_4bit", "mlx_4bit_g32", "mlx_5bit", "mlx_5bit_g32", "mlx_6bit", "mlx_8bit",
        )
    },
}  # fmt: skip
"""Weight format by the name a table uses; ``int4`` of several engines is 4.5 bits on average."""

_MICROBATCH = {"llamacpp_batched_m2u": 2048, "mlx_m4max": 2048}
"""Tokens processed at once where a document measures with other than llama.cpp's default."""
_CURVE_PROMPT = 512
"""A cost curve at depth 0 is read off a prompt of so many tokens, n at a time."""


@cache
def model_of(name: str) -> Architecture:
    """Return the architecture that a table calls ``name``.

    Raises
    ------
    ProfileError
        The catalog has no such model.
    """
    return load_model(catalog_name_of(name) or name)


def speed_row(row: Mapping[str, Any]) -> SpeedRow:
    """Return one line of a table as the cost model predicts it.

    Raises
    ------
    KeyError, ProfileError
        The format or the model is unknown.
    """
    is_prefill = row["phase"] == "prefill"
    batch = int(_number(row["batch_or_concurrency"], 1.0))
    return SpeedRow(
        architecture=model_of(row["model"]),
        weight_dtype=FORMATS[row["weight_dtype"]],
        is_prefill=is_prefill,
        tokens=int(_number(row["input_len" if is_prefill else "output_len"], 1.0)),
        tokens_per_s=_number(row["value"]),
        batch=1 if is_prefill else batch,
        context=int(_number(row["context_depth"], 0.0)),
        microbatch=_MICROBATCH.get(str(row["subset"]), MICROBATCH_TOKENS),
    )


def curve_row(row: Mapping[str, Any]) -> SpeedRow:
    """Return one point of a cost curve: a forward pass over n tokens of one sequence.

    At depth 0 the passes walk through a prompt, so the context is half of it on average.

    Raises
    ------
    KeyError, ProfileError
        The format or the model is unknown.
    """
    n, depth = int(_number(row["n_tokens_per_forward"])), int(_number(row["context_depth"], 0.0))
    return SpeedRow(
        architecture=model_of(row["model"]),
        weight_dtype=FORMATS[row["weight_dtype"]],
        is_prefill=False,
        tokens=1 if depth else max(1, _CURVE_PROMPT - n + 1),
        tokens_per_s=n / (_number(row["ms_per_forward"]) * 1e-3),
        context=depth,
        verified=n,
    )


def _number(cell: object, default: float | None = None) -> float:
    """Return a cell as a number; ``default`` where it is empty."""
    if default is not None and (cell is None or str(cell) in ("", "nan")):
        return default
    return float(str(cell))
