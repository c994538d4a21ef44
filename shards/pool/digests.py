"""Which contexts a shard holds, as its calling side believes.

A stream sends the same prompt and chat request with every chunk. Large ones are named by a digest
of their bytes, which are left out once the shard has them. A wrong belief costs one more round
trip: the shard answers that it lacks the context, and gets the bytes.
"""

from collections import OrderedDict

import msgspec
import xxhash

from core.protocol.calls import Call, DerenderChatChunk, DerenderCompletionChunk, Work

LEAST_BYTES = 2048
"""Shorter parts always travel: naming them costs more than sending them."""

_REMEMBERED = 8192


def name_contexts(call: Work, seed: int) -> Work:
    """Name the large parts of a streamed call by digest.

    Args:
        call: The call with all its bytes.
        seed: Secret of this machine, so that no client can make two parts share a digest.
    """
    match call:
        case DerenderChatChunk():
            digests = {
                "prompt_digest": _digest(call.prompt_token_ids, seed),
                "request_digest": _digest(call.request, seed),
            }
        case DerenderCompletionChunk():
            digests = {"prompt_digest": _digest(call.prompt_token_ids, seed)}
        case _:
            return call
    return msgspec.structs.replace(call, **digests) if any(digests.values()) else call


class HeldContexts:
    """Digests a shard was sent, the least recently used out first."""

    def __init__(self) -> None:
        """Believe the shard empty."""
        self._held: OrderedDict[bytes, None] = OrderedDict()

    def lighten(self, call: Call) -> Call:
        """Leave out the bytes the shard holds, and note those it is about to get."""
        left_out = {}
        if isinstance(call, DerenderChatChunk | DerenderCompletionChunk):
            if self._knows(call.prompt_digest):
                left_out["prompt_token_ids"] = b""
            if isinstance(call, DerenderChatChunk) and self._knows(call.request_digest):
                left_out["request"] = b""
        return msgspec.structs.replace(call, **left_out) if left_out else call

    def forget(self, call: Call) -> None:
        """The shard lacks what a call names."""
        if isinstance(call, DerenderChatChunk | DerenderCompletionChunk):
            self._held.pop(call.prompt_digest, None)
        if isinstance(call, DerenderChatChunk):
            self._held.pop(call.request_digest, None)

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
