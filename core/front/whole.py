"""Answers in one piece: complete generations into what `vllm serve` answers without streaming."""

from array import array
from typing import cast

from msgspec import Raw

from core.derender.chat import chat_answer
from core.derender.completion import completion_answer
from core.derender.one_shot import Head
from core.front.echo import echoed_logprobs
from core.protocol import openai
from core.protocol.generate import GenerateChoice, GenerateResponse
from core.protocol.plan import ApiName, Recipe
from core.protocol.rules import OutputRules
from core.text.choice import LiveChoice
from core.text.model_tools import Server


def unpack(recipe: Recipe) -> list[list[int]]:
    """The token IDs of each prompt."""
    return [array("I", packed).tolist() for packed in recipe.prompts]


def whole_answer(
    server: Server,
    recipe: Recipe,
    created: int,
    prompts: list[list[int]],
    responses: list[GenerateResponse],
) -> bytes:
    """The JSON of a `ChatResponse` or `CompletionResponse`.

    Args:
        server: The model.
        recipe: What the request asks for.
        created: Unix time to report.
        prompts: Token IDs of each prompt.
        responses: The engine's generations, one per prompt.

    Raises:
        BadRequest: The output cannot be parsed.
    """
    head = Head(recipe.request_id, created, recipe.model)
    counts = [_prompt_tokens(*pair) for pair in zip(responses, prompts, strict=True)]
    if recipe.api is ApiName.CHAT:
        return openai.encoder.encode(_chat(server, recipe, head, responses[0], prompts[0]))
    rules = server.completion_rules(recipe.request)
    for response, prompt in zip(responses, prompts, strict=True):
        _cut(server, rules, response, prompt)
    answer = completion_answer(server, head, rules, responses, counts, prompts)
    _echo_prompts(server, recipe, rules, answer, responses, prompts)
    return openai.encoder.encode(answer)


def _chat(
    server: Server, recipe: Recipe, head: Head, response: GenerateResponse, prompt: list[int]
) -> openai.ChatResponse:
    context = server.model.chat_context(recipe.request)
    rules = context.rules
    _cut(server, rules, response, prompt)
    answer = chat_answer(server, head, context, response, _prompt_tokens(response, prompt), prompt)
    answer.prompt_text = recipe.prompt_text
    if rules.return_token_ids:
        answer.prompt_token_ids = prompt
    for choice in answer.choices:
        choice.message.role = recipe.role
        for text in recipe.echo:
            choice.message.content = text + (choice.message.content or "")
    return answer


def _cut(server: Server, rules: OutputRules, response: GenerateResponse, prompt: list[int]) -> None:
    """End each choice at the first stop string, which the engine did not look for."""
    for choice in response.choices if rules.stop else ():
        taken = LiveChoice(server, rules, prompt).take(choice)
        if isinstance(taken.stop_reason, str):
            choice.token_ids = taken.ids
            choice.finish_reason, choice.stop_reason = taken.finish_reason, taken.stop_reason


def _prompt_tokens(response: GenerateResponse, prompt: list[int]) -> int:
    """The engine's count, which knows of encoders; that of the prompt where it sends none."""
    counted = response.usage.prompt_tokens if response.usage else None
    return len(prompt) if counted is None else counted


def _echo_prompts(
    server: Server,
    recipe: Recipe,
    rules: OutputRules,
    answer: openai.CompletionResponse,
    responses: list[GenerateResponse],
    prompts: list[list[int]],
) -> None:
    """Put each prompt before its answers, with its logprobs where those are asked for."""
    if not recipe.echo:
        return
    engine = [(at, choice) for at, response in enumerate(responses) for choice in response.choices]
    for (at, generated), choice in zip(engine, answer.choices, strict=True):
        choice.text = recipe.echo[at] if recipe.echo_only else recipe.echo[at] + choice.text
        if generated.logprobs is not None:
            output = GenerateChoice(index=0) if recipe.echo_only else generated
            written = echoed_logprobs(server, rules, responses[at], prompts[at], output)
            choice.logprobs = cast(openai.CompletionLogprobs, Raw(written))
