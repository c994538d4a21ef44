"""The Python clients against a real service, over a wire that loses answers."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.client import AsyncDerenderClient, DerenderClient
from tests.e2e.bodies import PROMPT_IDS
from tests.e2e.streams import IDS, REQUEST, Counts, new_id
from tests.serving import Service, until

Json = Any


def events(request_id: str, choices: int = 2) -> list[Json]:
    """An engine's stream of several choices in turn, with its usage at the end."""
    made: list[Json] = []
    for start in range(0, len(IDS), 3):
        for index in range(choices):
            finish = "stop" if start + 3 >= len(IDS) else None
            choice = {"index": index, "token_ids": IDS[start : start + 3], "finish_reason": finish}
            made.append({"request_id": request_id, "choices": [choice]})
    usage = {"prompt_tokens": len(PROMPT_IDS), "completion_tokens": len(IDS)}
    return [*made, {"request_id": request_id, "choices": [], "usage": usage}]


def run(url: str, given: list[Json], **members: Any) -> list[Json]:
    with DerenderClient(url, **members) as client:
        return [part | {"created": 0} for part in client.stream(given, REQUEST, PROMPT_IDS)]


def run_async(url: str, given: list[Json], **members: Any) -> list[Json]:
    async def collect() -> list[Json]:
        async with AsyncDerenderClient(url, **members) as client:
            stream = client.stream(given, REQUEST, PROMPT_IDS)
            return [part | {"created": 0} async for part in stream]

    return asyncio.run(collect())


def test_both_clients_and_transports_give_the_same_stream(service: Service) -> None:
    given = events(new_id())
    echoed = run(service.url, given, checkpoints=False)
    for choice in range(2):
        deltas = [
            part["choices"][0]["delta"]
            for part in echoed
            if part["choices"] and part["choices"][0]["index"] == choice
        ]
        assert "".join(delta.get("content") or "" for delta in deltas).startswith("Hello there.")
        calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
        assert [call["function"]["name"] for call in calls if call.get("id")] == ["get_weather"] * 2
        assert len({call["id"] for call in calls if call.get("id")}) == 2
    assert echoed[-1]["usage"]["completion_tokens"] == len(IDS)
    assert run(service.url, given) == echoed
    assert run_async(service.url, given, checkpoints=False) == echoed
    assert run_async(service.url, given) == echoed


@pytest.mark.parametrize("way", [run, run_async], ids=["sync", "async"])
def test_a_killed_shard_costs_a_fallback_only(service: Service, way: Any) -> None:
    given = events(new_id(1), choices=1)
    undisturbed = way(service.url, given)
    before = Counts(service.url).total("derender_refusals_total", 'reason="unknown_checkpoint"')

    def interrupted() -> Iterator[Json]:
        for at, event in enumerate(given):
            if at == len(given) // 2:
                service.kill("derender: shard 1")
            yield event

    assert way(service.url, interrupted()) == undisturbed
    counts = Counts(service.url)
    refused = counts.total("derender_refusals_total", 'reason="unknown_checkpoint"')
    assert refused - before == 1
    assert counts.replays("restarted", 1) == 1


class LossyProxy:
    """Passes connections on, and swallows the answers of some calls once.

    Attributes:
        lost: Answers that were swallowed.
    """

    def __init__(self, url: str, every: int) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._every = every
        self._answers = 0
        self.lost = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self._return, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        _copy(client, server)

    def _return(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(1 << 16):
                self._answers += data.startswith(b"HTTP/1.1")
                if data.startswith(b"HTTP/1.1") and self._answers % self._every == 0:
                    self.lost += 1
                    break
                client.sendall(data)
        except OSError:
            pass
        finally:
            _end(client)
            _end(server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        return


def _end(peer: socket.socket) -> None:
    try:
        peer.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
    finally:
        peer.close()


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("way", [run, run_async], ids=["sync", "async"])
def test_lost_answers_are_asked_for_again(service: Service, way: Any, checkpoints: bool) -> None:
    given = events(new_id())
    undisturbed = way(service.url, given, checkpoints=checkpoints)
    before = Counts(service.url)
    proxy = LossyProxy(service.url, every=5)
    try:
        assert way(proxy.url, given, checkpoints=checkpoints) == undisturbed
    finally:
        proxy.close()
    assert proxy.lost >= 4
    after = Counts(service.url)
    retried = after.calls("retry") - before.calls("retry")
    # Calls without a choice move nothing, so their repetition is a hit.
    assert proxy.lost - 2 <= retried <= proxy.lost
    until(lambda: Counts(service.url).in_flight() == 0, 10, "an end of every call")


def test_what_is_no_chunk_never_reaches_the_service(service: Service) -> None:
    bad = {"request_id": "r", "choices": [{"index": 0, "token_ids": "no"}]}
    before = Counts(service.url).total("derender_requests_total")
    for way in (run, run_async):
        with pytest.raises(ValueError, match="not an engine chunk"):
            way(service.url, [bad])
    assert Counts(service.url).total("derender_requests_total") == before
