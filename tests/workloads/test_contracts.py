"""What every arrival process, length distribution and importer promises, by walking the registries.

Each plug-in brings its examples and its own theory, so a new file is covered before its author
writes a test.
"""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import TraceError
from simspec.core.rng import stream
from simspec.workloads._base import (
    ARRIVALS,
    IMPORTERS,
    LENGTHS,
    ArrivalsConfig,
    ImporterConfig,
    LengthsConfig,
    Moments,
)
from simspec.workloads.arrivals._clock import VaryingRate
from simspec.workloads.arrivals.closed_loop import Config as ClosedLoop
from simspec.workloads.detect import detect

# Fixed seeds; 5 standard errors fail by chance about once in 1.7 million comparisons.
NUM_SIGMAS = 5.0
NUM_SAMPLES = 200_000

ARRIVAL_EXAMPLES = [
    (name, i)
    for name in ARRIVALS.names()
    for i in range(len(ARRIVALS.config_class(name).examples))  # type: ignore[attr-defined]
]
LENGTH_EXAMPLES = [
    (name, i)
    for name in LENGTHS.names()
    for i in range(len(LENGTHS.config_class(name).examples))  # type: ignore[attr-defined]
]


def arrivals(name: str, example: int) -> ArrivalsConfig:
    config = ARRIVALS.config_class(name)
    assert issubclass(config, ArrivalsConfig)
    parsed = ARRIVALS.parse({"name": name, **config.examples[example]})
    assert isinstance(parsed, ArrivalsConfig)
    return parsed


def lengths(name: str, example: int) -> LengthsConfig:
    config = LENGTHS.config_class(name)
    assert issubclass(config, LengthsConfig)
    parsed = LENGTHS.parse({"name": name, **config.examples[example]})
    assert isinstance(parsed, LengthsConfig)
    return parsed


def importer(name: str) -> ImporterConfig:
    parsed = IMPORTERS.parse(name)
    assert isinstance(parsed, ImporterConfig)
    return parsed


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with the file that examples of replaying plug-ins name."""
    (tmp_path / "log.csv").write_bytes(importer("azure").sample)
    (tmp_path / "clients").mkdir()
    for number in (1, 2):
        windows = "0,0.5,1,Gamma,1,2\n600,0.25,2,Weibull,0.5,2\n1200,0.5,1,Gamma,1,2\n"
        (tmp_path / f"clients/chunk-{number}-trace.csv").write_text(windows)
        lengths = '{"0": {"input_tokens": "{3: 1.0}", "output_tokens": "{2: 1.0}"}}'
        (tmp_path / f"clients/chunk-{number}-dataset.json").write_text(lengths)
    return tmp_path


def assert_moments(sample: npt.NDArray[np.float64], theory: Moments) -> None:
    """Compare mean and variance with theory, each within its own standard error."""
    n, mean = sample.size, sample.mean()
    centred = sample - mean
    variance = float((centred**2).mean())
    tiny = 1e-9 * max(1.0, theory.mean)
    assert abs(mean - theory.mean) <= NUM_SIGMAS * theory.std / math.sqrt(n) + tiny
    # Var(s²) = (mu4 - sigma⁴)/n, with the sample's own fourth moment.
    error = math.sqrt(max(float((centred**4).mean()) - variance**2, 0.0) / n)
    assert abs(variance - theory.std**2) <= NUM_SIGMAS * error + tiny**2


def test_every_plug_in_brings_examples() -> None:
    """A plug-in without an example would escape these tests."""
    assert {name for name, _ in ARRIVAL_EXAMPLES} == set(ARRIVALS.names())
    assert {name for name, _ in LENGTH_EXAMPLES} == set(LENGTHS.names())
    assert all(importer(name).sample_rows for name in IMPORTERS.names())


@pytest.mark.parametrize(("name", "example"), ARRIVAL_EXAMPLES)
def test_gaps_have_the_moments_the_process_states(name: str, example: int, base: Path) -> None:
    """Sample mean and variance of the gaps agree with the process's own theory."""
    config = arrivals(name, example)
    theory = config.gap_moments()
    drawn = config.draw(stream(11, name, example), NUM_SAMPLES, base=base)
    if theory is None and isinstance(config, VaryingRate):
        # On the clock of the expected number of arrivals, gaps are those of a unit rate.
        drawn_by = config.expected_by(drawn.times_s)
        assert drawn.rate_per_s == pytest.approx(NUM_SAMPLES / drawn.times_s[-1], rel=0.05)
        assert_moments(np.diff(drawn_by, prepend=0.0), Moments(1.0, config.cv))
        return
    if theory is None:
        assert drawn.concurrency is not None or config.brings_lengths
        return
    assert drawn.rate_per_s == pytest.approx(1 / theory.mean)
    assert_moments(np.diff(drawn.times_s, prepend=0.0), theory)


