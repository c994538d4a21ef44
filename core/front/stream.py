"""One request of the front door in a shard: engine events in, the caller's bytes out."""

import logging
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from core.front.chat_events import ChatStream
from core.front.checks import check_part, on_one_line
from core.front.collecting import Collector
from core.front.completion_events import CompletionStream
from core.front.journal import Entry, read, write
from core.front.whole import unpack
from core.front.writer import Totals, Writer
from core.protocol.bounds import check_chunk
from core.protocol.errors import (
    BadRequest,
    DerenderError,
    EngineFailed,
    EngineRefused,
    InternalFault,
)
from core.protocol.faults import Fault
from core.protocol.generate import NOTHING, EngineUsage, GenerateChunk, StreamChoice
from core.protocol.plan import Advance, ApiName, EngineEvent, Recipe, advance_encoder
from core.protocol.steps import Steps
from core.text.choice import LiveChoice, Taken
from core.text.model_tools import Server

_logger = logging.getLogger(__name__)


class EngineChunk(GenerateChunk, kw_only=True):
    """One event of an engine's stream, which may say that it failed."""

    choices: list[StreamChoice] = msgspec.field(default_factory=list)
    error: Raw = NOTHING


class EngineError(msgspec.Struct, kw_only=True):
    """What an engine says of its failure."""

    message: str = "the engine failed"
    type: str = "InternalServerError"
    param: str | None = None
    code: int | str | None = None


_chunk_decoder = msgspec.json.Decoder(EngineChunk, strict=False)
_error_decoder = msgspec.json.Decoder(EngineError)


