"""Contexts cross the pipe once: what is left out, and what happens when the belief is wrong."""

import msgspec

from core.protocol.calls import DerenderChatChunk
from shards.pool.digests import LEAST_BYTES, HeldContexts, name_contexts
from tests.shards.scripted import call

SEED = 7


def _call(prompt: bytes, request: bytes) -> DerenderChatChunk:
    return DerenderChatChunk(
        call_id=1,
        model="m",
        created=0,
        fallback_id="f",
        generate=b"{}",
        prompt_tokens=b"",
        prompt_token_ids=prompt,
        request=request,
        stream="s",
        stream_state=b"",
    )


def _named(call: DerenderChatChunk, seed: int = SEED) -> DerenderChatChunk:
    named = name_contexts(call, seed)
    assert isinstance(named, DerenderChatChunk)
    return named


def _lightened(held: HeldContexts, call: DerenderChatChunk) -> DerenderChatChunk:
    lightened = held.lighten(call)
    assert isinstance(lightened, DerenderChatChunk)
    return lightened


def test_large_parts_travel_once_and_again_after_the_shard_lost_them() -> None:
    whole = _call(b"1" * LEAST_BYTES, b"r" * LEAST_BYTES)
    named, held = _named(whole), HeldContexts()
    first, second = _lightened(held, named), _lightened(held, named)
    assert (first.prompt_token_ids, first.request) == (whole.prompt_token_ids, whole.request)
    assert (second.prompt_token_ids, second.request) == (b"", b"")
    assert second.prompt_digest == first.prompt_digest != b""
    held.forget(second)
    assert _lightened(held, named).prompt_token_ids == whole.prompt_token_ids
    held.clear()
    assert _lightened(held, named).request == whole.request


def test_small_parts_and_one_shot_calls_travel_as_they_are() -> None:
    small = _call(b"1" * (LEAST_BYTES - 1), b"{}")
    once = call(1, "r" * LEAST_BYTES)
    for sent in (small, once):
        assert name_contexts(sent, SEED) == sent
        assert HeldContexts().lighten(sent) == sent


def test_digests_differ_by_bytes_and_by_seed() -> None:
    whole = _call(b"1" * LEAST_BYTES, b"")
    other = msgspec.structs.replace(whole, prompt_token_ids=b"1" * (LEAST_BYTES - 1) + b"2")
    digests = {
        _named(whole).prompt_digest,
        _named(whole, SEED + 1).prompt_digest,
        _named(other).prompt_digest,
    }
    assert len(digests) == 3
