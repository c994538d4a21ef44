"""Complete generations, one per prompt, into a `CompletionResponse`."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from core.formats.format import Generation, Head
from core.formats.prompts import complete_prompt_ids, named_prompt_logprobs
from core.formats.usage import usage
from core.protocol import openai
from core.protocol.generate import NOTHING, GenerateChoice, GenerateResponse
from core.protocol.rules import OutputRules
from core.text.choice import whole_choice
from core.text.logprobs import LogprobShape
from core.text.model_tools import ModelTools


def completion_answer(
    tools: ModelTools, head: Head, rules: OutputRules, generations: Sequence[Generation]
) -> openai.CompletionResponse:
    """The answer to complete generations, one per prompt.

    Args:
        tools: The model.
        head: What every answer names.
        rules: What the request says of its answer.
        generations: What to answer with, at least one.
    """
    choices: list[openai.CompletionChoice] = []
    generated = 0
    for generation in generations:
        prompt = _Prompt(tools, rules, generation)
        for choice in generation.response.choices:
            choices.append(prompt.choice(choice, len(choices)))
        generated += prompt.tokens
    responses = [generation.response for generation in generations]
    counted = sum(generation.prompt_tokens for generation in generations)
    return openai.CompletionResponse(
        **head._asdict(),
        choices=choices,
        usage=usage(counted, generated, None, _prompt_details(responses)),
        kv_transfer_params=_shared(responses, "kv_transfer_params"),
        ec_transfer_params=_shared(responses, "ec_transfer_params"),
        # Metrics describe one generation; those of several prompts cannot be merged.
        metrics=responses[0].metrics if len(responses) == 1 else NOTHING,
    )


class _Prompt:
    """What the choices of one prompt share, and the tokens they have together."""

    def __init__(self, tools: ModelTools, rules: OutputRules, generation: Generation) -> None:
        response, prompt_ids, prompt_tokens = generation
        self.tokens = 0
        self._tools = tools
        self._rules = rules
        self._seed = prompt_ids if prompt_ids is not None else response.prompt_token_ids
        self._returned_ids = (
            complete_prompt_ids(response, prompt_ids, prompt_tokens)
            if rules.return_token_ids
            else None
        )
        self._prompt_logprobs = named_prompt_logprobs(tools, response.prompt_logprobs)

    def choice(self, choice: GenerateChoice, index: int) -> openai.CompletionChoice:
        rules = self._rules
        step = whole_choice(self._tools, rules, choice, self._seed, LogprobShape.COMPLETION)
        self.tokens += len(step.ids)
        return openai.CompletionChoice(
            index=index,
            text=step.text,
            logprobs=step.logprobs,
            finish_reason=step.finish_reason,
            stop_reason=step.stop_reason,
            token_ids=step.part.token_ids if rules.return_token_ids else None,
            prompt_logprobs=self._prompt_logprobs,
            prompt_token_ids=self._returned_ids,
            routed_experts=choice.routed_experts,
            weight_versions=step.part.weight_versions if rules.return_weight_versions else NOTHING,
        )


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
