"""What one-shot answers of both endpoints share: the text of a choice, and prompt metadata."""

from collections.abc import Sequence
from typing import NamedTuple

from core.protocol.generate import GenerateChoice, GenerateResponse, PromptLogprob
from core.protocol.openai import PromptLogprobs
from core.protocol.rules import OutputRules
from core.text.decoding import decode_all, open_stream
from core.text.logprobs import CONTEXT_TOKENS, FLOOR
from core.text.model_tools import Server
from core.text.stopping import find_stop, split_stop_token


class Head(NamedTuple):
    """What every answer names."""

    id: str
    created: int
    """Unix time in seconds."""
    model: str


def output_text(
    server: Server, choice: GenerateChoice, rules: OutputRules, prompt_ids: Sequence[int] | None
) -> tuple[str, int | str | None]:
    """The text the engine's own detokenizer gives for a complete choice, and the stop reason.

    The stop token is left out; the text ends at the stop string that ended the generation, which
    is the reported one, or the first of the request's own where the engine reports nothing. Strings
    within the first `min_tokens` tokens do not count.
    """
    ids, stop_reason = split_stop_token(
        choice.token_ids or (), choice.finish_reason, choice.stop_reason, rules, server.model.ends
    )
    skip, spaces = rules.skip_special_tokens, server.keeps_spaces(rules)
    stops = _stops(choice, rules)
    if not stops:
        return decode_all(server.tokens, prompt_ids, ids, skip, spaces), stop_reason
    stream = open_stream(server.tokens, prompt_ids, skip, spaces)
    head = stream.feed(ids[: rules.min_tokens])
    tail = stream.feed(ids[rules.min_tokens :])
    text = head + tail
    match = find_stop(text, len(tail), stops)
    if match is None:
        return text, stop_reason
    return text[: match.end if rules.include_stop_str_in_output else match.start], match.stop


def complete_prompt_ids(
    response: GenerateResponse, prompt_ids: list[int] | None, prompt_tokens: int | None
) -> list[int] | None:
    """The prompt IDs to return: the engine's, else the caller's if its count shows them whole."""
    if response.prompt_token_ids is not None or prompt_ids is None:
        return response.prompt_token_ids
    return prompt_ids if len(prompt_ids) == prompt_tokens else None


def named_prompt_logprobs(
    server: Server, prompt_logprobs: PromptLogprobs | None
) -> PromptLogprobs | None:
    """Prompt logprobs with the texts an engine without a tokenizer leaves out, and a floor.

    The first candidate of each position is the prompt's own token, the context of the next ones.
    """
    context: list[int] = []
    for candidates in prompt_logprobs or ():
        for key, candidate in (candidates or {}).items():
            _name(server, int(key), candidate, context)
        if candidates:
            context = [*context, int(next(iter(candidates)))][-CONTEXT_TOKENS:]
    return prompt_logprobs


def _name(server: Server, token_id: int, candidate: PromptLogprob, context: list[int]) -> None:
    candidate.logprob = max(candidate.logprob, FLOOR)
    if candidate.decoded_token is None:
        candidate.decoded_token = server.logprobs.text(token_id, context)


def _stops(choice: GenerateChoice, rules: OutputRules) -> Sequence[str]:
    if choice.finish_reason != "stop" or isinstance(choice.stop_reason, int):
        return ()
    return (choice.stop_reason,) if choice.stop_reason is not None else rules.stop
