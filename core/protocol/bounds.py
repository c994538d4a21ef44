"""Checks that run before any tokenizer or parser: is the body well formed, and within the limits?

Every refusal is a `BadRequest`: its `param` is the path of the field, its message names the bound.
"""

import re
from collections.abc import Sequence

import msgspec

from core.protocol.errors import BadRequest
from core.protocol.generate import (
    NOTHING,
    ChunkLength,
    GenerateChunk,
    GenerateLogprobs,
    GenerateResponse,
    LogprobCandidate,
    StreamChoice,
    TokenId,
)
from core.protocol.limits import Limits
from core.protocol.members import decode
from core.protocol.stream_state import ParsedState, StreamState

_PLACEHOLDER = re.compile(r"token_id:([0-9]{1,10})")

chunk_decoder = msgspec.json.Decoder(GenerateChunk, strict=False)
response_decoder = msgspec.json.Decoder(GenerateResponse, strict=False)
responses_decoder = msgspec.json.Decoder(list[GenerateResponse], strict=False)
parsed_state_decoder = msgspec.json.Decoder(ParsedState, strict=False)
state_decoder = msgspec.json.Decoder(StreamState, strict=False)
ids_decoder = msgspec.json.Decoder(list[TokenId], strict=False)
id_lists_decoder = msgspec.json.Decoder(list[list[TokenId] | None], strict=False)
lens_decoder = msgspec.json.Decoder(list[ChunkLength], strict=False)
_count_decoder = msgspec.json.Decoder(TokenId, strict=False)
counts_decoder = msgspec.json.Decoder(list[TokenId], strict=False)


def read_prompt_tokens(raw: bytes) -> int | None:
    """The caller's count of prompt tokens; None where the body had none.

    Raises:
        BadRequest: It is no count.
    """
    return decode(_count_decoder, raw, "prompt_tokens") if raw else None


def check_tokens_mode(part: GenerateResponse | GenerateChunk, path: str) -> None:
    """Refuse responses whose text the engine already decoded."""
    if part.output_mode != "tokens":
        raise BadRequest(
            f"`{path}.output_mode` must be 'tokens', got {part.output_mode!r}: other modes are"
            " already detokenized.",
            f"{path}.output_mode",
        )


def check_token_ids(ids: Sequence[int] | None, limits: Limits, path: str) -> None:
    """Refuse lists longer than the model's context, and IDs outside its vocabulary."""
    if not ids:
        return
    if len(ids) > limits.max_model_len:
        raise BadRequest(
            f"`{path}` has {len(ids)} tokens, more than max_model_len ({limits.max_model_len}).",
            path,
        )
    if max(ids) >= limits.vocab_size:
        at = next(i for i, token in enumerate(ids) if token >= limits.vocab_size)
        raise BadRequest(
            f"`{path}[{at}]` is {ids[at]}, outside the vocabulary of {limits.vocab_size} tokens.",
            f"{path}[{at}]",
        )


def check_responses(responses: Sequence[GenerateResponse], limits: Limits) -> None:
    """Check the responses of a completions call."""
    if not responses:
        raise BadRequest("`generate_responses` must not be empty.", "generate_responses")
    if len(responses) > limits.max_sequences:
        raise BadRequest(
            f"`generate_responses` has {len(responses)} entries, more than the maximum of"
            f" {limits.max_sequences}.",
            "generate_responses",
        )
    for i, response in enumerate(responses):
        check_response(response, limits, f"generate_responses[{i}]")


def check_response(
    response: GenerateResponse, limits: Limits, path: str, *, may_be_empty: bool = False
) -> None:
    """Check one complete generation; every choice must have tokens, unless it may be empty."""
    check_tokens_mode(response, path)
    if len(response.choices) > limits.max_sequences:
        raise BadRequest(
            f"`{path}.choices` has {len(response.choices)} entries, more than the maximum of"
            f" {limits.max_sequences}.",
            f"{path}.choices",
        )
    for i, choice in enumerate(response.choices):
        _check_choice(choice, limits, f"{path}.choices[{i}]")
        if not (choice.token_ids or may_be_empty):
            raise BadRequest(
                f"`{path}.choices[{i}].token_ids` must have at least one token.",
                f"{path}.choices[{i}].token_ids",
            )
    if response.prompt_logprobs and len(response.prompt_logprobs) > limits.max_model_len:
        raise BadRequest(
            f"`{path}.prompt_logprobs` has {len(response.prompt_logprobs)} positions, more than"
            f" max_model_len ({limits.max_model_len}).",
            f"{path}.prompt_logprobs",
        )
    _check_prompt_logprobs(response, limits, path)
    _check_json(response.ec_transfer_params, b"{", "an object", f"{path}.ec_transfer_params")
    _check_passed_through(response, path)
    check_token_ids(response.prompt_token_ids, limits, f"{path}.prompt_token_ids")


def check_chunk(chunk: GenerateChunk, limits: Limits) -> None:
    """Check one chunk of a stream: at most one choice, as the engine sends them."""
    check_tokens_mode(chunk, "generate_chunk")
    if len(chunk.choices) > 1:
        raise BadRequest(
            f"`generate_chunk.choices` has {len(chunk.choices)} entries; a streamed chunk carries"
            " at most one choice.",
            "generate_chunk.choices",
        )
    for choice in chunk.choices:
        _check_choice(choice, limits, "generate_chunk.choices[0]")
    _check_passed_through(chunk, "generate_chunk")
    check_token_ids(chunk.prompt_token_ids, limits, "generate_chunk.prompt_token_ids")


def check_state(state: StreamState, limits: Limits) -> None:
    """Check that a carried state adds up."""
    check_history(state.output_token_ids, state.output_chunk_lens, limits)
    check_window(state, limits)


