"""Live streams on real processes: found, lost, rebuilt, abandoned; the caller never sees which."""

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.bodies import CHAT, COMPLETION, ENCODER, one_shot
from tests.e2e.streams import (
    IDS,
    LONG,
    REQUEST,
    Counts,
    body,
    chunks,
    drive,
    long_body,
    new_id,
    post,
)
from tests.serving import Service, until

SHARD = 1
TITLE = f"derender: shard {SHARD}"


@pytest.fixture
def caller() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture(autouse=True)
def everything_returns_to_zero(service: Service) -> Iterator[None]:
    yield
    wait_healthy(service)
    until(lambda: Counts(service.url).in_flight() == 0, 20, "an end of every call")
    answer = post(service.url, one_shot("</think>Hello."))
    assert answer["choices"][0]["message"]["content"] == "Hello."


def wait_healthy(service: Service) -> None:
    def serves() -> bool:
        return httpx.get(f"{service.url}/health", timeout=5).status_code == 200

    until(serves, 30, "a healthy service")


def begin(caller: ThreadPoolExecutor, service: Service, given: Any) -> "Future[httpx.Response]":
    """Send a call and wait until the shard works on it."""
    sent = caller.submit(httpx.post, service.url + CHAT, json=given, timeout=100)
    until(lambda: sent.done() or Counts(service.url).in_flight(SHARD), 20, "a call in flight")
    assert not sent.done(), "the replay is too short for this test"
    return sent


def test_echo_and_checkpoints_give_the_same_chunks_on_one_shard(service: Service) -> None:
    name = new_id(SHARD)
    before = Counts(service.url)
    echoed = drive([service.url], name)
    between = Counts(service.url)
    checked = drive([service.url], name, checkpoints=True)
    after = Counts(service.url)
    assert chunks(echoed) == chunks(checked)
    assert all(set(answer["stream_state"]) == {"checkpoint"} for answer in checked)
    for start, end in ((before, between), (between, after)):
        assert end.calls("first", SHARD) - start.calls("first", SHARD) == 1
        assert end.calls("hit", SHARD) - start.calls("hit", SHARD) == len(IDS) - 1
        for outcome in ("first", "hit"):
            assert end.calls(outcome, 1 - SHARD) == start.calls(outcome, 1 - SHARD)
        for outcome in ("replay", "catch_up", "retry"):
            assert end.calls(outcome) == start.calls(outcome)


def test_a_killed_shard_is_not_noticed(service: Service) -> None:
    name = new_id(SHARD)
    undisturbed = drive([service.url], name)

    def kill(at: int) -> None:
        if at == len(IDS) - 8:
            service.kill(TITLE)

    answers = drive([service.url], name, before=kill)
    assert chunks(answers) == chunks(undisturbed)
    tool_ids = answers[-1]["stream_state"]["last_tool_call_ids"]
    assert len(tool_ids) == 2
    assert tool_ids == undisturbed[-1]["stream_state"]["last_tool_call_ids"]
    counts = Counts(service.url)
    assert (counts.replays("restarted", SHARD), counts.calls("replay", SHARD)) == (1, 1)
    assert counts.calls("hit", SHARD) == 7


def test_a_call_in_flight_is_answered_by_the_successor(
    service: Service, caller: ThreadPoolExecutor
) -> None:
    resent = Counts(service.url).total("derender_calls_resent_total")
    sent = begin(caller, service, long_body(new_id(SHARD)))
    service.kill(TITLE)
    answer = sent.result(100)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["stream_state"]["output_token_ids"]) == LONG + 1
    assert Counts(service.url).total("derender_calls_resent_total") > resent


def test_a_call_that_takes_two_shards_down_is_given_up(
    service: Service, caller: ThreadPoolExecutor
) -> None:
    sent = begin(caller, service, long_body(new_id(SHARD), 30_000))
    first = service.kill(TITLE)
    until(lambda: TITLE in service.processes().values(), 20, "the successor")
    successor = service.pid_of(TITLE)
    assert successor != first
    # The successor has the call once it burns time on it.
    until(lambda: sent.done() or replaying(service), 20, "the call's second start")
    assert not sent.done()
    os.kill(successor, signal.SIGKILL)
    answer = sent.result(100)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (500, "shard_lost_twice")
    assert set(error) == {"message", "type", "param", "code"}