VARYING = [(name, i) for name, i in ARRIVAL_EXAMPLES if isinstance(arrivals(name, i), VaryingRate)]


@pytest.mark.parametrize(("name", "example"), VARYING)
def test_counts_of_a_varying_rate_follow_its_integral(name: str, example: int) -> None:
    """Over many runs the count in each of four spans has the mean, and of a Poisson process the
    variance, that the integral of the rate says."""
    config = arrivals(name, example)
    assert isinstance(config, VaryingRate)
    num_runs, edges_s = 400, np.linspace(0.0, 100.0, 5)
    expected = np.diff(config.expected_by(edges_s))
    counts = np.empty((num_runs, 4))
    for run in range(num_runs):
        times_s = config.draw(stream(run, name, example), 1500).times_s
        assert times_s[-1] > edges_s[-1]
        counts[run] = np.diff(np.searchsorted(times_s, edges_s))
    # A renewal process that begins with a whole gap lags by (cv² - 1)/2 at most.
    lag = abs(config.cv**2 - 1) / 2
    error = np.maximum(counts.std(axis=0), 1e-9) / math.sqrt(num_runs)
    assert np.all(np.abs(counts.mean(axis=0) - expected) <= NUM_SIGMAS * error + lag)
    if config.cv == 1:
        for column, mean in zip(counts.T, expected, strict=True):
            assert_moments(column, Moments(float(mean), math.sqrt(mean)))


@pytest.mark.parametrize(("name", "example"), VARYING)
@given(at=st.floats(0, 1e7))
def test_the_clock_of_a_varying_rate_and_its_inverse_agree(
    name: str, example: int, at: float
) -> None:
    """As many requests are expected by the time of an expected number as that number."""
    config = arrivals(name, example)
    assert isinstance(config, VaryingRate)
    back = config.expected_by(config.time_of(np.array([at])))
    assert back[0] == pytest.approx(at, rel=1e-9, abs=1e-9)


THINKING = [
    (name, i) for name, i in ARRIVAL_EXAMPLES if getattr(arrivals(name, i), "think_time_s", 0) > 0
]


@pytest.mark.parametrize(("name", "example"), THINKING)
def test_think_times_have_the_moments_the_loop_states(name: str, example: int) -> None:
    """Mean and variance agree; the first ones do not depend on how many are drawn."""
    config = arrivals(name, example)
    assert isinstance(config, ClosedLoop)
    few, many = (config.draw(stream(9, name), n).sessions for n in (50, NUM_SAMPLES))
    assert few is not None
    assert many is not None
    assert_moments(many.think_s, config.think_moments())
    assert np.array_equal(few.think_s, many.think_s[:50])
    assert np.all(many.follows == -1)


@pytest.mark.parametrize(("name", "example"), ARRIVAL_EXAMPLES)
def test_arrivals_never_go_back(name: str, example: int, base: Path) -> None:
    """Times are finite, not negative and in order; counts agree."""
    drawn = arrivals(name, example).draw(stream(3, name), 500, base=base)
    assert np.all(np.isfinite(drawn.times_s))
    assert np.all(np.diff(drawn.times_s, prepend=0.0) >= 0)
    if drawn.lengths is None:
        assert drawn.times_s.size == 500
    else:
        assert drawn.lengths.prompt_lens.size == drawn.times_s.size > 0


