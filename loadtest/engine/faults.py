"""Faults on order: the ways in which the scripted engine can fail a caller.

A fault either takes the place of the answer (`INSTEAD`) or spoils it: it changes the parts that
are sent (`spoil_events`, `spoil_body`) and how the response ends (`end`). A `[DONE]` counts as an
event.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from enum import StrEnum
from http import HTTPStatus
from http.client import responses
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from loadtest.engine.connection import Connection
from loadtest.engine.events import DONE, Event, event_of, frame
from loadtest.engine.journal import CallOutcome
from loadtest.engine.protocol import RequestError, decode

PIECE_BYTES = 7
RETRY_STATUSES = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""Refusals that say when to come again."""

_PAGE = b"<!doctype html><title>Welcome</title><p>This is not an engine.</p>\n"
_BROKEN_JSON = Event(frame(b'{"choices": [{"index": 0, "token_ids": "x"'))
_NO_CHOICES = b'{"request_id":"generate-tokens-garbage","output_mode":"tokens"}'


class Kind(StrEnum):
    """What goes wrong."""

    REFUSE = "refuse"
    """An HTTP error at once."""
    RESET = "reset"
    """The connection is reset without an answer."""
    SILENT = "silent"
    """There is never an answer."""
    NONSENSE = "nonsense"
    """A web page comes instead of an answer."""
    DIE = "die"
    """The connection closes after some events, or after half a JSON body."""
    HALF = "half"
    """As `die`, with half of the next event."""
    SHORT = "short"
    """The response ends properly, but too early."""
    STALL = "stall"
    """Nothing more comes after some events, or after half a JSON body."""
    GARBAGE = "garbage"
    """One event more is no JSON, or a JSON body has no choices."""
    ERROR = "error"
    """The stream ends with an error event, or the answer is an HTTP error."""
    BURST = "burst"
    """The whole stream comes at once; nothing is wrong with it."""
    PIECES = "pieces"
    """A few bytes come at a time; nothing is wrong with them."""
    CRLF = "crlf"
    """The stream uses other line ends and has comments; nothing is wrong with it."""


