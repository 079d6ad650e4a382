"""Which published speeds the profiles were fitted to, and which judge them: one rule.

Fits and validation read the same table, so both ask here. Whole configurations are divided,
never single rows of one:

* ``llamacpp_4167_apple``: of each chip (M1, M1 Pro, …) the version with the most GPU cores is
  fitted, the smaller ones judge how shares of a peak carry over;
* ``xiongjiedai_llama3``: the 8B model on one device is fitted, the 70B model judges;
* ``llamacpp_batched_m2u``: one dense and one sparse model are fitted, the others judge;
* ``mlx_m4max``: the dense model is fitted, the sparse one judges;
* servers of 2024: the static tables of TensorRT-LLM and the A100 of ``argonne`` are fitted, its
  H100 and the tables of in-flight batching judge; several L40S fit their link alone;
* every other document judges.
"""

from __future__ import annotations

from collections.abc import Mapping

_LARGEST_GPU = {
    "M1": 8, "M1 Pro": 16, "M1 Max": 32, "M1 Ultra": 64,
    "M2": 10, "M2 Pro": 19, "M2 Max": 38, "M2 Ultra": 76,
}  # fmt: skip
_FITTED_MODELS = {
    "xiongjiedai_llama3": frozenset({"llama-3-8b"}),
    "llamacpp_batched_m2u": frozenset({"qwen2.5-coder-7b", "gpt-oss-20b"}),
    "mlx_m4max": frozenset({"qwen3-4b"}),
}
_FITTED_TABLES = frozenset(f"trtllm_static_v0.{minor}" for minor in ("5.0", "7.1", "8.0", "9.0"))
_FITTED_DEVICES = frozenset(
    {
        "Apple M1 Max 32-core GPU",
        "Apple M2 Ultra 76-core GPU",
        "Apple M3 Max 40-core GPU",
        "RTX 3090",
        "RTX 4090",
        "L40S",
        "A100 SXM 80GB",
        "A100 PCIe 80GB",
        "H100 PCIe 80GB",
    }
)
"""Devices of ``xiongjiedai_llama3`` that have a profile of their own."""


def is_fitted(row: Mapping[str, object]) -> bool:
    """Return whether a row of the table belongs to a configuration that a fit may use.

    Parameters
    ----------
    row : mapping
        With ``subset``, ``hardware``, ``model``, ``num_gpus`` and ``quality``.
    """
    subset, hardware, model = (str(row[name]) for name in ("subset", "hardware", "model"))
    if row["quality"] == "suspect":
        return False
    num_gpus = float(str(row["num_gpus"]))
    if subset in _FITTED_TABLES:
        return True
    if subset == "argonne":
        return hardware.startswith("A100")
    if num_gpus != 1:
        return False
    if subset == "llamacpp_4167_apple":
        chip, _, cores = hardware.removeprefix("Apple ").removesuffix("-core GPU").rpartition(" ")
        return cores.isdecimal() and _LARGEST_GPU.get(chip) == int(cores)
    if model not in _FITTED_MODELS.get(subset, ()):
        return False
    return subset != "xiongjiedai_llama3" or hardware in _FITTED_DEVICES
