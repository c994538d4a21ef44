"""Messages between gateway and shards, and the envelope of a request body.

The gateway decodes the envelope only: large members stay `msgspec.Raw`, slices of the body that the
shard decodes. Frames are msgpack arrays; new members are appended with a default.
"""

import re
from enum import StrEnum

import msgspec

from core.protocol.errors import (
    BadRequest,
    DerenderError,
    EngineRefused,
    FaultCode,
    InternalFault,
    RenderRefused,
)


class Kind(StrEnum):
    """What a shard can be asked for."""

    CHAT = "chat"
    CHAT_STREAM = "chat_stream"
    COMPLETION = "completion"
    COMPLETION_STREAM = "completion_stream"
    STATS = "stats"
    """Counters of the shard; the body is JSON of `ShardCounters`."""
    CANCEL = "cancel"
    """Nobody waits for the call with this `call_id` any more; there is no reply."""
    RENDER_CHAT = "render_chat"
    RENDER_COMPLETION = "render_completion"
    RENDER_RESPONSES = "render_responses"
    RENDER_MESSAGES = "render_messages"
    TOKENIZE = "tokenize"
    DETOKENIZE = "detokenize"
    PLAN_CHAT = "plan_chat"
    """Render a chat for the front door; the answer is a `core.protocol.plan.Plan`."""
    PLAN_COMPLETION = "plan_completion"
    SERVE = "serve"
    """Turn complete generations into an answer; `generate` is a list of bodies."""
    SERVE_OPEN = "serve_open"
    """Open the stream `session`; `request` is a recipe, `generate` the journal to start from."""
    SERVE_EVENTS = "serve_events"
    """Advance the stream `session` by the engine events in `generate`."""
    SERVE_CLOSE = "serve_close"
    """Forget the stream `session`; there is no reply."""


PLAN_KINDS = frozenset({Kind.PLAN_CHAT, Kind.PLAN_COMPLETION})
"""Calls to render whose `model` is the name to ask the engine for."""

RENDER_KINDS = frozenset(
    {
        Kind.RENDER_CHAT,
        Kind.RENDER_COMPLETION,
        Kind.RENDER_RESPONSES,
        Kind.RENDER_MESSAGES,
        Kind.TOKENIZE,
        Kind.DETOKENIZE,
    }
    | PLAN_KINDS
)
"""Calls whose `request` is a whole HTTP body, and whose `fallback_id` is what its header names."""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One call on its way to a shard. JSON the body did not have is empty bytes."""

    call_id: int
    """Echoed in the reply; unique per connection."""
    kind: Kind
    model: str
    """Name to report, already checked."""
    created: int
    """Unix time in seconds to report."""
    fallback_id: str
    """Request ID to use where the engine's response names none."""
    generate: bytes
    """JSON of `generate_response`, `generate_responses` or `generate_chunk`."""
    stream_state: bytes
    prompt_tokens: bytes
    prompt_token_ids: bytes
    request: bytes
    """JSON of `chat_request` or `completion_request`; the body of a call to render."""
    trace_id: str = ""
    """The HTTP request's ID, for the shard's log."""
    prompt_digest: bytes = b""
    """Names `prompt_token_ids`, whose bytes may then be left out where the shard holds them."""
    request_digest: bytes = b""
    """Names `request`, likewise."""
    checkpoints: bool = False
    """The caller asked for checkpoints in place of states."""
    session: str = ""
    """Names a stream of the front door; nothing but this machine knows it."""


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """A failure as data."""

    code: FaultCode
    message: str
    param: str | None = None
    status: int = 0
    """HTTP status of a renderer's or an engine's own refusal."""
    type: str = ""
    """Its OpenAI error type."""

    @classmethod
    def of(cls, error: DerenderError) -> "Fault":
        """Describe an error for the other side of a pipe."""
        if isinstance(error, RenderRefused | EngineRefused):
            return cls(error.code, error.message, error.param, error.status, error.type)
        return cls(error.code, error.message, error.param)

    def error(self) -> DerenderError:
        """Rebuild the error."""
        if self.code is FaultCode.RENDER_REFUSED:
            return RenderRefused(self.message, self.param, self.status, self.type)
        if self.code is FaultCode.ENGINE_REFUSED:
            return EngineRefused(self.message, self.param, status=self.status, type=self.type)
        kind = _ERRORS.get(self.code, InternalFault)
        error = kind.__new__(kind)
        # Subclasses may take other arguments than what crossed the pipe.
        DerenderError.__init__(error, self.message, self.param)
        return error


def _kinds(root: type[DerenderError]) -> list[type[DerenderError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _kinds(child))]


_ERRORS = {kind.code: kind for kind in _kinds(InternalFault) + _kinds(BadRequest)}


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """What a shard answers: the finished response body, or a fault."""

    call_id: int
    body: bytes = b""
    fault: Fault | None = None


class Ready(msgspec.Struct, frozen=True, array_like=True):
    """A shard's first message: it serves, or says in one line why it cannot."""

    shard: int
    pid: int
    warm: bool = False
    """Its modules and model came from the warmed parent."""
    error: str | None = None
    vllm_version: str = ""
    served_model_names: tuple[str, ...] = ()
    max_model_len: int = 0


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A derender request body, opened one level deep. Unknown members are ignored, as vLLM does."""

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


call_encoder = msgspec.msgpack.Encoder()
call_decoder = msgspec.msgpack.Decoder(Call)
reply_encoder = msgspec.msgpack.Encoder()
reply_decoder = msgspec.msgpack.Decoder(Reply)
envelope_decoder = msgspec.json.Decoder(Envelope)


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


def carried_stream_id(stream_state: bytes) -> str | None:
    """Identity in a carried state, None where there is none or it is malformed.

    Malformed members are refused by the shard, with their path; here they only lose their affinity.
    """
    # States we issue end with it, and may be long: look there before reading the whole.
    if near_end := _ISSUED_CHECKPOINT.search(stream_state, max(0, len(stream_state) - _NEAR_END)):
        return near_end[1].decode()
    try:
        carried = _state_identity.decode(stream_state).checkpoint if stream_state else None
    except msgspec.DecodeError:
        return None
    # A checkpoint is the identity, a secret and a number, with dots between.
    return carried.partition(".")[0] if carried else None


def chunk_identity(generate_chunk: bytes) -> tuple[str | None, int]:
    """Request ID and choice index of an engine chunk; (None, 0) where it is malformed."""
    try:
        chunk = _chunk_identity.decode(generate_chunk)
    except msgspec.DecodeError:
        return None, 0
    return chunk.request_id, chunk.choices[0].index if chunk.choices else 0
