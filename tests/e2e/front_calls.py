"""Requests to a front door, answers made comparable, and what a service holds meanwhile."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.e2e.streams import Counts
from tests.front import EngineProcess
from tests.serving import Service, until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
DONE = "[DONE]"
TIMEOUT_S = 60.0
MESSAGES = [{"role": "user", "content": "What is 2+2?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
Json = Any
_CREATED = re.compile(r'"created":\d+')


class Ask(NamedTuple):
    """One request."""

    path: str
    body: Json
    request_id: str

    @property
    def sent(self) -> Json:
        """What `httpx` needs to send it."""
        headers = {"x-request-id": self.request_id}
        return {"url": self.path, "json": self.body, "headers": headers}


class Answer(NamedTuple):
    """What came, without the time of day."""

    status: int
    headers: httpx.Headers
    text: str

    @property
    def events(self) -> list[Json]:
        """The payloads of a stream, the last one `[DONE]`."""
        return events(self.text)

    @property
    def error(self) -> Json:
        """The error it is, or ends with."""
        if self.headers["content-type"] == "application/json":
            return json.loads(self.text)["error"]
        *_, last, done = self.events
        assert done == DONE
        return last["error"]

    @property
    def by_choice(self) -> Json:
        """The events of each choice in order: how those of several mix is chance."""
        if self.headers["content-type"] == "application/json":
            return self.text
        sorted_out = defaultdict(list)
        for event in self.events:
            named = event != DONE and event.get("choices")
            sorted_out[event["choices"][0]["index"] if named else -1].append(event)
        return dict(sorted_out)


def events(text: str) -> list[Json]:
    """The payloads of the events of a stream."""
    assert text.endswith("\n\n"), text[-200:]
    lines = [line.removeprefix("data: ") for line in text.removesuffix("\n\n").split("\n\n")]
    return [line if line == DONE else json.loads(line) for line in lines]


def chat(request_id: str, **members: Any) -> Ask:
    """A chat."""
    body = {"model": "demo", "messages": MESSAGES, "max_tokens": 64}
    return Ask(CHAT, body | members, request_id)


def completion(request_id: str, **members: Any) -> Ask:
    """A completion."""
    body = {"model": "demo", "prompt": "Hello there", "max_tokens": 64}
    return Ask(COMPLETIONS, body | members, request_id)


def send(client: httpx.Client, ask: Ask) -> Answer:
    """Its answer."""
    answer = client.post(**ask.sent)
    return Answer(answer.status_code, answer.headers, _CREATED.sub('"created":0', answer.text))


@contextmanager
def sending(service: Service, asks: list[Ask]) -> Iterator["list[Any]"]:
    """Send all at once; futures of the answers. Each has a connection of its own."""

    def one(ask: Ask) -> Answer:
        with httpx.Client(base_url=service.url, timeout=TIMEOUT_S) as client:
            return send(client, ask)

    with ThreadPoolExecutor(len(asks)) as callers:
        yield [callers.submit(one, ask) for ask in asks]


@contextmanager
def opened(service: Service, ask: Ask, lines: int) -> Iterator[Iterator[str]]:
    """A stream of which some lines were read; at the end the caller leaves."""
    with (
        httpx.Client(base_url=service.url, timeout=TIMEOUT_S) as client,
        client.stream("POST", **ask.sent) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        read = answer.iter_lines()
        for _ in range(lines):
            next(read)
        yield read


def counts(service: Service) -> Counts:
    """The service's metrics as they are."""
    return Counts(service.url)


def streams(service: Service) -> float:
    """Streams of the front door being served."""
    return counts(service).total("derender_front_door_streams")


def await_nothing(service: Service, *engines: EngineProcess) -> None:
    """Wait until nothing is left of any request."""

    def nothing() -> bool:
        found = counts(service)
        names = (
            "derender_front_door_streams",
            "derender_engine_requests_in_flight",
            "derender_shard_calls_in_flight",
        )
        return not any(found.total(name) for name in names)

    until(nothing, 20, "an end of every request")
    for engine in engines:
        engine.await_idle()


def descriptors(service: Service) -> int:
    """Open files and sockets of the gateway."""
    pid = service.pid_of("derender: gateway 0")
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def await_descriptors(service: Service, most: int) -> None:
    """Wait until the gateway holds no more than so many; unused connections are kept for 4 s."""
    until(lambda: descriptors(service) <= most, 20, f"at most {most} descriptors")
