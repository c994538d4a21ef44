"""What a request says about its answer, read once from the caller's original request."""

from typing import NamedTuple

import msgspec


class OutputRules(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a chat or completion request that shape decoding and the response.

    The defaults hold where a call carries no request.
    """

    skip_special_tokens: bool = True
    """As the engine ran: a parser's own adjustment of the request is included."""
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    top_logprobs: int | None = None
    """Candidates to report per position, in the engine's order; None means all."""
    tokens_as_ids: bool = False
    """Report `token_id:N` in place of a token's text."""
    return_token_ids: bool = False
    return_weight_versions: bool = False
    hide_metadata: bool = False
    """Reasoning is hidden, so logprobs and token IDs, which would reveal it, are too."""
    prompt_count: int = 1
    """Prompts of a completion request."""
    samples_per_prompt: int = 1


class EndTokens(NamedTuple):
    """The tokens that end a generation unless the request ignores them."""

    primary: int | None
    """Reported by the engine with `stop_reason: null`."""
    all: frozenset[int]
