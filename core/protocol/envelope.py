"""A derender request body, opened one level deep, and the stream it belongs to.

The gateway decodes the envelope only: large members stay `msgspec.Raw`, slices of the body that the
shard decodes.
"""

import re
from typing import Any, NamedTuple

import msgspec

from core.protocol.calls import (
    DerenderCall,
    DerenderChat,
    DerenderChatChunk,
    DerenderCompletion,
    DerenderCompletionChunk,
)
from core.protocol.errors import BadRequest
from core.protocol.ids import stream_id
from core.protocol.plan import ApiName


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The first level of a body. Unknown members are ignored, as vLLM does."""

    stream: bool = False
    model: str | None = None
    generate_response: msgspec.Raw = msgspec.Raw(b"")
    generate_responses: msgspec.Raw = msgspec.Raw(b"")
    generate_chunk: msgspec.Raw = msgspec.Raw(b"")
    stream_state: msgspec.Raw = msgspec.Raw(b"")
    checkpoints: bool = False
    """Ours: answer with a checkpoint in place of the state, and accept it in the next call."""
    prompt_tokens: msgspec.Raw = msgspec.Raw(b"")
    prompt_token_ids: msgspec.Raw = msgspec.Raw(b"")
    chat_request: msgspec.Raw = msgspec.Raw(b"")
    completion_request: msgspec.Raw = msgspec.Raw(b"")


envelope_decoder = msgspec.json.Decoder(Envelope)


class Named(NamedTuple):
    """What the gateway adds to a body."""

    call_id: int
    trace_id: str
    model: str
    """Served name to report."""
    created: int
    """Unix time in seconds to report."""
    fallback_id: str
    """Request ID to use where the engine's response names none."""


def derender_call(envelope: Envelope, api: ApiName, named: Named) -> DerenderCall:
    """The call that answers a derender body.

    Raises:
        BadRequest: The engine's answer is missing.
    """
    chat = api is ApiName.CHAT
    whole = "generate_response" if chat else "generate_responses"
    field = "generate_chunk" if envelope.stream else whole
    generate = present(getattr(envelope, field))
    if not generate:
        shown = "true" if envelope.stream else "false"
        raise BadRequest(f"`{field}` is required when `stream` is {shown}.", field)
    call_id, trace_id, model, created, fallback_id = named
    members: dict[str, Any] = {
        "call_id": call_id,
        "trace_id": trace_id,
        "model": model,
        "created": created,
        "fallback_id": fallback_id,
        "generate": generate,
        "prompt_tokens": present(envelope.prompt_tokens),
        "prompt_token_ids": present(envelope.prompt_token_ids),
        "request": present(envelope.chat_request if chat else envelope.completion_request),
    }
    if not envelope.stream:
        return DerenderChat(**members) if chat else DerenderCompletion(**members)
    state = present(envelope.stream_state)
    members["stream_state"] = state
    members["stream"] = stream_of(state, generate, named.fallback_id)
    if chat:
        return DerenderChatChunk(checkpoints=envelope.checkpoints, **members)
    return DerenderCompletionChunk(**members)


def present(raw: msgspec.Raw) -> bytes:
    """The member's JSON, empty where it is missing or null."""
    value = bytes(raw)
    return b"" if value == b"null" else value


class _ChoiceIndex(msgspec.Struct):
    index: int = 0


class _ChunkIdentity(msgspec.Struct):
    request_id: str | None = None
    choices: list[_ChoiceIndex] = []


class _StateIdentity(msgspec.Struct):
    checkpoint: str | None = None


_ISSUED_CHECKPOINT = re.compile(rb'"checkpoint":"([0-9a-f]{16})[".]')
_NEAR_END = 256
_chunk_identity = msgspec.json.Decoder(_ChunkIdentity, strict=False)
_state_identity = msgspec.json.Decoder(_StateIdentity)


def stream_of(stream_state: bytes, generate_chunk: bytes, fallback_id: str) -> str:
    """Identity of the stream a chunk belongs to; see `core.protocol.ids.stream_id`.

    What the state carries goes first, since chunks that count tokens name no choice. Malformed
    members are refused by the shard, with their path; here they only lose their affinity.

    Args:
        stream_state: The carried state; empty for the first chunk.
        generate_chunk: The engine's chunk.
        fallback_id: Request ID to use where the chunk names none.

    Returns:
        16 hex digits or what else a caller put in their place; empty for a first chunk without a
        choice, whose stream is not known yet.
    """
    if carried := _carried(stream_state):
        return carried
    try:
        chunk = _chunk_identity.decode(generate_chunk)
    except msgspec.DecodeError:
        return ""
    if not chunk.choices:
        return ""
    return stream_id(chunk.request_id or fallback_id, chunk.choices[0].index)


def _carried(stream_state: bytes) -> str:
    # States we issue end with it, and may be long: look there before reading the whole.
    if near_end := _ISSUED_CHECKPOINT.search(stream_state, max(0, len(stream_state) - _NEAR_END)):
        return near_end[1].decode()
    try:
        carried = _state_identity.decode(stream_state).checkpoint if stream_state else None
    except msgspec.DecodeError:
        return ""
    # A checkpoint is the identity, a secret and a number, with dots between.
    return (carried or "").partition(".")[0]
