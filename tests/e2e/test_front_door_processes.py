"""Processes that are killed under streams: shards, the gateway, engines, and at last the service.

The last test ends the service it shares with the others.
"""

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from shards.messages.last_call import last_call
from tests.e2e.front_calls import (
    DONE,
    TIMEOUT_S,
    TOOLS,
    Answer,
    Ask,
    await_descriptors,
    await_nothing,
    chat,
    completion,
    counts,
    descriptors,
    opened,
    send,
    sending,
    streams,
)
from tests.front import EngineProcess
from tests.serving import Service, until

Engines = tuple[EngineProcess, EngineProcess]
GATEWAY = "derender: gateway 0"
SHARDS = ("derender: shard 0", "derender: shard 1")
TOKENS: dict[str, Any] = {"max_tokens": 120, "ignore_eos": True}
"""Two and a half seconds, with each text said over and over."""
LONG: dict[str, Any] = {"max_tokens": 4000, "ignore_eos": True}


def asks(prefix: str, times: int = 1) -> list[Ask]:
    """Streams of every kind, and two answers for which the gateway reads a stream."""
    made = []
    for number in range(times):
        name = f"{prefix}-{number}"
        usage = {"include_usage": True, "continuous_usage_stats": True}
        made += [
            chat(f"{name}-reasoning", stream=True, **TOKENS),
            chat(f"{name}-tools", stream=True, tools=TOOLS, max_tokens=120),
            chat(f"{name}-two", stream=True, n=2, stream_options=usage, **TOKENS),
            chat(f"{name}-logprobs", stream=True, logprobs=True, top_logprobs=2, **TOKENS),
            chat(f"{name}-stop", stream=True, stop=["never said"], return_token_ids=True, **TOKENS),
            chat(f"{name}-stopped", stop=["never said"], logprobs=True, **TOKENS),
            completion(f"{name}-plain", stream=True, logprobs=2, n=2, **TOKENS),
            completion(f"{name}-echo", stream=True, echo=True, stream_options=usage, **TOKENS),
            completion(f"{name}-several", stream=True, prompt=["Hello", "2+2?"], **TOKENS),
            completion(f"{name}-collected", stop=["never said"], prompt=["Hi", "2+2?"], **TOKENS),
        ]
    return made


def run(service: Service, given: list[Ask], meanwhile: Callable[[], object]) -> list[Answer]:
    with sending(service, given) as futures:
        meanwhile()
        answers: list[Answer] = [future.result() for future in futures]
    return answers


@pytest.fixture(scope="module", autouse=True)
def no_descriptor_is_left(pair: Service) -> Iterator[None]:
    before = descriptors(pair)
    yield
    if pair.process.poll() is None:
        await_descriptors(pair, before)


@pytest.fixture(autouse=True)
def everything_returns_to_zero(pair: Service, paced_engines: Engines) -> Iterator[None]:
    yield
    for engine in paced_engines:
        engine.await_idle()
        engine.clear()
    if pair.process.poll() is None:
        await_healthy(pair)
        await_nothing(pair)


