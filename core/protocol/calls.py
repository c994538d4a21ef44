"""What a shard can be asked for: one struct for each call, with the fields that call has.

Frames are msgpack arrays that begin with the call's tag; new members are appended with a default.
JSON a body did not have is empty bytes.
"""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from core.protocol.plan import ApiName, EngineEvent


class _Call(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    call_id: int
    """Echoed in the reply; unique per connection."""
    trace_id: str = ""
    """The HTTP request's ID, for the shard's log."""


class _Derender(_Call, frozen=True, kw_only=True):
    model: str
    """Name to report, already checked."""
    created: int
    """Unix time in seconds to report."""
    fallback_id: str
    """Request ID to use where the engine's response names none."""
    generate: bytes
    """JSON of `generate_response`, `generate_responses` or `generate_chunk`."""
    prompt_tokens: bytes
    prompt_token_ids: bytes
    request: bytes
    """JSON of `chat_request` or `completion_request`."""


class DerenderChat(_Derender, frozen=True, tag="derender_chat", kw_only=True):
    """Turn a complete generation into a chat completion."""


class DerenderCompletion(_Derender, frozen=True, tag="derender_completion", kw_only=True):
    """Turn complete generations, one per prompt, into a completion."""


class _DerenderChunk(_Derender, frozen=True, kw_only=True):
    stream: str
    """Identity of the stream; see `core.protocol.envelope.stream_of`."""
    stream_state: bytes
    """JSON of the carried state; empty for the first chunk."""
    prompt_digest: bytes = b""
    """Names `prompt_token_ids`, whose bytes may then be left out where the shard holds them."""


class DerenderChatChunk(_DerenderChunk, frozen=True, tag="derender_chat_chunk", kw_only=True):
    """Turn one chunk of a generation into a chunk of a chat."""

    request_digest: bytes = b""
    """Names `request`, likewise."""
    checkpoints: bool = False
    """The caller asked for checkpoints in place of states."""


class DerenderCompletionChunk(
    _DerenderChunk, frozen=True, tag="derender_completion_chunk", kw_only=True
):
    """Turn one chunk of a generation into a chunk of a completion."""


class RenderTarget(StrEnum):
    """What vLLM's render server can be asked for."""

    CHAT = "render_chat"
    COMPLETION = "render_completion"
    RESPONSES = "render_responses"
    MESSAGES = "render_messages"
    TOKENIZE = "tokenize"
    DETOKENIZE = "detokenize"


class Render(_Call, frozen=True, tag="render", kw_only=True):
    """Answer as vLLM's render server does."""

    target: RenderTarget
    body: bytes
    """The HTTP body."""
    caller_id: str
    """What its `X-Request-Id` says; empty where there is none."""


class MakePlan(_Call, frozen=True, tag="plan", kw_only=True):
    """Render a request for the front door; the answer is a `core.protocol.plan.Plan`."""

    api: ApiName
    body: bytes
    """The HTTP body."""
    caller_id: str
    """What its `X-Request-Id` says; empty where there is none."""
    engine_model: str
    """Model name the engine is asked for."""


class AnswerWhole(_Call, frozen=True, tag="answer_whole", kw_only=True):
    """Turn an engine's complete answers into the answer to a request of the front door."""

    recipe: bytes
    """A `core.protocol.plan.Recipe`, encoded."""
    created: int
    """Unix time in seconds to report."""
    bodies: list[bytes]
    """The engine's answers, one per prompt."""


class OpenStream(_Call, frozen=True, tag="open_stream", kw_only=True):
    """Open a stream of the front door, anew where there is a journal."""

    session: str
    """Names the stream; nothing but this machine knows it."""
    recipe: bytes
    """A `core.protocol.plan.Recipe`, encoded."""
    created: int
    """Unix time in seconds to report."""
    journal: bytes
    """What the stream has taken; see `core.front.journal`."""


class AdvanceStream(_Call, frozen=True, tag="advance_stream", kw_only=True):
    """Have a stream take events; the answer is a `core.protocol.plan.Advance`."""

    session: str
    events: list[EngineEvent]


class CloseStream(_Call, frozen=True, tag="close_stream", kw_only=True):
    """Forget a stream; there is no reply."""

    session: str


class Cancel(_Call, frozen=True, tag="cancel", kw_only=True):
    """Nobody waits for the call with this `call_id` any more; there is no reply."""


class Stats(_Call, frozen=True, tag="stats", kw_only=True):
    """Counters of the shard; the answer is JSON of `shards.messages.counters.TableCounters`."""


DerenderCall: TypeAlias = (
    DerenderChat | DerenderCompletion | DerenderChatChunk | DerenderCompletionChunk
)
RenderCall: TypeAlias = Render | MakePlan
FrontCall: TypeAlias = AnswerWhole | OpenStream | AdvanceStream
Work: TypeAlias = DerenderCall | RenderCall | FrontCall
"""What is answered by the model."""
Call: TypeAlias = Work | CloseStream | Cancel | Stats

call_encoder = msgspec.msgpack.Encoder()
call_decoder: msgspec.msgpack.Decoder[Call] = msgspec.msgpack.Decoder(Call)
