"""Copies from one device to another over a link: latency plus bytes over bandwidth.

The alpha-beta model of Hockney, "The communication challenge for MPP", Parallel Computing 20(3),
1994, of one message from one device to its peer.
"""

from __future__ import annotations

from simspec.cost.work import Quantity
from simspec.hardware.profile import InterNodeLink


def transfer_s(num_bytes: Quantity, link: InterNodeLink) -> Quantity:
    """Return ``latency + bytes / bandwidth``, seconds, of one copy over a link of its own."""
    return link.latency_s + wire_s(num_bytes, link)


def wire_s(num_bytes: Quantity, link: InterNodeLink) -> Quantity:
    """Return for how many seconds a copy keeps the link busy."""
    return num_bytes / link.bandwidth_bytes_per_s
