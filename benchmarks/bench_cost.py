"""How fast the cost model is, as ratios within one run of one machine.

Run ``python benchmarks/bench_cost.py``. Three numbers matter: what an autoregressive step of
the simulator takes (target: at most 15 microseconds), how much faster its tables are than pricing
every kernel, and how much faster the vectorised closed form is per grid point than the simulator.
Every time is the best of several repeats, since only interruptions make a run slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from simspec.cost.forward import CostModel
from simspec.cost.work import Pass, Rows, Stack
from simspec.hardware.profile import EngineProfile, Hardware, KernelFit
from simspec.models.arch import Block

NUM_STEPS = 5000
REPEATS = 7

LAYER = Block(4096, 32, 8, 128, 14336)
TARGET = Stack("target", (LAYER,) * 32, 4096, 128256, "bf16", "bf16", 1)
FIT = KernelFit(0.7, 0.85, 3e-6, 4.0)
DEVICE = Hardware(
    name="bench",
    description="",
    memory_capacity_bytes=80e9,
    memory_bandwidth_bytes_per_s=3.35e12,
    peak_flop_per_s={"bf16": 989e12},
    gemm={"bf16": FIT},
    decode_attention={"bf16": FIT},
    prefill_attention={"bf16": FIT},
    elementwise=FIT,
    kv_reads="once_per_pass",
    link=None,
    host_link=None,
    power=None,
    price=None,
    calibrated=False,
    sources={},
)
ENGINE = EngineProfile(
    name="bench",
    description="",
    host_time_per_step_s=1e-3,
    host_time_per_sequence_s=1e-5,
    host_time_per_draft_step_s=1e-4,
    launch_time_s=5e-6,
    graph_capture=True,
    block_size_tokens=16,
    memory_fraction=0.9,
    reserve_bytes=0.0,
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    chunked_prefill=True,
    sources={},
)


def decode(batch: float | np.ndarray, context: float | np.ndarray) -> Pass:
    visible = batch * (context + 1)
    rows = Rows("decode", batch, batch, visible, visible, batch)
    return Pass("target", 0, 32, "decode", (rows,), True)


def best_s(run: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    model = CostModel({"target": TARGET}, DEVICE, ENGINE)
    works = [decode(8, 500 + i) for i in range(NUM_STEPS)]
    few = works[: NUM_STEPS // 10]
    batch = np.full(NUM_STEPS, 8.0)
    grid = decode(batch, np.arange(500.0, 500.0 + NUM_STEPS))

    def loop() -> None:
        for _ in works:
            pass

    def simulator() -> None:
        for work in works:
            model.step((work,), 8)

    def every_kernel() -> None:
        for work in few:
            model.breakdown((work,))

    simulator()  # builds the tables
    step_s = best_s(simulator) / NUM_STEPS
    kernel_s = best_s(every_kernel) / len(few)
    point_s = best_s(lambda: model.step((grid,), batch)) / NUM_STEPS
    loop_s = best_s(loop) / NUM_STEPS
    print(f"autoregressive step          {step_s * 1e6:8.2f} us")
    print(f"  in empty Python loops      {step_s / loop_s:8.0f}")
    print(f"breakdown / step             {kernel_s / step_s:8.1f}")
    print(f"step / grid point            {step_s / point_s:8.1f}")


if __name__ == "__main__":
    main()
