"""Which contexts a shard holds, as its calling side believes.

A stream sends the same prompt and chat request with every chunk. Large ones are named by a digest
of their bytes, which are left out once the shard has them. A wrong belief costs one more round
trip: the shard answers that it lacks the context, and gets the bytes.
"""

from collections import OrderedDict

import msgspec
import xxhash

from core.protocol.wire import Call, Kind

LEAST_BYTES = 2048
"""Shorter parts always travel: naming them costs more than sending them."""

_STREAMED = frozenset({Kind.CHAT_STREAM, Kind.COMPLETION_STREAM})
_REMEMBERED = 8192


def name_contexts(call: Call, seed: int) -> Call:
    """Name the large parts of a streamed call by digest.

    Args:
        call: The call with all its bytes.
        seed: Secret of this machine, so that no client can make two parts share a digest.
    """
    if call.kind not in _STREAMED:
        return call
    prompt = _digest(call.prompt_token_ids, seed)
    request = _digest(call.request, seed) if call.kind is Kind.CHAT_STREAM else b""
    if not (prompt or request):
        return call
    return msgspec.structs.replace(call, prompt_digest=prompt, request_digest=request)


class HeldContexts:
    """Digests a shard was sent, the least recently used out first."""

    def __init__(self) -> None:
        """Believe the shard empty."""
        self._held: OrderedDict[bytes, None] = OrderedDict()

    def lighten(self, call: Call) -> Call:
        """Leave out the bytes the shard holds, and note those it is about to get."""
        prompt, request = call.prompt_digest, call.request_digest
        if not (prompt or request):
            return call
        return msgspec.structs.replace(
            call,
            prompt_token_ids=b"" if self._knows(prompt) else call.prompt_token_ids,
            request=b"" if self._knows(request) else call.request,
        )

    def forget(self, call: Call) -> None:
        """The shard lacks what a call names."""
        for digest in (call.prompt_digest, call.request_digest):
            self._held.pop(digest, None)

    def clear(self) -> None:
        """The shard was replaced."""
        self._held.clear()

    def _knows(self, digest: bytes) -> bool:
        if not digest:
            return False
        known = digest in self._held
        self._held[digest] = None
        self._held.move_to_end(digest)
        if len(self._held) > _REMEMBERED:
            self._held.popitem(last=False)
        return known


def _digest(part: bytes, seed: int) -> bytes:
    return xxhash.xxh3_128_digest(part, seed=seed) if len(part) >= LEAST_BYTES else b""
