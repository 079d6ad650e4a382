"""What every decoding method and acceptance model must do, whoever adds it.

The tests walk the registries: a new file is tested by the examples its ``Config`` gives of
itself (``json_schema_extra``), before its author has written a test.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simspec.core.registry import PluginConfig
from simspec.cost.work import Pass, Rows
from simspec.decoding._base import (
    ACCEPTANCE_MODELS,
    METHODS,
    AcceptanceConfig,
    AcceptanceProcess,
    Method,
    MethodConfig,
)
from simspec.decoding._chain import chain_outcomes
from simspec.decoding.autoregressive import Autoregressive
from tests.decoding.factories import examples, tape, target, walk

METHOD_EXAMPLES = list(examples(METHODS))
ACCEPTANCE_EXAMPLES = list(examples(ACCEPTANCE_MODELS))


def _name(config: object) -> str:
    assert isinstance(config, PluginConfig)
    return config.name


each_method = pytest.mark.parametrize("config", METHOD_EXAMPLES, ids=_name)
each_lossless_method = pytest.mark.parametrize(
    "config",
    [config for config in METHOD_EXAMPLES if isinstance(config, MethodConfig) and config.lossless],
    ids=_name,
)
each_acceptance = pytest.mark.parametrize("config", ACCEPTANCE_EXAMPLES, ids=_name)


def _build(config: PluginConfig) -> Method:
    assert isinstance(config, MethodConfig)
    return config.build(target())


def _process(config: PluginConfig, exit_layer: int | None = 4) -> AcceptanceProcess:
    assert isinstance(config, AcceptanceConfig)
    return config.at(exit_layer)


def _thresholds(config: PluginConfig) -> tuple[float, ...]:
    """Return thresholds this model can answer: without a confidence only 0."""
    return (0.0, 0.5, 0.8) if getattr(config, "confidence", None) else (0.0,)


@pytest.mark.parametrize("config", [*METHOD_EXAMPLES, *ACCEPTANCE_EXAMPLES], ids=_name)
def test_a_config_survives_dump_and_reload(config: PluginConfig) -> None:
    """What is written to a manifest reads back as the same object, and knows its own name."""
    registry = METHODS if isinstance(config, MethodConfig) else ACCEPTANCE_MODELS
    assert registry.parse(config.model_dump(mode="json")) == config
    assert config.name in registry.names()
    assert type(config)(**config.model_dump(exclude={"name"})) == config


# -- methods ---------------------------------------------------------------------------------


@each_method
def test_no_more_is_accepted_than_drafted(config: PluginConfig) -> None:
    """0 <= a <= m <= K at every start, and a speculative round drafts at least one token."""
    method = _build(config)
    for seed in range(20):
        outcomes = method.outcomes(tape(seed=seed, accept_share=seed / 19))
        assert (outcomes.accepted >= 0).all()
        assert (outcomes.accepted <= outcomes.drafted).all()
        assert (outcomes.drafted <= method.max_draft).all()
        assert (outcomes.drafted >= min(1, method.max_draft)).all()
        assert outcomes.drafted.shape == outcomes.accepted.shape == (200,)


@each_lossless_method
def test_nothing_drafted_is_plain_decoding(config: PluginConfig) -> None:
    """With m = 0 everywhere the passes are those of the autoregressive method.

    A search that found nothing to draft from was made all the same.
    """
    contexts = [10, 999, 40]
    plain = Autoregressive(target()).round_passes(contexts, [0, 0, 0], [0, 0, 0], None)
    passes = _build(config).round_passes(contexts, [0, 0, 0], [0, 0, 0], None)
    assert [replace(work, host_lookups=0.0) for work in passes] == plain


@each_method
def test_the_footprint_is_not_negative(config: PluginConfig) -> None:
    """Extra bytes are at least 0 and every token of a round has its slot."""
    method = _build(config)
    footprint = method.footprint()
    assert footprint.extra_weights_bytes >= 0
    assert footprint.extra_kv_bytes_per_token >= 0
    assert footprint.reserved_slots >= method.max_draft + 1


def _check_passes(method: Method, passes: list[Pass]) -> None:
    stacks = method.stacks()
    for work in passes:
        assert 0 <= work.first_layer < work.last_layer <= len(stacks[work.stack].blocks)
        assert work.rows
        for rows in work.rows:
            assert rows.num_sequences > 0
            assert rows.kv_tokens >= rows.num_tokens >= rows.num_sequences
            assert 0 <= rows.logit_rows <= rows.num_tokens


@each_method
def test_passes_name_stacks_and_layers_that_exist(config: PluginConfig) -> None:
    """Every pass runs layers its stack has, over rows that make sense."""
    method = _build(config)
    for drafted in ([1, 1], [method.max_draft, 1], [0, method.max_draft]):
        limited = [min(m, method.max_draft) for m in drafted]
        _check_passes(method, method.round_passes([50, 800], limited, limited, None))


PREFILL = Rows(
    kind="prefill",
    num_sequences=2,
    num_tokens=300,
    kv_tokens=700,
    attended_tokens=120_000.0,
    logit_rows=1,
)


@each_method
@pytest.mark.parametrize("batch_size", [0, 3])
def test_a_prompt_chunk_passes_every_target_layer_once(
    config: PluginConfig, batch_size: int
) -> None:
    """The chunk's tokens see each layer of the target once, and its logits are made once."""
    method = _build(config)
    drafted = [min(2, method.max_draft)] * batch_size
    passes = method.round_passes([100] * batch_size, drafted, drafted, PREFILL)
    _check_passes(method, passes)
    num_layers = len(method.stacks()["target"].blocks)
    tokens = np.zeros(num_layers)
    logit_rows = 0.0
    for work in passes:
        for rows in work.rows:
            if rows.kind == "prefill" and work.stack == "target":
                tokens[work.first_layer : work.last_layer] += rows.num_tokens
                logit_rows += rows.logit_rows
    assert (tokens == PREFILL.num_tokens).all()
    assert logit_rows == PREFILL.logit_rows