@pytest.mark.parametrize(("name", "example"), ARRIVAL_EXAMPLES)
def test_asking_for_more_requests_keeps_the_first(name: str, example: int, base: Path) -> None:
    """The first n arrivals do not depend on how many are drawn."""
    config = arrivals(name, example)
    few = config.draw(stream(5, name), 40, base=base).times_s
    many = config.draw(stream(5, name), 400, base=base).times_s
    assert np.array_equal(few, many[: few.size])


@pytest.mark.parametrize(("name", "example"), ARRIVAL_EXAMPLES)
def test_another_rate_stretches_the_same_process(name: str, example: int, base: Path) -> None:
    """Common random numbers between loads: k times the rate is 1/k of every time."""
    config = arrivals(name, example)
    rate = getattr(config, "rate_per_s", None)
    if rate is None:
        return
    faster = config.model_copy(update={"rate_per_s": rate * 4})
    slow = config.draw(stream(5, name), 200, base=base).times_s
    fast = faster.draw(stream(5, name), 200, base=base).times_s
    # Factors of two are exact in binary, so this is equality, not approximation.
    assert np.array_equal(fast * 4, slow)


@pytest.mark.parametrize(("name", "example"), LENGTH_EXAMPLES)
def test_lengths_have_the_moments_the_distribution_states(
    name: str, example: int, base: Path
) -> None:
    """Sample mean and variance agree with the distribution's own theory, on both sides."""
    config = lengths(name, example)
    drawn = config.draw(stream(7, name, example), NUM_SAMPLES, base=base)
    for sample, theory in zip(
        (drawn.prompt_lens, drawn.output_lens), config.moments(base=base), strict=True
    ):
        assert_moments(sample.astype(np.float64), theory)


@pytest.mark.parametrize(("name", "example"), LENGTH_EXAMPLES)
def test_lengths_are_at_least_one_and_keep_their_prefix(
    name: str, example: int, base: Path
) -> None:
    """No empty request; the first n do not depend on how many are drawn."""
    config = lengths(name, example)
    few, many = (config.draw(stream(7, name), n, base=base) for n in (50, 5000))
    assert min(many.prompt_lens.min(), many.output_lens.min()) >= 1
    assert np.array_equal(few.prompt_lens, many.prompt_lens[:50])
    assert np.array_equal(few.output_lens, many.output_lens[:50])


