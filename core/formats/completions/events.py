"""Streamed completions: what `vllm serve` sends for the same tokens, event by event."""

from msgspec import UNSET, UnsetType

from core.formats.format import Asked, Totals
from core.formats.sse import DONE, event, to_json
from core.formats.usage import event_usage, final_usage
from core.protocol.generate import NOTHING, GenerateChunk
from core.protocol.openai import (
    CompletionChunk,
    CompletionStreamChoice,
    Usage,
)
from core.text.choice import Choice, ChoiceStep
from core.text.logprobs import LogprobShape

_PLAIN_TAIL = (
    b',"logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,'
    b'"token_ids":null}]}\n\n'
)


class CompletionEvents:
    """Writes the events of one streamed completion; a `core.formats.format.Writer`."""

    keeps_events = False

    def __init__(self, asked: Asked) -> None:
        """Read the request.

        Raises:
            BadRequest: It is not a completion request.
        """
        self._tools, self._recipe, self._head, self._prompts = asked
        self._rules = self._tools.completion_rules(self._recipe.request)
        self._opened = [False] * (len(self._prompts) * self._recipe.samples)
        shared = to_json(self._chunk([])).removesuffix(b"]}")
        self._plain_heads = [
            b'data: %b{"index":%d,"text":' % (shared, index) for index in range(len(self._opened))
        ]

    def open_choice(self, prompt: int, sample: int) -> Choice:
        """A choice that has produced nothing."""
        text = self._tools.open_text(self._rules, self._prompts[prompt])
        return Choice(self._tools, self._rules, text, LogprobShape.COMPLETION)

    def open(self) -> bytes:
        """Nothing comes before the first tokens."""
        return b""

    def write(self, index: int, choice: Choice, step: ChoiceStep, chunk: GenerateChunk) -> bytes:
        """The event for one chunk of one choice; empty where there is nothing to send yet."""
        recipe, first = self._recipe, not self._opened[index]
        if first and step.is_nothing and not (step.begun or recipe.echo):
            return b""
        self._opened[index] = True
        shows_prompt = first and (self._rules.return_token_ids or bool(recipe.echo))
        bare = step.logprobs is None and step.finish_reason is None
        if bare and not (shows_prompt or self._rules.return_token_ids or recipe.continuous_usage):
            return b"%b%b%b" % (self._plain_heads[index], to_json(step.text), _PLAIN_TAIL)
        prompt = index // recipe.samples
        written = CompletionStreamChoice(
            index=index,
            text=self._text(prompt, step, first),
            logprobs=step.logprobs,
            finish_reason=step.finish_reason,
            stop_reason=step.stop_reason,
            prompt_token_ids=self._prompts[prompt] if shows_prompt else None,
            token_ids=step.ids if self._rules.return_token_ids else None,
        )
        if self._rules.return_weight_versions and step.part.weight_versions != NOTHING:
            written.weight_versions = step.part.weight_versions
        sent = self._chunk([written], self._usage(prompt, choice.tokens))
        if step.finish_reason is not None and chunk.kv_transfer_params != NOTHING:
            sent.kv_transfer_params = chunk.kv_transfer_params
        return event(to_json(sent))

    def finish(self, totals: Totals) -> bytes:
        """The events at the end."""
        if not self._recipe.include_usage:
            return DONE
        last = self._chunk([], final_usage(totals, counts_reasoning=False))
        last.metrics = UNSET if totals.metrics == NOTHING else totals.metrics
        return event(to_json(last)) + DONE

    def _text(self, prompt: int, step: ChoiceStep, first: bool) -> str:
        recipe = self._recipe
        if not (first and recipe.echo):
            return step.text
        echo = recipe.echo[prompt]
        return echo if recipe.echo_only else echo + step.text

    def _chunk(
        self, choices: list[CompletionStreamChoice], usage: Usage | UnsetType | None = UNSET
    ) -> CompletionChunk:
        return CompletionChunk(**self._head._asdict(), choices=choices, usage=usage)

    def _usage(self, prompt: int, tokens: int) -> Usage | UnsetType:
        """The usage of an event, where the caller asked for one in each."""
        if not self._recipe.continuous_usage:
            return UNSET
        return event_usage(len(self._prompts[prompt]), tokens)