class ScriptedFault(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /faults`."""

    kind: Kind
    after: Annotated[int, Meta(ge=0)] = 0
    """Events sent before the fault."""
    count: Annotated[int, Meta(ge=0)] = 1
    """Generate requests that meet it; 0 takes an armed fault back."""
    status: Annotated[int, Meta(ge=400, le=599)] = int(HTTPStatus.SERVICE_UNAVAILABLE)
    """The HTTP status of `refuse`."""


class Faults:
    """The armed fault, if any; the latest order replaces an older one."""

    def __init__(self) -> None:
        """Arm nothing."""
        self._fault: ScriptedFault | None = None
        self._left = 0

    def arm(self, body: bytes) -> ScriptedFault:
        """Arm the fault that a request body describes.

        Raises:
            RequestError: The body does not describe a fault.
        """
        self._fault = decode(_decoder, body)
        self._left = self._fault.count
        return self._fault

    def take(self) -> ScriptedFault | None:
        """Return the fault of the next generate request."""
        if not self._left:
            return None
        self._left -= 1
        return self._fault


_decoder = msgspec.json.Decoder(ScriptedFault)

Instead = Callable[[ScriptedFault, Connection], Awaitable[CallOutcome]]
EventSpoiler = Callable[[Iterator[Event], int], Iterator[Event]]


async def _refuse(fault: ScriptedFault, connection: Connection) -> CallOutcome:
    error = RequestError(fault.status, "The engine refuses on order.", kind=_name(fault.status))
    headers = {"retry-after": "1"} if fault.status in RETRY_STATUSES else None
    await connection.answer(error.status, error.body(), headers)
    return CallOutcome.FAILED


async def _reset(fault: ScriptedFault, connection: Connection) -> CallOutcome:
    await connection.reset()
    return CallOutcome.FAILED


async def _stay_silent(fault: ScriptedFault, connection: Connection) -> CallOutcome:
    await connection.watch()
    return CallOutcome.ABORTED


async def _show_page(fault: ScriptedFault, connection: Connection) -> CallOutcome:
    await connection.respond(HTTPStatus.OK, _PAGE, "text/html; charset=utf-8")
    return CallOutcome.FAILED


INSTEAD: dict[Kind, Instead] = {
    Kind.REFUSE: _refuse,
    Kind.RESET: _reset,
    Kind.SILENT: _stay_silent,
    Kind.NONSENSE: _show_page,
}
"""The faults that take the place of an answer, whether it streams or not."""


def spoil_events(fault: ScriptedFault, events: Iterator[Event]) -> Iterator[Event]:
    """Yield the events of a stream as the fault leaves them."""
    return _EVENT_SPOILERS[fault.kind](events, fault.after)


def spoil_body(fault: ScriptedFault, body: bytes) -> Iterator[Event]:
    """Yield the parts of a JSON body as the fault leaves them.

    Raises:
        RequestError: The fault is that an error is answered.
    """
    if fault.kind is Kind.ERROR:
        raise _error()
    if fault.kind is Kind.GARBAGE:
        body = _NO_CHOICES
    elif fault.kind in (Kind.DIE, Kind.HALF, Kind.SHORT, Kind.STALL):
        body = _half(body)
    elif fault.kind is Kind.PIECES:
        return _in_pieces(iter([Event(body)]), 0)
    return iter([Event(body)])


async def end(fault: ScriptedFault | None, connection: Connection) -> CallOutcome:
    """End a response whose parts are sent, properly unless the fault wants it otherwise."""
    kind = fault.kind if fault else None
    if kind is Kind.STALL:
        await connection.gone.wait()
    elif kind in (Kind.DIE, Kind.HALF):
        await connection.break_off()
        return CallOutcome.FAILED
    if not await connection.sleep(0):
        return CallOutcome.ABORTED
    await connection.write(b"")
    return CallOutcome.FAILED if kind in (Kind.SHORT, Kind.ERROR) else CallOutcome.FINISHED


def _name(status: int) -> str:
    """Return the error type of an HTTP status, which need not be a registered one."""
    phrase = responses.get(status, "Engine")
    return f"{phrase.replace(' ', '').removesuffix('Error')}Error"


def _error() -> RequestError:
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return RequestError(status, "The engine fails on order.", kind=_name(status))


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _cut(events: Iterator[Event], after: int) -> Iterator[Event]:
    return itertools.islice(events, after)


def _cut_within(events: Iterator[Event], after: int) -> Iterator[Event]:
    yield from itertools.islice(events, after)
    for data, tokens in itertools.islice(events, 1):
        yield Event(_half(data), tokens)


def _with_garbage(events: Iterator[Event], after: int) -> Iterator[Event]:
    yield from itertools.islice(events, after)
    yield _BROKEN_JSON
    yield from events


def _with_error(events: Iterator[Event], after: int) -> Iterator[Event]:
    yield from itertools.islice(events, after)
    yield event_of(_error().body())
    yield DONE


def _at_once(events: Iterator[Event], after: int) -> Iterator[Event]:
    whole = list(events)
    tokens = sum(event.tokens for event in whole)
    yield Event(b"".join(event.data for event in whole), tokens)


def _in_pieces(events: Iterator[Event], after: int) -> Iterator[Event]:
    """Cut across the borders of events; the rest of an event waits for the next one."""
    rest = b""
    for data, tokens in events:
        rest += data
        while len(rest) >= PIECE_BYTES:
            yield Event(rest[:PIECE_BYTES], tokens)
            rest, tokens = rest[PIECE_BYTES:], 0
    yield Event(rest)


def _with_crlf(events: Iterator[Event], after: int) -> Iterator[Event]:
    for data, tokens in events:
        payload = data.removeprefix(b"data: ").removesuffix(b"\n\n")
        yield Event(b": ping\r\ndata:" + payload + b"\r\n\r\n", tokens)


_EVENT_SPOILERS: dict[Kind, EventSpoiler] = {
    Kind.DIE: _cut,
    Kind.HALF: _cut_within,
    Kind.SHORT: _cut,
    Kind.STALL: _cut,
    Kind.GARBAGE: _with_garbage,
    Kind.ERROR: _with_error,
    Kind.BURST: _at_once,
    Kind.PIECES: _in_pieces,
    Kind.CRLF: _with_crlf,
}
