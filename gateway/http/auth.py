"""Who may ask: API keys, as `vllm serve --api-key` knows them."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

from gateway.http import errors
from gateway.http.answers import send_answer

_OPEN = frozenset({"/health", "/ping", "/version", "/metrics", "/docs", "/openapi.json"})
"""What operators and probes ask. All else is guarded, however its path is spelled."""
_SCHEME = b"bearer"
_REFUSAL = errors.body(
    401, "AuthenticationError", "the API key is missing or wrong; send Authorization: Bearer KEY"
)


class Keys:
    """The keys that let a request in; without any, every request is let in."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Keep digests: equal in length, so that comparing them tells nothing."""
        self._digests = [_digest(key.encode()) for key in keys]

    def admit(self, scope: Any) -> bool:
        """Whether a request may be served.

        Args:
            scope: ASGI's description of it.
        """
        if not self._digests or scope["method"] == "OPTIONS":
            return True
        if scope["path"] in _OPEN:
            return True
        return any(
            self._knows(value) for name, value in scope["headers"] if name == b"authorization"
        )

    def _knows(self, authorization: bytes) -> bool:
        scheme, _, key = authorization.partition(b" ")
        given = _digest(key.strip())
        # Every key is compared, so that the time does not tell which one came close.
        known = [hmac.compare_digest(given, digest) for digest in self._digests]
        return scheme.lower() == _SCHEME and any(known)


async def refuse(send: Any) -> None:
    """Answer 401, before anything of the body is read."""
    await send_answer(send, 401, [(b"www-authenticate", b"Bearer")], _REFUSAL)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
