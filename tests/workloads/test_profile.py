"""The packaged profile and the sampler behind it, against the trace it was made from."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import ProfileError
from simspec.core.rng import stream
from simspec.workloads.describe import rank_correlation
from simspec.workloads.importers.azure import Config as Azure
from simspec.workloads.profile import (
    LengthProfile,
    load_profile,
    packaged_profile_path,
    profile_names,
)
from simspec.workloads.profile_from_trace import KNOWN_SOURCES, Source, derive, main, to_json
from simspec.workloads.request_log import RequestLog, read_log
from tests.helpers.shared import shared

TRACE = "traces/azure/AzureLLMInferenceTrace_conv.csv"
NUM_SAMPLES = 200_000


@pytest.fixture(scope="module")
def profile() -> LengthProfile:
    return load_profile(packaged_profile_path("azure_conv_2023"))


@pytest.fixture(scope="module")
def sample(profile: LengthProfile) -> tuple[np.ndarray, np.ndarray]:
    return profile.lengths(stream(1, "profile").random((NUM_SAMPLES, 3)))


@pytest.fixture(scope="module")
def trace() -> RequestLog:
    return read_log(Azure(), shared(TRACE))


def test_packaged_profiles_are_small_and_sourced() -> None:
    """Each is below 100 kB and says where it comes from and on which terms."""
    assert "azure_conv_2023" in profile_names()
    for name in profile_names():
        path = packaged_profile_path(name)
        assert path.stat().st_size < 100_000
        loaded = load_profile(path)
        assert loaded.name == name
        assert loaded.source
        assert loaded.licence


def test_azure_profile_has_the_published_figures(profile: LengthProfile) -> None:
    """Input mean 1,155, p50 1,020, max 14,050; output mean 211, p50 129, max 1,000."""
    assert profile.num_requests == 19_366
    assert profile.licence == "CC-BY 4.0"
    assert "Patel" in profile.source
    assert profile.rate_per_s == pytest.approx(5.53, abs=0.005)
    assert profile.gap_cv == pytest.approx(1.09, abs=0.005)
    for margin, mean, median, longest in (
        (profile.prompt, 1155, 1020, 14_050),
        (profile.output, 211, 129, 1000),
    ):
        assert round(margin.moments()[0]) == mean
        rank = np.searchsorted(margin.cumulated, profile.num_requests / 2)
        assert margin.values[rank] == median
        assert margin.values[-1] == longest


def test_sampled_means_are_the_published_ones(sample: tuple[np.ndarray, np.ndarray]) -> None:
    """Within 5 standard errors (one false alarm in 1.7 million) plus the figures' rounding."""
    for values, mean in zip(sample, (1155, 211), strict=True):
        error = values.std() / math.sqrt(NUM_SAMPLES)
        assert abs(values.mean() - mean) < 5 * error + 0.5


def kolmogorov(a: np.ndarray, b: np.ndarray) -> float:
    """Largest distance of two empirical distribution functions."""
    grid = np.union1d(a, b)
    cdfs = (np.searchsorted(np.sort(x), grid, side="right") / x.size for x in (a, b))
    first, second = cdfs
    return float(np.abs(first - second).max())


def test_sampled_margins_match_the_trace(
    sample: tuple[np.ndarray, np.ndarray], trace: RequestLog
) -> None:
    """The margins are kept exactly, so only sampling noise separates them."""
    for values, real in zip(
        sample, (trace.lengths.prompt_lens, trace.lengths.output_lens), strict=True
    ):
        # P(sqrt(n) D > 2.6) = 2 exp(-2 · 2.6²) = 3e-6, less for discrete data.
        assert kolmogorov(values, real) < 2.6 / math.sqrt(NUM_SAMPLES)


def test_sampled_dependence_matches_the_trace(
    sample: tuple[np.ndarray, np.ndarray], trace: RequestLog
) -> None:
    """Rank correlation, mean product and the law of the sum are those of the trace."""
    (prompts, outputs), real = sample, trace.lengths
    theirs = rank_correlation(real.prompt_lens, real.output_lens)
    assert theirs == pytest.approx(0.0728, abs=5e-4)
    # Sampling error 1/sqrt(n) = 0.0022 (5 of them), grid error below 0.001.
    assert rank_correlation(prompts, outputs) == pytest.approx(theirs, abs=0.012)
    products = (prompts * outputs).astype(np.float64)
    expected = float((real.prompt_lens * real.output_lens).mean())
    error = products.std() / math.sqrt(NUM_SAMPLES)
    assert abs(products.mean() - expected) < 5 * error + 0.002 * expected
    total = kolmogorov(prompts + outputs, real.prompt_lens + real.output_lens)
    # Noise 2.6/sqrt(n) = 0.006 and what the grid cannot see, below 0.006.
    assert total < 0.012


def test_output_length_depends_on_prompt_length_as_in_the_trace(
    sample: tuple[np.ndarray, np.ndarray], trace: RequestLog
) -> None:
    """Long prompts have short answers here (74 tokens against 218): the profile keeps that."""
    real = trace.lengths
    for quantile in (0.1, 0.5, 0.9):
        cut = np.quantile(real.prompt_lens, quantile)
        theirs = real.output_lens[real.prompt_lens >= cut].mean()
        ours = sample[1][sample[0] >= cut]
        error = ours.std() / math.sqrt(ours.size)
        # 5 standard errors, and 1.5 % for a bin that straddles the cut.
        assert abs(ours.mean() - theirs) < 5 * error + 0.015 * theirs


