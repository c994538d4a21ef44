"""The coupled server in this process answers what a real one did, token for token.

The recordings are of vLLM 0.32. What differs is listed by name with its reason and asserted to be
exactly that.
"""

import re
from collections import defaultdict

import pytest

from tests import recordings
from tests.core.calling import DEEPSEEK, QWEN, QWEN_PLAIN, SPM_PLAIN, Json, Setup, encode
from tests.core.coupled import Chunk, Coupled, Position, ScriptError, coupled
from tests.core.recorded import (
    CANDIDATE,
    PROMPT_LOGPROBS,
    RECORDINGS,
    UNKNOWN_CANDIDATE,
    every_recording,
    setup_of,
)
from tests.recordings import as_list, differences

# The rank of a sampled token among candidates that are not reported.
RANK = re.compile(r"\.rank: \d+ != \d+$")

ALIKE = ("id", "created", "system_fingerprint", "request_id")
END = "<|im_end|>"


def chunks_of(recording: Json) -> list[Chunk]:
    """What the recorded engine said, as one stream after the other."""
    return [
        _chunk(prompt, choice)
        for prompt, stream in enumerate(as_list(recording["generate_stream"]))
        for event in stream["chunks"]
        if event != "[DONE]"
        for choice in event["choices"]
    ]


def _chunk(prompt: int, choice: Json) -> Chunk:
    # The engine core knows nothing of stop strings.
    by_string = isinstance(choice["stop_reason"], str)
    return Chunk(
        prompt,
        choice["index"],
        tuple(choice["token_ids"]),
        None if by_string else choice["finish_reason"],
        None if by_string else choice["stop_reason"],
        choice["logprobs"] and [_position(entry) for entry in choice["logprobs"]["content"]],
    )


def _position(entry: Json) -> Position:
    return [(candidate["token_id"], candidate["logprob"]) for candidate in entry["top_logprobs"]]


def comparable(answer: Json) -> Json:
    """An answer without what differs each time."""
    if isinstance(answer, list):
        return [comparable(part) for part in answer]
    if not isinstance(answer, dict):
        return answer
    return {key: comparable(value) for key, value in answer.items() if key not in ALIKE}


def by_choice(events: Json) -> dict[int, list[Json]]:
    """The events of each choice in order, and under -1 those of none: how choices mix is chance."""
    sorted_out = defaultdict(list)
    for event in comparable(events):
        named = event != "[DONE]" and event["choices"]
        sorted_out[event["choices"][0]["index"] if named else -1].append(event)
    return dict(sorted_out)


def test_every_recording_is_there() -> None:
    assert len(RECORDINGS) == 209
    assert {setup_of(recording) for recording in RECORDINGS.values()} == {
        QWEN,
        QWEN_PLAIN,
        DEEPSEEK._replace(tool_parser="deepseek_v3"),
        SPM_PLAIN,
    }


@every_recording
def test_one_shot_answers_are_the_recorded_ones(recording: Json) -> None:
    server = coupled(setup_of(recording))
    answer = server.respond(recording["endpoint"], recording["request"], chunks_of(recording))
    assert answer.status == 200
    found = differences(comparable(answer.payload), comparable(recording["coupled"]["response"]))
    if recording["name"] == PROMPT_LOGPROBS:
        assert found
        found = [line for line in found if not line.startswith(".prompt_logprobs[")]
    assert found == {UNKNOWN_CANDIDATE: [f".choices[1].{CANDIDATE}"]}.get(recording["name"], [])


@every_recording
def test_streams_are_the_recorded_ones_event_by_event(recording: Json) -> None:
    server, recorded = coupled(setup_of(recording)), recording["coupled_stream"]
    request = recording["request"] | recorded["request"]
    answer = server.stream(recording["endpoint"], request, chunks_of(recording))
    if recording["name"] == PROMPT_LOGPROBS:
        assert (answer.status, answer.payload["error"]["param"]) == (400, "prompt_logprobs")
        return
    assert answer.status == 200
    found = differences(by_choice(answer.payload), by_choice(recorded["chunks"]))
    expected = {UNKNOWN_CANDIDATE: [f".1[0].choices[0].{CANDIDATE}"]}
    assert found == expected.get(recording["name"], [])


