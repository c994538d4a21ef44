"""What a client sends and keeps, without a server: states, checkpoints, and rebuilding a state."""

from typing import Any

import httpx
import msgspec
import pytest

from gateway.client.client import DerenderClient, DerenderRefused, DerenderUnavailable
from gateway.client.conversation import Conversation

REQUEST = {"messages": [{"role": "user", "content": "hi"}]}
CHECKPOINT = {"checkpoint": f"{'a' * 16}.{'b' * 32}.1"}


def chunk(ids: list[int], index: int = 0, **members: Any) -> dict[str, Any]:
    return {"request_id": "r", "choices": [{"index": index, "token_ids": ids, **members}]}


def answer(state: Any, created: int = 5, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta}
    return msgspec.json.encode(
        {"chunk": {"created": created, "choices": [choice]}, "stream_state": state}
    )


def sent(turn: Any) -> Any:
    return msgspec.json.decode(turn.request())


def conversation(checkpoints: bool = True) -> Conversation:
    return Conversation(REQUEST, [1, 2, 3], None, checkpoints=checkpoints)


def test_the_first_call_brings_the_whole_context() -> None:
    body = sent(conversation().turn(chunk([1])))
    assert body == {
        "stream": True,
        "generate_chunk": chunk([1]),
        "prompt_tokens": 3,
        "stream_state": None,
        "prompt_token_ids": [1, 2, 3],
        "chat_request": REQUEST,
        "checkpoints": True,
    }


def test_a_checkpoint_travels_alone() -> None:
    talk = conversation()
    talk.turn(chunk([1])).finish(answer(CHECKPOINT))
    body = sent(talk.turn(chunk([2])))
    assert body["stream_state"] == CHECKPOINT
    assert not {"prompt_token_ids", "chat_request", "checkpoints"} & set(body)


@pytest.mark.parametrize("member", ["output_token_ids", "role_sent"])
def test_a_full_state_goes_back_as_it_came_with_its_context(member: str) -> None:
    talk = conversation(checkpoints=False)
    state = {"checkpoint": "a" * 16, member: [1] if member == "output_token_ids" else True}
    talk.turn(chunk([1])).finish(answer(state))
    body = sent(talk.turn(chunk([2])))
    assert body["stream_state"] == state
    assert body["prompt_token_ids"] == [1, 2, 3]
    assert body["checkpoints"] is False


def test_a_lost_checkpoint_is_replaced_by_the_state_it_stood_for() -> None:
    talk = conversation()
    call = {"index": 0, "id": "call-1", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "id": None, "function": {"name": None, "arguments": "{}"}}
    again = {"index": 0, "id": "call-1", "function": {"name": None, "arguments": ""}}
    talk.turn(chunk([1, 2])).finish(answer(CHECKPOINT, tool_calls=[call]))
    talk.turn(chunk([])).finish(answer(CHECKPOINT, created=9))
    talk.turn(chunk([3, 4, 5])).finish(answer(CHECKPOINT, tool_calls=[more, again]))
    turn = talk.turn(chunk([6]))
    assert sent(turn)["stream_state"] == CHECKPOINT
    assert turn.fall_back()
    body = sent(turn)
    assert body["prompt_token_ids"] == [1, 2, 3]
    assert body["checkpoints"] is True
    assert body["stream_state"] == {
        "output_token_ids": [1, 2, 3, 4, 5],
        "output_chunk_lens": [2, 3],
        "role_sent": True,
        "tools_streamed": True,
        "last_tool_call_ids": ["call-1"],
        "logprob_context_token_ids": [2, 3, 4, 5],
        "created": 5,
    }
    # Only once: a server that refuses a full state so would do it for ever.
    assert not turn.fall_back()


@pytest.mark.parametrize("ids", [[], [7]])
def test_a_rebuilt_state_tells_how_the_choice_ended(ids: list[int]) -> None:
    talk = conversation()
    ended = chunk(ids, finish_reason="stop", stop_reason=7)
    talk.turn(ended).finish(answer(CHECKPOINT))
    turn = talk.turn({"request_id": "r", "choices": [], "usage": {"completion_tokens": 1}})
    assert turn.fall_back()
    assert sent(turn)["stream_state"]["finished"] == {
        "finish_reason": "stop",
        "stop_reason": 7,
        "apart": not ids,
    }


def test_choices_have_their_own_states() -> None:
    talk = conversation()
    other = {"checkpoint": f"{'c' * 16}.{'d' * 32}.1"}
    talk.turn(chunk([1], 0)).finish(answer(CHECKPOINT))
    talk.turn(chunk([1], 1)).finish(answer(other))
    assert sent(talk.turn(chunk([2], 1)))["stream_state"] == other
    usage = {"request_id": "r", "choices": [], "usage": {"completion_tokens": 2}}
    assert sent(talk.turn(usage))["stream_state"] == CHECKPOINT


def test_a_state_that_was_never_issued_cannot_be_replaced() -> None:
    assert not conversation().turn(chunk([1])).fall_back()


def client_of(*answers: httpx.Response, retries: int = 2) -> DerenderClient:
    left = list(answers)
    http = httpx.Client(transport=httpx.MockTransport(lambda _: left.pop(0)))
    return DerenderClient("http://server", retries=retries, http=http)


def test_a_busy_server_is_asked_again() -> None:
    busy = httpx.Response(503, json={"error": {"message": "busy"}}, headers={"retry-after": "0"})
    good = httpx.Response(200, content=answer(CHECKPOINT, content="hi"))
    with client_of(busy, good) as client:
        (got,) = client.stream([chunk([1])], REQUEST, [1])
        assert got["choices"][0]["delta"] == {"content": "hi"}


def test_a_server_that_stays_busy_is_given_up() -> None:
    busy = httpx.Response(503, json={"error": {}}, headers={"retry-after": "0"})
    with client_of(busy, busy, retries=1) as client, pytest.raises(DerenderUnavailable):
        list(client.stream([chunk([1])], REQUEST, [1]))


def test_a_refusal_is_final_and_said() -> None:
    error = {"message": "no", "type": "BadRequestError", "param": "x", "code": 400}
    with client_of(httpx.Response(400, json={"error": error})) as client:
        with pytest.raises(DerenderRefused, match="400: no") as refused:
            list(client.stream([chunk([1])], REQUEST, [1]))
        assert (refused.value.status, refused.value.error) == (400, error)


def test_an_answer_that_is_no_json_is_a_refusal_too() -> None:
    page = client_of(httpx.Response(404, text="<html>"))
    with page as client, pytest.raises(DerenderRefused, match="html"):
        list(client.stream([chunk([1])], REQUEST, [1]))


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({}, "choices"),
        ({"choices": [{"token_ids": [1]}]}, "index"),
        ({"choices": [{"index": 0, "token_ids": [-1]}]}, "token_ids"),
        ({"choices": [{"index": 0}, {"index": 1}]}, "at most one choice"),
        ({"choices": 5}, "choices"),
    ],
)
def test_what_is_no_engine_chunk_is_not_sent(bad: dict[str, Any], word: str) -> None:
    with client_of() as client, pytest.raises(ValueError, match=word):
        list(client.stream([bad], REQUEST, [1]))