def test_the_packaged_profile_is_what_the_command_derives(tmp_path: Path) -> None:
    """Byte for byte: the shipped file is reproducible from the published trace."""
    out = tmp_path / "azure_conv_2023.json"
    assert main([str(shared(TRACE)), str(out)]) == 0
    assert out.read_bytes() == packaged_profile_path("azure_conv_2023").read_bytes()


@given(pairs=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 300)), min_size=1, max_size=200))
def test_any_log_gives_a_profile_that_draws_only_its_lengths(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]]
) -> None:
    """Derive, write, load, draw: every value drawn occurs in the log, u near 0 and 1 included."""
    folder = tmp_path_factory.mktemp("profile")
    rows = [f"2024-05-10 00:00:00.{i:06d},{p},{o}" for i, (p, o) in enumerate(pairs)]
    (folder / "log.csv").write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    derived = derive(Azure(), folder / "log.csv", name="p", source=Source("here", "none"))
    (folder / "p.json").write_text(to_json(derived))
    loaded = load_profile(folder / "p.json")

    edge = 1 - 2.0**-53
    corners = np.array([[a, b, c] for a in (0, edge) for b in (0, edge) for c in (0, edge)])
    uniforms = np.concatenate([corners, np.random.default_rng(0).random((300, 3))])
    prompts, outputs = loaded.lengths(uniforms)
    assert set(prompts.tolist()) <= {p for p, _ in pairs}
    assert set(outputs.tolist()) <= {o for _, o in pairs}
    for margin, values in zip(
        (loaded.prompt, loaded.output), zip(*pairs, strict=True), strict=True
    ):
        assert margin.moments()[0] == pytest.approx(np.mean(values))
        assert margin.moments()[1] == pytest.approx(np.std(values), abs=1e-9)


def test_a_dependent_log_stays_dependent(tmp_path: Path) -> None:
    """Output = prompt in the log: drawn pairs then differ by less than two bins."""
    rows = [f"2024-05-10 00:{i // 60:02d}:{i % 60:02d},{i + 1},{i + 1}" for i in range(1280)]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    out = tmp_path / "p.json"
    assert main([str(log), str(out), "--source", "made up", "--licence", "none"]) == 0
    prompts, outputs = load_profile(out).lengths(np.random.default_rng(0).random((5000, 3)))
    # 1280 values in 64 bins: 20 values a bin, and both come from the same bin.
    assert np.abs(prompts - outputs).max() < 20


def test_an_unknown_trace_needs_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without source and licence nothing is written."""
    log = tmp_path / "log.csv"
    log.write_bytes(Azure.sample)
    assert main([str(log), str(tmp_path / "p.json")]) == 2
    assert "--source TEXT --licence TEXT" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [log]


@pytest.mark.parametrize(
    ("trace_name", "out_name", "says"),
    [("none.csv", "p.json", "no such file"), ("log.csv", "no/p.json", "cannot be written")],
)
def test_wrong_paths_give_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    trace_name: str,
    out_name: str,
    says: str,
) -> None:
    """A missing trace and an unwritable place are user errors, exit code 2."""
    (tmp_path / "log.csv").write_bytes(Azure.sample)
    arguments = [str(tmp_path / trace_name), str(tmp_path / out_name)]
    assert main([*arguments, "--source", "s", "--licence", "l"]) == 2
    message = capsys.readouterr().err.strip()
    assert says in message
    assert "\n" not in message


def test_known_sources_name_the_published_file() -> None:
    """The digest that fills in the Azure source is that of the file it was made from."""
    stored = json.loads(packaged_profile_path("azure_conv_2023").read_text())
    assert KNOWN_SOURCES[stored["source_sha256"]].text == stored["source"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("num_requests", 5, "cell_counts do not add up to num_requests"),
        ("cell_counts", [[1]], "cell_counts must have"),
        ("schema_version", 99, "schema_version"),
        ("licence", None, "licence"),
        ("extra", 1, "extra"),
        ("prompt", {"values_tokens": [1], "counts": [1, 2], "bin_upper_tokens": [1]}, "counts"),
        ("prompt", {"values_tokens": [2, 1], "counts": [1, 2], "bin_upper_tokens": [1]}, "rise"),
        ("prompt", {"values_tokens": [1, 2], "counts": [1, 2], "bin_upper_tokens": [1]}, "among"),
        ("prompt", {"values_tokens": [0], "counts": [1], "bin_upper_tokens": [0]}, "prompt.values"),
    ],
)
def test_a_contradictory_profile_is_refused(
    tmp_path: Path, key: str, value: object, says: str
) -> None:
    """A profile edited by hand names the field that does not fit."""
    fields = json.loads(packaged_profile_path("azure_conv_2023").read_text())
    path = tmp_path / "own.json"
    path.write_text(json.dumps(fields | {key: value}))
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_offers_the_nearest() -> None:
    """Misspelt profile names get the right one."""
    with pytest.raises(ProfileError, match="did you mean 'azure_conv_2023'"):
        packaged_profile_path("azure_conv_2032")


def test_an_unreadable_profile_is_refused(tmp_path: Path) -> None:
    """A folder is no profile."""
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(tmp_path)
