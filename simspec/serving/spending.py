"""Joules and dollars of a run, per token that reached a client, and their share lost to drafts.

Power follows the roof share of each step (:mod:`simspec.cost.energy`); between steps a device
draws its idle power. Rent is paid for every second of the window, busy or not. A pass is charged
to the tokens it computes alike, so a rejected draft loses its share of the draft passes and of
the verification: an average, not what leaving that draft out would have saved.
"""

from __future__ import annotations

from math import nan

import numpy as np

from simspec.cost.energy import dollars, joules
from simspec.serving._metric import metric
from simspec.serving.measured import Measured, Roofs, ratio
from simspec.serving.records import PHASES, FloatArray, StepRecords

_TOKENS_OF_A_PRICE = 1e6


def step_roof_share(steps: StepRecords, roofs: Roofs) -> tuple[FloatArray, FloatArray]:
    """Return the shares of peak FLOP/s and of peak bandwidth of each step, 0..1."""
    seconds = np.where(steps.duration_s > 0, steps.duration_s, np.inf)
    return (
        steps.flop / (seconds * roofs.peak_flop_per_s),
        steps.bytes / (seconds * roofs.bandwidth_bytes_per_s),
    )


def rejected_s(steps: StepRecords) -> FloatArray:
    """Return the seconds of each step that went into drafts which were rejected.

    Of m drafts of which a are accepted, (m - a) / m of the draft and catch-up passes and
    (m - a) / (m + rounds) of the verification.
    """
    rejected = (steps.drafted - steps.accepted).astype(np.float64)
    draft_s = _phases_s(steps, "draft", "catch_up")
    verify_s = _phases_s(steps, "verify")
    of_draft = draft_s * rejected / np.maximum(steps.drafted, 1)
    of_verify = verify_s * rejected / np.maximum(steps.drafted + steps.num_decoding, 1)
    return np.asarray(of_draft + of_verify, dtype=np.float64)


@metric("J")
def energy_per_token_j(run: Measured) -> float:
    """Joules of all devices over the window / tokens that reached clients in it."""
    return ratio(_energy_j(run), run.step_sum(run.records.steps.emitted))


@metric("J")
def energy_per_request_j(run: Measured) -> float:
    """Joules of all devices over the window / requests finished in it."""
    return ratio(_energy_j(run), float(run.left_in_window.sum()))


@metric("1")
def rejected_energy_share(run: Measured) -> float:
    """Share of the joules that went into rejected drafts and their verification."""
    if run.roofs is None or run.roofs.power is None:
        return nan
    lost = _step_energy_j(run) / _positive(run.records.steps) * rejected_s(run.records.steps)
    return ratio(run.step_sum(lost), _energy_j(run))


@metric("$")
def cost_per_million_tokens_usd(run: Measured) -> float:
    """Rent of all devices over the window / million tokens that reached clients in it."""
    tokens = run.step_sum(run.records.steps.emitted)
    return _TOKENS_OF_A_PRICE * ratio(_rent_usd(run), tokens)


@metric("$")
def cost_per_request_usd(run: Measured) -> float:
    """Rent of all devices over the window / requests finished in it."""
    return ratio(_rent_usd(run), float(run.left_in_window.sum()))


@metric("1")
def rejected_cost_share(run: Measured) -> float:
    """Share of the window's time, and so of its rent, that went into rejected drafts."""
    lost_s = run.step_sum(rejected_s(run.records.steps))
    return run.per_second(lost_s / run.records.num_replicas)


def _phases_s(steps: StepRecords, *phases: str) -> FloatArray:
    columns = [PHASES.index(phase) for phase in phases]
    summed: FloatArray = np.sum(steps.phase_s[:, columns], axis=1)
    return summed


def _positive(steps: StepRecords) -> FloatArray:
    return np.where(steps.duration_s > 0, steps.duration_s, np.inf)


def _devices(run: Measured, roofs: Roofs) -> FloatArray:
    """Return the devices of each replica."""
    count = run.records.num_replicas
    return np.asarray(roofs.devices_by_replica or (roofs.num_devices,) * count, dtype=np.float64)


def _step_energy_j(run: Measured) -> FloatArray:
    steps, roofs = run.records.steps, run.roofs
    assert roofs is not None
    assert roofs.power is not None
    compute, bandwidth = step_roof_share(steps, roofs)
    share = np.maximum(compute, bandwidth)
    of_one = np.asarray(joules(roofs.power, steps.duration_s, roof_share=share, num_devices=1))
    energy_j: FloatArray = of_one * _devices(run, roofs)[steps.replica]
    return energy_j


def _energy_j(run: Measured) -> float:
    if run.roofs is None or run.roofs.power is None:
        return nan
    devices, steps = _devices(run, run.roofs), run.records.steps
    busy_s = run.step_sum(steps.duration_s * devices[steps.replica])
    idle_s = max(0.0, run.window.seconds * float(devices.sum()) - busy_s)
    idle = joules(run.roofs.power, idle_s, roof_share=0.0, num_devices=1)
    return run.step_sum(_step_energy_j(run)) + float(idle)


def _rent_usd(run: Measured) -> float:
    if run.roofs is None or run.roofs.price is None:
        return nan
    num_devices = int(_devices(run, run.roofs).sum())
    return float(dollars(run.roofs.price, run.window.seconds, num_devices=num_devices))
