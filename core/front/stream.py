"""One request of the front door in a shard: engine events in, the caller's bytes out."""

import logging
from array import array
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from core.formats.format import Asked, Head, Totals, Writer
from core.formats.usage import prompt_tokens
from core.front.checks import check_part, on_one_line
from core.front.collecting import Collector
from core.front.formats import FORMATS
from core.front.journal import Entry, read, write
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
from core.protocol.plan import Advance, EngineEvent, Recipe, advance_encoder
from core.protocol.steps import Steps
from core.text.choice import Choice, ChoiceStep
from core.text.model_tools import ModelTools

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


_REPLAYED = GenerateChunk(choices=[])
"""Stands for an event whose answer went out before, from another shard."""

_chunk_decoder = msgspec.json.Decoder(EngineChunk, strict=False)
_error_decoder = msgspec.json.Decoder(EngineError)


def asked(tools: ModelTools, recipe: Recipe, created: int) -> Asked:
    """The request of a recipe.

    Args:
        tools: The model.
        recipe: What is asked for.
        created: Unix time to report.
    """
    prompts = [array("I", packed).tolist() for packed in recipe.prompts]
    return Asked(tools, recipe, Head(recipe.request_id, created, recipe.model), prompts)


class FrontStream:
    """One request, from the first event of its engine to the last byte of its answer."""

    def __init__(self, request: Asked) -> None:
        """Prepare decoders and parsers.

        Raises:
            BadRequest: No parser can be made for the request.
        """
        self._request = request
        self._samples = request.recipe.samples
        self._max_tokens = request.tools.limits.max_model_len
        format = FORMATS[request.recipe.api]
        self._writer: Writer = (
            format.events(request) if request.recipe.stream else Collector(format, request)
        )
        prompts = range(len(request.prompts))
        self._choices = [
            self._writer.open_choice(prompt, sample)
            for prompt in prompts
            for sample in range(self._samples)
        ]
        self._usages: list[EngineUsage | None] = [None for _ in prompts]
        self._ended = [False for _ in prompts]
        self._metrics = NOTHING
        self._tokens = 0
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
            _logger.exception("answering failed", extra={"request_id": self._request.head.id})
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
            self._out.append(self._writer.open())
        counts = chunk.usage is not None and not chunk.choices
        if self._writer.keeps_events or counts:
            self._entries.append(Entry(prompt, [], data=data))
        for part in chunk.choices:
            self._take_part(prompt, part, chunk)
        if counts:
            self._usages[prompt] = chunk.usage
            self._metrics = chunk.metrics

    def _take_part(self, prompt: int, part: StreamChoice, chunk: EngineChunk) -> None:
        if part.index >= self._samples:
            raise EngineFailed(f"the engine sent choice {part.index} of {self._samples}")
        index = prompt * self._samples + part.index
        choice = self._choices[index]
        if choice.finished:
            return
        check_part(part)
        step = choice.take(part)
        self._tokens += len(step.ids)
        if choice.tokens > self._max_tokens:
            raise EngineFailed("the engine generates past the model's context")
        self._out.append(self._writer.write(index, choice, step, chunk))
        if not self._writer.keeps_events:
            self._entries.append(_entry(index, step))
        if step.finish_reason is not None:
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

    def _choices_of(self, prompt: int) -> list[Choice]:
        return self._choices[prompt * self._samples : (prompt + 1) * self._samples]

    def _replay(self, entry: Entry) -> None:
        """Take a chunk whose event was sent before."""
        choice = self._choices[entry.choice]
        part = StreamChoice(
            index=0, token_ids=entry.ids, finish_reason=entry.finish, stop_reason=entry.stop
        )
        step = choice.replay(part)
        self._tokens += len(step.ids)
        self._writer.write(entry.choice, choice, step, _REPLAYED)

    def _finish(self) -> None:
        if self._done:
            return
        self._done = True
        prompts = zip(self._usages, self._request.prompts, strict=True)
        totals = Totals(
            prompt_tokens=sum(prompt_tokens(usage, prompt) for usage, prompt in prompts),
            completion_tokens=self._tokens,
            usages=self._usages,
            metrics=self._metrics,
            reasoning_tokens=sum(choice.count_reasoning_tokens() for choice in self._choices),
        )
        self._out.append(self._writer.finish(totals))

    def _read(self, data: bytes) -> EngineChunk:
        try:
            chunk = _chunk_decoder.decode(on_one_line(data))
            check_chunk(chunk, self._request.tools.limits)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise EngineFailed(f"the engine sent what is no chunk: {error}") from None
        except BadRequest as error:
            raise EngineFailed(f"the engine sent what is no chunk: {error.message}") from None
        if chunk.error != NOTHING:
            raise _refusal(bytes(chunk.error))
        return chunk


def _entry(index: int, step: ChoiceStep) -> Entry:
    """What gives the same again; a stop string is found anew in the tokens up to it."""
    if step.cut:
        return Entry(index, step.ids)
    return Entry(index, step.ids, step.part.finish_reason, step.part.stop_reason)


def _refusal(raw: bytes) -> EngineRefused:
    """The error an engine sent inside its stream."""
    try:
        error = _error_decoder.decode(raw)
    except msgspec.DecodeError:
        error = EngineError()
    status = error.code if isinstance(error.code, int) and 400 <= error.code < 600 else 500
    return EngineRefused(error.message, error.param, status=status, type=error.type)
