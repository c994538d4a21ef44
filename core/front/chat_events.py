"""Streamed chat: what `vllm serve` sends for the same tokens, event by event.

Members a chunk does not have are left out, as the coupled server leaves them out.
"""

from array import array
from typing import Protocol

import msgspec

from core.front.events import completion_details, event, json_text, usage_member
from core.front.writer import Totals, write_end
from core.protocol.generate import NOTHING, GenerateChunk, StreamChoice
from core.protocol.ids import stream_id, tool_call_id
from core.protocol.plan import Recipe
from core.protocol.rules import OutputRules
from core.text.choice import LiveChoice, Taken
from core.text.model_tools import Server
from core.vllm_adapter.parsing import ChatContext, ParserStream

_PLAIN_TAIL = b',"logprobs":null,"finish_reason":null,"token_ids":null}]'


class ChatStream:
    """Writes the chunks of one streamed chat answer; a `core.front.writer.Writer`."""

    keeps_events = False

    def __init__(
        self, server: Server, recipe: Recipe, created: int, prompts: list[list[int]]
    ) -> None:
        """Prepare the parts all chunks share.

        Args:
            server: The model.
            recipe: What the request asks for.
            created: Unix time to report.
            prompts: Token IDs of the one prompt.

        Raises:
            BadRequest: No parser can be made for the request.
        """
        (self._prompt,) = prompts
        self._server = server
        self._recipe = recipe
        context = server.model.chat_context(recipe.request)
        self.rules: OutputRules = context.rules
        self._head = (
            b'{"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":['
            % (json_text(recipe.request_id), created, json_text(recipe.model))
        )
        self._choices = [
            _Choice(server, context, recipe, index, self._prompt) for index in range(recipe.samples)
        ]

    def open(self) -> list[bytes]:
        """The chunks that come before any token: each choice's role, and what is echoed."""
        recipe = self._recipe
        prompt_ids = msgspec.json.encode(self._prompt if self.rules.return_token_ids else None)
        shared = b'%b,"prompt_token_ids":%b,"prompt_text":%b}' % (
            self._usage(None, 0),
            prompt_ids,
            msgspec.json.encode(recipe.prompt_text),
        )
        role = b'{"role":%b,"content":""}' % json_text(recipe.role)
        events = [self._opening(choice, role, shared) for choice in self._choices]
        for text in filter(None, recipe.echo):
            echo = b'{"content":%b}' % json_text(text)
            shared = b"%b}" % self._usage(None, 0)
            events += [self._opening(choice, echo, shared) for choice in self._choices]
        return events

    def write(
        self, index: int, choice: LiveChoice, taken: Taken, part: StreamChoice, chunk: GenerateChunk
    ) -> bytes:
        """The event for one chunk of one choice; empty where there is nothing to send yet."""
        written = self._choices[index]
        delta, reason = written.step(taken, choice.tokens - len(taken.ids))
        logprobs = self._logprobs(choice, part)
        shows_ids = self.rules.return_token_ids and not self.rules.hide_metadata
        plain = reason is None and logprobs is None and not shows_ids
        if delta is None:
            if plain:
                return b""
            delta = b"{}"
        tail = _PLAIN_TAIL if plain else self._tail(taken, reason, logprobs, part, shows_ids)
        usage = self._usage(written, choice.tokens)
        if reason is not None and chunk.kv_transfer_params != NOTHING:
            usage += b',"kv_transfer_params":%b' % bytes(chunk.kv_transfer_params)
        return event(b"%b%b%b%b%b}" % (self._head, written.head, delta, tail, usage))

    def replay(self, index: int, choice: LiveChoice, taken: Taken) -> None:
        """Note a chunk whose event was sent before."""
        self._choices[index].step(taken, choice.tokens - len(taken.ids))

    def finish(self, totals: Totals) -> bytes:
        """The events at the end."""
        reasoning = None
        if self._recipe.include_usage and self._server.model.counts_reasoning:
            reasoning = sum(choice.reasoning_tokens() for choice in self._choices)
        return write_end(self._head, totals, reasoning, include_usage=self._recipe.include_usage)

    def _opening(self, choice: "_Choice", delta: bytes, shared: bytes) -> bytes:
        tail = b',"logprobs":null,"finish_reason":null}]'
        return event(b"%b%b%b%b%b" % (self._head, choice.head, delta, tail, shared))

    def _logprobs(self, choice: LiveChoice, part: StreamChoice) -> bytes | None:
        if part.logprobs is None or self.rules.hide_metadata:
            return None
        return self._server.logprobs.chat(part.logprobs, self.rules, choice.context)

    def _tail(
        self,
        taken: Taken,
        reason: str | None,
        logprobs: bytes | None,
        part: StreamChoice,
        shows_ids: bool,
    ) -> bytes:
        stop = b""
        if reason is not None:
            stop = b',"stop_reason":%b' % msgspec.json.encode(taken.stop_reason)
            if self.rules.return_weight_versions and part.weight_versions != NOTHING:
                stop += b',"weight_versions":%b' % bytes(part.weight_versions)
        return b',"logprobs":%b,"finish_reason":%b%b,"token_ids":%b}]' % (
            logprobs or b"null",
            msgspec.json.encode(reason),
            stop,
            msgspec.json.encode(taken.ids) if shows_ids else b"null",
        )

    def _usage(self, choice: "_Choice | None", tokens: int) -> bytes:
        """The usage member of a chunk, where the caller asked for one in each."""
        if not self._recipe.continuous_usage:
            return b""
        details = b',"completion_tokens_details":null'
        if self._server.model.counts_reasoning:
            details = completion_details(choice.reasoning_tokens() if choice else 0)
        return b',"usage":{%b%b}' % (usage_member(len(self._prompt), tokens), details)


