"""Corners that the random runs found, or may meet too rarely: one test each."""

import random

import msgspec
import pytest

from core.protocol.errors import FaultCode
from shards.messages.orders import TableLimits
from tests.core.calling import Json, Setup, encode
from tests.equivalence.drive import Run
from tests.equivalence.replica import Refusal, Replica, call_for, replayed

SETUP = Setup("demo", "hermes", "qwen3")
IDS = encode("demo", "<think>Well.</think>Hello there, and good day.")


@pytest.fixture
def replica() -> Replica:
    return Replica(SETUP, TableLimits(), digests=False)


def body(at: int, state: Json, **members: Json) -> Json:
    choice = {"index": 0, "token_ids": [IDS[at]]}
    return {
        "stream": True,
        "generate_chunk": {"request_id": "r", "choices": [choice]},
        "stream_state": state,
        "prompt_token_ids": [1, 2],
        "chat_request": {"messages": [{"role": "user", "content": "hi"}]},
    } | members


def state_of(answer: bytes | Refusal) -> Json:
    assert isinstance(answer, bytes), answer
    return msgspec.json.decode(answer)["stream_state"]


def walk(replica: Replica, steps: int, state: Json = None, **members: Json) -> Json:
    """The state after some steps from the start."""
    for at in range(steps):
        state = state_of(replica.answer(call_for(body(at, state, **members))))
    return state


@pytest.mark.parametrize(
    ("ids", "lens"),
    [
        ([-1], [1]),
        (["x"], [1]),
        ([10**7], [1]),
        ([5], [0]),
        ([5], [2]),
        ([5] * 8190, [8190]),
        ([5] * 8188, [8188]),
    ],
)
def test_what_is_refused_is_named_by_its_place_in_the_whole(
    replica: Replica, ids: Json, lens: Json
) -> None:
    state = walk(replica, 3)
    state["output_token_ids"] += ids
    state["output_chunk_lens"] += lens
    call = call_for(body(3, state))
    assert replica.answer(call) == replayed(SETUP, call)


def test_a_checkpoint_is_of_no_use_once_its_stream_moved_on(replica: Replica) -> None:
    early = walk(replica, 3, checkpoints=True)
    late = walk(Replica(SETUP, TableLimits(), digests=False), 5)
    # A replay that nobody waits for leaves the live stream one chunk further.
    replica.abandon(call_for(body(5, late)), 1)
    answer = replica.answer(call_for(body(3, early)))
    assert isinstance(answer, Refusal)
    assert answer.code is FaultCode.UNKNOWN_CHECKPOINT


def test_a_stream_without_a_name_is_carried_whole(replica: Replica) -> None:
    state = walk(replica, 3)
    del state["checkpoint"]
    usage = {"request_id": "r", "choices": [], "usage": {"completion_tokens": 3}}
    given = body(3, state, generate_chunk=usage)
    answer = replica.answer(call_for(given | {"checkpoints": True}))
    assert answer == replayed(SETUP, call_for(given))


@pytest.mark.parametrize("length", [0, -1])
def test_a_chunk_length_is_refused_with_its_own_bound(replica: Replica, length: int) -> None:
    given = body(0, {"output_token_ids": [1], "output_chunk_lens": [1, length]})
    answer = replica.answer(call_for(given))
    assert isinstance(answer, Refusal)
    assert answer.message == "`stream_state.output_chunk_lens[1]`: expected an integer >= 1."


@pytest.mark.parametrize("at", ["secret", "step", "identity"])
def test_a_checkpoint_must_be_exact(replica: Replica, at: str) -> None:
    issued = walk(replica, 3, checkpoints=True)["checkpoint"]
    identity, secret, step = issued.split(".")
    forged = {
        "secret": f"{identity}.{secret[:-1]}{'1' if secret[-1] == '0' else '0'}.{step}",
        "step": f"{identity}.{secret}.{int(step) + 1}",
        "identity": f"{identity[::-1]}.{secret}.{step}",
    }[at]
    answer = replica.answer(call_for(body(3, {"checkpoint": forged})))
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.param) == (
        FaultCode.UNKNOWN_CHECKPOINT,
        "stream_state.checkpoint",
    )
    assert isinstance(replica.answer(call_for(body(3, {"checkpoint": issued}))), bytes)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("carried", [0, 3])
def test_an_end_that_came_apart_is_replayed_apart(
    replica: Replica, apart: bool, carried: int
) -> None:
    state = walk(replica, carried)
    ids: Json = [] if apart else [IDS[carried]]
    ended = {"index": 0, "token_ids": ids, "finish_reason": "stop", "stop_reason": IDS[2]}
    last = body(carried, state, generate_chunk={"request_id": "r", "choices": [ended]})
    state = state_of(replica.answer(call_for(last)))
    assert state["finished"]["apart"] is apart
    usage = {"completion_tokens": carried + (not apart)}
    counted = body(0, state, generate_chunk={"request_id": "r", "choices": [], "usage": usage})
    expected = replayed(SETUP, call_for(counted))
    other = Replica(SETUP, TableLimits(), digests=False)
    assert replica.answer(call_for(counted)) == expected
    assert other.answer(call_for(counted)) == expected


@pytest.mark.parametrize("member", ["seed 22104", "seed 294902"])
def test_seeds_that_once_failed(member: str) -> None:
    parser = {"seed 22104": "hermes", "seed 294902": "qwen3_coder"}[member]
    Run(Setup("demo", parser, "qwen3"), random.Random(int(member.split()[1]))).drive(100)
