"""Wiring a scenario: where errors are placed, where files are found, when memory is enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simspec.core.errors import ConfigError, DoesNotFit, SimspecError, TraceError
from simspec.core.yamlio import Document, load_yaml, parse, parse_mapping
from simspec.scenarios.breakdown import step_breakdown
from simspec.scenarios.build import (
    Deployment,
    Place,
    blame,
    build,
    build_without_acceptance,
    memory_facts,
    require_room,
    resolve_reference,
)
from simspec.scenarios.schema import DeploymentConfig

PLAIN = {"model": "llama-3.2-1b", "hardware": "h100_sxm", "method": "autoregressive"}
LINES = {("method",): 3, ("method", "exit_layer"): 4, ("workload",): 6}


def deployment(**fields: Any) -> Deployment:
    return build(parse_mapping({**PLAIN, **fields}, DeploymentConfig, "test"))


@pytest.mark.parametrize(
    ("base", "field", "error", "message"),
    [
        ((), ("method",), ConfigError("bad"), "a.yaml:3: method: bad"),
        (
            (),
            ("method",),
            ConfigError("exit_layer: bad", field="exit_layer"),
            "a.yaml:4: method.exit_layer: bad",
        ),
        ((), ("method", "depth"), ConfigError("bad"), "a.yaml:3: method.depth: bad"),
        ((), ("tp",), ConfigError("tp: bad", field="tp"), "a.yaml: tp: bad"),
        ((), (), ConfigError("bad", field="method.exit_layer"), "a.yaml:4: method.exit_layer: bad"),
        (("workload",), ("arrivals",), TraceError("log.csv:9: bad"),
         "a.yaml:6: workload.arrivals: log.csv:9: bad"),
        ((), ("method",), DoesNotFit("bad"), "a.yaml:3: method: bad"),
    ],
)  # fmt: skip
def test_an_error_gets_the_place_of_its_field(
    base: tuple[str, ...], field: tuple[str, ...], error: SimspecError, message: str
) -> None:
    """File, line and field stand in front, the class stays, and no field is named twice."""
    place = Place(Document({}, "a.yaml", positions=LINES), base)
    with pytest.raises(type(error)) as placed, blame(place, *field):
        raise error
    assert str(placed.value) == message
    assert placed.value.__cause__ is error


def test_without_a_place_an_error_is_left_alone() -> None:
    """On the command line there is no file to blame; bugs are never dressed up."""
    error = ConfigError("bad")
    with pytest.raises(ConfigError) as raised, blame(None, "method"):
        raise error
    assert raised.value is error
    with pytest.raises(ZeroDivisionError), blame(Place(Document({}, "a")), "method"):
        raise ZeroDivisionError


def test_files_are_found_beside_the_scenario(tmp_path: Path) -> None:
    """A path in a scenario starts at the scenario; a name stays a name."""
    (tmp_path / "gpu.yaml").write_text("")
    (tmp_path / "model").mkdir()
    beside = str(tmp_path / "gpu.yaml")
    assert resolve_reference("gpu.yaml", tmp_path) == beside
    assert resolve_reference("./gpu.yaml", tmp_path) == beside
    assert resolve_reference("./model", tmp_path) == str(tmp_path / "model")
    assert resolve_reference("other.yaml", tmp_path) == "other.yaml"
    assert resolve_reference("h100_sxm", tmp_path) == "h100_sxm"
    assert resolve_reference(beside, tmp_path) == beside
    assert resolve_reference("gpu.yaml", None) == "gpu.yaml"


def test_profiles_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU, engine and model files beside the scenario are used from any working folder."""
    scenario = {
        **PLAIN,
        "hardware": "gpu.yaml",
        "engine": "engine.yaml",
        "model": "config.json",
    }
    extends = {"gpu.yaml": ("mine", "h100_sxm"), "engine.yaml": ("quick", "ideal")}
    for file, (name, base) in extends.items():
        (tmp_path / file).write_text(json.dumps({"name": name, "extends": base}))
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 3,
                "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1000,
                "max_position_embeddings": 2048,
            }
        )
    )  # fmt: skip
    (tmp_path / "s.yaml").write_text(json.dumps(scenario))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    document = load_yaml(tmp_path / "s.yaml")
    found = build(parse(document, DeploymentConfig), Place(document))
    assert (found.hardware.name, found.engine.name) == ("mine", "quick")
    assert found.architecture.num_layers == 3


