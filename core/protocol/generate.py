"""The engine's side of a body: `/inference/v1/generate` responses and the carried stream state.

Members follow vLLM's generate and derender protocol (`entrypoints/scale_out`, 0.33). Unknown
members are ignored. Numbers are read leniently (`3.0` and `"3"` are integers, `3.5` and `true` are
not), as vLLM's own models do.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

_MAX = 2**63 - 1
TokenId = Annotated[int, Meta(ge=0, le=_MAX)]
Count = Annotated[int, Meta(ge=0, le=_MAX)]
ChunkLength = Annotated[int, Meta(gt=0, le=_MAX)]
Integer = Annotated[int, Meta(ge=-_MAX, le=_MAX)]
NOTHING = Raw(b"null")
"""A member that is passed through as it came, and did not come."""
NO_TOKENS = Raw(b"[]")


class LogprobCandidate(msgspec.Struct, kw_only=True, gc=False):
    """One candidate at one position.

    The ID comes as the integer `token_id` (vLLM 0.32 and later) or as `"token": "token_id:N"`
    (earlier).
    """

    token_id: TokenId | None = None
    token: str | None = None
    logprob: float = -9999.0


class LogprobPosition(LogprobCandidate, kw_only=True):
    """The sampled token of one position; the engine lists it first among `top_logprobs`."""

    top_logprobs: list[LogprobCandidate] = []


class GenerateLogprobs(msgspec.Struct, kw_only=True):
    """Logprobs of one choice: one position per token of `token_ids`."""

    content: list[LogprobPosition] | None = None


class StreamChoice(msgspec.Struct, kw_only=True):
    """What one engine chunk adds to one choice."""

    index: Integer
    finish_reason: str | None = None
    stop_reason: Integer | str | None = None
    """Stop token ID or stop string; null on the end token, on length and on abort."""
    token_ids: list[TokenId] | None = None
    logprobs: GenerateLogprobs | None = None
    routed_experts: str | None = None
    weight_versions: Raw = NOTHING


class GenerateChoice(StreamChoice, kw_only=True):
    """One complete choice."""

    finish_reason: str | None = "stop"


class EngineUsage(msgspec.Struct, kw_only=True):
    """Token counts the engine reports."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: Raw = NOTHING


class PromptLogprob(msgspec.Struct, kw_only=True):
    """One candidate of one prompt position."""

    logprob: float
    rank: Integer | None = None
    decoded_token: str | None = None


class GenerateChunk(msgspec.Struct, kw_only=True):
    """One SSE event of a generation."""

    choices: list[StreamChoice]
    request_id: str | None = None
    output_mode: str = "tokens"
    usage: EngineUsage | None = None
    prompt_token_ids: list[TokenId] | None = None
    metrics: Raw = NOTHING
    kv_transfer_params: Raw = NOTHING


class GenerateResponse(msgspec.Struct, kw_only=True):
    """A complete generation."""

    choices: list[GenerateChoice]
    request_id: str | None = None
    output_mode: str = "tokens"
    usage: EngineUsage | None = None
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | None = None
    prompt_token_ids: list[TokenId] | None = None
    metrics: Raw = NOTHING
    kv_transfer_params: Raw = NOTHING
    ec_transfer_params: Raw = NOTHING


class StopWindow(msgspec.Struct, kw_only=True):
    """Text held back for stop strings. O(longest stop string) in size."""

    tail: str = ""
    """The end of the output text: what a stop string could still begin in."""
    unsent: Count = 0
    """Characters at the end of `tail` that were not sent yet."""
    tokens: Count = 0
    """Output tokens so far, for `min_tokens`."""
    stopped: bool = False
    """A stop string matched; what follows belongs to no answer."""


class Finish(msgspec.Struct, kw_only=True):
    """How the engine ended a choice."""

    finish_reason: str | None = None
    stop_reason: Integer | str | None = None
    apart: bool = False
    """The end came in a chunk without tokens, so the last token was text before it."""


class StreamState(msgspec.Struct, kw_only=True):
    """What a client carries between the chunks of one choice; vLLM's `DerenderStreamState`.

    Without a parser it holds a bounded decode window; with one it holds every output token, O(n).
    The members from `checkpoint` on are ours: vLLM's render server ignores and drops them.
    """

    prev_tokens: list[str] = []
    """Token strings still needed to decode the next token."""
    prefix_offset: Count = 0
    read_offset: Count = 0
    role_sent: bool = False
    logprob_context_token_ids: Annotated[list[TokenId], Meta(max_length=4)] = []
    """The last sampled tokens, to repair U+FFFD in logprobs over chunk borders."""
    logprob_text_offset: Count = 0
    """Characters of all logprob tokens reported so far."""
    output_token_ids: list[TokenId] = []
    output_chunk_lens: list[ChunkLength] = []
    """Tokens per chunk; they sum to the length of `output_token_ids`."""
    tools_streamed: bool = False
    last_tool_call_ids: list[str] = []
    """ID of each tool call, by call index."""
    checkpoint: Annotated[str, Meta(max_length=128)] | UnsetType | None = UNSET
    """Identity of the stream: chunks that carry it reach the same shard."""
    created: Count | UnsetType | None = UNSET
    """Unix time of the stream's first chunk, reported with each of its chunks."""
    finished: Finish | UnsetType | None = UNSET
    """Present with a parser, once the engine ended the choice."""
    stop_window: StopWindow | UnsetType | None = UNSET
    """Present while stop strings are looked for without a parser."""


class ParsedState(msgspec.Struct, kw_only=True):
    """`StreamState` of the parser path, its O(n) members left as JSON."""

    prev_tokens: list[str] = []
    prefix_offset: Count = 0
    read_offset: Count = 0
    role_sent: bool = False
    logprob_context_token_ids: Annotated[list[TokenId], Meta(max_length=4)] = []
    logprob_text_offset: Count = 0
    output_token_ids: Raw = NO_TOKENS
    output_chunk_lens: Raw = NO_TOKENS
    tools_streamed: bool = False
    last_tool_call_ids: list[str] = []
    checkpoint: Annotated[str, Meta(max_length=128)] | UnsetType | None = UNSET
    created: Count | UnsetType | None = UNSET
    finished: Finish | UnsetType | None = UNSET
    """Present once the engine ended the choice, for the calls that follow without tokens."""


class CheckpointState(msgspec.Struct, kw_only=True):
    """What a client carries instead of a state once it asked for checkpoints."""

    checkpoint: str