def replaying(service: Service) -> bool:
    counts = Counts(service.url)
    return bool(counts.in_flight(SHARD) and counts.calls("replay", SHARD))


@contextmanager
def leaving(service: Service, given: Any) -> Iterator[None]:
    """Send a call, and close the connection before it is answered."""
    url = urlsplit(service.url)
    # The same bytes as of a call that is made again: a context is known by its bytes.
    content = httpx.Request("POST", service.url, json=given).content
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(content)}\r\n\r\n"
    with socket.create_connection((url.hostname, url.port)) as caller:
        caller.sendall(head.encode() + content)
        yield


def test_a_caller_who_leaves_ends_a_long_replay(service: Service) -> None:
    given = long_body(new_id(SHARD))
    before = Counts(service.url)
    pid = service.pid_of(TITLE)
    # Stopped meanwhile, the shard gets the call and the word that nobody waits at once.
    os.kill(pid, signal.SIGSTOP)
    try:
        with leaving(service, given):
            until(lambda: Counts(service.url).in_flight(SHARD), 10, "a call in flight")
        until(lambda: Counts(service.url).in_flight(SHARD) == 0, 10, "an end of the call")
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: idle(pid), 10, "an idle shard")
    between = Counts(service.url)
    assert between.replayed_tokens(SHARD) - before.replayed_tokens(SHARD) == LONG
    assert len(post(service.url, given)["stream_state"]["output_token_ids"]) == LONG + 1
    # What was replayed before the caller left is kept, and it was not all.
    after = Counts(service.url)
    assert after.calls("catch_up", SHARD) - between.calls("catch_up", SHARD) == 1
    assert 0 < after.replayed_tokens(SHARD) - between.replayed_tokens(SHARD) < LONG


def idle(pid: int) -> bool:
    """Whether a process runs no more than an idle loop does while we look."""
    begun = ticks(pid)
    for _ in range(50):
        Path(f"/proc/{os.getpid()}/smaps_rollup").read_text()
    return ticks(pid) - begun <= 1


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_other_streams_flow_beside_a_long_replay(
    service: Service, caller: ThreadPoolExecutor
) -> None:
    sent = begin(caller, service, long_body(new_id(SHARD), 30_000))
    answers = drive([service.url], new_id(SHARD), ids=IDS[:12])
    assert not sent.done()
    assert len(answers) == 12
    assert sent.result(100).status_code == 200


STOPPING = "Hello there, and good day. STOP Then some more of it."


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_a_stop_string_cuts_a_chat_stream(service: Service, kept: bool, checkpoints: bool) -> None:
    request = REQUEST | {"stop": ["STOP"], "include_stop_str_in_output": kept}
    answers = drive(
        [service.url],
        new_id(),
        ids=ENCODER.token_ids(f"<think>Hm.</think>{STOPPING}"),
        chat_request=request,
        checkpoints=checkpoints,
    )
    choices = [answer["chunk"]["choices"][0] for answer in answers]
    texts = [choice["delta"].get("content") or "" for choice in choices]
    check_stopped(choices, texts, kept)
    later = choices[[choice["finish_reason"] for choice in choices].index("stop") + 1 :]
    assert all(not any(choice["delta"].values()) for choice in later)


@pytest.mark.parametrize("kept", [False, True])
def test_a_stop_string_cuts_a_completion_stream(service: Service, kept: bool) -> None:
    request = {"prompt": "hi", "stop": ["STOP"], "include_stop_str_in_output": kept}
    answers = drive(
        [service.url],
        new_id(),
        ids=ENCODER.token_ids(STOPPING),
        path=COMPLETION,
        completion_request=request,
    )
    choices = [answer["chunk"]["choices"][0] for answer in answers]
    check_stopped(choices, [choice["text"] for choice in choices], kept)


