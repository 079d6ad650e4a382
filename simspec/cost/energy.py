"""Joules and dollars of some seconds on some devices: a deliberately simple model.

``P = P_idle + (P_max - P_idle) u`` with ``u`` the larger of the shares of peak compute and peak
memory bandwidth in use: the linear power model of Fan, Weber and Barroso, "Power provisioning
for a warehouse-sized computer", ISCA 2007, section 4. Left
out: clock changes, the host, the network, cooling (PUE).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simspec.core.errors import ProfileError
from simspec.cost.roofline import larger, smaller
from simspec.cost.work import Quantity
from simspec.hardware.profile import Hardware, Power, Price

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Shares of the peaks of one device, 0..1."""

    compute: Quantity
    bandwidth: Quantity

    @property
    def larger(self) -> Quantity:
        """The share of the roof the work is closer to."""
        return larger(self.compute, self.bandwidth)


def utilisation(
    seconds: Quantity,
    *,
    flop: Quantity,
    num_bytes: Quantity,
    hardware: Hardware,
    compute_dtype: str,
) -> Utilisation:
    """Return the shares of peak FLOP/s and bandwidth over ``seconds``.

    Parameters
    ----------
    seconds : number or array, seconds
        Wall time, idle time included; 0 gives 0.
    flop, num_bytes : number or array
        Done on one device in that time.
    hardware : Hardware
        The device.
    compute_dtype : str
        Whose dense peak is the roof.

    Raises
    ------
    ProfileError
        The device has no peak for ``compute_dtype``.
    """
    peak = hardware.peak_flop_per_s.get(compute_dtype)
    if peak is None:
        raise ProfileError(f"hardware {hardware.name!r}: no peak rate for {compute_dtype!r}")
    return Utilisation(
        compute=_share(flop, seconds, peak),
        bandwidth=_share(num_bytes, seconds, hardware.memory_bandwidth_bytes_per_s),
    )


def watts(power: Power, roof_share: Quantity) -> Quantity:
    """Return the power of one device whose larger roof share is ``roof_share``.

    Shares above 1 (rounding) count as 1.
    """
    return power.idle_w + (power.tdp_w - power.idle_w) * smaller(roof_share, 1.0)


def joules(power: Power, seconds: Quantity, *, roof_share: Quantity, num_devices: int) -> Quantity:
    """Return the energy of ``num_devices`` devices over ``seconds``."""
    return watts(power, roof_share) * seconds * num_devices


def dollars(price: Price, seconds: Quantity, *, num_devices: int) -> Quantity:
    """Return the rent of ``num_devices`` devices over ``seconds``, busy or not."""
    return price.usd_per_hour * seconds * num_devices / _SECONDS_PER_HOUR


def _share(done: Quantity, seconds: Quantity, peak: float) -> Quantity:
    if isinstance(done, np.ndarray) or isinstance(seconds, np.ndarray):
        done, seconds = np.broadcast_arrays(done, seconds)
        return np.divide(
            done, seconds * peak, out=np.zeros(done.shape), where=np.asarray(seconds) > 0
        )
    return done / (seconds * peak) if seconds > 0 else 0.0
