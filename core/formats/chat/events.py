"""Streamed chat: what `vllm serve` sends for the same tokens, event by event.

Members an event does not have are left out, as the coupled server leaves them out.
"""

from msgspec import UNSET, UnsetType

from core.formats.format import Asked, Totals
from core.formats.sse import DONE, event, to_json
from core.formats.usage import event_usage, final_usage
from core.protocol.generate import NOTHING, GenerateChunk
from core.protocol.ids import stream_id
from core.protocol.openai import ChatChunk, ChatStreamChoice, Delta, Usage
from core.text.choice import Choice, ChoiceParser, ChoiceStep
from core.text.logprobs import LogprobShape

_PLAIN_TAIL = b'},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'


class ChatEvents:
    """Writes the events of one streamed chat; a `core.formats.format.Writer`."""

    keeps_events = False

    def __init__(self, asked: Asked) -> None:
        """Read the request.

        Raises:
            BadRequest: It is not a chat request.
        """
        self._tools, self._recipe, self._head, (self._prompt,) = asked
        self._context = self._tools.model.chat_context(self._recipe.request)
        self._rules = self._context.rules
        self._shows_ids = self._rules.return_token_ids and not self._rules.hide_metadata
        self._counts_reasoning = self._tools.model.counts_reasoning
        shared = to_json(self._chunk([])).removesuffix(b"]}")
        self._plain_heads = [
            b'data: %b{"index":%d,"delta":{' % (shared, index)
            for index in range(self._recipe.samples)
        ]

    def open_choice(self, prompt: int, sample: int) -> Choice:
        """A choice that has produced nothing."""
        tools, rules = self._tools, self._rules
        text = tools.open_text(rules, self._prompt)
        if not tools.model.parses:
            return Choice(tools, rules, text, LogprobShape.CHAT)
        stream = stream_id(self._head.id, sample)
        parser = ChoiceParser(self._context.open_stream(self._prompt), stream)
        counts = self._counts_reasoning
        return Choice(tools, rules, text, LogprobShape.CHAT, parser, keep_ids=counts)

    def open(self) -> bytes:
        """The events that come before any token: each choice's role, and what is echoed."""
        recipe = self._recipe
        role = Delta(role=recipe.role, content="")
        opening = [self._opening(index, role, first=True) for index in range(recipe.samples)]
        for text in filter(None, recipe.echo):
            echo = Delta(content=text)
            opening += [self._opening(index, echo, first=False) for index in range(recipe.samples)]
        return b"".join(opening)

    def write(self, index: int, choice: Choice, step: ChoiceStep, chunk: GenerateChunk) -> bytes:
        """The event for one chunk of one choice; empty where there is nothing to send yet."""
        delta = step.delta if choice.parser is not None else _plain_delta(step)
        bare = step.finish_reason is None and step.logprobs is None and not self._shows_ids
        if delta is None and bare:
            return b""
        alone = bare and not self._recipe.continuous_usage
        if alone and delta is not None and (text := _only_text(delta)) is not None:
            return b"%b%b%b" % (self._plain_heads[index], text, _PLAIN_TAIL)
        return self._event(index, choice, step, delta or Delta(), chunk)

    def finish(self, totals: Totals) -> bytes:
        """The events at the end."""
        if not self._recipe.include_usage:
            return DONE
        last = self._chunk([], final_usage(totals, counts_reasoning=self._counts_reasoning))
        last.metrics = UNSET if totals.metrics == NOTHING else totals.metrics
        return event(to_json(last)) + DONE

    def _opening(self, index: int, delta: Delta, *, first: bool) -> bytes:
        choice = ChatStreamChoice(index=index, delta=delta, logprobs=None, finish_reason=None)
        chunk = self._chunk([choice], self._usage(None))
        if first:
            chunk.prompt_token_ids = self._prompt if self._rules.return_token_ids else None
            chunk.prompt_text = self._recipe.prompt_text
        return event(to_json(chunk))

    def _event(
        self, index: int, choice: Choice, step: ChoiceStep, delta: Delta, chunk: GenerateChunk
    ) -> bytes:
        written = ChatStreamChoice(
            index=index,
            delta=delta,
            logprobs=step.logprobs,
            finish_reason=step.finish_reason,
            token_ids=step.ids if self._shows_ids else None,
        )
        sent = self._chunk([written], self._usage(choice))
        if step.finish_reason is not None:
            written.stop_reason = step.stop_reason
            versions = step.part.weight_versions
            if self._rules.return_weight_versions and versions != NOTHING:
                written.weight_versions = versions
            if chunk.kv_transfer_params != NOTHING:
                sent.kv_transfer_params = chunk.kv_transfer_params
        return event(to_json(sent))

    def _chunk(
        self, choices: list[ChatStreamChoice], usage: Usage | UnsetType | None = UNSET
    ) -> ChatChunk:
        return ChatChunk(**self._head._asdict(), choices=choices, usage=usage)

    def _usage(self, choice: Choice | None) -> Usage | UnsetType:
        """The usage of an event, where the caller asked for one in each."""
        if not self._recipe.continuous_usage:
            return UNSET
        details = None
        if self._counts_reasoning:
            details = {"reasoning_tokens": choice.count_reasoning_tokens() if choice else 0}
        return event_usage(len(self._prompt), choice.tokens if choice else 0, details)


def _plain_delta(step: ChoiceStep) -> Delta | None:
    """Without a parser all text is content."""
    if step.is_nothing and not step.begun:
        return None
    return Delta(content=step.text) if step.text or step.ids or step.begun else Delta()


def _only_text(delta: Delta) -> bytes | None:
    """JSON of a delta that is text alone, which nearly all are; None for any other."""
    if delta.tool_calls is not UNSET or delta.role is not UNSET:
        return None
    if delta.reasoning is UNSET and isinstance(delta.content, str):
        return b'"content":%b' % to_json(delta.content)
    if delta.content is UNSET and isinstance(delta.reasoning, str):
        return b'"reasoning":%b' % to_json(delta.reasoning)
    return None
