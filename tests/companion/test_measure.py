"""The timed kernels compute what they claim, and a run of timings can be stopped and read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs simspec[companion]")

from simspec.companion import kernels, measure  # noqa: E402
from simspec.companion.device import Device  # noqa: E402
from simspec.companion.plan import StackShape  # noqa: E402
from simspec.companion.stack import TorchStack  # noqa: E402
from simspec.core.errors import ConfigError  # noqa: E402
from simspec.traces.samples import Sample  # noqa: E402

SHAPE = StackShape(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=96, vocab=50)


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    torch.manual_seed(1)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cpu() -> Device:
    return Device("cpu", num_threads=1, budget_s=0.0)


def softmax_attention(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """One query at a time, each over the tokens it sees."""
    scores = (k @ q) / math.sqrt(q.shape[-1])
    return torch.softmax(scores[:seen], dim=0) @ v[:seen]


@pytest.mark.parametrize("num", [1, 3])
def test_attention_of_new_tokens_is_causal_over_the_cache(cpu: Device, num: int) -> None:
    """Token i of a verify pass sees the c cached ones and i + 1 new ones; heads share their KV."""
    batch, context, heads, kv_heads, d = 2, 5, 4, 2, 8
    q = cpu.tensor(batch, num, heads, d, dtype="fp32")
    cache = cpu.tensor(2, batch, kv_heads, context + num, d, dtype="fp32")
    mask = kernels.causal_mask(num, context, heads // kv_heads, q)
    out = kernels.attend(q, cache, mask).view(batch, num, heads, d)
    for b in range(batch):
        for i in range(num):
            for h in range(heads):
                k, v = cache[:, b, h // (heads // kv_heads)]
                expected = softmax_attention(q[b, i, h], k, v, context + i + 1)
                torch.testing.assert_close(out[b, i, h], expected)


def test_attention_of_prompts_is_causal(cpu: Device) -> None:
    """Token i sees i + 1 tokens."""
    q = cpu.tensor(1, 4, 6, 8, dtype="fp32")
    k, v = (cpu.tensor(1, 2, 6, 8, dtype="fp32") for _ in range(2))
    out = kernels.attend_prompt(q, k, v)
    expected = softmax_attention(q[0, 3, 4], k[0, 1], v[0, 1], 5)
    torch.testing.assert_close(out[0, 3, 4], expected)


def test_rotation_keeps_lengths_and_depends_on_distance(cpu: Device) -> None:
    """q . k after rotation is a function of how far the tokens are apart."""
    qkv = cpu.tensor(1, 1, 3 * 16, dtype="fp32").expand(1, 4, 48)
    cache = torch.zeros(2, 1, 1, 9, 16)
    turns = kernels.angles(5, 4, 16, cache)
    q = kernels.rotate_and_cache(qkv, turns, cache, 5)
    keys = cache[0, 0, 0, 5:]
    torch.testing.assert_close(q[0, :, 0].norm(dim=-1), qkv[0, :, :16].norm(dim=-1))
    scores = q[0, :, 0] @ keys.T
    torch.testing.assert_close(scores[1, 0], scores[3, 2])
    torch.testing.assert_close(scores[0, 0], scores[2, 2])
    torch.testing.assert_close(cache[1, 0, 0, 5:], qkv[0, :, 32:])
    assert not cache[:, :, :, :5].any()


def test_norm_and_activation(cpu: Device) -> None:
    """RMSNorm of the sum, and SiLU of the gate times up."""
    x, residual = cpu.tensor(3, 8, dtype="fp32"), cpu.tensor(3, 8, dtype="fp32")
    out, total = kernels.norm(x, residual, torch.ones(8))
    torch.testing.assert_close(total, x + residual)
    rms = (total**2).mean(dim=-1, keepdim=True).add(1e-5).sqrt()
    torch.testing.assert_close(out, total / rms)
    gate_up = cpu.tensor(2, 6, dtype="fp32")
    gate, up = gate_up[:, :3], gate_up[:, 3:]
    torch.testing.assert_close(kernels.activation(gate_up), gate * torch.sigmoid(gate) * up)


def test_a_step_makes_logits_of_every_new_token(cpu: Device) -> None:
    """[B, n, vocab], and the same again: the cache is written in the same place."""
    stack = TorchStack(SHAPE, cpu, "fp32")
    with torch.inference_mode():
        call = stack.step(batch=2, new_tokens=3, context=4)
        first, second = call(0), call(1)
    assert first.shape == (2, 3, 50)
    torch.testing.assert_close(first, second)


def test_every_kind_is_timed_and_what_is_done_is_not(cpu: Device) -> None:
    """Positive seconds for each; a finished timing is taken over as it is."""
    heads = {"heads": 4, "kv_heads": 2, "head_dim": 16}
    steps = {**vars_of(SHAPE), "batch": 1, "new_tokens": 2, "context": 3}
    wanted = [
        Sample("launch", "fp32"),
        Sample("copy", "bf16", {"num_bytes": 4096}),
        Sample("read", "bf16", {"num_bytes": 4096}),
        Sample("gemm", "bf16", {"m": 2, "n": 64, "k": 1024}),
        Sample("norm", "fp32", {"rows": 2, "width": 8}),
        Sample("activation", "fp32", {"rows": 2, "width": 8}),
        Sample("rope", "fp32", {"rows": 2, **heads}),
        Sample("decode_attention", "bf16", {"batch": 64, "context": 500, "new_tokens": 2, **heads}),
        Sample("prefill_attention", "fp32", {"batch": 1, "tokens": 5, **heads}),
        Sample("step", "fp32", steps),
    ]
    done = Sample("copy", "bf16", {"num_bytes": 4096}, 7.0, 0.5)
    found = list(measure.measured(wanted, cpu, {done.key: done}))
    assert [sample.key for sample in found] == [sample.key for sample in wanted]
    assert all(0 < sample.seconds < 60 and sample.spread >= 0 for sample in found)
    assert found[1] == done


def vars_of(shape: StackShape) -> dict[str, int]:
    return {name: getattr(shape, name) for name in StackShape.__dataclass_fields__}


def test_a_device_that_is_not_there_is_refused() -> None:
    """The message says which there are."""
    missing = "mps" if not torch.backends.mps.is_available() else "cuda"
    if missing == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has every device")
    with pytest.raises(ConfigError, match=rf"finds no '{missing}' here; it has: .*cpu"):
        Device(missing)


def test_weights_rotate_through_more_than_the_caches(cpu: Device) -> None:
    """As many copies as the caches could hold, and the largest alone."""
    small = measure._buffers(cpu, "bf16", 1024, 1024)
    assert len(small) == measure._MOST_COPIES
    assert len({one.data_ptr() for one in small}) == len(small)
    assert measure._copies(cpu, cpu.flush_bytes // 4) == 4
    assert measure._copies(cpu, 2 * cpu.flush_bytes) == 1


def test_the_machine_is_told(cpu: Device) -> None:
    """Name, memory, threads and software stand in the profile."""
    machine = cpu.machine(is_quick=True)
    assert machine.name
    assert machine.memory_bytes > 2**28
    assert (machine.device, machine.num_threads, machine.num_devices) == ("cpu", 1, 1)
    assert torch.__version__ in machine.software
    assert cpu.default_dtypes() in {("bf16",), ("fp32",)}
    assert Path("/proc").exists() or machine.name
