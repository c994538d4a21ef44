"""Text completions as an API."""

from typing import cast

from msgspec import Raw

from core.formats.completions.echo import echoed_logprobs
from core.formats.completions.events import CompletionEvents
from core.formats.completions.whole import completion_answer
from core.formats.format import Asked, Generation, Writer
from core.formats.sse import to_json
from core.formats.usage import prompt_tokens
from core.protocol import openai
from core.protocol.generate import GenerateChoice, GenerateResponse
from core.protocol.rules import OutputRules
from core.text.choice import Choice
from core.text.logprobs import LogprobShape


class CompletionFormat:
    """Answers as `vllm serve` answers `/v1/completions`; a `core.formats.format.Format`."""

    def events(self, asked: Asked) -> Writer:
        """The writer of a streamed answer."""
        return CompletionEvents(asked)

    def plain_choice(self, asked: Asked, prompt: int) -> Choice:
        """A choice; completions have no parser."""
        tools = asked.tools
        rules = tools.completion_rules(asked.recipe.request)
        text = tools.open_text(rules, asked.prompts[prompt])
        return Choice(tools, rules, text, LogprobShape.COMPLETION)

    def whole(self, asked: Asked, responses: list[GenerateResponse]) -> bytes:
        """JSON of a `CompletionResponse`."""
        rules = asked.tools.completion_rules(asked.recipe.request)
        generations = [
            Generation(response, prompt, prompt_tokens(response.usage, prompt))
            for response, prompt in zip(responses, asked.prompts, strict=True)
        ]
        answer = completion_answer(asked.tools, asked.head, rules, generations)
        if asked.recipe.echo:
            _echo_prompts(asked, rules, answer, responses)
        return to_json(answer)


def _echo_prompts(
    asked: Asked,
    rules: OutputRules,
    answer: openai.CompletionResponse,
    responses: list[GenerateResponse],
) -> None:
    """Put each prompt before its answers, with its logprobs where those are asked for."""
    recipe = asked.recipe
    engine = [(at, choice) for at, response in enumerate(responses) for choice in response.choices]
    for (at, generated), choice in zip(engine, answer.choices, strict=True):
        choice.text = recipe.echo[at] if recipe.echo_only else recipe.echo[at] + choice.text
        if generated.logprobs is not None:
            output = GenerateChoice(index=0) if recipe.echo_only else generated
            written = echoed_logprobs(asked.tools, rules, responses[at], asked.prompts[at], output)
            choice.logprobs = cast(openai.CompletionLogprobs, Raw(written))
