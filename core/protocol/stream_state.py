"""What a client carries between the chunks of one choice."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from core.protocol.generate import ChunkLength, Count, Integer, TokenId

NO_TOKENS = Raw(b"[]")


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
