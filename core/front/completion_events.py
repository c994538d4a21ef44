"""Streamed completions: what `vllm serve` sends for the same tokens, event by event."""

import msgspec

from core.front.events import event, json_text, usage_member
from core.front.writer import Totals, write_end
from core.protocol.generate import NOTHING, GenerateChunk, StreamChoice
from core.protocol.plan import Recipe
from core.protocol.rules import OutputRules
from core.text.choice import LiveChoice, Taken
from core.text.logprobs import context_tail
from core.text.model_tools import Server

_PLAIN_TAIL = (
    b',"logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,'
    b'"token_ids":null}]'
)


class CompletionStream:
    """Writes the chunks of one streamed completions answer; a `core.front.writer.Writer`."""

    keeps_events = False

    def __init__(
        self, server: Server, recipe: Recipe, created: int, prompts: list[list[int]]
    ) -> None:
        """Prepare the parts all chunks share.

        Args:
            server: The model.
            recipe: What the request asks for.
            created: Unix time to report.
            prompts: Token IDs of each prompt.
        """
        self._server = server
        self._recipe = recipe
        self._prompts = prompts
        self.rules: OutputRules = server.model.completion_rules(recipe.request)
        self._head = b'{"id":%b,"object":"text_completion","created":%d,"model":%b,"choices":[' % (
            json_text(recipe.request_id),
            created,
            json_text(recipe.model),
        )
        self._opened = [False] * (len(prompts) * recipe.samples)

    def open(self) -> list[bytes]:
        """Nothing comes before the first tokens."""
        return []

    def write(
        self, index: int, choice: LiveChoice, taken: Taken, part: StreamChoice, chunk: GenerateChunk
    ) -> bytes:
        """The event for one chunk of one choice; empty where there is nothing to send yet."""
        prompt = index // self._recipe.samples
        first = not self._opened[index]
        if not self._opens(index, choice, taken):
            return b""
        logprobs = self._logprobs(choice, part)
        text = self._text(prompt, taken, first)
        tail = self._tail(prompt, taken, logprobs, part, first)
        usage = self._usage(prompt, choice.tokens)
        if taken.finish_reason is not None and chunk.kv_transfer_params != NOTHING:
            usage += b',"kv_transfer_params":%b' % bytes(chunk.kv_transfer_params)
        return event(
            b'%b{"index":%d,"text":%b%b%b}' % (self._head, index, json_text(text), tail, usage)
        )

    def replay(self, index: int, choice: LiveChoice, taken: Taken) -> None:
        """Note a chunk whose event was sent before."""
        self._opens(index, choice, taken)
        context = choice.context
        for token_id in taken.ids:
            shown = self._server.logprobs.shown(token_id, self.rules, context)
            choice.text_offset += len(shown)
            context = context_tail(context, [token_id])

    def finish(self, totals: Totals) -> bytes:
        """The events at the end."""
        return write_end(self._head, totals, None, include_usage=self._recipe.include_usage)

    def _opens(self, index: int, choice: LiveChoice, taken: Taken) -> bool:
        """Whether something is sent for a chunk; only before the first tokens there may not be."""
        if taken.is_nothing and not (choice.tokens or self._opened[index] or self._recipe.echo):
            return False
        self._opened[index] = True
        return True

    def _text(self, prompt: int, taken: Taken, first: bool) -> str:
        recipe = self._recipe
        if not (first and recipe.echo):
            return taken.text
        echo = recipe.echo[prompt]
        return echo if recipe.echo_only else echo + taken.text

    def _logprobs(self, choice: LiveChoice, part: StreamChoice) -> bytes | None:
        if part.logprobs is None:
            return None
        written = self._server.logprobs.completion(
            part.logprobs, self.rules, choice.context, choice.text_offset
        )
        if written.next_offset is not None:
            choice.text_offset = written.next_offset
        return written.json

    def _tail(
        self, prompt: int, taken: Taken, logprobs: bytes | None, part: StreamChoice, first: bool
    ) -> bytes:
        rules, recipe = self.rules, self._recipe
        shows_prompt = first and (rules.return_token_ids or bool(recipe.echo))
        plain = logprobs is None and taken.finish_reason is None
        if plain and not shows_prompt and not rules.return_token_ids:
            return _PLAIN_TAIL
        versions = b""
        if rules.return_weight_versions and part.weight_versions != NOTHING:
            versions = b',"weight_versions":%b' % bytes(part.weight_versions)
        return (
            b',"logprobs":%b,"finish_reason":%b,"stop_reason":%b,"prompt_token_ids":%b,'
            b'"token_ids":%b%b}]'
        ) % (
            logprobs or b"null",
            msgspec.json.encode(taken.finish_reason),
            msgspec.json.encode(taken.stop_reason),
            msgspec.json.encode(self._prompts[prompt] if shows_prompt else None),
            msgspec.json.encode(taken.ids) if rules.return_token_ids else b"null",
            versions,
        )

    def _usage(self, prompt: int, tokens: int) -> bytes:
        """The usage member of a chunk, where the caller asked for one in each."""
        if not self._recipe.continuous_usage:
            return b""
        return b',"usage":{%b}' % usage_member(len(self._prompts[prompt]), tokens)
