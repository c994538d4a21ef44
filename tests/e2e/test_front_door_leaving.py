"""Callers who leave, or do not read: the engine hears of it, and nothing is left behind."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from loadtest.servers.procfs import private_bytes
from tests.e2e.front_calls import (
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

LONG = {"max_tokens": 2000, "ignore_eos": True}
GATEWAY = "derender: gateway 0"
_MB = 1024 * 1024

ASKS = {
    "stream": chat("leaves-stream", stream=True, **LONG),
    "whole": chat("leaves-whole", **LONG),
    "stopped": chat("leaves-stopped", stop=["never said"], **LONG),
}
PROMPTS = completion("leaves-several", prompt=["Hello", "2+2?", "Hi"], **LONG)
every_ask = pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)


@pytest.fixture(scope="module", autouse=True)
def no_descriptor_is_left(front: Service, pair: Service) -> Iterator[None]:
    before = {service: descriptors(service) for service in (front, pair)}
    yield
    for service, most in before.items():
        await_descriptors(service, most)


@pytest.fixture(autouse=True)
def everything_returns_to_zero(
    front: Service,
    pair: Service,
    engine: EngineProcess,
    paced_engines: tuple[EngineProcess, EngineProcess],
) -> Iterator[None]:
    yield
    await_nothing(front, engine)
    await_nothing(pair, *paced_engines)
    for each in (engine, *paced_engines):
        each.clear()


@contextmanager
def raw(service: Service, ask: Ask, buffer: int = 0) -> Iterator[socket.socket]:
    """A connection on which a request was sent and nothing is read; at the end it is closed."""
    address = urlsplit(service.url)
    body = json.dumps(ask.body).encode()
    head = (
        f"POST {ask.path} HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
        f"x-request-id: {ask.request_id}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as opened_socket:
        if buffer:
            opened_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        opened_socket.connect((address.hostname, address.port))
        opened_socket.sendall(head.encode() + body)
        yield opened_socket


def outcomes(engines: tuple[EngineProcess, ...], request_id: str) -> list[str]:
    """How the engine requests of a request ended, over all engines."""
    return sorted(
        asked["outcome"]
        for engine in engines
        for asked in engine.requests()
        if request_id in asked["headers"]["x-request-id"]
    )


@every_ask
def test_before_the_engine_answers(front: Service, engine: EngineProcess, ask: Ask) -> None:
    engine.order("silent")
    with raw(front, ask):
        assert engine.request(ask.request_id)["outcome"] == "running"
    engine.await_outcome(ask.request_id, "aborted")


@every_ask
def test_while_the_engine_generates(
    pair: Service, paced_engines: tuple[EngineProcess, EngineProcess], ask: Ask
) -> None:
    with raw(pair, ask):
        until(lambda: outcomes(paced_engines, ask.request_id) == ["running"], 20, "generating")
        if ask.body.get("stream"):
            until(lambda: streams(pair) == 1, 20, "a stream")
    until(lambda: outcomes(paced_engines, ask.request_id) == ["aborted"], 20, "an abort")


def test_in_the_middle_of_a_stream(
    pair: Service, paced_engines: tuple[EngineProcess, EngineProcess]
) -> None:
    ask = ASKS["stream"]
    with opened(pair, ask, lines=12):
        assert outcomes(paced_engines, ask.request_id) == ["running"]
        assert streams(pair) == 1
    until(lambda: outcomes(paced_engines, ask.request_id) == ["aborted"], 20, "an abort")


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_are_all_aborted(
    pair: Service, paced_engines: tuple[EngineProcess, EngineProcess], stream: bool
) -> None:
    ask = PROMPTS._replace(body=PROMPTS.body | {"stream": stream})
    with raw(pair, ask):
        until(lambda: outcomes(paced_engines, ask.request_id) == ["running"] * 3, 20, "all three")
    until(lambda: outcomes(paced_engines, ask.request_id) == ["aborted"] * 3, 20, "the aborts")


@pytest.mark.parametrize("way", ["stream", "stopped"])
def test_while_the_engine_is_silent(front: Service, engine: EngineProcess, way: str) -> None:
    ask = ASKS[way]
    engine.order("stall", after=5)
    with raw(front, ask):
        until(lambda: streams(front) == 1, 20, "a stream")
        assert engine.request(ask.request_id)["outcome"] == "running"
    engine.await_outcome(ask.request_id, "aborted")


def test_while_the_prompt_is_rendered(front: Service, engine: EngineProcess) -> None:
    prompts = [f"{number} lorem ipsum " * 3000 for number in range(60)]
    ask = completion("leaves-rendering", prompt=prompts, max_tokens=1)

    def rendering() -> float:
        return counts(front).total("derender_shard_calls_in_flight", 'shard="render-0"')

    with raw(front, ask):
        until(rendering, 20, "a call in the render shard")
    until(lambda: not rendering(), 20, "an end of it")
    assert not [asked for asked in engine.requests() if "rendering" in str(asked["headers"])]
    with httpx.Client(base_url=front.url, timeout=20) as client:
        assert send(client, chat("after-rendering")).status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_one_of_several_prompts_fails_and_the_others_are_aborted(
    pair: Service, paced_engines: tuple[EngineProcess, EngineProcess], stream: bool
) -> None:
    first, _ = paced_engines
    ask = completion("one-fails", prompt=["Hello"] * 6, stream=stream, max_tokens=200)
    ask.body["ignore_eos"] = True
    first.order("error", after=10)
    with sending(pair, [ask]) as (answer,):
        error = answer.result().error
    assert "The engine fails on order." in error["message"]
    until(
        lambda: outcomes(paced_engines, ask.request_id) == ["aborted"] * 5 + ["failed"],
        20,
        "the aborts",
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_stops_the_engine(
    pair: Service, paced_engines: tuple[EngineProcess, EngineProcess], stream: bool
) -> None:
    ask = chat("cut", stop=["two make"], stream=stream, **LONG)
    with sending(pair, [ask]) as (answer,):
        assert '"stop_reason":"two make"' in answer.result().text
    until(lambda: outcomes(paced_engines, "cut") == ["aborted"], 20, "an abort")


def test_one_stop_string_of_several_prompts_stops_one_generation(
    pair: Service, paced_engines: tuple[EngineProcess, EngineProcess]
) -> None:
    ask = completion("cut-one", prompt=["2+2?", "Hello"], stop=["two make"], max_tokens=40)
    with sending(pair, [ask]) as (answer,):
        assert '"stop_reason":"two make"' in answer.result().text
    assert outcomes(paced_engines, "cut-one") == ["aborted", "finished"]


def rest_of(connection: socket.socket) -> bytes:
    """The last bytes before the connection is closed."""
    rest = b""
    try:
        while data := connection.recv(1 << 16):
            rest = (rest + data)[-64:]
    except ConnectionResetError:
        return rest
    return rest


@pytest.mark.parametrize("stays", [True, False], ids=["stays", "leaves"])
def test_a_caller_who_does_not_read(front: Service, engine: EngineProcess, stays: bool) -> None:
    """Its stream stops where the buffers are full, back to the engine; then it is cut off."""
    gateway = front.pid_of(GATEWAY)
    # Events of twenty candidates: far more than any buffer takes.
    ask = chat(
        "slow", stream=True, max_tokens=30_000, ignore_eos=True, logprobs=True, top_logprobs=20
    )
    memory, before = private_bytes(gateway), counts(front)
    with raw(front, ask, buffer=4096) as connection:
        seen: list[int] = []

        def paused() -> bool:
            seen.append(engine.stats["parts"])
            return len(seen) > 40 and len(set(seen[-40:])) == 1

        until(lambda: streams(front) == 1, 20, "a stream")
        until(paused, 20, "a pause")
        assert engine.request("slow")["outcome"] == "running"
        assert private_bytes(gateway) - memory < 16 * _MB
        if stays:
            engine.await_outcome("slow", "aborted")
            # The connection is closed although nobody reads: what was sent is all that comes.
            connection.settimeout(10)
            assert not rest_of(connection).endswith(b"0\r\n\r\n")
    engine.await_outcome("slow", "aborted")
    refused = 'reason="timed_out"' if stays else 'reason="client_gone"'
    await_nothing(front)
    after = counts(front)
    name = "derender_refusals_total"
    assert after.total(name, refused) - before.total(name, refused) == 1


def test_a_caller_who_reads_slowly_gets_everything(front: Service, engine: EngineProcess) -> None:
    ask = chat("slow-reader", stream=True, max_tokens=3000, ignore_eos=True, logprobs=True)
    with opened(front, ask, lines=1) as lines:
        until(lambda: engine.request("slow-reader")["outcome"] == "finished", 20, "the engine")
        received = [line for line in lines if line]
    assert received[-1] == "data: [DONE]"
    assert sum('"logprobs":{' in line for line in received) == 3000
