"""The calls a shard has begun and not finished: each gets a slice of time in turn.

A call that rebuilds a long stream yields after every chunk, so calls that arrive meanwhile wait for
one slice at most.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from core.protocol.calls import Call, Cancel, CloseStream, OpenStream, Stats, Work
from core.protocol.errors import DerenderError, FaultCode
from core.protocol.faults import Fault
from core.protocol.steps import Steps
from shards.messages.counters import TableCounters, counters_encoder
from shards.messages.replies import Reply
from shards.shard.gateway_connection import GatewayConnection

SLICE_S = 0.0003
"""How long one call may keep the others waiting."""

_INTERNAL = Fault(FaultCode.INTERNAL, "internal error; see the shard's log")
_logger = logging.getLogger(__name__)

Answered = Callable[[GatewayConnection, Reply], None]
R = TypeVar("R")


class Answers(Protocol):
    """What work is given to; `core.answerer.Answerer` is one."""

    def begin(self, call: Work) -> bytes | Steps:
        """The answer to a call, or the steps that lead to it."""

    def close_stream(self, session: str) -> None:
        """Nobody waits for a stream of the front door any more."""


class _Task:
    """A call in the middle of its work, and who waits for it."""

    __slots__ = ("call", "caller", "steps")

    def __init__(self, caller: GatewayConnection, call: Work, steps: Steps) -> None:
        self.caller = caller
        self.call = call
        self.steps = steps


class Scheduler:
    """Answers calls, in slices where they take long."""

    def __init__(
        self,
        answers: Answers,
        answered: Answered,
        note: Callable[[int], None],
        counters: Callable[[], TableCounters],
    ) -> None:
        """Begin with nothing to do.

        Args:
            answers: Does the work.
            answered: Sends a reply to a gateway.
            note: Told which call is worked on.
            counters: What the table of live streams counted.
        """
        self._answers = answers
        self._answered = answered
        self._note = note
        self._counters = counters
        self._tasks: deque[_Task] = deque()
        self._sessions: dict[GatewayConnection, set[str]] = {}

    @property
    def waiting(self) -> bool:
        """Whether calls are begun and not finished."""
        return bool(self._tasks)

    def take(self, caller: GatewayConnection, call: Call) -> None:
        """Answer a call at once, or begin to."""
        match call:
            case Cancel(call_id=number):
                self._cancel(lambda task: task.caller is caller and task.call.call_id == number)
            case CloseStream():
                self._close(caller, call.session)
            case Stats():
                self._answered(caller, Reply(call.call_id, body=self._stats()))
            case _:
                if isinstance(call, OpenStream):
                    self._sessions.setdefault(caller, set()).add(call.session)
                self._note(call.call_id)
                self._begin(caller, call)
                self._note(0)

    def forget(self, caller: GatewayConnection) -> None:
        """Stop what a gateway that left was waiting for."""
        self._cancel(lambda task: task.caller is caller)
        for session in self._sessions.pop(caller, ()):
            self._answers.close_stream(session)

    def run_slice(self) -> None:
        """Give the next call its slice."""
        task = self._tasks.popleft()
        self._note(task.call.call_id)
        reply = self._advance(task)
        self._note(0)
        if reply is None:
            self._tasks.append(task)
        else:
            self._answered(task.caller, reply)

    def _begin(self, caller: GatewayConnection, call: Work) -> None:
        begun = self._guard(call, lambda: self._answers.begin(call))
        if isinstance(begun, Reply):
            self._answered(caller, begun)
        elif isinstance(begun, bytes):
            self._answered(caller, Reply(call.call_id, body=begun))
        else:
            task = _Task(caller, call, begun)
            reply = self._advance(task)
            if reply is None:
                self._tasks.append(task)
            else:
                self._answered(caller, reply)

    def _advance(self, task: _Task) -> Reply | None:
        """Run one slice; the reply if that finished it."""
        finished = self._guard(task.call, lambda: _run(task.steps))
        if isinstance(finished, bytes):
            return Reply(task.call.call_id, body=finished)
        return finished

    def _guard(self, call: Work, action: Callable[[], R]) -> R | Reply:
        """Run a piece of work; whatever it raises becomes a reply."""
        try:
            return action()
        except DerenderError as error:
            return Reply(call.call_id, fault=Fault.of(error))
        except Exception:
            _logger.exception("answering failed", extra={"request_id": call.trace_id})
            return Reply(call.call_id, fault=_INTERNAL)

    def _stats(self) -> bytes:
        streams = sum(len(sessions) for sessions in self._sessions.values())
        return counters_encoder.encode(msgspec.structs.replace(self._counters(), sessions=streams))

    def _close(self, caller: GatewayConnection, session: str) -> None:
        self._cancel(lambda task: getattr(task.call, "session", None) == session)
        self._sessions.get(caller, set()).discard(session)
        self._answers.close_stream(session)

    def _cancel(self, chosen: Callable[[_Task], bool]) -> None:
        for task in [task for task in self._tasks if chosen(task)]:
            self._tasks.remove(task)
            task.steps.close()


def _run(steps: Steps) -> bytes | None:
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