@each_lossless_method
@pytest.mark.parametrize("batch_size", [1, 5])
def test_verified_tokens_see_every_target_layer(config: PluginConfig, batch_size: int) -> None:
    """Each layer of the target sees the m + 1 tokens of a round at least once, in the mean too."""
    method = _build(config)
    statistics = _statistics(method)
    tokens = np.zeros(len(method.stacks()["target"].blocks))
    for entry in method.expected_passes(batch_size, 500.0, statistics):
        if entry.work.stack == "target":
            seen = sum(rows.num_tokens for rows in entry.work.rows)
            tokens[entry.work.first_layer : entry.work.last_layer] += entry.weight * seen
    assert (tokens >= batch_size * (statistics.drafted_per_round + 1) * (1 - 1e-9)).all()


def _statistics(method: Method):  # type: ignore[no-untyped-def]
    acceptance = ACCEPTANCE_MODELS.parse(
        {"name": "constant", "alpha": 0.7, "confidence": {"a": 4.5, "b": 1.8}}
    )
    return method.statistics(acceptance.at(4) if method.max_draft else None)


@each_method
def test_statistics_are_distributions(config: PluginConfig) -> None:
    """P(m = j) and P(a = j) are not negative and sum to 1; a tree accepts up to its depth."""
    method = _build(config)
    statistics = _statistics(method)
    assert statistics.drafted_pmf.shape == (method.max_draft + 1,)
    assert statistics.accepted_pmf.size <= statistics.drafted_pmf.size
    for pmf in (statistics.drafted_pmf, statistics.accepted_pmf):
        assert (pmf >= 0).all()
        assert pmf.sum() == pytest.approx(1.0, abs=1e-9)


# -- acceptance models -----------------------------------------------------------------------


@each_acceptance
def test_a_tape_is_reproducible_and_its_own(config: PluginConfig) -> None:
    """Same seed and request: same tape, from any process object; another request: another."""
    tapes = [_process(config).tape(7, request, 100) for request in (1, 1, 2)]
    np.testing.assert_array_equal(tapes[0].confidence, tapes[1].confidence)
    np.testing.assert_array_equal(tapes[0].off_track_confidence, tapes[1].off_track_confidence)
    np.testing.assert_array_equal(tapes[0].accept, tapes[1].accept)
    assert (tapes[0].accept[0] != tapes[2].accept[0]).any()


