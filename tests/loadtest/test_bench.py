"""The benchmark's own arithmetic, bodies and table; the servers it measures are not started."""

import ast
import os
import sys
from pathlib import Path

import msgspec
import pytest

from core.protocol.envelope import envelope_decoder
from core.protocol.generate import GenerateChunk, GenerateResponse
from core.protocol.stream_state import StreamState
from loadtest.bench.against_reference import ONE_SHOT
from loadtest.bench.keepalive import PostError, check_status, content_length, request_bytes
from loadtest.bench.stream import Stream
from loadtest.bench.workload import Context, Workload, one_shot_body, sampled_body
from loadtest.model.folder import MODEL_DIR
from loadtest.report.page import render
from loadtest.report.row import FigureRow
from loadtest.report.samples import interleaved, percentile
from loadtest.report.setting import RunSetting
from loadtest.report.table import Table
from loadtest.servers.procfs import private_bytes

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload(MODEL_DIR)


def test_percentile_is_a_sample() -> None:
    samples = [float(value) for value in range(1, 101)]
    assert percentile(samples, 99) == 99.0
    assert percentile(samples, 50) == 50.0
    assert percentile([7.0], 99) == 7.0


def test_sides_are_sampled_in_turn_in_bursts() -> None:
    calls: list[str] = []

    def side(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    samples = interleaved([lambda: side("a"), lambda: side("b")], 10, warm_up=1)
    assert calls == ["a", "b", *"a" * 8, *"b" * 8, *"a" * 2, *"b" * 2]
    assert [len(kept) for kept in samples] == [10, 10]
    assert samples[0][:2] == [3.0, 4.0]
    assert samples[1][-1] == 22.0


def test_prompts_and_generations_have_the_length_asked_for(workload: Workload) -> None:
    for tokens in (64, 1000):
        assert len(workload.prompt(tokens)) == tokens
        assert len(workload.output(tokens)) == tokens
        assert len(workload.finished(tokens)) == tokens
    assert workload.output(2000)[:500] == workload.output(500)


def test_a_sampled_body_carries_the_state_of_the_chunk_before(workload: Workload) -> None:
    output = workload.output(100)
    body = envelope_decoder.decode(sampled_body(Context(workload.prompt(64)), output, 100))
    state = msgspec.json.decode(body.stream_state, type=StreamState)
    chunk = msgspec.json.decode(body.generate_chunk, type=GenerateChunk)
    assert [*state.output_token_ids, *(chunk.choices[0].token_ids or [])] == output
    assert state.output_chunk_lens == [1] * 99
    assert state.logprob_context_token_ids == output[95:99]


def test_a_stream_echoes_what_was_answered(workload: Workload) -> None:
    stream = Stream(Context(workload.prompt(64)), workload.output(4), checkpoints=True)
    first = envelope_decoder.decode(stream.body())
    assert first.checkpoints and bytes(first.stream_state) == b"null"
    stream.take(b'{"chunk":{},"stream_state":{"checkpoint":"c"}}')
    second = envelope_decoder.decode(stream.body())
    assert bytes(second.stream_state) == b'{"checkpoint":"c"}'
    assert not second.prompt_token_ids and not second.chat_request


@pytest.mark.parametrize(("tokens", "top", "_"), ONE_SHOT)
def test_one_shot_bodies_are_engine_responses(
    workload: Workload, tokens: int, top: int, _: float
) -> None:
    size = tokens // 100
    body = envelope_decoder.decode(one_shot_body(workload.prompt(64), workload.finished(size), top))
    response = msgspec.json.decode(body.generate_response, type=GenerateResponse)
    choice = response.choices[0]
    assert len(choice.token_ids or []) == size
    positions = (choice.logprobs.content if choice.logprobs else None) or []
    assert [len(position.top_logprobs) for position in positions] == [top] * size * bool(top)


def test_answers_are_taken_only_whole_and_with_200() -> None:
    assert request_bytes("h:1", "/p", b"{}").endswith(b"content-length: 2\r\n\r\n{}")
    assert content_length(b"HTTP/1.1 200 OK\r\nContent-Length: 17") == 17
    with pytest.raises(PostError, match="no content-length"):
        content_length(b"HTTP/1.1 200 OK")
    with pytest.raises(PostError, match="status 400: why"):
        check_status(b"HTTP/1.1 400 Bad Request", b"why")


def test_rows_say_whether_they_are_as_wanted() -> None:
    table = Table("group")
    table.faster("fast", ([0.1], [0.01]), at_least=5.0)
    table.times("long", ([0.01], [0.03]), "short", 2.0)
    table.figure("memory", "MB", 30.0, at_most=40.0)
    table.figure("throughput", "chunks/s", 1000.0)
    assert [row.met for row in table.rows] == [True, False, True, None]
    assert _quick_row().met is None


def _quick_row() -> FigureRow:
    table = Table("group", judged=False)
    table.faster("fast", ([0.1], [0.01]), at_least=50.0)
    return table.rows[0]


def test_the_table_names_its_setting_and_caveats() -> None:
    setting = RunSetting(command="cmd", model="m", shards=1, rounds=2, max_model_len=3, vllm="0.33")
    text = render(setting, [_quick_row()])
    assert "vLLM 0.33" in text and "command: cmd" in text and "| group | fast | 100 ms" in text
    assert "in turn" in text


def test_private_memory_of_a_process_is_read() -> None:
    assert 0 < private_bytes(os.getpid()) < 64e9


def test_locust_users_import_nothing_of_the_project() -> None:
    tree = ast.parse((ROOT / "loadtest" / "users" / "users.py").read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    plain = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    modules |= {alias.name for node in plain for alias in node.names}
    roots = {str(module).split(".")[0] for module in modules}
    assert roots <= set(sys.stdlib_module_names) | {"locust", "tokenizers"}
