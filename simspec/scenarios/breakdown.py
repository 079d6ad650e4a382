"""One forward pass by operator, with the totals a person needs to check it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simspec.core.errors import ConfigError
from simspec.core.units import ms
from simspec.cost.forward import StepCost
from simspec.cost.work import Pass, Phase, Rows
from simspec.scenarios.build import Deployment


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Rows per operator and the sums over them."""

    title: str
    rows: list[dict[str, Any]]
    totals: dict[str, Any]

    @property
    def caption(self) -> str:
        """One line under the table."""
        t = self.totals
        name = "step" if t["pass_time_ms"] == t["step_time_ms"] else "pass"
        return (
            f"{name} {t['pass_time_ms']:.3f} ms = device {t['device_time_ms']:.3f} ms + host "
            f"{t['host_time_ms']:.3f} ms; all-reduce share {t['network_share']:.1%}; "
            f"bandwidth {t['bandwidth_utilisation']:.0%}, compute {t['compute_utilisation']:.1%}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {**self.totals, "operators": self.rows}


def step_breakdown(
    deployment: Deployment,
    *,
    batch: int,
    context: int,
    new_tokens: int = 1,
    first_layer: int = 0,
    last_layer: int | None = None,
    prefill: bool = False,
) -> Breakdown:
    """Return the cost of one pass of ``batch`` sequences that add ``new_tokens`` each.

    Parameters
    ----------
    context : int, tokens
        KV entries of each sequence before the pass.
    first_layer, last_layer : int
        Layers ``[first_layer, last_layer)``; the head is paid when the last layer is included.

    Raises
    ------
    ConfigError
        The layer range is empty or beyond the model.
    """
    last = _last_layer(deployment, first_layer, last_layer)
    work = _one_pass(
        deployment,
        batch=batch,
        context=context,
        new_tokens=new_tokens,
        layers=(first_layer, last),
        prefill=prefill,
    )
    step = deployment.cost.step([work], batch)
    seconds = float(step.total_s)
    table = [
        {
            "operator": op.operator,
            "count": op.count,
            "time_us": float(op.seconds) * 1e6,
            "share": float(op.seconds) / seconds,
            "gflop": float(op.flop) / 1e9,
            "megabytes": float(op.bytes) / 1e6,
            "bound": str(op.bound),
        }
        for op in deployment.cost.breakdown([work])
    ]
    asked = {
        "batch": batch,
        "context": context,
        "new_tokens": new_tokens,
        "first_layer": first_layer,
        "last_layer": last,
        "prefill": prefill,
    }
    return Breakdown(_title(deployment, asked), table, _totals(deployment, step, asked))


def _last_layer(deployment: Deployment, first: int, last: int | None) -> int:
    num_layers = deployment.architecture.num_layers
    last = num_layers if last is None else last
    if not first < last <= num_layers:
        raise ConfigError(
            f"--first-layer {first} --last-layer {last}: not a layer range; "
            f"0 <= first < last <= {num_layers}"
        )
    return last


def _one_pass(
    deployment: Deployment,
    *,
    batch: int,
    context: int,
    new_tokens: int,
    layers: tuple[int, int],
    prefill: bool,
) -> Pass:
    total_new = batch * new_tokens
    has_head = layers[1] == deployment.architecture.num_layers
    rows = Rows(
        kind="prefill" if prefill else "decode",
        num_sequences=batch,
        num_tokens=total_new,
        kv_tokens=batch * (context + new_tokens),
        attended_tokens=total_new * (context + (new_tokens + 1) / 2),
        logit_rows=(batch if prefill else total_new) if has_head else 0,
    )
    phase: Phase = "prefill" if prefill else "decode"
    return Pass("target", *layers, phase, (rows,), embeds=layers[0] == 0)


def _title(deployment: Deployment, asked: dict[str, int]) -> str:
    target = deployment.target
    return (
        f"{deployment.architecture.name} ({target.weight_dtype}, KV {target.kv_dtype}) on "
        f"{deployment.hardware.name} {target.layout}, batch {asked['batch']}, context "
        f"{asked['context']}, {asked['new_tokens']} new token(s) each, layers "
        f"{asked['first_layer']}..{asked['last_layer']}, per GPU"
    )


def _totals(deployment: Deployment, step: StepCost, asked: dict[str, int]) -> dict[str, Any]:
    hardware, seconds = deployment.hardware, float(step.total_s)
    batch = asked["batch"]
    plain = _one_pass(
        deployment,
        batch=batch,
        context=asked["context"],
        new_tokens=1,
        layers=(0, deployment.architecture.num_layers),
        prefill=False,
    )
    return {
        "hardware": hardware.name,
        **hardware.calibration,
        "engine": deployment.engine.name,
        "model": deployment.architecture.name,
        "tp": deployment.target.tp,
        "dtype": deployment.target.weight_dtype,
        "kv_dtype": deployment.target.kv_dtype,
        **asked,
        # As everywhere: a plain decode step of this batch, whatever pass is shown.
        "step_time_ms": ms(float(deployment.cost.step([plain], batch).total_s)),
        "pass_time_ms": ms(seconds),
        "device_time_ms": ms(float(step.device_s)),
        "host_time_ms": ms(float(step.host_s)),
        "network_share": float(step.network_s) / seconds,
        "flop": float(step.flop),
        "bytes": float(step.bytes),
        "compute_utilisation": float(step.flop) / (seconds * deployment.peak_flop_per_s),
        "bandwidth_utilisation": float(step.bytes)
        / (seconds * hardware.memory_bandwidth_bytes_per_s),
    }