class Serving:
    """One request, from the first event of its engine to the last byte of its answer."""

    def __init__(self, server: Server, recipe: Recipe, created: int) -> None:
        """Prepare decoders and parsers.

        Args:
            server: The model.
            recipe: What the request asks for.
            created: Unix time to report.

        Raises:
            BadRequest: No parser can be made for the request.
        """
        self._server = server
        self._recipe = recipe
        self._created = created
        self._prompts = unpack(recipe)
        self._writer = self._new_writer(recipe, created)
        self._choices = [
            LiveChoice(server, self._writer.rules, prompt)
            for prompt in self._prompts
            for _ in range(recipe.samples)
        ]
        self._usages: list[EngineUsage | None] = [None] * len(self._prompts)
        self._ended = [False] * len(self._prompts)
        self._metrics = NOTHING
        self._opened = False
        self._done = False
        self._out: list[bytes] = []
        self._entries: list[Entry] = []
        self._aborted: list[int] = []

    def advance(self, events: Sequence[EngineEvent]) -> Steps:
        """Take events of the engine; yields between them.

        Returns:
            An `Advance`, encoded; whatever ends the stream is in it.
        """
        before = self._tokens
        fault = None
        try:
            for event in events:
                if self._done:
                    break
                self._take(event)
                yield False
        except DerenderError as error:
            fault, self._done = Fault.of(error), True
        except Exception:
            # A parser fails on the output; what came before it goes out all the same.
            _logger.exception("answering failed", extra={"request_id": self._recipe.request_id})
            fault, self._done = Fault.of(InternalFault("the output cannot be parsed")), True
        out, entries, aborted = self._out, self._entries, self._aborted
        self._out, self._entries, self._aborted = [], [], []
        return advance_encoder.encode(
            Advance(
                data=b"".join(out),
                done=self._done,
                journal=write(entries),
                tokens=self._tokens - before,
                fault=fault,
                aborted=tuple(aborted),
            )
        )

    def restore(self, journal: bytes) -> Steps:
        """Take what an earlier stream of the same request took; yields in between."""
        for entry in read(journal):
            self._opened = True
            if entry.data:
                self._take(EngineEvent(entry.choice, entry.data))
            elif entry.ended:
                self._ended[entry.choice] = True
            else:
                self._replay(entry)
            yield False
        self._out, self._entries, self._aborted = [], [], []
        return b""

    @property
    def _tokens(self) -> int:
        return sum(choice.tokens for choice in self._choices)

    def _new_writer(self, recipe: Recipe, created: int) -> Writer:
        parts = (self._server, recipe, created, self._prompts)
        if not recipe.stream:
            return Collector(*parts)
        return ChatStream(*parts) if recipe.api is ApiName.CHAT else CompletionStream(*parts)

    def _take(self, event: EngineEvent) -> None:
        if self._ended[event.prompt]:
            return  # It was stopped, or says more than its end.
        if event.data:
            self._take_chunk(event.prompt, self._read(event.data), event.data)
        else:
            self._end(event.prompt)
        if all(self._ended):
            self._finish()

    def _take_chunk(self, prompt: int, chunk: EngineChunk, data: bytes) -> None:
        if chunk.choices and not self._opened:
            self._opened = True
            self._out += self._writer.open()
        counts = chunk.usage is not None and not chunk.choices
        if self._writer.keeps_events or counts:
            self._entries.append(Entry(prompt, [], data=data))
        for part in chunk.choices:
            self._take_part(prompt, part, chunk)
        if counts:
            self._usages[prompt] = chunk.usage
            self._metrics = chunk.metrics

    def _take_part(self, prompt: int, part: StreamChoice, chunk: EngineChunk) -> None:
        samples = self._recipe.samples
        if part.index >= samples:
            raise EngineFailed(f"the engine sent choice {part.index} of {samples}")
        index = prompt * samples + part.index
        choice = self._choices[index]
        if choice.finished:
            return
        check_part(part)
        taken = choice.take(part)
        if choice.tokens > self._server.limits.max_model_len:
            raise EngineFailed("the engine generates past the model's context")
        self._out.append(self._writer.write(index, choice, taken, part, chunk))
        choice.remember(taken.ids)
        if not self._writer.keeps_events:
            self._entries.append(_entry(index, choice, taken, part))
        if taken.finish_reason is not None:
            self._stop_early(prompt)

    def _stop_early(self, prompt: int) -> None:
        """Stop the engine where all is said and it does not know: stop strings are ours."""
        choices = self._choices_of(prompt)
        if all(choice.finished for choice in choices) and any(choice.cut for choice in choices):
            self._aborted.append(prompt)
            self._end(prompt)

    def _end(self, prompt: int) -> None:
        for index, choice in enumerate(self._choices_of(prompt)):
            if not choice.finished:
                raise EngineFailed(f"the engine's stream ended before choice {index} did")
        self._ended[prompt] = True
        self._entries.append(Entry(prompt, [], ended=True))

    def _choices_of(self, prompt: int) -> list[LiveChoice]:
        samples = self._recipe.samples
        return self._choices[prompt * samples : (prompt + 1) * samples]

    def _replay(self, entry: Entry) -> None:
        """Take a chunk whose event was sent before."""
        choice = self._choices[entry.choice]
        part = StreamChoice(
            index=0, token_ids=entry.ids, finish_reason=entry.finish, stop_reason=entry.stop
        )
        taken = choice.take(part)
        self._writer.replay(entry.choice, choice, taken)
        choice.remember(taken.ids)

    def _finish(self) -> None:
        if self._done:
            return
        self._done = True
        prompts = zip(self._usages, self._prompts, strict=True)
        prompt_tokens = sum(_prompt_tokens(usage, prompt) for usage, prompt in prompts)
        totals = Totals(prompt_tokens, self._tokens, self._usages, self._metrics)
        self._out.append(self._writer.finish(totals))

    def _read(self, data: bytes) -> EngineChunk:
        try:
            chunk = _chunk_decoder.decode(on_one_line(data))
            check_chunk(chunk, self._server.limits)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise EngineFailed(f"the engine sent what is no chunk: {error}") from None
        except BadRequest as error:
            raise EngineFailed(f"the engine sent what is no chunk: {error.message}") from None
        if chunk.error != NOTHING:
            raise _refusal(bytes(chunk.error))
        return chunk


def _entry(index: int, choice: LiveChoice, taken: Taken, part: StreamChoice) -> Entry:
    """What gives the same again; a stop string is found anew in the tokens up to it."""
    if choice.cut:
        return Entry(index, taken.ids)
    return Entry(index, taken.ids, part.finish_reason, part.stop_reason)


def _prompt_tokens(usage: EngineUsage | None, prompt: list[int]) -> int:
    counted = usage.prompt_tokens if usage else None
    return len(prompt) if counted is None else counted


def _refusal(raw: bytes) -> EngineRefused:
    """The error an engine sent inside its stream."""
    try:
        error = _error_decoder.decode(raw)
    except msgspec.DecodeError:
        error = EngineError()
    status = error.code if isinstance(error.code, int) and 400 <= error.code < 600 else 500
    return EngineRefused(error.message, error.param, status=status, type=error.type)
