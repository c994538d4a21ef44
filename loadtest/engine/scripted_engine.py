"""The scripted engine itself: it answers generate calls, and can tell what was asked of it."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

from loadtest.engine import faults
from loadtest.engine.connection import JSON, Connection, Pace
from loadtest.engine.events import Answer, Event
from loadtest.engine.faults import Faults, ScriptedFault
from loadtest.engine.journal import CallOutcome, Journal
from loadtest.engine.protocol import (
    GenerateRequest,
    RequestError,
    check_tokens_only,
    decode_request,
)
from loadtest.engine.replay import Recordings, recorded_name
from loadtest.engine.script import ScriptModel, Scripts, load_model
from loadtest.engine.scripted_generation import ScriptedGeneration
from loadtest.engine.settings import ScriptedSettings

EVENT_STREAM = "text/event-stream; charset=utf-8"


@dataclass
class ScriptedStats:
    """Counts since the start."""

    started: int = 0
    """Requests that were taken."""
    finished: int = 0
    """Taken ones that were answered to the end."""
    aborted: int = 0
    """Taken ones that ended earlier."""
    in_flight: int = 0
    """Requests that have not ended, taken or not."""
    parts: int = 0
    """Parts of answers that were sent: the events of streams, and whole bodies."""


class ScriptedEngine:
    """The scripted engine behind the routes."""

    def __init__(self, settings: ScriptedSettings) -> None:
        """Load the model folder of `settings`."""
        self._settings = settings
        self._model: ScriptModel = load_model(settings.model_dir)
        self._scripts = Scripts(self._model, settings.script)
        self._recordings = Recordings(settings.recordings) if settings.recordings else None
        self.stats = ScriptedStats()
        self.faults = Faults()
        self.journal = Journal()

    async def generate(self, connection: Connection) -> None:
        """Serve one generate call, and note how it ends.

        Raises:
            RequestError: The request cannot be served.
        """
        body = await connection.body()
        call = self.journal.note(connection.headers(), body)
        fault = self.faults.take()
        self.stats.in_flight += 1
        outcome = CallOutcome.ABORTED
        try:
            outcome = await self._serve(connection, body, fault)
        except RequestError:
            outcome = CallOutcome.FAILED
            raise
        finally:
            call.outcome = outcome
            self.stats.in_flight -= 1

    async def _serve(
        self, connection: Connection, body: bytes, fault: ScriptedFault | None
    ) -> CallOutcome:
        """Answer a call, unless a fault takes the place of an answer."""
        if fault and fault.kind in faults.INSTEAD:
            return await faults.INSTEAD[fault.kind](fault, connection)
        request = decode_request(body)
        answer = self._answer(request, connection)
        self.stats.started += 1
        outcome = CallOutcome.ABORTED
        watcher = asyncio.ensure_future(connection.watch())
        try:
            serve = self._stream if request.stream else self._respond
            outcome = await serve(connection, answer, fault)
        finally:
            watcher.cancel()
            self.stats.finished += outcome is CallOutcome.FINISHED
            self.stats.aborted += outcome is not CallOutcome.FINISHED
        return outcome

    def _answer(self, request: GenerateRequest, connection: Connection) -> Answer:
        """Return what is recorded under the request's ID, or what the script says."""
        if self._settings.tokens_only:
            check_tokens_only(request)
        request_id = connection.header(b"x-request-id") or request.request_id
        name = recorded_name(request_id)
        if self._recordings and name:
            return self._recordings.answer(name, request)
        self._check_model(request)
        return ScriptedGeneration(request, request_id, self._model, self._scripts, self._settings)

    async def _respond(
        self, connection: Connection, answer: Answer, fault: ScriptedFault | None
    ) -> CallOutcome:
        """Answer with JSON once all tokens are due."""
        status, body = answer.whole()
        parts = faults.spoil_body(fault, body) if fault else None
        pace = Pace(self._settings.tokens_per_second)
        if not await connection.sleep(pace.wait_for(answer.steps)):
            return CallOutcome.ABORTED
        if parts is None:
            await connection.respond(status, body)
            self.stats.parts += 1
            return CallOutcome.FINISHED
        # No length: what a fault leaves of the body is sent in chunks.
        await connection.start(status, JSON)
        return await self._send(connection, parts, fault)

    async def _stream(
        self, connection: Connection, answer: Answer, fault: ScriptedFault | None
    ) -> CallOutcome:
        """Answer with server-sent events."""
        events = answer.events()
        if fault:
            events = faults.spoil_events(fault, events)
        await connection.start(HTTPStatus.OK, EVENT_STREAM)
        return await self._send(connection, events, fault)

    async def _send(
        self, connection: Connection, events: Iterator[Event], fault: ScriptedFault | None
    ) -> CallOutcome:
        """Send each event when it is due, while the client is there."""
        pace = Pace(self._settings.tokens_per_second)
        for data, tokens in events:
            if not await connection.sleep(pace.wait_for(tokens)):
                return CallOutcome.ABORTED
            await connection.write(data, more=True)
            self.stats.parts += 1
        return await faults.end(fault, connection)

    def _check_model(self, request: GenerateRequest) -> None:
        """Refuse a model name that is not served."""
        served = self._settings.served_model_name
        if served is None or request.model in (None, served):
            return
        message = f"The model `{request.model}` does not exist. Valid aliases: {served}."
        raise RequestError(HTTPStatus.NOT_FOUND, message, "model", "NotFoundError")
