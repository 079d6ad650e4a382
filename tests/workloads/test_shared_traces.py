"""Every published format, read from real files, against the figures their sources state."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import numpy as np
import pytest

from simspec.core.errors import TraceError
from simspec.workloads.detect import detect, importer_of
from simspec.workloads.request_log import RequestLog, read_log
from tests.helpers.shared import shared


def read(name: str) -> RequestLog:
    path = shared(f"traces/{name}")
    return read_log(detect(path), path)


@pytest.fixture(scope="module")
def mooncake() -> RequestLog:
    return read("mooncake/conversation_trace.jsonl.gz")


@pytest.mark.parametrize(
    ("name", "form", "num_requests", "span_s"),
    [
        ("format-samples/azure2024_code_10rows.csv", "azure", 10, 604_800.0),
        ("format-samples/azure2024_conv_10rows.csv", "azure", 10, 604_800.0),
        ("format-samples/burstgpt_v1_head3.csv", "burstgpt", 3, 113.0),
        ("format-samples/burstgpt_v3_head4.csv", "burstgpt", 4, 144.0),
        ("format-samples/mooncake_arxiv_toolmix_32rows.jsonl", "mooncake", 32, 9.0),
        ("format-samples/qwen_bailian_thinking_row0.jsonl", "qwen_bailian", 1, 0.0),
        ("inference-perf/trace.csv", "azure", 20, 13.0),
        ("llmservingsim/example_trace.jsonl", "llmservingsim", 10, 1.0),
        (
            "llmservingsim/sharegpt-llama-3.1-8b-300-sps10.lengths-only.jsonl",
            "llmservingsim",
            300,
            29.0,
        ),
        ("splitwise-sim/test_trace.csv", "splitwise_sim", 3, 3.0),
        ("vidur/splitwise_conv.csv", "vidur", 19_366, 3501.7),
    ],
)
def test_each_file_is_recognised_and_read_whole(
    name: str, form: str, num_requests: int, span_s: float
) -> None:
    """Format, number of requests, and a span in the right unit."""
    path = shared(f"traces/{name}")
    importer = detect(path)
    log = read_log(importer, path)
    assert importer.name == form
    assert log.times_s.size == num_requests
    assert log.times_s[-1] == pytest.approx(span_s, abs=0.7)


def test_vidur_and_azure_hold_the_same_lengths() -> None:
    """The processed copy equals the source, all 19,366 pairs in order."""
    ours = read("azure/AzureLLMInferenceTrace_conv.csv")
    theirs = read("vidur/splitwise_conv.csv")
    assert ours.lengths.prompt_lens.size == 19_366
    assert np.array_equal(ours.lengths.prompt_lens, theirs.lengths.prompt_lens)
    assert np.array_equal(ours.lengths.output_lens, theirs.lengths.output_lens)
    assert np.abs(ours.times_s - theirs.times_s).max() < 1.01e-6


def test_mooncake_has_the_published_totals(mooncake: RequestLog) -> None:
    """12,031 requests of 12,035 and 343 tokens; 1,180 distinct times; 36.6 % of blocks shared."""
    assert mooncake.times_s.size == 12_031
    assert round(float(mooncake.lengths.prompt_lens.mean())) == 12_035
    assert round(float(mooncake.lengths.output_lens.mean())) == 343
    assert np.unique(mooncake.times_s).size == 1_180
    assert mooncake.prefixes is not None
    assert mooncake.prefixes.block_tokens == 512
    seen: set[int] = set()
    hits = total = 0
    for own in mooncake.prefixes.hashes:
        total += len(own)
        for block in own:
            if block not in seen:
                break
            hits += 1
        seen.update(own)
    assert hits / total == pytest.approx(0.366, abs=0.0005)


def test_lengths_alone_are_read_and_not_replayed() -> None:
    """The vidur file without arrivals gives 12,000 pairs and no times."""
    name = "vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.head12000.csv"
    log = read(name)
    assert not log.has_times
    assert log.lengths.prompt_lens.size == 12_000
    assert log.lengths.prompt_lens[0] == 3772


def test_token_ids_become_prefix_blocks() -> None:
    """Prompts of the example begin with the same seven tokens, then differ."""
    path = shared("traces/llmservingsim/example_trace.jsonl")
    importer = type(importer_of("llmservingsim"))(name="llmservingsim", block_tokens=7)
    log = read_log(importer, path)
    assert log.prefixes is not None
    first, second = log.prefixes.hashes[:2]
    assert (len(first), len(second)) == (2, 4)
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_a_table_of_measurements_is_no_log() -> None:
    """The performance model beside the traces is refused by its header."""
    path = shared("traces/splitwise-sim/perf_model.csv")
    with pytest.raises(TraceError, match=r"perf_model\.csv:1: .*no format begins with"):
        detect(path)


def test_the_largest_logs_are_read_in_a_second(mooncake: RequestLog, tmp_path: Path) -> None:
    """12,031 lines of JSON with 290,000 hashes take below a second of processor time."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        gzip.decompress(shared("traces/mooncake/conversation_trace.jsonl.gz").read_bytes())
    )
    best = 10.0
    for _ in range(3):
        start = time.process_time()
        read_log(importer_of("mooncake"), path)
        best = min(best, time.process_time() - start)
    assert best < 1.0
