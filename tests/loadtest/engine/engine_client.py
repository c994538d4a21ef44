"""A scripted engine on a real socket, and what its tests send to it."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
import uvicorn
from tokenizers import Tokenizer

from loadtest.engine.app import listen, server_config
from loadtest.engine.settings import ScriptedSettings
from loadtest.model.folder import MODEL_DIR

GENERATE = "/inference/v1/generate"
DEADLINE_S = 10.0


@contextmanager
def serve_engine(settings: ScriptedSettings) -> Iterator[tuple[uvicorn.Server, int]]:
    """Serve the engine on a free port from a thread."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield server, listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(DEADLINE_S)
        listener.close()
    assert not thread.is_alive()


@contextmanager
def client_of(port: int) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S) as client:
        yield client


@contextmanager
def run_engine(settings: ScriptedSettings) -> Iterator[httpx.Client]:
    """Serve the engine for a client on a real socket."""
    with serve_engine(settings) as (_, port), client_of(port) as client:
        yield client


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))


def encode(text: str) -> list[int]:
    ids: list[int] = tokenizer().encode(text, add_special_tokens=False).ids
    return ids


def decode(ids: list[int]) -> str:
    text: str = tokenizer().decode(ids, skip_special_tokens=False)
    return text


def body(prompt: str = "Hello", /, **members: Any) -> dict[str, Any]:
    """A generate request; `sampling_params` defaults to none set."""
    return {"token_ids": encode(prompt), "sampling_params": {}, **members}


def generate(client: httpx.Client, request: dict[str, Any]) -> Any:
    response = client.post(GENERATE, json=request)
    assert response.status_code == 200, response.text
    return response.json()


def stream(client: httpx.Client, request: dict[str, Any]) -> list[Any]:
    """The events of a stream, which must end with `[DONE]`."""
    with client.stream("POST", GENERATE, json={**request, "stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def tokens_of(events: list[Any], index: int = 0) -> list[int]:
    """The joined tokens of one choice of a stream."""
    choices = [choice for event in events for choice in event["choices"]]
    return [token for c in choices if c["index"] == index for token in c["token_ids"]]


def wait_for_stats(client: httpx.Client, **expected: int) -> None:
    """Poll until the counts given are there."""
    deadline = time.monotonic() + DEADLINE_S
    while not expected.items() <= (stats := client.get("/stats").json()).items():
        assert time.monotonic() < deadline, stats
        time.sleep(0.02)


def outcomes(client: httpx.Client) -> list[str]:
    """How the noted requests ended, oldest first."""
    return [call["outcome"] for call in client.get("/requests").json()]


def wait_for_outcome(client: httpx.Client, expected: str) -> None:
    """Poll until the newest request ended as expected."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := outcomes(client))[-1:] != [expected]:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def open_call(
    port: int, request: dict[str, Any], receive_buffer: int | None = None
) -> socket.socket:
    """Send a generate request on a socket of its own, to see what comes byte by byte."""
    sock = socket.socket()
    sock.settimeout(DEADLINE_S)
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect(("127.0.0.1", port))
    content = json.dumps(request).encode()
    head = (
        f"POST {GENERATE} HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    sock.sendall(head.encode() + content)
    return sock
