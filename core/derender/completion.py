"""One-shot completions: complete generations, one per prompt, into a `CompletionResponse`."""

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import Raw

from core.derender.one_shot import Head, complete_prompt_ids, named_prompt_logprobs, output_text
from core.formats.usage import count_tokens, usage
from core.protocol import openai
from core.protocol.bounds import (
    check_responses,
    check_same_length,
    check_token_ids,
    counts_decoder,
    decode,
    id_lists_decoder,
    responses_decoder,
)
from core.protocol.calls import DerenderCompletion
from core.protocol.generate import NOTHING, GenerateChoice, GenerateResponse
from core.protocol.rules import OutputRules
from core.text.model_tools import Server


def derender_completion(server: Server, call: DerenderCompletion) -> bytes:
    """Answer a one-shot completions call with the JSON of a `CompletionResponse`.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
    """
    responses = decode(responses_decoder, call.generate, "generate_responses")
    check_responses(responses, server.limits)
    counts = _prompt_tokens(call.prompt_tokens, len(responses))
    prompts = _prompt_ids(server, call.prompt_token_ids, len(responses))
    head = Head(responses[0].request_id or call.fallback_id, call.created, call.model)
    rules = server.completion_rules(call.request)
    answer = completion_answer(server, head, rules, responses, counts, prompts)
    return openai.encoder.encode(answer)


def completion_answer(
    server: Server,
    head: Head,
    rules: OutputRules,
    responses: list[GenerateResponse],
    counts: list[int],
    prompts: Sequence[list[int] | None],
) -> openai.CompletionResponse:
    """The answer to complete generations that passed their checks, one per prompt.

    Args:
        server: The model.
        head: What every answer names.
        rules: What the request says of its answer.
        responses: The generations.
        counts: Tokens of each prompt, to report.
        prompts: Each prompt, as far as the caller knows it.
    """
    choices: list[openai.CompletionChoice] = []
    for response, count, prompt_ids in zip(responses, counts, prompts, strict=True):
        shared = _PromptPart(server, rules, response, prompt_ids, count)
        choices += [
            shared.choice(choice, len(choices) + i) for i, choice in enumerate(response.choices)
        ]
    first = responses[0]
    generated = sum(count_tokens(response.choices) for response in responses)
    return openai.CompletionResponse(
        id=head.id,
        created=head.created,
        model=head.model,
        choices=choices,
        usage=usage(sum(counts), generated, None, _prompt_details(responses)),
        kv_transfer_params=_shared(responses, "kv_transfer_params"),
        ec_transfer_params=_shared(responses, "ec_transfer_params"),
        # Metrics describe one generation; those of several prompts cannot be merged.
        metrics=first.metrics if len(responses) == 1 else NOTHING,
    )


class _PromptPart:
    """What the choices of one prompt share."""

    def __init__(
        self,
        server: Server,
        rules: OutputRules,
        response: GenerateResponse,
        prompt_ids: list[int] | None,
        prompt_tokens: int,
    ) -> None:
        self._server = server
        self._rules = rules
        self._seed = prompt_ids if prompt_ids is not None else response.prompt_token_ids
        self._returned_ids = (
            complete_prompt_ids(response, prompt_ids, prompt_tokens)
            if rules.return_token_ids
            else None
        )
        self._prompt_logprobs = named_prompt_logprobs(server, response.prompt_logprobs)

    def choice(self, choice: GenerateChoice, index: int) -> openai.CompletionChoice:
        rules = self._rules
        text, stop_reason = output_text(self._server, choice, rules, self._seed)
        return openai.CompletionChoice(
            index=index,
            text=text,
            logprobs=self._logprobs(choice),
            finish_reason=choice.finish_reason,
            stop_reason=stop_reason,
            token_ids=choice.token_ids if rules.return_token_ids else None,
            prompt_logprobs=self._prompt_logprobs,
            prompt_token_ids=self._returned_ids,
            routed_experts=choice.routed_experts,
            weight_versions=choice.weight_versions if rules.return_weight_versions else NOTHING,
        )

    def _logprobs(self, choice: GenerateChoice) -> openai.CompletionLogprobs | None:
        if choice.logprobs is None:
            return None
        written = self._server.logprobs.completion(choice.logprobs, self._rules)
        return cast(openai.CompletionLogprobs, Raw(written.json))


def _prompt_tokens(raw: bytes, responses: int) -> list[int]:
    if not raw:
        return [0] * responses
    counts = decode(counts_decoder, raw, "prompt_tokens")
    check_same_length(counts, responses, "prompt_tokens")
    return counts


def _prompt_ids(server: Server, raw: bytes, responses: int) -> list[list[int] | None]:
    if not raw:
        return [None] * responses
    lists = decode(id_lists_decoder, raw, "prompt_token_ids")
    check_same_length(lists, responses, "prompt_token_ids")
    for i, ids in enumerate(lists):
        check_token_ids(ids, server.limits, f"prompt_token_ids[{i}]")
    return lists


def _prompt_details(responses: list[GenerateResponse]) -> Raw:
    """The last engine response's details, as the coupled server reports them."""
    last = responses[-1].usage
    return NOTHING if last is None else last.prompt_tokens_details


def _shared(responses: list[GenerateResponse], member: str) -> Raw:
    """A member on which all responses agree; null otherwise."""
    values = [bytes(getattr(response, member)) for response in responses]
    if all(value == values[0] for value in values):
        return Raw(values[0])
    try:
        decoded = [msgspec.json.decode(value) for value in values]
    except msgspec.DecodeError:
        # Numbers no float can hold: they agree where they are spelled alike, or not at all.
        return NOTHING
    return Raw(values[0]) if all(value == decoded[0] for value in decoded) else NOTHING
