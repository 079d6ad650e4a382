"""Which profile a published device name stands for; no guess is made."""

from __future__ import annotations

import pytest

from simspec.hardware.load import hardware_names
from simspec.validation._names import hardware_of, weight_format_of


@pytest.mark.parametrize("name", hardware_names())
def test_every_profile_has_its_own_name(name: str) -> None:
    """The name of a profile finds it, with underscores, spaces or hyphens."""
    for published in (name, name.replace("_", " ").upper(), name.replace("_", "-")):
        assert hardware_of(published) == name


@pytest.mark.parametrize(
    ("published", "profile"),
    [
        ("H100-80GB SXM", "h100_sxm"),
        ("H100-80GB", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("A100", "a100_sxm_80gb"),
        ("A100-80GB", "a100_sxm_80gb"),
        ("A100 40GB", "a100_sxm_40gb"),
        ("a100_sxm", "a100_sxm_80gb"),
        ("NVIDIA GeForce RTX 4090 24GB", "rtx_4090"),
        ("RTX4090", "rtx_4090"),
        ("Apple M2 Ultra", "m2_ultra"),
        ("Apple M2 Ultra 60-core GPU", "m2_ultra_60core"),
        ("Apple M2 Ultra 76-core GPU", "m2_ultra"),
        ("Apple M3 Max 40-core GPU", "m3_max"),
        ("Apple M1", "m1"),
        ("Apple M1 7-core GPU", "m1_7core"),
        ("L40", None),
        ("RTX 409", None),
        ("RTX 4090D", None),
        ("H1000", None),
        ("TPU v5e", None),
        ("80GB", None),
        ("", None),
    ],
)
def test_published_names(published: str, profile: str | None) -> None:
    """Makers and sizes do not matter, digits and letters of the name do."""
    if profile is not None and profile not in hardware_names():
        pytest.skip(f"no profile {profile}")
    assert hardware_of(published) == profile


def test_formats() -> None:
    """What an engine calls its weights."""
    found = [weight_format_of(text) for text in ("FP16", "int4-awq", "fp8 (online)", "ternary")]
    assert found == ["fp16", "int4_g128", "fp8", None]
