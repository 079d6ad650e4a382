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
    if theory is None:
        assert drawn.concurrency is not None or config.brings_lengths
        return
    assert drawn.rate_per_s == pytest.approx(1 / theory.mean)
    assert_moments(np.diff(drawn.times_s, prepend=0.0), theory)


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
def test_lengths_have_the_moments_the_distribution_states(name: str, example: int) -> None:
    """Sample mean and variance agree with the distribution's own theory, on both sides."""
    config = lengths(name, example)
    drawn = config.draw(stream(7, name, example), NUM_SAMPLES)
    for sample, theory in zip(
        (drawn.prompt_lens, drawn.output_lens), config.moments(), strict=True
    ):
        assert_moments(sample.astype(np.float64), theory)


@pytest.mark.parametrize(("name", "example"), LENGTH_EXAMPLES)
def test_lengths_are_at_least_one_and_keep_their_prefix(name: str, example: int) -> None:
    """No empty request; the first n do not depend on how many are drawn."""
    config = lengths(name, example)
    few, many = (config.draw(stream(7, name), n) for n in (50, 5000))
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
    last_s, message = 0.0, str(path)
    try:
        for row in config.rows(path):
            assert row.arrival_s >= last_s
            assert min(row.prompt_len, row.output_len) >= 0
            last_s = row.arrival_s
    except TraceError as error:
        message = str(error)
    assert "\n" not in message
    assert str(path) in message
