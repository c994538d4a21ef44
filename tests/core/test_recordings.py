"""Every recorded generation derenders to what the coupled server answered.

What cannot be equal is listed with its reason and asserted to be exactly that difference.
"""

import re

import pytest
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

from core.protocol.errors import BadRequest, DerenderError
from tests import recordings
from tests.core.calling import Json, Setup, answer, chunked, stream
from tests.core.recorded import (
    RECORDINGS,
    setup_of,
)
from tests.recordings import differences, outcome, stream_outcome

PLAIN = {
    name: entry for name, entry in RECORDINGS.items() if not entry["server"]["reasoning_parser"]
}

# The coupled server lists k + 1 candidates where the sampled token is not among the top k, but
# generate returns k: the last one is unknowable.
UNKNOWABLE_CANDIDATE = {
    "completion_two__n2_logprobs2": [
        ".choices[1].logprobs.top_logprobs[0]. tails: None != -1.0940876007080078"
    ],
}
# vLLM 0.33 refuses `prompt_logprobs` in a streamed request; the recording is from 0.32.
REFUSED_STREAMS = {"plain_hello__prompt_logprobs": "chat_request.prompt_logprobs"}
CHUNK_SIZES = (1, 2, 3, 5, 8)


@pytest.fixture(autouse=True)
def plain_json_calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The `json_tools` recordings were made with `VLLM_ENFORCE_STRICT_TOOL_CALLING=0`.

    Required and named calls are plain JSON there; vLLM reads the variable when the parser class
    is made.
    """
    callspec = getattr(request.node, "callspec", None)
    name = callspec.params.get("name") if callspec else None
    plain = RECORDINGS.get(name, {}).get("kind") == "json_tools"
    monkeypatch.setattr(Hermes2ProToolParser, "supports_required_and_named", plain)


def test_every_recording_is_there() -> None:
    assert len(RECORDINGS) == 209


@pytest.mark.parametrize("name", RECORDINGS)
def test_one_shot_equals_the_coupled_answer(name: str) -> None:
    recording = RECORDINGS[name]
    body = recordings.one_shot_body(recording)
    ours = outcome(answer(setup_of(recording), body, recording["endpoint"]))
    theirs = outcome(recording["coupled"]["response"])
    assert differences(ours, theirs) == UNKNOWABLE_CANDIDATE.get(name, [])


@pytest.mark.parametrize("name", [name for name in RECORDINGS if name not in REFUSED_STREAMS])
def test_stream_equals_the_coupled_stream(name: str) -> None:
    recording = RECORDINGS[name]
    setup, endpoint = setup_of(recording), recording["endpoint"]
    streams = [stream(setup, part, endpoint) for part in recordings.stream_bodies(recording)]
    ours = stream_outcome([chunk for chunks in streams for chunk in chunks])
    theirs = stream_outcome(recording["coupled_stream"]["chunks"])
    if len(streams) > 1:
        ours["usage"] = usage_sum(streams)
    expected = UNKNOWABLE_CANDIDATE.get(name, [])
    assert differences(ours, theirs) == expected + unknowable_reasoning(recording, theirs)


def usage_sum(streams: list[list[Json]]) -> Json:
    """The usage of several prompts: each engine stream reports its own, the coupled one the sum."""
    last = [stream_outcome(chunks)["usage"] for chunks in streams]
    if None in last:
        return None
    counted = ("prompt_tokens", "completion_tokens", "total_tokens")
    return last[0] | {key: sum(usage[key] for usage in last) for key in counted}


def unknowable_reasoning(recording: Json, theirs: Json) -> list[str]:
    """The difference of a stream with several choices.

    Its usage chunk counts the reasoning tokens of all of them, and the call carries the state of
    one.
    """
    details = (theirs["usage"] or {}).get("completion_tokens_details")
    if not details or recording["request"].get("n", 1) == 1:
        return []
    return [f".usage.completion_tokens_details: None != {details!r}"]


@pytest.mark.parametrize("name", REFUSED_STREAMS)
def test_streams_vllm_refuses_are_refused(name: str) -> None:
    recording = RECORDINGS[name]
    (bodies,) = recordings.stream_bodies(recording)
    with pytest.raises(BadRequest, match="prompt_logprobs") as refused:
        stream(setup_of(recording), bodies, recording["endpoint"])
    assert refused.value.param == REFUSED_STREAMS[name]


@pytest.mark.parametrize("name", PLAIN)
def test_chunking_does_not_change_plain_text(name: str) -> None:
    recording = RECORDINGS[name]
    setup, endpoint = setup_of(recording), recording["endpoint"]
    whole = recordings.one_shot_body(recording)
    texts = [text_of(choice) for choice in answer(setup, whole, endpoint)["choices"]]
    for size in CHUNK_SIZES:
        assert [
            joined_text(setup, parts, endpoint) for parts in rechunked(recording, size)
        ] == texts


def text_of(choice: Json) -> str:
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def joined_text(setup: Setup, bodies: list[Json], endpoint: str) -> str:
    (choice,) = stream_outcome(stream(setup, bodies, endpoint))["choices"]
    return str(choice["content"])


def rechunked(recording: Json, size: int) -> list[list[Json]]:
    """Stream bodies of each recorded one-shot choice, in chunks of a size."""
    kind = "chat_request" if recording["endpoint"] == "chat" else "completion_request"
    generated = [part["response"] for part in recordings.as_list(recording["generate"])]
    return [
        [
            {"stream": True, "generate_chunk": chunk, "prompt_token_ids": ids}
            | {kind: recording["request"]}
            for chunk in chunks_of(choice, size)
        ]
        for ids, part in zip(recordings.prompts(recording), generated, strict=True)
        for choice in part["choices"]
    ]


def chunks_of(choice: Json, size: int) -> list[Json]:
    """One choice as engine chunks; the last one has the finish reason."""
    parts = chunked(choice["token_ids"], size)
    last = {key: choice[key] for key in ("finish_reason", "stop_reason")}
    return [
        {"choices": [{"index": 0, "token_ids": part} | (last if i == len(parts) - 1 else {})]}
        for i, part in enumerate(parts)
    ]


# Where we answer otherwise than vLLM 0.32 did, by design: IDs outside the vocabulary are refused,
# they name no token.
ANSWERED_400 = re.compile(r"token out of vocabulary|huge token")
EXCHANGES = [
    (entry["server"], exchange)
    for entry in recordings.errors()
    for exchange in entry["exchanges"]
    if exchange["path"].endswith("/derender") and exchange["method"] == "POST"
]
# Bodies that are described in words, and faults that are found before `core` is called.
ELSEWHERE = re.compile(r"bad_json|unknown_model")


@pytest.mark.parametrize(
    ("server", "exchange"),
    [
        pytest.param(server, exchange, id=exchange["name"])
        for server, exchange in EXCHANGES
        if not ELSEWHERE.search(exchange["name"])
    ],
)
def test_recorded_refusals_are_refused(server: Json, exchange: Json) -> None:
    setup = Setup("qwen", server.get("tool_call_parser"), server.get("reasoning_parser"))
    endpoint = "chat" if "/chat/" in exchange["path"] else "completion"
    expected = 400 if ANSWERED_400.search(exchange["name"]) else exchange["status"]
    assert status(setup, spelled_out(exchange["request"]), endpoint) == expected


def spelled_out(request: Json) -> Json:
    """The body of an exchange whose long token list was recorded as words."""
    if not isinstance(request.get("generate_response"), str):
        return request
    choice = {"index": 0, "token_ids": [9419] * 8193}
    return request | {"generate_response": {"request_id": "r1", "choices": [choice]}}


def status(setup: Setup, body: Json, endpoint: str) -> int:
    try:
        answer(setup, body, endpoint)
    except DerenderError as error:
        return 400 if isinstance(error, BadRequest) else 500
    return 200
