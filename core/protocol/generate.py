"""The engine's side of a body: `/inference/v1/generate` responses and the carried stream state.

Members follow vLLM's generate and derender protocol (`entrypoints/scale_out`, 0.33). Unknown
members are ignored. Numbers are read leniently (`3.0` and `"3"` are integers, `3.5` and `true` are
not), as vLLM's own models do.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw

_MAX = 2**63 - 1
TokenId = Annotated[int, Meta(ge=0, le=_MAX)]
Count = Annotated[int, Meta(ge=0, le=_MAX)]
ChunkLength = Annotated[int, Meta(gt=0, le=_MAX)]
Integer = Annotated[int, Meta(ge=-_MAX, le=_MAX)]
NOTHING = Raw(b"null")
"""A member that is passed through as it came, and did not come."""


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