class _Delta(Protocol):
    """What turns the text of one choice into deltas."""

    def step(self, taken: Taken, before: int) -> tuple[bytes | None, str | None]:
        """JSON of the delta, None where there is none yet, and the finish reason."""
        ...

    def reasoning_tokens(self) -> int:
        """Reasoning tokens so far."""
        ...


class _Plain:
    """Deltas without a parser: all text is content."""

    def step(self, taken: Taken, before: int) -> tuple[bytes | None, str | None]:
        if taken.is_nothing and not before:
            return None, None
        if not (taken.text or taken.ids or before):
            return b"{}", taken.finish_reason
        return b'{"content":%b}' % json_text(taken.text), taken.finish_reason

    def reasoning_tokens(self) -> int:
        return 0


class _Parsed:
    """Deltas of a parser; keeps the tokens, which counting reasoning needs. O(output)."""

    def __init__(self, parser: ParserStream, stream: str, prompt: list[int]) -> None:
        self._parser = parser
        self._stream = stream
        self._prompt = prompt
        self._ids = array("q")
        self._call_ids: dict[int, str] = {}

    def step(self, taken: Taken, before: int) -> tuple[bytes | None, str | None]:
        if taken.is_nothing and not before:
            return None, None
        self._ids.extend(taken.ids)
        return self._parser.delta(
            taken.text, taken.ids, taken.finish_reason, self._prompt, self._call_id
        )

    def reasoning_tokens(self) -> int:
        return self._parser.count_reasoning_tokens(self._ids) if self._ids else 0

    def _call_id(self, drawn: str, index: int) -> str:
        """The ID of a tool call, the same wherever the stream is parsed."""
        known = self._call_ids.get(index)
        if known is None:
            known = self._call_ids[index] = tool_call_id(drawn, self._stream, index)
        return known


class _Choice:
    """The parts all chunks of one choice share."""

    def __init__(
        self,
        server: Server,
        context: ChatContext,
        recipe: Recipe,
        index: int,
        prompt: list[int],
    ) -> None:
        self.head = b'{"index":%d,"delta":' % index
        self._delta: _Delta = _Plain()
        if server.model.parses:
            stream = stream_id(recipe.request_id, index)
            self._delta = _Parsed(context.open_stream(), stream, prompt)
        self.step = self._delta.step
        self.reasoning_tokens = self._delta.reasoning_tokens