@pytest.mark.parametrize(("name", "example"), [*ARRIVAL_EXAMPLES, *LENGTH_EXAMPLES])
def test_configs_survive_dump_load_and_pickle(name: str, example: int) -> None:
    """A config is data: written out and read again it is the same."""
    is_arrival = (name, example) in ARRIVAL_EXAMPLES
    config = arrivals(name, example) if is_arrival else lengths(name, example)
    registry = ARRIVALS if is_arrival else LENGTHS
    assert registry.parse(config.model_dump()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert config.describe()


@pytest.mark.parametrize("name", IMPORTERS.names())
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("at_end", [False, True])
def test_an_importer_reads_its_own_sample(
    name: str, newline: bytes, at_end: bool, tmp_path: Path
) -> None:
    """Count, order (of ties too), units; line ends do not matter, nor the last one."""
    config = importer(name)
    lines = config.sample.splitlines()
    path = tmp_path / "log"
    path.write_bytes(newline.join(lines) + (newline if at_end else b""))
    rows = list(config.rows(path))
    assert [row[1:] for row in rows] == [row[1:] for row in config.sample_rows]
    assert [row.arrival_s for row in rows] == pytest.approx(
        [row.arrival_s for row in config.sample_rows], abs=1e-9
    )


@pytest.mark.parametrize("name", IMPORTERS.names())
def test_an_importer_names_a_broken_line(name: str, tmp_path: Path) -> None:
    """Any row that is damaged is named by file and line."""
    config = importer(name)
    lines = config.sample.splitlines()
    first_row = len(lines) - len(config.sample_rows)
    for i in range(first_row, len(lines)):
        path = tmp_path / "log"
        path.write_bytes(b"\n".join([*lines[:i], lines[i][: len(lines[i]) // 2], *lines[i + 1 :]]))
        with pytest.raises(TraceError, match=rf"log:{i + 1}: "):
            list(config.rows(path))


@pytest.mark.parametrize("name", IMPORTERS.names())
def test_a_format_is_recognised_by_its_first_lines(name: str, tmp_path: Path) -> None:
    """The sample of each format is recognised as that format and no other."""
    path = tmp_path / "log"
    path.write_bytes(importer(name).sample)
    assert detect(path) == importer(name)
    assert importer(name).about


@pytest.mark.parametrize("name", IMPORTERS.names())
def test_a_rejected_line_is_told_and_the_rest_is_read(name: str, tmp_path: Path) -> None:
    """With somebody to tell, a damaged line is left out, and nothing else is."""
    config = importer(name)
    lines = config.sample.splitlines()
    path = tmp_path / "log"
    path.write_bytes(b"\n".join([*lines, lines[-1][: len(lines[-1]) // 2], b"", lines[-1]]))
    told: list[tuple[int, str]] = []
    rows = list(config.rows(path, lambda number, what: told.append((number, what))))
    assert [number for number, _ in told] == [len(lines) + 1]
    assert len(rows) == len(config.sample_rows) + 1


@pytest.mark.parametrize("name", IMPORTERS.names())
def test_an_importer_refuses_an_empty_log(name: str, tmp_path: Path) -> None:
    """No rows is a mistake, said in one sentence; so is no byte."""
    config = importer(name)
    lines = config.sample.splitlines()
    path = tmp_path / "log"
    for num_lines in {0, len(lines) - len(config.sample_rows)}:
        path.write_bytes(b"\n".join(lines[:num_lines]))
        with pytest.raises(TraceError, match="empty|no request"):
            list(config.rows(path))


@pytest.mark.parametrize("name", IMPORTERS.names())
def test_an_importer_reads_no_further_than_asked(name: str, tmp_path: Path) -> None:
    """Streaming: rubbish after the first row is not seen by who wants one row."""
    config = importer(name)
    lines = config.sample.splitlines()
    first_row = len(lines) - len(config.sample_rows)
    path = tmp_path / "log"
    path.write_bytes(b"\n".join([*lines[: first_row + 1], b"\xff\xfe rubbish"]))
    assert next(config.rows(path))[1:] == config.sample_rows[0][1:]


@pytest.mark.parametrize("name", IMPORTERS.names())
@given(data=st.data())
def test_any_bytes_give_requests_or_a_trace_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    """Fuzz: bytes, and the sample with pieces replaced, never raise anything but TraceError."""
    config = importer(name)
    sample = config.sample
    mutated = st.tuples(
        st.integers(0, len(sample)), st.integers(0, 30), st.binary(max_size=20)
    ).map(lambda m: sample[: m[0]] + m[2] + sample[m[0] + m[1] :])
    digits = st.lists(st.text("0123456789-:., TZ+", max_size=40).map(str.encode), max_size=4).map(
        lambda rows: b"\n".join([sample.splitlines()[0], *rows])
    )
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_bytes(data.draw(st.one_of(st.binary(max_size=100), mutated, digits)))
    last_s, messages = 0.0, [str(path)]

    def told(number: int, what: str) -> None:
        messages.append(f"{path}:{number}: {what}")

    for reject in (None, told):
        try:
            for row in config.rows(path, reject):
                assert row.arrival_s is None or row.arrival_s >= last_s
                assert min(row.prompt_len, row.output_len) >= 0
                last_s = row.arrival_s or 0.0
        except TraceError as error:
            messages.append(str(error))
        last_s = 0.0
    assert all("\n" not in message and str(path) in message for message in messages)
    assert max(map(len, messages)) < len(str(path)) + 400