@each_acceptance
def test_outcomes_depend_on_position_not_on_what_was_tried(config: PluginConfig) -> None:
    """The same tape answers every K and tau: asking for one leaves the others unchanged."""
    process = _process(config)
    text = process.tape(7, 1, 100)
    before = chain_outcomes(text, 5, 0.0)
    for max_draft in (1, 3, 16):
        for tau in _thresholds(config):
            chain_outcomes(text, max_draft, tau)
            process.statistics(max_draft, tau)
    again = chain_outcomes(process.tape(7, 1, 100), 5, 0.0)
    np.testing.assert_array_equal(before.accepted, again.accepted)
    np.testing.assert_array_equal(before.drafted, again.drafted)


@each_acceptance
def test_confidences_are_probabilities(config: PluginConfig) -> None:
    """All of them lie in [0, 1), or the model says that it has none."""
    text = _process(config).tape(0, 0, 1000)
    for confidence in (text.confidence, text.off_track_confidence):
        if getattr(config, "confidence", None):
            assert (confidence >= 0).all()
            assert (confidence < 1).all()
        else:
            assert np.isnan(confidence).all()


@each_acceptance
@pytest.mark.parametrize("max_draft", [1, 5])
def test_the_closed_form_is_the_mean_of_the_tape(config: PluginConfig, max_draft: int) -> None:
    """E[m] and E[a] within 3.5 standard errors over 300 requests of 40 rounds.

    The first 10 rounds are left out: the closed form is a steady state. False alarm for a new
    seed: 5e-4 per comparison.
    """
    process = _process(config)
    for tau in _thresholds(config):
        means = np.zeros((2, 300))
        for request in range(300):
            text = process.tape(23, request, 50 * (max_draft + 1))
            rounds = walk(chain_outcomes(text, max_draft, tau), 50)
            means[:, request] = [counts[10:].mean() for counts in rounds]
        statistics = process.statistics(max_draft, tau)
        errors = means.std(axis=1, ddof=1) / np.sqrt(means.shape[1])
        for mean, error, expected in zip(
            means.mean(axis=1),
            errors,
            (statistics.drafted_per_round, statistics.accepted_per_round),
            strict=True,
        ):
            assert mean == pytest.approx(expected, abs=3.5 * error + 1e-9)


@each_acceptance
def test_tokens_grow_with_draft_length_and_fall_with_the_threshold(config: PluginConfig) -> None:
    """A longer chain never yields fewer tokens per round; a stricter exit never more."""
    process = _process(config)
    by_length = [process.statistics(k, 0.0).tokens_per_round for k in (1, 2, 4, 8, 20)]
    # Clustered text: longer drafts also leave harder starts, which costs less than it gives.
    assert all(short <= long + 1e-9 for short, long in pairwise(by_length))
    by_threshold = [process.statistics(5, tau).drafted_per_round for tau in _thresholds(config)]
    assert all(loose >= strict - 1e-9 for loose, strict in pairwise(by_threshold))


@each_acceptance
def test_the_sentence_is_one_line(config: PluginConfig) -> None:
    """Reports print it as it is."""
    sentence = _process(config).describe()
    assert sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("tau", [0.0, 0.6])
def test_more_acceptance_never_gives_fewer_tokens(tau: float) -> None:
    """With the same seed a higher alpha accepts a superset, at every start and in the mean."""
    confidence = {"a": 4.5, "b": 1.8}
    for name, extra in (
        ("constant", {"confidence": confidence}),
        ("beta_curve", {"confidence": confidence, "autocorrelation": 0.5}),
    ):
        processes = [
            _process(ACCEPTANCE_MODELS.parse({"name": name, "alpha": alpha, **extra}))
            for alpha in (0.0, 0.2, 0.6, 0.9, 1.0)
        ]
        for low, high in pairwise(processes):
            few = chain_outcomes(low.tape(3, 4, 400), 5, tau)
            many = chain_outcomes(high.tape(3, 4, 400), 5, tau)
            assert (many.accepted >= few.accepted).all()
            assert (
                high.statistics(5, tau).tokens_per_round > low.statistics(5, tau).tokens_per_round
            )