def test_a_draft_model_and_a_trace_lie_beside_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that a method or its acceptance name are looked up like the model's."""
    config = {
        "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 128256,
        "max_position_embeddings": 2048,
    }  # fmt: skip
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    (tmp_path / "trace.jsonl").write_text('{"accepted":[1,0,2,1,0]}\n')
    scenario = {
        **PLAIN,
        "model": "llama-3.1-8b",
        "method": {"name": "dual_model", "draft_model": "./draft"},
        "acceptance": {"name": "replay", "path": "trace.jsonl"},
    }
    (tmp_path / "s.yaml").write_text(json.dumps(scenario))
    monkeypatch.chdir("/")
    document = load_yaml(tmp_path / "s.yaml")
    found = build(parse(document, DeploymentConfig), Place(document))
    assert len(found.method.stacks()["draft"].blocks) == 2
    assert found.acceptance is not None
    assert "trace.jsonl (5 positions" in found.acceptance.describe()


def test_a_method_without_acceptance_can_be_asked_for_its_memory() -> None:
    """Memory needs no acceptance; everything else does."""
    config = parse_mapping({**PLAIN, "method": "kangaroo"}, DeploymentConfig, "test")
    assert build_without_acceptance(config).acceptance is None
    with pytest.raises(ConfigError, match="needs an acceptance model"):
        build(config)


def test_a_pool_given_in_blocks_is_the_pool() -> None:
    """``num_kv_blocks`` replaces what the budget leaves, and is checked against the device."""
    found = deployment(memory={"num_kv_blocks": 10})
    assert found.kv_capacity_tokens == 160
    assert memory_facts(found)["kv_capacity_tokens"] == 160
    assert memory_facts(found)["fits"] is True
    require_room(found, 160)
    with pytest.raises(DoesNotFit, match="10 blocks of 16 tokens do not hold 161 tokens"):
        require_room(found, 161)
    budget = found.budget.num_blocks
    slightly_more = deployment(memory={"num_kv_blocks": budget + 100})
    require_room(slightly_more)
    with pytest.raises(DoesNotFit, match=r"do not fit in the 85.0 GB of h100_sxm"):
        require_room(deployment(memory={"num_kv_blocks": 10 * budget}))


def test_fits_means_one_block_beside_the_weights() -> None:
    """``fits`` is what ``require_room`` says of one token."""
    assert deployment().fits
    large = deployment(model="llama-3.1-70b")
    assert not large.fits
    assert memory_facts(large)["fits"] is False
    with pytest.raises(DoesNotFit, match="would fit: tp=2"):
        require_room(large)


def test_the_engine_limits_unless_the_scenario_does() -> None:
    """Every limit comes from the engine profile until the scenario says otherwise."""
    found = deployment()
    engine = found.engine
    assert found.limits.max_num_seqs == engine.max_num_seqs
    assert found.limits.max_num_batched_tokens == engine.max_num_batched_tokens
    assert found.limits.chunked_prefill == engine.chunked_prefill
    own = deployment(
        scheduler={"max_num_seqs": 3, "max_num_batched_tokens": 17, "chunked_prefill": False}
    ).limits
    assert (own.max_num_seqs, own.max_num_batched_tokens, own.chunked_prefill) == (3, 17, False)
    assert deployment(memory={"block_size_tokens": 32}).block_size_tokens == 32


@pytest.mark.parametrize(
    ("dtype", "width"), [("fp32", 4), ("bf16", 2), ("fp16", 2), ("fp8", 2), ("int4_g128", 2)]
)
def test_activations_are_as_wide_as_unquantised_weights(
    tmp_path: Path, dtype: str, width: int
) -> None:
    """All-reduces move T d b_a bytes twice a layer: 4 bytes a value in fp32, 2 otherwise."""
    gemm = {"flop_efficiency": 0.8, "bandwidth_efficiency": 0.9, "overhead_us": 3}
    profile = {
        "extends": "h100_sxm",
        "name": "with_fp32",
        "kernels": {"gemm": {"fp32": gemm, "fp16": gemm}, "source": "made up for a test"},
    }
    path = tmp_path / "with_fp32.yaml"
    path.write_text(json.dumps(profile))
    found = deployment(hardware=str(path), dtype=dtype, tp=2)
    rows = step_breakdown(found, batch=3, context=100).rows
    (moved,) = (row["megabytes"] for row in rows if row["operator"] == "all_reduce")
    layers, hidden = found.architecture.num_layers, found.architecture.hidden_size
    assert moved * 1e6 == pytest.approx(2 * layers * 3 * hidden * width)
