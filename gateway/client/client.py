"""Python clients that drive a whole stream through a derender server.

They keep one state per choice, use checkpoints where the server offers them, send the full state
where it answers 409, repeat calls whose answer was lost (derender is a pure function, so that is
safe), and refuse what is no engine chunk before it is sent.

    async with AsyncDerenderClient("http://localhost:8100") as client:
        async for chunk in client.stream(engine_chunks, chat_request, prompt_token_ids):
            print(chunk["choices"])
"""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from core.protocol.backoff import Backoff
from core.protocol.generate import GenerateChunk
from gateway.client.conversation import Conversation

Json = Mapping[str, Any]

CHAT_PATH = "/v1/chat/completions/derender"
_RETRIED = frozenset({502, 503, 504})
_UNKNOWN_CHECKPOINT = 409
_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 2.0


class DerenderRefused(Exception):
    """The server refused a call; it would refuse it again.

    Attributes:
        status: HTTP status.
        error: The OpenAI-shaped `error` member: message, type, param, code.
    """

    def __init__(self, status: int, error: Json) -> None:
        """Keep what the server said."""
        super().__init__(f"{status}: {error.get('message')}")
        self.status = status
        self.error = error


class DerenderUnavailable(Exception):
    """The server could not be reached, or had no room, for as often as was tried."""


class _Attempts:
    """Decides what follows an answer, or its loss."""

    def __init__(self, retries: int) -> None:
        self._left = retries
        self._backoff = Backoff(_FIRST_DELAY_S, _LONGEST_DELAY_S)

    def after_loss(self, error: httpx.TransportError) -> float:
        """Seconds to wait before the call is repeated."""
        return self._next(f"no answer: {error or type(error).__name__}", None)

    def after(self, response: httpx.Response) -> float | None:
        """Seconds to wait before the call is repeated; None where the answer is final."""
        if response.status_code not in _RETRIED:
            return None
        return self._next(f"status {response.status_code}", response.headers.get("retry-after"))

    def _next(self, reason: str, asked: str | None) -> float:
        if not self._left:
            raise DerenderUnavailable(reason)
        self._left -= 1
        own_s = self._backoff.next_s()
        return min(float(asked), _LONGEST_DELAY_S) if asked and asked.isdigit() else own_s


def _body(response: httpx.Response) -> bytes:
    if response.status_code == httpx.codes.OK:
        return response.content
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {"message": response.text[:200]}
    raise DerenderRefused(response.status_code, error)


class DerenderClient:
    """A blocking client. One client may drive many streams, each from one thread."""

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        checkpoints: bool = True,
        retries: int = 4,
        http: httpx.Client | None = None,
    ) -> None:
        """Name the server.

        Args:
            base_url: Where it listens.
            model: Served model name; None takes the server's first.
            checkpoints: Ask for checkpoints, which keep a chunk O(1) on the wire.
            retries: Repetitions of a call without an answer.
            http: A client to use instead of one of our own.
        """
        self._url = base_url.rstrip("/") + CHAT_PATH
        self._model = model
        self._checkpoints = checkpoints
        self._retries = retries
        self._http = http or httpx.Client(timeout=60.0)

    def stream(
        self,
        generate_chunks: Iterable[Json],
        chat_request: Json,
        prompt_token_ids: list[int],
    ) -> Iterator[dict[str, Any]]:
        """Derender a stream of engine chunks.

        Args:
            generate_chunks: Events of `/inference/v1/generate`, decoded, without `[DONE]`.
            chat_request: The request that was rendered.
            prompt_token_ids: `token_ids` of the rendered request.

        Yields:
            One OpenAI chat chunk per engine chunk.

        Raises:
            DerenderRefused: The server refused a chunk.
            DerenderUnavailable: It could not be reached.
            ValueError: A chunk is not an engine chunk.
        """
        conversation = Conversation(
            chat_request, prompt_token_ids, self._model, checkpoints=self._checkpoints
        )
        for chunk in generate_chunks:
            turn = conversation.turn(_checked(chunk))
            response = self._post(turn.request())
            if response.status_code == _UNKNOWN_CHECKPOINT and turn.fall_back():
                response = self._post(turn.request())
            yield turn.finish(_body(response))

    def _post(self, body: bytes) -> httpx.Response:
        attempts = _Attempts(self._retries)
        while True:
            try:
                response = self._http.post(self._url, content=body, headers=_HEADERS)
                delay_s = attempts.after(response)
            except httpx.TransportError as error:
                delay_s = attempts.after_loss(error)
            else:
                if delay_s is None:
                    return response
            time.sleep(delay_s)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Use as a context."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()


class AsyncDerenderClient:
    """An asyncio client. One client may drive many streams at once."""

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        checkpoints: bool = True,
        retries: int = 4,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """Name the server; the arguments are those of `DerenderClient`."""
        self._url = base_url.rstrip("/") + CHAT_PATH
        self._model = model
        self._checkpoints = checkpoints
        self._retries = retries
        self._http = http or httpx.AsyncClient(timeout=60.0)

    async def stream(
        self,
        generate_chunks: AsyncIterable[Json] | Iterable[Json],
        chat_request: Json,
        prompt_token_ids: list[int],
    ) -> AsyncIterator[dict[str, Any]]:
        """Derender a stream of engine chunks; as `DerenderClient.stream`."""
        conversation = Conversation(
            chat_request, prompt_token_ids, self._model, checkpoints=self._checkpoints
        )
        async for chunk in _each(generate_chunks):
            turn = conversation.turn(_checked(chunk))
            response = await self._post(turn.request())
            if response.status_code == _UNKNOWN_CHECKPOINT and turn.fall_back():
                response = await self._post(turn.request())
            yield turn.finish(_body(response))

    async def _post(self, body: bytes) -> httpx.Response:
        attempts = _Attempts(self._retries)
        while True:
            try:
                response = await self._http.post(self._url, content=body, headers=_HEADERS)
                delay_s = attempts.after(response)
            except httpx.TransportError as error:
                delay_s = attempts.after_loss(error)
            else:
                if delay_s is None:
                    return response
            await asyncio.sleep(delay_s)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        """Use as a context."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.aclose()


_HEADERS = {"content-type": "application/json"}


def _checked(chunk: Json) -> Json:
    try:
        shape = msgspec.convert(chunk, GenerateChunk, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"not an engine chunk: {error}") from None
    if len(shape.choices) > 1:
        raise ValueError(f"an engine chunk has at most one choice, got {len(shape.choices)}")
    return chunk


async def _each(chunks: AsyncIterable[Json] | Iterable[Json]) -> AsyncIterator[Json]:
    if isinstance(chunks, AsyncIterable):
        async for chunk in chunks:
            yield chunk
    else:
        for chunk in chunks:
            yield chunk