def check_stopped(choices: list[Any], texts: list[str], kept: bool) -> None:
    """The text ends at the stop string, once; nothing follows."""
    assert "".join(texts) == STOPPING.partition("STOP")[0] + ("STOP" if kept else "")
    finishes = [choice["finish_reason"] for choice in choices]
    stops = [choice["stop_reason"] for choice in choices]
    (at,) = [i for i, reason in enumerate(finishes) if reason is not None]
    assert (finishes[at], stops[at]) == ("stop", "STOP")
    assert at < len(choices) - 1
    assert not any(texts[at + 1 :])
    assert {*finishes[at + 1 :], *stops[at + 1 :]} == {None}


def test_text_is_held_back_for_a_stop_string_that_does_not_come(service: Service) -> None:
    ids = ENCODER.token_ids("A STO, but no more.")
    for path, member in ((CHAT, "chat_request"), (COMPLETION, "completion_request")):
        request = {"stop": ["STOP"], "messages": [{"role": "user", "content": "hi"}]}
        request |= {"prompt": "hi"} if path == COMPLETION else {}
        request |= {"chat_template_kwargs": {"enable_thinking": False}} if path == CHAT else {}
        members: Any = {member: request}
        answers = drive([service.url], new_id(), ids=ids, path=path, **members)
        choices = [answer["chunk"]["choices"][0] for answer in answers]
        delta = [choice.get("delta") or choice for choice in choices]
        texts = [each.get("content") or each.get("reasoning") or each.get("text") for each in delta]
        assert "".join(text or "" for text in texts) == "A STO, but no more."
        assert not texts[0]
        assert choices[-1]["finish_reason"] == "stop"
        assert choices[-1]["stop_reason"] is None


def test_two_replicas_in_turn_give_the_stream_of_one(service: Service, second: Service) -> None:
    name = new_id()
    alone = drive([service.url], name)
    before = [Counts(url.url) for url in (service, second)]
    name_again = drive([service.url, second.url], name)
    after = [Counts(url.url) for url in (service, second)]
    assert chunks(name_again) == chunks(alone)
    assert states(name_again) == states(alone)
    moved = [
        end.calls("catch_up") - start.calls("catch_up")
        for start, end in zip(before, after, strict=True)
    ]
    assert sum(moved) >= len(IDS) - 3
    assert min(moved) > 0
    assert (
        sum(end.calls("hit") - start.calls("hit") for start, end in zip(before, after, strict=True))
        == 0
    )


def states(answers: list[Any]) -> list[Any]:
    return [answer["stream_state"] | {"created": 0} for answer in answers]


def test_unknown_and_forged_checkpoints_are_conflicts(service: Service) -> None:
    name = new_id()
    first = post(service.url, body(IDS[:3], None, name, checkpoints=True))
    identity, secret, step = first["stream_state"]["checkpoint"].split(".")
    for forged in (
        f"{identity}.{'0' * 32}.{step}",
        f"{identity}.{secret}.{int(step) + 1}",
        f"{'0' * 16}.{secret}.{step}",
    ):
        given = body(IDS[3:4], {"checkpoint": forged}, name)
        answer = httpx.post(service.url + CHAT, json=given)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (409, "unknown_checkpoint")
        assert error["param"] == "stream_state.checkpoint"
    post(service.url, body(IDS[3:4], first["stream_state"], name))


def test_a_lost_answer_is_asked_for_again(service: Service) -> None:
    name = new_id(SHARD)
    for checkpoints in (False, True):
        first = post(service.url, body(IDS[:30], None, name, checkpoints=checkpoints))
        given = body(IDS[30:50], first["stream_state"], name, checkpoints=checkpoints)
        before = Counts(service.url)
        answers = [post(service.url, given) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        moved = Counts(service.url).calls("retry", SHARD) - before.calls("retry", SHARD)
        assert moved == 2
