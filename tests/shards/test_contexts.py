"""Contexts cross the pipe once: what is left out, and what happens when the belief is wrong."""

import msgspec

from core.protocol.wire import Call, Kind
from shards.pool.digests import LEAST_BYTES, HeldContexts, name_contexts

SEED = 7


def _call(kind: Kind, prompt: bytes, request: bytes) -> Call:
    return Call(1, kind, "m", 0, "f", b"{}", b"", b"", prompt, request)


def test_large_parts_travel_once_and_again_after_the_shard_lost_them() -> None:
    whole = _call(Kind.CHAT_STREAM, b"1" * LEAST_BYTES, b"r" * LEAST_BYTES)
    named, held = name_contexts(whole, SEED), HeldContexts()
    first, second = held.lighten(named), held.lighten(named)
    assert (first.prompt_token_ids, first.request) == (whole.prompt_token_ids, whole.request)
    assert (second.prompt_token_ids, second.request) == (b"", b"")
    assert second.prompt_digest == first.prompt_digest != b""
    held.forget(second)
    assert held.lighten(named).prompt_token_ids == whole.prompt_token_ids
    held.clear()
    assert held.lighten(named).request == whole.request


def test_small_parts_and_one_shot_calls_travel_as_they_are() -> None:
    small = _call(Kind.CHAT_STREAM, b"1" * (LEAST_BYTES - 1), b"{}")
    once = _call(Kind.CHAT, b"1" * LEAST_BYTES, b"r" * LEAST_BYTES)
    for call in (small, once):
        assert name_contexts(call, SEED) == call
        assert HeldContexts().lighten(call) == call


def test_digests_differ_by_bytes_and_by_seed() -> None:
    call = _call(Kind.CHAT_STREAM, b"1" * LEAST_BYTES, b"")
    other = msgspec.structs.replace(call, prompt_token_ids=b"1" * (LEAST_BYTES - 1) + b"2")
    digests = {
        name_contexts(call, SEED).prompt_digest,
        name_contexts(call, SEED + 1).prompt_digest,
        name_contexts(other, SEED).prompt_digest,
    }
    assert len(digests) == 3