@every_recording
def test_the_engine_says_what_it_said(recording: Json) -> None:
    server, chunks = coupled(setup_of(recording)), chunks_of(recording)
    streams, responses = as_list(recording["generate_stream"]), as_list(recording["generate"])
    options = streams[0]["request"].get("stream_options")
    generated = server.generated(
        recording["endpoint"], recording["request"], chunks, stream_options=options
    )
    found = [
        line
        for ours, stream, response in zip(generated, streams, responses, strict=True)
        for line in (
            *differences(by_choice(ours.events), by_choice(stream["chunks"])),
            *differences(comparable(ours.response), comparable(response["response"])),
        )
        if not RANK.search(line)
    ]
    if recording["name"] == PROMPT_LOGPROBS:
        found = [line for line in found if not line.startswith(".prompt_logprobs[")]
    assert found == []


EXCHANGES = {
    exchange["name"]: (entry["server"], exchange)
    for entry in recordings.errors()
    for exchange in entry["exchanges"]
    if exchange["method"] == "POST"
    and exchange["status"] >= 400
    and isinstance(exchange.get("request"), dict)
    and not exchange["path"].endswith("/derender")
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_refusals_are_the_recorded_ones(name: str) -> None:
    server, exchange = EXCHANGES[name]
    setup = Setup("qwen", server.get("tool_call_parser"), server.get("reasoning_parser"))
    answer = coupled(setup).ask(exchange["path"], exchange["request"], ())
    assert answer == (exchange["status"], exchange["response"])


def server_and_request() -> tuple[Coupled, Json]:
    return coupled(QWEN_PLAIN), {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def said(*texts: str, choice: int = 0) -> list[Chunk]:
    """One chunk per text."""
    return [Chunk(0, choice, tuple(encode("qwen", text))) for text in texts]


def test_a_stop_string_inside_a_chunk_ends_the_choice() -> None:
    server, request = server_and_request()
    chunks = said("One, two, three, four", " and more", choice=1) + said("Five", END)
    chunks[-1] = chunks[-1]._replace(finish="stop")
    request |= {"n": 2, "stop": [" three"], "return_token_ids": True}
    first, second = server.respond("chat", request, chunks).payload["choices"]
    assert first["message"]["content"] == "Five"
    assert second["message"]["content"] == "One, two,"
    assert second["stop_reason"] == " three"
    assert second["token_ids"] == encode("qwen", "One, two, three")


def test_choices_come_in_the_order_of_the_chunks() -> None:
    order = [(1, 1), (0, 0), (1, 0), (0, 1), (0, 0), (1, 1), (0, 1), (1, 0)]
    chunks = [Chunk(*at, (9419,)) for at in order[:4]]
    chunks += [Chunk(*at, (9419,), "length") for at in order[4:]]
    request = {"model": "m", "prompt": ["a", "b"], "n": 2, "max_tokens": 2}
    *events, done = coupled(QWEN_PLAIN).stream("completion", request, chunks).payload
    assert done == "[DONE]"
    assert [event["choices"][0]["index"] for event in events] == [2 * p + c for p, c in order]


def test_an_engine_error_ends_the_stream() -> None:
    server, request = server_and_request()
    chunks = [*said("One"), Chunk(0, 0, (), "error")]
    *_, error, done = server.stream("chat", request, chunks).payload
    assert (error["error"]["code"], done) == (500, "[DONE]")
    assert server.respond("chat", request, chunks).status == 500


def test_logprobs_are_made_up_where_none_are_given() -> None:
    server, request = server_and_request()
    chunks = [*said("One"), *said("two")]
    chunks[-1] = chunks[-1]._replace(finish="length")
    request |= {"logprobs": True, "top_logprobs": 3}
    (choice,) = server.respond("chat", request, chunks).payload["choices"]
    assert [len(entry["top_logprobs"]) for entry in choice["logprobs"]["content"]] == [3, 3]
    echo = {"model": "m", "prompt": "a b", "echo": True, "logprobs": 2, "max_tokens": 2}
    (choice,) = server.respond("completion", echo, chunks).payload["choices"]
    values = choice["logprobs"]["token_logprobs"]
    assert values[0] is None
    assert len(values) == 4


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], "do not end every choice"),
        (said("One"), "do not end every choice"),
        (said("One", choice=1), "no choice"),
        ([Chunk(1, 0, (9419,), "length")], "no choice"),
    ],
)
def test_chunks_that_do_not_fit_are_an_error(chunks: list[Chunk], message: str) -> None:
    server, request = server_and_request()
    for ask in (server.respond, server.stream):
        with pytest.raises(ScriptError, match=message):
            ask("chat", request, chunks)
    fitting = [chunk._replace(finish="length") for chunk in said("One")]
    assert server.respond("chat", request, fitting).status == 200
