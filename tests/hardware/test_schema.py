"""The YAML form of a profile: ranges, conversions and the sentences of its errors."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import ProfileError
from simspec.core.yamlio import loads_yaml, parse, parse_mapping
from simspec.hardware.describe import describe
from simspec.hardware.engine_schema import EngineConfig, describe_engine, to_engine
from simspec.hardware.load import load_engine, load_hardware
from simspec.hardware.schema import HardwareConfig, to_hardware

SOURCE = "made up for a test"
KERNEL = {"flop_efficiency": 0.5, "bandwidth_efficiency": 0.8, "overhead_us": 4.0}


def profile(**changes: Any) -> dict[str, Any]:
    """Return a small valid profile with dotted fields replaced (None removes one)."""
    data: dict[str, Any] = {
        "name": "toy",
        "description": "a toy device",
        "memory": {"capacity_gb": 80, "bandwidth_gb_s": 2000, "source": SOURCE},
        "compute": {"dense_peak_tflops": {"bf16": 400}, "source": SOURCE},
        "kernels": {
            "calibrated": False,
            "gemm": {"bf16": dict(KERNEL)},
            "decode_attention": {"bf16": dict(KERNEL)},
            "prefill_attention": {"bf16": {**KERNEL, "sharpness": 2.0}},
            "elementwise": {"bandwidth_efficiency": 0.6, "overhead_us": 2.0},
            "source": SOURCE,
        },
    }
    data = copy.deepcopy(data)
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        place = data
        for key in parents:
            place = place.setdefault(key, {})
        if value is None:
            place.pop(last)
        else:
            place[last] = value
    return data


def message(data: dict[str, Any]) -> str:
    """Return the sentence a wrong profile is refused with."""
    with pytest.raises(ProfileError) as failure:
        parse_mapping(data, HardwareConfig, "toy.yaml", error=ProfileError)
    return str(failure.value)


def hardware(data: dict[str, Any]) -> Any:
    """Return the SI form of a profile."""
    return to_hardware(parse_mapping(data, HardwareConfig, "toy.yaml"))


def test_edge_units_become_si() -> None:
    """GB, GB/s, TFLOP/s and microseconds become bytes, bytes/s, FLOP/s and seconds."""
    device = hardware(
        profile(
            link={
                "name": "bus", "bandwidth_gb_s": 32, "max_devices": 4, "source": SOURCE,
                "all_reduce": {
                    "ring": {"latency_us": 10, "latency_per_peer_us": 1, "bandwidth_gb_s": 20}
                },
            },
            host_link={"name": "bus", "bandwidth_gb_s": 16, "source": SOURCE},
        )
    )  # fmt: skip
    assert device.memory_capacity_bytes == 80e9
    assert device.memory_bandwidth_bytes_per_s == 2e12
    assert device.peak_flop_per_s == {"bf16": 4e14}
    assert device.gemm["bf16"].overhead_s == pytest.approx(4e-6)
    assert device.link.all_reduce["ring"].bandwidth_bytes_per_s == 2e10
    assert device.link.all_reduce["ring"].latency_per_peer_s == pytest.approx(1e-6)
    assert device.host_link.bandwidth_bytes_per_s == 1.6e10


def test_no_sharpness_is_the_plain_maximum() -> None:
    """A kernel without an exponent has the corner of the textbook roofline."""
    device = hardware(profile())
    assert device.gemm["bf16"].sharpness == math.inf
    assert device.prefill_attention["bf16"].sharpness == 2.0


def test_every_group_keeps_its_source() -> None:
    """The SI form says where each group comes from, and nothing of groups left out."""
    device = hardware(profile(price={"usd_per_hour": 2, "as_of": "2026-01-31", "source": SOURCE}))
    assert set(device.sources) == {"memory", "compute", "kernels", "price"}
    assert all(SOURCE in source for source in device.sources.values())


def test_held_out_errors_stand_in_the_source_of_the_kernels() -> None:
    """A reader of the source sees how far the fits are from rows they did not see."""
    error = {"rows": 12, "median": 0.051, "p90": 0.2}
    device = hardware(profile(kernels__gemm={"bf16": {**KERNEL, "held_out_error": error}}))
    assert "bf16 GEMM 5.1 % (12 rows)" in device.sources["kernels"]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("memory__bandwidth_gb_s", 0, "bandwidth_gb_s"),
        ("memory__bandwidth_gb_s", -3350, "bandwidth_gb_s"),
        ("memory__bandwidth_gb_s", 3.35, "bandwidth_gb_s"),
        ("memory__bandwidth_gb_s", math.inf, "bandwidth_gb_s"),
        ("memory__capacity_gb", math.nan, "capacity_gb"),
        ("memory__capacity_gb", "80 GiB of it", "capacity_gb"),
        ("kernels__gemm__bf16__flop_efficiency", 1.2, "flop_efficiency"),
        ("kernels__gemm__bf16__flop_efficiency", 0, "flop_efficiency"),
        ("kernels__gemm__bf16__bandwidth_efficiency", -0.1, "bandwidth_efficiency"),
        ("kernels__gemm__bf16__overhead_us", -1, "overhead_us"),
        ("kernels__gemm__bf16__sharpness", 0.5, "sharpness"),
        ("kernels__kv_reads", "twice", "once_per_pass"),
        ("kernels__calibrated", "perhaps", "calibrated"),
        ("compute__dense_peak_tflops", {}, "dense_peak_tflops"),
        ("compute__dense_peak_tflops__bf16", 9.89e14, "dense_peak_tflops"),
        ("memory__source", None, "source"),
        ("memory__source", "me", "source"),
        ("kernels", None, "kernels"),
    ],
)  # fmt: skip
def test_impossible_values_are_refused_by_name(field: str, value: Any, says: str) -> None:
    """A value no device can have is refused in one line that names the field."""
    text = message(profile(**{field: value}))
    assert text.startswith("toy.yaml")
    assert says in text
    assert "\n" not in text


def test_unknown_data_type_is_named_with_the_nearest() -> None:
    """A misspelt data type is answered with the one that was meant."""
    text = message(profile(compute__dense_peak_tflops={"bf16": 400, "fp18": 800}))
    assert "fp18" in text
    assert "fp16" in text


def test_unknown_key_is_named_with_the_nearest() -> None:
    """A misspelt key is answered with the one that was meant."""
    text = message(profile(memory__bandwith_gb_s=2000))
    assert "bandwith_gb_s" in text
    assert "bandwidth_gb_s" in text


def test_gemm_needs_a_peak() -> None:
    """An efficiency of a rate the device does not have is a contradiction."""
    text = message(profile(kernels__gemm={"bf16": KERNEL, "fp8": KERNEL}))
    assert "kernels.gemm.fp8" in text
    assert "dense_peak_tflops" in text


def test_idle_power_is_below_full_load() -> None:
    """A device that idles above its full load is a typing mistake."""
    text = message(profile(power={"tdp_w": 350, "idle_w": 700, "source": SOURCE}))
    assert "idle_w" in text
    assert "350" in text


def test_price_needs_a_date() -> None:
    """A price without a day is refused."""
    wrong = {"usd_per_hour": 2.0, "as_of": "last spring", "source": SOURCE}
    assert "as_of" in message(profile(price=wrong))


def test_unquoted_date_is_text() -> None:
    """YAML's date type does not get in the way of ``as_of``."""
    document = loads_yaml("usd_per_hour: 2\nas_of: 2026-01-31\nsource: made up for it\n", "p")
    from simspec.hardware.schema import PriceGroup

    assert parse(document, PriceGroup).as_of == "2026-01-31"


