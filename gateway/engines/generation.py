"""The answer of an engine, read as it comes."""

import asyncio
from types import TracebackType
from typing import Self

import aiohttp

from core.protocol.errors import DerenderError, EngineFailed
from gateway.engines.engine import Attempt, Ending
from gateway.engines.sending import silent
from gateway.engines.settings import EngineSettings
from gateway.engines.sse import EventReader

_DONE = b"[DONE]"
_LINGER_S = 1.0


class Generation:
    """One answer. It must be closed, which `with` does.

    What was not read yet stays bounded: the socket is paused while more than 128 KiB wait.

    Attributes:
        engine_url: Who answers, without credentials.
        done: Whether `[DONE]` came, after which a stream is whole.
    """

    def __init__(
        self, response: aiohttp.ClientResponse, attempt: Attempt, settings: EngineSettings
    ) -> None:
        """Take over a response of which the head was read.

        Args:
            response: What to read, and to close.
            attempt: What to end.
            settings: The bounds of the answer.
        """
        self.engine_url = attempt.engine.url
        self.done = False
        self._response = response
        self._content = response.content
        self._attempt = attempt
        self._settings = settings
        self._events = EventReader(settings.max_event_bytes)
        self._heard = False
        self._over = False
        self._closed = False

    async def events(self) -> list[bytes] | None:
        """Await events of a stream.

        Returns:
            The payloads of all that have come, at least one, without `[DONE]`; None after the last.
            Where the engine closed the stream without `[DONE]`, `done` is False.

        Raises:
            EngineFailed: The connection broke off, the stream ended inside an event, an event is
                too long, or the generation was closed. Events that arrived together with the break
                may be lost.
            EngineTimedOut: The engine was silent for too long.
        """
        while not self._over:
            try:
                data = await self._content.readany()
                payloads = self._events.feed(data) if data else self._end_of_body()
            except (aiohttp.ClientError, EngineFailed) as error:
                raise self._broken(error) from error
            if _DONE in payloads:
                del payloads[payloads.index(_DONE) :]
                self.done = True
                self._finish()
            if payloads:
                self._heard = True
                return payloads
        return None

    async def body(self) -> bytes:
        """Await the whole of an answer that is not streamed.

        Raises:
            EngineFailed: The connection broke off, the answer is too long, or it was closed.
            EngineTimedOut: The engine was silent for too long.
        """
        parts: list[bytes] = []
        left = self._settings.max_body_bytes
        try:
            while data := await self._content.readany():
                parts.append(data)
                left -= len(data)
                if left < 0:
                    most = self._settings.max_body_bytes
                    raise EngineFailed(f"its answer has more than {most} bytes, the most read")
        except (aiohttp.ClientError, EngineFailed) as error:
            raise self._broken(error) from error
        self._finish()
        return b"".join(parts)

    def close(self) -> None:
        """End the generation. May be called at any time, and again.

        A connection that was not read to its end is closed, by which the engine knows to abort.
        """
        if self._closed:
            return
        self._closed = True
        if not self._over:
            # Events show that the engine works; a mere status does not.
            self._attempt.end(Ending.ABORTED, well=self._heard)
            self._response.close()
        elif not self._response.closed:
            self._linger()

    def notice_loss(self) -> None:
        """Wake up who reads from a connection that is gone.

        aiohttp 3.14 closes a connection on a malformed chunk without a word to the reader.
        """
        connection = self._response.connection
        if connection is not None and connection.closed and self._content.exception() is None:
            self._response.close()

    def cut(self) -> None:
        """Close, and wait for nothing more to come over the connection."""
        self.close()
        self._response.close()

    def __enter__(self) -> Self:
        """Use as a context."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _end_of_body(self) -> list[bytes]:
        if self._events.rest:
            raise EngineFailed("its stream ended inside an event")
        self._over = True
        # Whoever ended the body neatly did so for an engine that is gone, or it speaks another
        # protocol; neither is an answer.
        self._attempt.fail(Ending.FAILED, "its stream ended without [DONE]")
        return []

    def _finish(self) -> None:
        self._over = True
        self._attempt.end(Ending.FINISHED, well=True)

    def _linger(self) -> None:
        """Let the end of the body follow `[DONE]`, so that the connection can be used again."""
        timer = asyncio.get_running_loop().call_later(_LINGER_S, self.cut)
        self._content.on_eof(timer.cancel)

    def _broken(self, error: aiohttp.ClientError | EngineFailed) -> DerenderError:
        """End the attempt; what to raise."""
        what = error.message if isinstance(error, EngineFailed) else "its answer broke off"
        if self._closed:
            return EngineFailed("the generation was closed")
        if isinstance(error, aiohttp.ServerTimeoutError):
            self._attempt.fail(Ending.TIMED_OUT, "it fell silent")
            failure: DerenderError = silent(self._attempt.engine, self._settings)
        else:
            self._attempt.fail(Ending.FAILED, what)
            failure = EngineFailed(f"engine {self.engine_url}: {what}")
        self._response.close()
        return failure
