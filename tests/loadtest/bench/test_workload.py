"""Prompts, generations and bodies of the benchmark; the servers it measures are not started."""

import msgspec
import pytest

from core.protocol.envelope import envelope_decoder
from core.protocol.generate import GenerateChunk, GenerateResponse
from core.protocol.stream_state import StreamState
from loadtest.bench.against_reference import ONE_SHOT
from loadtest.bench.stream import Stream
from loadtest.bench.workload import Context, Workload, one_shot_body, sampled_body
from loadtest.model.folder import MODEL_DIR


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload(MODEL_DIR)


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