def test_describe_is_the_way_back() -> None:
    """Values shown to people are those of the YAML, without rounding noise."""
    values, sources = describe(hardware(profile()))
    assert values["memory.bandwidth_gb_s"] == 2000
    assert values["compute.dense_peak_tflops.bf16"] == 400
    assert values["kernels.gemm.bf16.overhead_us"] == 4.0
    assert values["kernels.prefill_attention.bf16.sharpness"] == 2.0
    assert "kernels.gemm.bf16.sharpness" not in values
    assert all(not isinstance(v, float) or math.isfinite(v) for v in values.values())
    assert set(sources) == {"memory", "compute", "kernels"}


def test_describe_shows_links_power_and_price() -> None:
    """Nothing of a full profile is left out of what people see."""
    values, sources = describe(load_hardware("h100_sxm"))
    assert values["link.all_reduce.ring.latency_us"] == pytest.approx(10, abs=3)
    assert values["power.tdp_w"] == 700
    assert values["price.as_of"] == "2026-11-09"
    assert "price" in sources


def engine(**changes: Any) -> dict[str, Any]:
    """Return a small valid engine profile."""
    data: dict[str, Any] = {
        "name": "toy",
        "description": "a toy engine",
        "host": {
            "per_step_us": 500, "per_sequence_us": 10, "per_draft_step_us": 200,
            "per_launch_us": 5, "graph_capture": True, "source": SOURCE,
        },
        "memory": {
            "memory_fraction": 0.9, "reserve_gb": 0.5, "block_size_tokens": 16, "source": SOURCE
        },
        "scheduler": {
            "max_num_seqs": 8, "max_num_batched_tokens": 512, "chunked_prefill": True,
            "source": SOURCE,
        },
    }  # fmt: skip
    for dotted, value in changes.items():
        group, key = dotted.split("__")
        data[group][key] = value
    return data


def test_engine_units_become_si() -> None:
    """Microseconds and GB of an engine become seconds and bytes."""
    result = to_engine(parse_mapping(engine(), EngineConfig, "toy.yaml"))
    assert result.host_time_per_step_s == pytest.approx(5e-4)
    assert result.host_time_per_draft_step_s == pytest.approx(2e-4)
    assert result.reserve_bytes == 5e8
    assert set(result.sources) == {"host", "memory", "scheduler", "uncertainty"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory__memory_fraction", 0), ("memory__memory_fraction", 1.5),
        ("memory__block_size_tokens", 0), ("host__per_step_us", -1),
        ("scheduler__max_num_seqs", 0), ("scheduler__max_num_batched_tokens", 1.5),
        ("host__graph_capture", "sometimes"),
    ],
)  # fmt: skip
def test_impossible_engine_values_are_refused(field: str, value: Any) -> None:
    """A fraction above one, an empty block or negative time is refused by name."""
    with pytest.raises(ProfileError, match=field.split("__")[1]):
        parse_mapping(engine(**{field: value}), EngineConfig, "toy.yaml", error=ProfileError)


def test_describe_engine_is_the_way_back() -> None:
    """Engine values shown to people are those of the YAML."""
    values, sources = describe_engine(load_engine("vllm"))
    assert values["host.per_sequence_us"] == 10
    assert values["memory.memory_fraction"] == 0.9
    assert set(sources) == {"host", "memory", "scheduler", "uncertainty"}


def test_importing_the_profiles_is_light() -> None:
    """Listing hardware must not pay for pandas or SciPy."""
    import subprocess
    import sys

    code = (
        "import sys, simspec.hardware.load as l; l.load_hardware('h100_sxm'); "
        "sys.exit(any(m in sys.modules for m in ('pandas', 'scipy', 'pyarrow')))"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