def await_healthy(service: Service) -> None:
    def serves() -> bool:
        try:
            return httpx.get(f"{service.url}/health", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    until(serves, 30, "a healthy service")


def reopened(service: Service) -> float:
    return counts(service).total("derender_front_door_reopened_total")


def await_events(engines: Engines, more: int) -> None:
    """Let the streams get on."""

    def sent() -> int:
        return sum(engine.stats["parts"] for engine in engines)

    enough = sent() + more
    until(lambda: sent() >= enough, 20, f"{more} more events")


@pytest.fixture(scope="module")
def undisturbed(pair: Service) -> dict[str, Answer]:
    given = asks("killed", times=2)
    answers = run(pair, given, lambda: None)
    assert {answer.status for answer in answers} == {200}
    return {ask.request_id: answer for ask, answer in zip(given, answers, strict=True)}


def check_unseen(
    service: Service,
    engines: Engines,
    undisturbed: dict[str, Answer],
    kill: Callable[[], int],
) -> None:
    """Every answer is, byte for byte, the one given where nobody is killed."""
    before = reopened(service)

    def meanwhile() -> None:
        until(lambda: streams(service) == len(given), 20, "every stream")
        await_events(engines, 200)
        held.append(kill())

    given, held = asks("killed", times=2), list[int]()
    answers = run(service, given, meanwhile)
    for ask, answer in zip(given, answers, strict=True):
        expected = undisturbed[ask.request_id]
        assert answer.status == 200, answer.text
        assert answer.by_choice == expected.by_choice, ask.request_id
        if set(answer.by_choice) == {-1, 0}:
            assert answer.text == expected.text
    assert reopened(service) - before >= held[0]


def test_a_shard_killed_in_the_middle_of_many_streams_is_not_seen(
    pair: Service, paced_engines: Engines, undisturbed: dict[str, Answer]
) -> None:
    def kill() -> int:
        pair.kill(SHARDS[0])
        return 10

    check_unseen(pair, paced_engines, undisturbed, kill)


def test_all_shards_killed_twice_are_not_seen(
    pair: Service, paced_engines: Engines, undisturbed: dict[str, Answer]
) -> None:
    def kill() -> int:
        for shard in SHARDS:
            pair.kill(shard)
        until(lambda: {*SHARDS} <= {*pair.processes().values()}, 20, "both successors")
        await_healthy(pair)
        await_events(paced_engines, 200)
        for shard in SHARDS:
            pair.kill(shard)
        return 30  # All twenty, and most of them again.

    check_unseen(pair, paced_engines, undisturbed, kill)


def test_a_stream_that_ends_its_shard_twice_is_given_up_and_its_neighbours_live(
    pair: Service, paced_engines: Engines
) -> None:
    """A stream so wide that opening it anew takes a while, in which its shard is killed again."""
    width = 40
    poison = chat("poison", stream=True, n=width, max_tokens=2000, ignore_eos=True)
    neighbours = [chat(f"neighbour-{at}", stream=True, **TOKENS) for at in range(4)]
    expected = run(pair, neighbours, lambda: None)
    with sending(pair, [poison]) as (given_up,):
        until(lambda: streams(pair) == 1, 20, "the stream")
        await_events(paced_engines, 100 * width)
        with sending(pair, neighbours) as living:
            until(lambda: streams(pair) == 5, 20, "every stream")
            await_events(paced_engines, 10 * width)
            kill_until(pair, given_up)
            answers = [future.result() for future in living]
        answer: Answer = given_up.result()
    assert answer.error["code"] == "shard_lost_twice"
    assert [each.text for each in answers] == [each.text for each in expected]


def kill_until(service: Service, given_up: "Future[Answer]") -> None:
    """Kill the first shard, and then whichever opens the stream anew."""
    addresses = [address_of(service, title) for title in SHARDS]
    shard = 0
    for _ in range(10):
        look = Look(service, addresses, dead=service.kill(SHARDS[shard]))
        until(partial(over, look, given_up), 30, "an opening, or an end")
        if given_up.done():
            return
        shard = look.found
    raise AssertionError("the stream lives on")


def over(look: "Look", given_up: "Future[Answer]") -> bool:
    return given_up.done() or look.finds()


class Look:
    """Which shard works on one call for long: no call takes as long as opening a wide stream."""

    def __init__(self, service: Service, addresses: list[str], dead: int) -> None:
        self.found = 0
        self._service = service
        self._addresses = addresses
        self._dead = dead
        self._calls: dict[int, int | None] = {}

    def finds(self) -> bool:
        """Whether a shard works on the call it was seen to work on before."""
        pids = {title: pid for pid, title in self._service.processes().items()}
        for shard, address in enumerate(self._addresses):
            pid = pids.get(SHARDS[shard], self._dead)
            call = None if pid == self._dead else last_call(address, pid)
            if call is not None and call == self._calls.get(shard):
                self.found = shard
                return True
            self._calls[shard] = call
        return False


def address_of(service: Service, title: str) -> str:
    """The socket path of a shard, by the file it keeps beside it."""
    maps = Path(f"/proc/{service.pid_of(title)}/maps").read_text()
    found = re.search(r"(/\S+)\.current$", maps, re.MULTILINE)
    assert found
    return found[1]


def test_a_killed_gateway_ends_its_generations_and_comes_back(
    pair: Service, paced_engines: Engines
) -> None:
    ask = chat("gateway", stream=True, **LONG)
    with (
        pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)),
        opened(pair, ask, lines=10) as lines,
    ):
        pair.kill(GATEWAY)
        for _ in lines:
            pass
    for engine in paced_engines:
        engine.await_idle()
    found = [asked["outcome"] for engine in paced_engines for asked in engine.requests()]
    assert found == ["aborted"]
    await_healthy(pair)
    with httpx.Client(base_url=pair.url, timeout=TIMEOUT_S) as client:
        assert send(client, chat("after-gateway", stream=True)).events[-1] == DONE


