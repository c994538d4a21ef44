"""Streamed completions: an engine chunk and the carried state into a chunk and the next state."""

import re
from typing import cast

from msgspec import Raw

from core.derender.carried_window import PlainStream, resume, returned_prompt_ids
from core.formats.usage import chunk_usage
from core.protocol import openai
from core.protocol.calls import DerenderCompletionChunk
from core.protocol.generate import NOTHING, GenerateChunk, StreamChoice, StreamState
from core.protocol.rules import OutputRules
from core.text.model_tools import Server

_PROMPT_NUMBER = re.compile(r".*-(\d{1,6})")


def derender_completion_stream(server: Server, call: DerenderCompletionChunk) -> bytes:
    """Answer a streamed completions call with the JSON of a `CompletionStreamAnswer`.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
    """
    prompt_tokens = server.prompt_tokens(call.prompt_tokens)
    prompt_ids = server.contexts.prompt(call.prompt_token_ids, call.prompt_digest)
    stream, chunk = resume(server, call, prompt_ids, lambda: server.completion_rules(call.request))
    choices = [
        _choice(stream, chunk, choice, prompt_ids, prompt_tokens) for choice in chunk.choices
    ]
    answer = openai.CompletionStreamAnswer(
        chunk=openai.CompletionChunk(
            id=chunk.request_id or call.fallback_id,
            created=stream.created,
            model=call.model,
            choices=choices,
            usage=chunk_usage(chunk.usage, prompt_tokens, None),
            metrics=chunk.metrics,
            kv_transfer_params=chunk.kv_transfer_params,
        ),
        stream_state=stream.state,
    )
    return openai.encoder.encode(answer)


def _choice(
    stream: PlainStream,
    chunk: GenerateChunk,
    choice: StreamChoice,
    prompt_ids: list[int] | None,
    prompt_tokens: int | None,
) -> openai.CompletionStreamChoice:
    rules = stream.rules
    returned = returned_prompt_ids(chunk, prompt_ids, prompt_tokens, stream.first)
    logprobs, next_offset = _logprobs(stream, choice)
    step = stream.advance(choice)
    if next_offset is None:
        next_offset = stream.state.logprob_text_offset + len(step.text)
    stream.state.logprob_text_offset = next_offset
    return openai.CompletionStreamChoice(
        index=_running_index(choice.index, chunk.request_id, rules),
        text=step.text,
        logprobs=logprobs,
        finish_reason=step.finish_reason,
        stop_reason=step.stop_reason,
        prompt_token_ids=returned if rules.return_token_ids else None,
        token_ids=choice.token_ids if rules.return_token_ids else None,
        weight_versions=choice.weight_versions if rules.return_weight_versions else NOTHING,
    )


def _logprobs(
    stream: PlainStream, choice: StreamChoice
) -> tuple[openai.CompletionLogprobs | None, int | None]:
    """Logprobs of the chunk, and the text offset after them; None without positions."""
    state: StreamState = stream.state
    if choice.logprobs is None:
        return None, None
    written = stream.server.logprobs.completion(
        choice.logprobs, stream.rules, state.logprob_context_token_ids, state.logprob_text_offset
    )
    return cast(openai.CompletionLogprobs, Raw(written.json)), written.next_offset


def _running_index(index: int, request_id: str | None, rules: OutputRules) -> int:
    """Index over all prompts. Render names the engine's request of prompt `i` `<id>-<i>`."""
    if rules.prompt_count == 1 or not (match := _PROMPT_NUMBER.fullmatch(request_id or "")):
        return index
    number = int(match[1])
    return number * rules.samples_per_prompt + index if number < rules.prompt_count else index
