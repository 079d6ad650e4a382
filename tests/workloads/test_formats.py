"""What each format can get wrong, and what is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simspec.core.errors import TraceError
from simspec.workloads._base import IMPORTERS, LoggedRequest
from simspec.workloads.arrivals.replay import spread
from simspec.workloads.detect import detect
from simspec.workloads.linked import Rejections, Sessions, shown_of
from simspec.workloads.request_log import read_log
from simspec.workloads.workload import WorkloadConfig

MOONCAKE = {"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}
QWEN = {
    "chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 5, "output_length": 2,
    "type": "text", "turn": 1, "hash_ids": [0],
}  # fmt: skip
LLM = {"input_toks": 3, "output_toks": 2, "arrival_time_ns": 7}
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
SPLIT = (
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
)
VIDUR = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"


def rows(tmp_path: Path, name: str, text: str, **options: Any) -> list[LoggedRequest]:
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8")
    return list(IMPORTERS.parse({"name": name, **options}).rows(path))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "mooncake",
            json.dumps(MOONCAKE | {"hash_ids": [1]}),
            "1 ids for 600 prompt tokens; expec",
        ),
        ("mooncake", json.dumps(MOONCAKE | {"hash_ids": "ab"}), "hash_ids: 'ab'; expected a list"),
        ("mooncake", json.dumps(MOONCAKE | {"timestamp": 1.5}), "timestamp: 1.5; expected a whole"),
        (
            "mooncake",
            json.dumps(MOONCAKE | {"timestamp": True}),
            "timestamp: true; expected a whol",
        ),
        ("mooncake", json.dumps(MOONCAKE | {"input_length": -1}), "input_length: -1; expected"),
        ("mooncake", '{"timestamp": 5, "input_length": 600}', "output_length: missing"),
        ("mooncake", "[1, 2]", "'[1, 2]' is no JSON object"),
        ("mooncake", "[" * 100_000, "is no JSON object"),
        ("mooncake", '{"timestamp": ' + "9" * 5000 + "}", "is no JSON object"),
        ("qwen_bailian", json.dumps(QWEN | {"type": 3}), "type: 3; expected a text"),
        ("qwen_bailian", json.dumps(QWEN | {"timestamp": "NaN"}), "timestamp: 'NaN'; expected sec"),
        ("qwen_bailian", json.dumps(QWEN).replace("0.5", "NaN"), "timestamp: NaN; expected sec"),
        ("llmservingsim", json.dumps(LLM | {"sub_requests": []}), "sub_requests: []; expected"),
        ("llmservingsim", json.dumps(LLM | {"input_tok_ids": [1]}), "1 ids for 3 input_toks"),
        ("llmservingsim", json.dumps(LLM | {"input_tok_ids": [1, "a", 2]}), "input_tok_ids: [1"),
        ("burstgpt", BURST + "5,GPT-4,10,2,13,API log", "Total tokens: 13 is not 10 + 2"),
        ("burstgpt", BURST + "5s,GPT-4,10,2,12,API log", "Timestamp: '5s'; expected seconds"),
        ("burstgpt", BURST + "5,GPT-4,10,2", "4 fields in '5,GPT-4,10,2'; expected 6"),
        ("splitwise_sim", SPLIT + "0,2,0,1,4,10,3", "batch_size: '4'; expected 1"),
        ("vidur", VIDUR + "10,3,14,3.3", "num_total_tokens: 14 is not 10 + 3"),
    ],
)
def test_wrong_lines_say_what_is_wrong(tmp_path: Path, name: str, text: str, says: str) -> None:
    """File, line, field, value and what was expected, in one short sentence."""
    with pytest.raises(TraceError) as caught:
        rows(tmp_path, name, text)
    message = str(caught.value)
    line = 2 if "\n" in text else 1
    assert message.startswith(f"{tmp_path / 'log'}:{line}: ")
    assert says in message
    assert len(message) < len(str(tmp_path)) + 250


def test_time_that_goes_back_is_told_in_seconds(tmp_path: Path) -> None:
    """Whatever the unit of the column."""
    text = "\n".join(json.dumps(MOONCAKE | {"timestamp": at}) for at in (2000, 500))
    with pytest.raises(TraceError, match=r"log:2: .*timestamp: 1\.5 s before the row above"):
        rows(tmp_path, "mooncake", text)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xfe\x00 not text", "not UTF-8"),
        (b"\x1f\x8b broken gzip", "gzip"),
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"a,b\n1,2\n", "no format begins with"),
    ],
)
def test_what_is_no_log_is_one_sentence(tmp_path: Path, data: bytes, says: str) -> None:
    """Encoding, compression, nothing at all, and a table of something else."""
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=says):
        detect(path)


def test_a_byte_order_mark_and_windows_line_ends_do_not_hide_the_format(tmp_path: Path) -> None:
    """As spreadsheet programs write it."""
    path = tmp_path / "log.csv"
    path.write_bytes(
        b"\xef\xbb\xbf" + (BURST + "5,GPT-4,10,2,12,API log\n").replace("\n", "\r\n").encode()
    )
    assert detect(path).name == "burstgpt"
    assert read_log(detect(path), path).lengths.prompt_lens.tolist() == [10]


def test_one_model_or_type_of_a_log(tmp_path: Path) -> None:
    """Time runs from the first row of the file, chosen or not."""
    text = BURST + "5,GPT-4,10,2,12,API log\n7,ChatGPT,20,3,23,API log\n"
    assert rows(tmp_path, "burstgpt", text, model="ChatGPT") == [LoggedRequest(2.0, 20, 3)]
    lines = [json.dumps(QWEN), json.dumps(QWEN | {"type": "search", "timestamp": 2.0})]
    (found,) = rows(tmp_path, "qwen_bailian", "\n".join(lines), request_type="search")
    assert found.arrival_s == 1.5


def test_a_session_of_an_agent_is_a_chain(tmp_path: Path) -> None:
    """Each sub-request follows the one before, after its tool; a failed one is bridged."""
    session = {
        "session_id": "a",
        "arrival_time_ns": 10**9,
        "sub_requests": [
            {"input_toks": 10, "output_toks": 4, "tool_duration_ns": 2 * 10**9},
            {"input_toks": 20, "output_toks": 0, "tool_duration_ns": 5 * 10**8},
            {"input_toks": 30, "output_toks": 6, "tool_duration_ns": 0},
        ],
    }
    path = tmp_path / "log"
    path.write_text(json.dumps(LLM) + "\n" + json.dumps(session))
    config = {"arrivals": {"name": "replay", "path": str(path)}}
    run = WorkloadConfig.model_validate(config).build(0)
    assert [(r.prompt_len, r.follows, r.think_s) for r in run.requests] == [
        (3, None, 0.0),
        (10, None, 0.0),
        (30, 1, 2.5),
    ]
    assert run.num_empty == 1


def test_sessions_close_up_over_what_is_left_out() -> None:
    """A chain without its first request begins with its second."""
    chain = Sessions(np.array([-1, 0, 1, 2]), np.array([0.0, 1.0, 2.0, 4.0]))
    rest = chain.take(np.array([False, True, False, True]))
    assert rest.follows.tolist() == [-1, 0]
    assert rest.think_s.tolist() == [1.0, 6.0]


def test_ties_are_spread_up_to_the_next_time() -> None:
    """Order and distinct times stay; the last ones take the mean gap."""
    spread_s = spread(np.array([0.0, 0.0, 3.0, 4.0, 4.0]))
    assert spread_s.tolist() == [0.0, 1.5, 3.0, 4.0, 5.0]
    assert spread(np.array([2.0, 2.0])).tolist() == [2.0, 2.0]


def test_rejected_lines_are_counted_and_shown_up_to_a_bound(tmp_path: Path) -> None:
    """All are counted, a hundred kept, as many shown as asked, and the rest said in one line."""
    rejected = Rejections(tmp_path / "log")
    for number in range(250):
        rejected(number, "wrong")
    assert rejected.count == 250
    assert len(rejected.sentences) == 100
    shown = list(shown_of(rejected.sentences, rejected.count, 10))
    assert len(shown) == 11
    assert shown[0].endswith("log:0: wrong")
    assert shown[-1] == "and 240 more"


def replayed(tmp_path: Path, text: str, **fields: Any) -> Any:
    path = tmp_path / "log"
    path.write_text(text)
    arrivals = {"name": "replay", "path": str(path), **fields}
    return WorkloadConfig.model_validate({"arrivals": arrivals}).build(0)


def test_a_replay_may_leave_out_lines_and_says_so(tmp_path: Path) -> None:
    """Refused unless asked; then counted, with the first sentence in the source."""
    text = BURST + "5,GPT-4,10,2,12,API log\nrubbish\n7,ChatGPT,20,3,23,API log\n"
    with pytest.raises(TraceError, match=r"log:3: broken line"):
        replayed(tmp_path, text)
    run = replayed(tmp_path, text, rejected_lines="skip")
    assert [r.prompt_len for r in run.requests] == [10, 20]
    assert run.counts()["rejected_lines"] == 1
    assert "1 lines left out" in run.source
    assert "log:3: " in run.rejected[0]


def test_a_window_of_a_log(tmp_path: Path) -> None:
    """From the first second up to the last, on a clock that begins with the window."""
    text = BURST + "".join(f"{t},GPT-4,10,2,12,API log\n" for t in (0, 10, 20, 30))
    run = replayed(tmp_path, text, time_window_s=[10, 30])
    assert [r.arrival_s for r in run.requests] == [0.0, 10.0]
    with pytest.raises(ValueError, match="no request between 31 and 40 s; the log's last is at 30"):
        replayed(tmp_path, text, time_window_s=[31, 40])


def test_clipped_prompts_keep_the_blocks_they_still_have(tmp_path: Path) -> None:
    """A prompt cut to 513 tokens has two blocks, one to 512 has one."""
    path = tmp_path / "log"
    path.write_text(json.dumps(MOONCAKE | {"input_length": 1030, "hash_ids": [4, 5, 6]}))
    config: dict[str, Any] = {"arrivals": {"name": "replay", "path": str(path)}}
    for limit, blocks in ((514, (4, 5)), (513, (4,))):
        cut = config | {"max_context_tokens": limit, "over_context": "clip"}
        (request,) = WorkloadConfig.model_validate(cut).build(0).requests
        assert (request.prompt_len, request.block_hashes) == (limit - 1, blocks)
        assert request.hash_block_tokens == 512


def test_classes_have_their_shares_and_change_nothing_else() -> None:
    """Shares by weight within five standard errors; times and lengths as without classes."""
    fields: dict[str, Any] = {
        "arrivals": {"name": "poisson", "rate_per_s": 1.0},
        "lengths": {"name": "fixed", "prompt_len": 5, "output_len": 5},
        "num_requests": 4000,
    }
    classes = [{"priority": -1, "weight": 1}, {"priority": 7, "weight": 3}]
    plain = WorkloadConfig.model_validate(fields).build(3)
    run = WorkloadConfig.model_validate(fields | {"priority_classes": classes}).build(3)
    urgent = sum(r.priority == -1 for r in run.requests)
    assert {r.priority for r in run.requests} == {-1, 7}
    assert abs(urgent - 1000) < 5 * (4000 * 0.25 * 0.75) ** 0.5
    assert [r.arrival_s for r in run.requests] == [r.arrival_s for r in plain.requests]
    with pytest.raises(ValueError, match="a priority is given twice"):
        WorkloadConfig.model_validate(fields | {"priority_classes": [classes[0]] * 2})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
SESSION = {
    "session_id": 1,
    "arrival_time_ns": 5,
    "sub_requests": [
        {"input_toks": 3, "output_toks": 2, "tool_duration_ns": 9, "input_tok_ids": [1, 2, 3]}
    ],
}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("mooncake", MOONCAKE),
        ("qwen_bailian", QWEN),
        ("llmservingsim", LLM),
        ("llmservingsim", SESSION),
    ],
)
@given(data=st.data())
def test_any_json_in_any_field_is_a_request_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, name: str, row: dict[str, Any], data: st.DataObject
) -> None:
    """Whatever type stands in a field, also inside a session, nothing but a sentence comes."""
    wrong = json.loads(json.dumps(row))
    place = wrong
    if "sub_requests" in wrong and data.draw(st.booleans()):
        place = wrong["sub_requests"][0]
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    path = tmp_path_factory.mktemp("json") / "log"
    path.write_text("\n".join([json.dumps(row), json.dumps(wrong), json.dumps(row)]))
    told: list[int] = []
    rows = list(IMPORTERS.parse(name).rows(path, lambda number, _: told.append(number)))
    assert told in ([], [2], [3])
    assert len(rows) >= 2
    for one in rows:
        assert one.arrival_s is not None
        assert 0 <= one.prompt_len < 10**9
        assert one.think_s >= 0


def test_a_log_can_be_squeezed_with_its_blocks(tmp_path: Path) -> None:
    """Load multiplied: times shrink, everything else stays."""
    lines = [json.dumps(MOONCAKE | {"timestamp": at}) for at in (0, 1000, 1000, 4000)]
    plain = replayed(tmp_path, "\n".join(lines))
    fast = replayed(tmp_path, "\n".join(lines), rate_scale=4, spread_ties=True)
    assert [r.arrival_s for r in plain.requests] == [0.0, 1.0, 1.0, 4.0]
    assert [r.arrival_s for r in fast.requests] == [0.0, 0.25, 0.625, 1.0]
    assert {r.block_hashes for r in fast.requests} == {(1, 2)}