def asked_each(engines: Engines) -> list[int]:
    return [len(engine.requests()) for engine in engines]


def up(service: Service) -> Counter[str]:
    """How many engines are up."""
    total = counts(service).total("derender_engine_up")
    return Counter(up=int(total))


def test_streams_are_spread_over_the_engines(pair: Service, paced_engines: Engines) -> None:
    given = [chat(f"spread-{at}", stream=True, **TOKENS) for at in range(10)]
    answers = run(pair, given, lambda: None)
    assert {answer.events[-1] for answer in answers} == {DONE}
    assert asked_each(paced_engines) == [5, 5]


def test_an_engine_that_dies_and_comes_back(pair: Service, paced_engines: Engines) -> None:
    first, second = paced_engines
    given = [chat(f"dies-{at}", stream=True, **TOKENS) for at in range(6)]

    def kill() -> None:
        until(lambda: asked_each(paced_engines) == [3, 3], 20, "every request")
        await_events(paced_engines, 60)
        first.kill()

    answers = run(pair, given, kill)
    broken = [answer for answer in answers if len(answer.events) < 100]
    assert len(broken) == 3
    for answer in broken:
        assert answer.status == 200
        assert answer.error["code"] == "engine_failed"
        assert len(answer.events) > 5
    assert {answer.events[-1] for answer in answers} == {DONE}
    # New ones go to the other at once, whoever finds out.
    after = run(pair, [chat(f"other-{at}", stream=True) for at in range(6)], lambda: None)
    assert all("error" not in event for answer in after for event in answer.events)
    assert len(second.requests()) == 9
    first.start_again()
    until(lambda: up(pair)["up"] == 2, 40, "both engines to be up")
    back = run(pair, [chat(f"back-{at}", stream=True) for at in range(4)], lambda: None)
    assert {answer.status for answer in back} == {200}
    assert len(first.requests()) == 2


def test_a_reset_is_mended_by_the_other_engine(pair: Service, paced_engines: Engines) -> None:
    for engine in paced_engines:
        engine.order("reset", count=1)
        given = [chat(f"mended-{at}", stream=True) for at in range(2)]
        answers = run(pair, given, lambda: None)
        assert {answer.status for answer in answers} == {200}


def test_without_any_engine_callers_are_told_at_once(pair: Service, paced_engines: Engines) -> None:
    for engine in paced_engines:
        engine.kill()
    with httpx.Client(base_url=pair.url, timeout=5) as client:
        for ask in (chat("none", stream=True), chat("none"), completion("none", stop=["x"])):
            answer = send(client, ask)
            assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")
    for engine in paced_engines:
        engine.start_again()
    until(lambda: up(pair)["up"] == 2, 40, "both engines to be up")
    with httpx.Client(base_url=pair.url, timeout=5) as client:
        assert send(client, chat("again")).status == 200


def test_the_end_of_the_service_tells_every_caller(pair: Service, paced_engines: Engines) -> None:
    """What is short is finished, what is long is told; nothing is cut off without a word."""
    short = [chat("short", stream=True), chat("short-whole")]
    long = [
        chat("long", stream=True, **LONG),
        completion("long-several", stream=True, prompt=["Hello", "2+2?"], **LONG),
        chat("long-whole", **LONG),
        chat("long-stopped", stop=["never said"], **LONG),
    ]
    with sending(pair, long) as told:
        until(lambda: sum(asked_each(paced_engines)) == 5, 20, "the long ones")
        await_events(paced_engines, 30)
        with sending(pair, short) as finished, ThreadPoolExecutor(1) as ender:
            until(lambda: sum(asked_each(paced_engines)) == 7, 20, "the short ones")
            code = ender.submit(pair.end, signal.SIGTERM, 6.0)
            answers: list[Answer] = [future.result() for future in finished]
            assert code.result() == 0
        ended: list[Answer] = [future.result() for future in told]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].events[-1] == DONE
    assert all("error" not in event for event in answers[0].events)
    assert [answer.status for answer in ended] == [200, 200, 503, 503]
    for answer in ended:
        assert answer.error["message"] == "the server is shutting down"
    for engine in paced_engines:
        engine.await_idle()
    outcomes = [asked["outcome"] for engine in paced_engines for asked in engine.requests()]
    assert sorted(outcomes) == ["aborted"] * 5 + ["finished"] * 2
    assert "Traceback" not in pair.log