def check_history(ids: Sequence[int], lens: Sequence[int], limits: Limits) -> None:
    """Check that a carried history adds up."""
    total, summed = len(ids), sum(lens)
    if total != summed:
        raise BadRequest(
            "`stream_state.output_chunk_lens` must sum to the length of output_token_ids: the sum"
            f" is {summed}, the length {total}.",
            "stream_state.output_chunk_lens",
        )
    check_token_ids(ids, limits, "stream_state.output_token_ids")


def check_window(state: StreamState | ParsedState, limits: Limits) -> None:
    """Check the members of a carried state whose size is bounded."""
    window = len(state.prev_tokens)
    if window > limits.max_window_tokens:
        raise BadRequest(
            f"`stream_state.prev_tokens` has {window} entries, more than the maximum of"
            f" {limits.max_window_tokens}.",
            "stream_state.prev_tokens",
        )
    if not state.prefix_offset <= state.read_offset <= window:
        raise BadRequest(
            "`stream_state.read_offset` must lie between prefix_offset and the length of"
            f" prev_tokens: got prefix_offset {state.prefix_offset}, read_offset"
            f" {state.read_offset}, {window} tokens.",
            "stream_state.read_offset",
        )
    check_token_ids(
        state.logprob_context_token_ids, limits, "stream_state.logprob_context_token_ids"
    )


def check_context(prompt: int, history: int, chunk: GenerateChunk, limits: Limits) -> None:
    """Refuse a stream whose prompt, history and new tokens are longer than the model's context."""
    delta = sum(len(choice.token_ids or ()) for choice in chunk.choices)
    if prompt + history + delta > limits.max_model_len:
        raise BadRequest(
            f"`prompt_token_ids` ({prompt} tokens) plus output_token_ids ({history}) plus the"
            f" chunk's token_ids ({delta}) exceed max_model_len ({limits.max_model_len}).",
            "prompt_token_ids",
        )


def check_same_length(entries: Sequence[object] | None, responses: int, member: str) -> None:
    """Refuse a per-response list of another length than the responses."""
    if entries is not None and len(entries) != responses:
        raise BadRequest(
            f"`{member}` has {len(entries)} entries, but generate_responses has {responses};"
            " they must match.",
            member,
        )


def _check_choice(choice: StreamChoice, limits: Limits, path: str) -> None:
    if choice.index < 0:
        raise BadRequest(f"`{path}.index` must be at least 0, got {choice.index}.", f"{path}.index")
    _check_json(choice.weight_versions, b"[", "a list", f"{path}.weight_versions")
    check_token_ids(choice.token_ids, limits, f"{path}.token_ids")
    if choice.logprobs is not None:
        _check_logprobs(choice.logprobs, limits, f"{path}.logprobs.content")


def _check_logprobs(logprobs: GenerateLogprobs, limits: Limits, path: str) -> None:
    content = logprobs.content or ()
    if len(content) > limits.max_model_len:
        raise BadRequest(
            f"`{path}` has {len(content)} positions, more than max_model_len"
            f" ({limits.max_model_len}).",
            path,
        )
    for i, position in enumerate(content):
        if 0 <= limits.max_logprobs < len(position.top_logprobs):
            raise BadRequest(
                f"`{path}[{i}].top_logprobs` has {len(position.top_logprobs)} entries, more than"
                f" max_logprobs ({limits.max_logprobs}).",
                f"{path}[{i}].top_logprobs",
            )
        _settle_token_id(position, limits, path, i, None)
        for j, candidate in enumerate(position.top_logprobs):
            _settle_token_id(candidate, limits, path, i, j)


def _settle_token_id(
    candidate: LogprobCandidate, limits: Limits, path: str, i: int, j: int | None
) -> None:
    """Read the ID of either shape; runs per candidate, so the path is built only to refuse."""
    token_id = candidate.token_id
    if token_id is None and (match := _PLACEHOLDER.fullmatch(candidate.token or "")):
        token_id = candidate.token_id = int(match[1])
    if token_id is not None and token_id < limits.vocab_size:
        return
    at = f"{path}[{i}]" if j is None else f"{path}[{i}].top_logprobs[{j}]"
    if token_id is None:
        raise BadRequest(
            f"`{at}` must have an integer token_id or a token of the form 'token_id:N'.", at
        )
    raise BadRequest(
        f"`{at}.token_id` is {token_id}, outside the vocabulary of {limits.vocab_size} tokens.",
        f"{at}.token_id",
    )


def _check_prompt_logprobs(response: GenerateResponse, limits: Limits, path: str) -> None:
    for i, candidates in enumerate(response.prompt_logprobs or ()):
        for key in candidates or ():
            if not (key.isascii() and key.isdigit() and int(key) < limits.vocab_size):
                at = f"{path}.prompt_logprobs[{i}]"
                raise BadRequest(
                    f"`{at}` has the key {key[:20]!r}; keys are token IDs below"
                    f" {limits.vocab_size}.",
                    at,
                )


def _check_passed_through(part: GenerateResponse | GenerateChunk, path: str) -> None:
    _check_json(part.metrics, b"{", "an object", f"{path}.metrics")
    _check_json(part.kv_transfer_params, b"{", "an object", f"{path}.kv_transfer_params")
    if part.usage is not None:
        details = f"{path}.usage.prompt_tokens_details"
        _check_json(part.usage.prompt_tokens_details, b"{", "an object", details)


def _check_json(raw: msgspec.Raw, opening: bytes, kind: str, path: str) -> None:
    if raw is NOTHING:
        return
    value = bytes(raw)
    if value != b"null" and not value.startswith(opening):
        raise BadRequest(f"`{path}` must be {kind} or null.", path)
