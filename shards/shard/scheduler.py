"""The calls a shard has begun and not finished: each gets a slice of time in turn.

A call that rebuilds a long stream yields after every chunk, so calls that arrive meanwhile wait for
one slice at most.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import TypeVar

from core.protocol.errors import DerenderError, FaultCode
from core.protocol.wire import Call, Fault, Kind, Reply
from shards.messages.counters import counters_encoder
from shards.shard.gateway_connection import Peer
from shards.shard.warm import Answerer

SLICE_S = 0.0003
"""How long one call may keep the others waiting."""

_INTERNAL = Fault(FaultCode.INTERNAL, "internal error; see the shard's log")
_logger = logging.getLogger(__name__)

Answered = Callable[[Peer, Reply], None]
R = TypeVar("R")


class _Task:
    """A call in the middle of its work, and who waits for it."""

    __slots__ = ("call", "peer", "steps")

    def __init__(self, peer: Peer, call: Call, steps: Generator[bool, None, bytes]) -> None:
        self.peer = peer
        self.call = call
        self.steps = steps


class Work:
    """Answers calls, in slices where they take long."""

    def __init__(
        self,
        derenderer: Answerer,
        answered: Answered,
        note: Callable[[int], None],
    ) -> None:
        """Begin with nothing to do.

        Args:
            derenderer: Answers calls.
            answered: Sends a reply to a peer.
            note: Told which call is worked on.
        """
        self._derenderer = derenderer
        self._answered = answered
        self._note = note
        self._tasks: deque[_Task] = deque()
        self._sessions: dict[Peer, set[str]] = {}

    @property
    def waiting(self) -> bool:
        """Whether calls are begun and not finished."""
        return bool(self._tasks)

    def take(self, peer: Peer, call: Call) -> None:
        """Answer a call at once, or begin to."""
        if call.kind is Kind.CANCEL:
            self._cancel(lambda task: task.peer is peer and task.call.call_id == call.call_id)
        elif call.kind is Kind.SERVE_CLOSE:
            self._close(peer, call.session)
        elif call.kind is Kind.STATS:
            counters = counters_encoder.encode(self._derenderer.counters())
            self._answered(peer, Reply(call.call_id, body=counters))
        else:
            if call.kind is Kind.SERVE_OPEN:
                self._sessions.setdefault(peer, set()).add(call.session)
            self._note(call.call_id)
            self._begin(peer, call)
            self._note(0)

    def forget(self, peer: Peer) -> None:
        """Stop what a peer that left was waiting for."""
        self._cancel(lambda task: task.peer is peer)
        for session in self._sessions.pop(peer, ()):
            self._derenderer.close_session(session)

    def run_slice(self) -> None:
        """Give the next call its slice."""
        task = self._tasks.popleft()
        self._note(task.call.call_id)
        reply = self._advance(task)
        self._note(0)
        if reply is None:
            self._tasks.append(task)
        else:
            self._answered(task.peer, reply)

    def _begin(self, peer: Peer, call: Call) -> None:
        begun = self._guard(call, lambda: self._derenderer.begin(call))
        if isinstance(begun, Reply):
            self._answered(peer, begun)
        elif isinstance(begun, bytes):
            self._answered(peer, Reply(call.call_id, body=begun))
        else:
            task = _Task(peer, call, begun)
            reply = self._advance(task)
            if reply is None:
                self._tasks.append(task)
            else:
                self._answered(peer, reply)

    def _advance(self, task: _Task) -> Reply | None:
        """Run one slice; the reply if that finished it."""
        finished = self._guard(task.call, lambda: _run(task.steps))
        if isinstance(finished, bytes):
            return Reply(task.call.call_id, body=finished)
        return finished

    def _guard(self, call: Call, action: Callable[[], R]) -> R | Reply:
        """Run a piece of work; whatever it raises becomes a reply."""
        try:
            return action()
        except DerenderError as error:
            return Reply(call.call_id, fault=Fault.of(error))
        except Exception:
            _logger.exception("answering failed", extra={"request_id": call.trace_id})
            return Reply(call.call_id, fault=_INTERNAL)

    def _close(self, peer: Peer, session: str) -> None:
        self._cancel(lambda task: task.call.session == session)
        self._sessions.get(peer, set()).discard(session)
        self._derenderer.close_session(session)

    def _cancel(self, chosen: Callable[[_Task], bool]) -> None:
        for task in [task for task in self._tasks if chosen(task)]:
            self._tasks.remove(task)
            task.steps.close()


def _run(steps: Generator[bool, None, bytes]) -> bytes | None:
    """Advance until the slice is over; a call that waits for another one gives its slice up."""
    deadline = time.perf_counter() + SLICE_S
    try:
        while not next(steps):
            if time.perf_counter() > deadline:
                return None
    except StopIteration as done:
        answer: bytes = done.value
        return answer
    return None
