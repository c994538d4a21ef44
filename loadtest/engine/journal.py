"""What was asked of the scripted engine: its last generate requests and how each one ended."""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

KEPT_CALLS = 100


class CallOutcome(StrEnum):
    """How a generate request ended."""

    RUNNING = "running"
    """It has not ended."""
    FINISHED = "finished"
    """The whole answer is sent."""
    ABORTED = "aborted"
    """The client left before the end."""
    FAILED = "failed"
    """The engine refused it, or a fault broke its answer off."""


@dataclass
class Call:
    """One generate request as it came; the body is decoded only when it is shown."""

    headers: dict[str, str]
    body: bytes
    outcome: CallOutcome = CallOutcome.RUNNING

    def shown(self) -> dict[str, Any]:
        """Return the request with its prompt as a count; a body that is not JSON is null."""
        return {"body": _shown_body(self.body), "headers": self.headers, "outcome": self.outcome}


class Journal:
    """The last `KEPT_CALLS` generate requests with their bodies, oldest first."""

    def __init__(self) -> None:
        """Start empty."""
        self._calls: deque[Call] = deque(maxlen=KEPT_CALLS)

    def note(self, headers: dict[str, str], body: bytes) -> Call:
        """Keep a request; its outcome is for the caller to state."""
        call = Call(headers, body)
        self._calls.append(call)
        return call

    def clear(self) -> None:
        """Forget all requests."""
        self._calls.clear()

    def shown(self) -> list[dict[str, Any]]:
        """Return all requests, newest last."""
        return [call.shown() for call in self._calls]


def _shown_body(body: bytes) -> Any:
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    if isinstance(decoded, dict) and isinstance(decoded.get("token_ids"), list):
        decoded["prompt_tokens"] = len(decoded.pop("token_ids"))
    return decoded
