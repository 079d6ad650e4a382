"""Print ``hardware_profiles/defaults/errors.yaml``: the errors of what nobody judged.

``python benchmarks/default_errors.py shared/measured``, where the folder holds the kernel tables
and ``serving_closed_loop.csv``. Three questions, each answered with what stands in the profiles
and the measurements:

* a device was not fitted and borrows coefficients: how far are fitted devices from each other?
  Each device's kernels are priced with its own coefficients and with every other's, at its own
  peaks;
* an engine states no error: how far off is the vLLM profile on engines it was not made for?
* a plain step and a verify pass have kernels of other shapes: how much of an error do they share?
  Correlation of held-out residuals at B rows with those at 4 B rows, of one weight matrix and of
  one served configuration.

A spread is ``median |ln ratio| / 0.6745``, the standard deviation of a normal law with that median.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd

from simspec.calibration import kernel_tables as tables
from simspec.calibration.robust import halves
from simspec.core.yamlio import parse_mapping
from simspec.cost.collectives import one_shot, ring
from simspec.cost.collectives._base import collective_seconds
from simspec.cost.operators._base import GemmFormat
from simspec.cost.roofline import kernel_rate, kernel_seconds, product_seconds
from simspec.hardware.load import load_hardware, load_hardware_config
from simspec.hardware.profile import Hardware, KernelFit
from simspec.hardware.uncertainty import NORMAL_MEDIAN
from simspec.scenarios.build import Deployment, build
from simspec.scenarios.closed_form import estimate_round, prefill_time_s
from simspec.scenarios.schema import DeploymentConfig

ROWS = (1, 16, 64, 256, 2048)
MODELS = {
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "Qwen/Qwen3-32B": "qwen3-32b",
}
"""Dense models of the serving table that need no assumption about the division of experts."""
SERVED_ON = ("h100_sxm", "h200_sxm")
FITTED = ("a100_sxm_80gb", "h100_sxm", "h200_sxm", "l40s", "rtx_4090")
"""Devices fitted to kernels of their own; those of a family fitted together share coefficients."""
TABLES = {
    "h100_sxm": "h100_sxm",
    "h200_sxm": "h200_sxm",
    "a100_sxm": "a100_sxm_80gb",
    "l40s": "l40s",
}


def spread(log_ratios: list[float] | np.ndarray) -> float:
    return float(np.median(np.abs(np.asarray(log_ratios)))) / NORMAL_MEDIAN


# -- devices -----------------------------------------------------------------------------------


def kernel_times(device: Hardware, kind: str, dtype: str, fit: KernelFit) -> list[float]:
    """Seconds of kernels of an 8B model (d = 4096, FFN 14336, 32 heads, 8 KV heads)."""
    k, n, heads, kv_heads, size = 4096, 14336, 32, 8, 128
    if kind == "gemm":
        form = product_form(device, dtype, fit)
        kernel = form.kernel("product", k, n)
        return [float(kernel.seconds(m)) for m in ROWS]
    rate = kernel_rate(device, fit, "bf16")
    if kind == "elementwise":
        return [float(kernel_seconds(0.0, 2.0 * 3 * k * m, rate)) for m in ROWS]
    if kind == "decode_attention":
        return [
            float(
                kernel_seconds(
                    4.0 * heads * size * b * c, 4.0 * b * size * (c * kv_heads + heads), rate
                )
            )
            + b * kv_heads * fit.sequence_s
            for b in (1, 16, 64)
            for c in (512, 2048, 8192)
        ]
    return [
        float(kernel_seconds(2.0 * heads * size * t * t, 4.0 * t * size * (kv_heads + heads), rate))
        + t * kv_heads * fit.token_s
        for t in (512, 2048, 8192)
    ]


def product_form(device: Hardware, dtype: str, fit: KernelFit) -> GemmFormat:
    """Weights and inputs in the type, outputs in 16 bit, as the tables count them."""
    _, width = tables.GEMM_DTYPES[dtype]
    rate = kernel_rate(device, fit, dtype)
    return GemmFormat(width, width, 2.0, rate, fit.depth_s, fit.quantise_s)


def fits_of(device: Hardware, kind: str) -> dict[str, KernelFit]:
    return {"": device.elementwise} if kind == "elementwise" else dict(getattr(device, kind))


def is_judged(name: str, kind: str, dtype: str) -> bool:
    kernels = load_hardware_config(name).kernels
    entry = kernels.elementwise if kind == "elementwise" else getattr(kernels, kind).get(dtype)
    return kernels.calibrated and entry is not None and entry.held_out_error is not None


def device_spreads() -> dict[str, float]:
    devices = {name: load_hardware(name) for name in FITTED}
    spreads = {}
    for kind in ("gemm", "decode_attention", "prefill_attention", "elementwise"):
        ratios: list[float] = []
        for own, other in permutations(devices, 2):
            mine, theirs = fits_of(devices[own], kind), fits_of(devices[other], kind)
            for dtype in mine.keys() & theirs.keys():
                if is_judged(own, kind, dtype) and is_judged(other, kind, dtype):
                    a, b = (
                        kernel_times(devices[own], kind, dtype, fits[dtype])
                        for fits in (mine, theirs)
                    )
                    ratios += [math.log(y / x) for x, y in zip(a, b, strict=True)]
        spreads[kind] = spread(ratios)
    spreads["all_reduce"] = spread(list(_all_reduce_ratios(devices)))
    return spreads


def borrowed_sharing() -> float:
    """The lowest correlation of the distance between devices at B rows with that at 4 B rows."""
    devices = {name: load_hardware(name) for name in FITTED}
    pairs: dict[int, list[tuple[float, float]]] = {rows: [] for rows in (1, 4, 16)}
    for own, other in permutations(devices, 2):
        for dtype in devices[own].gemm.keys() & devices[other].gemm.keys():
            if is_judged(own, "gemm", dtype) and is_judged(other, "gemm", dtype):
                mine, theirs = (
                    product_form(devices[own], dtype, devices[name].gemm[dtype]).kernel(
                        "product", 4096, 14336
                    )
                    for name in (own, other)
                )
                for rows, found in pairs.items():
                    few, many = (
                        math.log(float(theirs.seconds(m)) / float(mine.seconds(m)))
                        for m in (rows, 4 * rows)
                    )
                    found.append((few, many))
    return min(
        shared(pd.DataFrame(found, columns=["r_x", "r_y"]), math.inf) for found in pairs.values()
    )


def _all_reduce_ratios(devices: dict[str, Hardware]) -> Iterator[float]:
    links = {
        name: device.link
        for name, device in devices.items()
        if device.link is not None
        and len(device.link.all_reduce) > 1
        and all(fit.error.standard_error for fit in device.link.all_reduce.values())
    }
    wires: dict[str, Callable[[int], float]] = {
        "one_shot": one_shot.all_reduce_wire,
        "ring": ring.all_reduce_wire,
    }
    for own, other in permutations(links, 2):
        rate = links[own].bandwidth_bytes_per_s / links[other].bandwidth_bytes_per_s
        for tp in (2, 4, 8):
            for rows in ROWS:
                message = rows * 4096 * 2.0
                times = [
                    min(
                        # What a link reaches is a share of its own nominal bandwidth.
                        collective_seconds(message * wires[name](tp) / scale, tp=tp, fit=fit)
                        for name, fit in links[link].all_reduce.items()
                    )
                    for link, scale in ((own, 1.0), (other, rate))
                ]
                yield math.log(times[1] / times[0])


# -- what kernels of two sizes share -----------------------------------------------------------


def shared(pairs: pd.DataFrame, scale: float) -> float:
    """Correlation about zero of residuals ``r_x`` and ``r_y``, cut at three spreads."""
    a, b = (np.clip(pairs[name], -3.0 * scale, 3.0 * scale) for name in ("r_x", "r_y"))
    return float((a * b).mean() / math.sqrt((a * a).mean() * (b * b).mean()))


def kernel_sharing(folder: Path) -> list[float]:
    found = []
    for device, profile in TABLES.items():
        hardware, config = load_hardware(profile), load_hardware_config(profile)
        table = tables.read_table(folder / device, "gemm", "vllm")
        for dtype in tables.gemm_dtypes(table):
            if dtype not in hardware.gemm:
                continue
            rows = tables.gemm_rows(table, dtype, l2_bytes=(config.memory.l2_mb or 0.0) * 1e6)
            rate = product_form(hardware, dtype, hardware.gemm[dtype]).product_rate(
                rows.in_features
            )
            predicted = np.asarray(product_seconds(rows.num_rows, rows.flop, rows.num_bytes, rate))
            frame = pd.DataFrame(
                {
                    "group": rows.groups,
                    "rows": rows.num_rows,
                    "r": np.log(predicted / rows.measured_s),
                }
            )[~rows.is_resident & ~halves(rows.groups)]
            few = frame[frame["rows"] <= 64]
            many = frame.assign(rows=frame["rows"] / 4.0)
            pairs = few.merge(many, on=["group", "rows"])
            found.append(shared(pairs, spread(frame["r"].to_numpy())))
    return found


# -- engines -----------------------------------------------------------------------------------


def serving(path: Path) -> pd.DataFrame:
    """Return ``ln(predicted / measured)`` of TPOT, all engines under the profile of vLLM.

    A closed loop of B requests: each step decodes B tokens, and over the ``output_len`` steps of
    a request the other B - 1 are prefilled once.
    """
    table = pd.read_csv(path)
    table = table[
        table["model"].isin(MODELS)
        & table["hardware"].isin(SERVED_ON)
        & (table["pp"].fillna(1) == 1)
        & (table["attention_dp"].fillna(1) == 1)
    ]
    built: dict[tuple[object, ...], Deployment] = {}
    rows = []
    for row in table.itertuples():
        dtype = row.precision if isinstance(row.precision, str) else "bf16"
        tp = 1 if math.isnan(row.tp) else int(row.tp)
        key = (row.hardware, MODELS[row.model], dtype, tp)
        if key not in built:
            names = ("hardware", "model", "dtype", "tp")
            data = {**dict(zip(names, key, strict=True)), "method": "autoregressive"}
            built[key] = build(parse_mapping(data, DeploymentConfig, "serving"))
        deployment, batch = built[key], int(row.concurrency)
        context = row.input_len + row.output_len / 2.0
        step_s = float(estimate_round(deployment, batch, context).round_time_s)
        prompt_s = prefill_time_s(deployment, int(row.input_len))
        predicted_ms = 1e3 * (step_s + (batch - 1) * prompt_s / row.output_len)
        group = (*key, row.engine, row.input_len, row.output_len)
        rows.append((str(group), row.engine, float(batch), math.log(predicted_ms / row.tpot_ms)))
    return pd.DataFrame(rows, columns=["group", "engine", "rows", "r"])


def main(folder: Path) -> None:
    served = serving(folder / "serving_closed_loop.csv")
    others = served[served["engine"] != "vllm"]
    scale = spread(served["r"].to_numpy())
    pairs = served.merge(served.assign(rows=served["rows"] / 4.0), on=["group", "rows"])
    of_kernels = kernel_sharing(folder / "kernels")
    print("kernels:")
    for kind, value in device_spreads().items():
        print(f"  {kind}: {value:.2f}")
    print("engine:")
    print(f"  model_error: {spread(others['r'].to_numpy()):.2f}  # {len(others)} rows")
    print("shared:")
    told = ", ".join(f"{value:.2f}" for value in sorted(of_kernels))
    print(f"  kernel: {float(np.median(of_kernels)):.2f}  # {told}")
    print(f"  borrowed: {borrowed_sharing():.2f}")
    print(f"  step: {shared(pairs, scale):.2f}  # {len(pairs)} pairs of rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
