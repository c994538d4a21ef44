"""One generation of the scripted engine: which tokens each choice gets, cut into events."""

import itertools
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

import msgspec
from msgspec import UNSET

from loadtest.engine.events import DONE, Event, event_of, frame
from loadtest.engine.protocol import (
    GeneratedChoice,
    GenerateRequest,
    GenerateResponse,
    Logprobs,
    PositionLogprobs,
    PromptLogprob,
    RequestError,
    StreamEvent,
    StreamOptions,
    TokenLogprob,
    Usage,
    WeightVersion,
)
from loadtest.engine.script import ScriptModel, Scripts
from loadtest.engine.settings import ScriptedSettings


@dataclass(frozen=True)
class Output:
    """All tokens of one choice and why it ends."""

    token_ids: list[int]
    finish_reason: str
    stop_reason: int | None = None


@dataclass(frozen=True)
class Limit:
    """How long a choice may get, and whether the end token ends it."""

    tokens: int
    endless: bool


class ScriptedGeneration:
    """The answer to one request: the tokens of each choice."""

    def __init__(
        self,
        request: GenerateRequest,
        request_id: str | None,
        model: ScriptModel,
        scripts: Scripts,
        settings: ScriptedSettings,
    ) -> None:
        """Decide the whole answer; nothing is random but a missing request ID.

        Raises:
            RequestError: The prompt leaves no room for an answer, or it has unknown tokens and
                the answer does not stream.
        """
        if not request.stream:
            _check_vocabulary(request, model)
        _check_fits(request, model)
        self._request = request
        self._request_id = f"generate-tokens-{request_id or uuid.uuid4().hex[:16]}"
        self._model = model
        self._settings = settings
        self._options = request.stream_options or StreamOptions()
        limit = _limit(request, model, settings)
        answers = scripts.answers(request.token_ids, request.sampling_params.n)
        self._outputs = [_cut(request, answer, limit) for answer in answers]
        self._frames = [self._open_frame(index) for index in range(len(self._outputs))]

    @property
    def steps(self) -> int:
        """The tokens of the longest choice."""
        return max(len(output.token_ids) for output in self._outputs)

    def whole(self) -> tuple[int, bytes]:
        """Return the whole answer."""
        request = self._request
        response = GenerateResponse(
            request_id=self._request_id,
            model=request.model or self._settings.model_name,
            created=int(time.time()),
            usage=self._usage(self._total()),
            prompt_logprobs=self._prompt_logprobs(),
            prompt_token_ids=request.token_ids if request.return_token_ids else None,
            choices=[
                self._choice(index, 0, len(output.token_ids))
                for index, output in enumerate(self._outputs)
            ],
        )
        return HTTPStatus.OK, msgspec.json.encode(response)

    def events(self) -> Iterator[Event]:
        """Yield the events of a stream; unknown tokens in the prompt are one, as in an engine."""
        try:
            _check_vocabulary(self._request, self._model)
        except RequestError as error:
            yield event_of(error.body())
        else:
            yield from self._token_events()
            if self._options.include_usage:
                yield event_of(self._usage_event())
        yield DONE

    def _token_events(self) -> Iterator[Event]:
        """Yield the events of each step of the engine: one for each choice that still runs.

        As an engine does, the first step holds one token and the later ones `tokens_per_chunk`.
        """
        first = True
        for start, end in _spans(self.steps, self._settings.tokens_per_chunk):
            due = end - start
            for index, output in enumerate(self._outputs):
                if start < len(output.token_ids):
                    last = min(end, len(output.token_ids))
                    yield Event(self._framed(index, start, last, first), due)
                    first, due = False, 0

    def _framed(self, index: int, start: int, end: int, first: bool) -> bytes:
        """Return the bytes of an event, from the choice's frame unless it is a special one."""
        token_ids = self._outputs[index].token_ids
        if first or end == len(token_ids) or self._is_detailed():
            choice = self._choice(index, start, end)
            return frame(msgspec.json.encode(self._event(choice, end, first)))
        head, tail = self._frames[index]
        return head + msgspec.json.encode(token_ids[start:end]) + tail

    def _open_frame(self, index: int) -> tuple[bytes, bytes]:
        """Encode an event without tokens, once for all events of a choice that only differ there.

        With hundreds of streams the encoding of each event would be a good part of its cost.
        """
        event = self._event(self._choice(index, 0, 0), 0, first=False)
        head, member, tail = frame(msgspec.json.encode(event)).partition(b'"token_ids":')
        return head + member, tail.removeprefix(b"[]")

    def _is_detailed(self) -> bool:
        """Tell whether events differ in more than their tokens."""
        counted = self._options.include_usage and self._options.continuous_usage_stats
        return counted or self._request.sampling_params.logprobs is not None

    def _usage_event(self) -> StreamEvent:
        """Return the event that ends a stream whose caller asked for usage."""
        usage = self._usage(self._total())
        usage.prompt_tokens_details = UNSET
        usage.completion_tokens_details = UNSET
        return StreamEvent(request_id=self._request_id, usage=usage, choices=[])

    def _event(self, choice: GeneratedChoice, end: int, first: bool) -> StreamEvent:
        counted = self._options.include_usage and self._options.continuous_usage_stats
        with_prompt = first and self._request.return_token_ids
        return StreamEvent(
            request_id=self._request_id,
            usage=self._usage(end) if counted else None,
            prompt_token_ids=self._request.token_ids if with_prompt else UNSET,
            choices=[choice],
        )

    def _choice(self, index: int, start: int, end: int) -> GeneratedChoice:
        """Return the tokens from `start` to `end` of a choice."""
        output = self._outputs[index]
        last = end == len(output.token_ids)
        return GeneratedChoice(
            index=index,
            finish_reason=output.finish_reason if last else None,
            stop_reason=output.stop_reason if last else None,
            token_ids=output.token_ids[start:end],
            weight_versions=[WeightVersion("default", 0, end)] if last else None,
            logprobs=self._logprobs(output.token_ids[start:end]),
        )

    def _total(self) -> int:
        return sum(len(output.token_ids) for output in self._outputs)

    def _logprobs(self, token_ids: list[int]) -> Logprobs | None:
        count = self._request.sampling_params.logprobs
        if count is None:
            return None
        return Logprobs(
            [
                position_logprobs(token, count, self._model.tokenizer.get_vocab_size())
                for token in token_ids
            ]
        )

    def _prompt_logprobs(self) -> list[dict[str, PromptLogprob] | None] | None:
        count = self._request.sampling_params.prompt_logprobs
        if count is None:
            return None
        size = self._model.tokenizer.get_vocab_size()
        positions = (
            position_logprobs(token, count, size).top_logprobs
            for token in self._request.token_ids[1:]
        )
        return [None, *(_by_id(candidates) for candidates in positions)]

    def _usage(self, completion_tokens: int) -> Usage:
        prompt_tokens = len(self._request.token_ids)
        return Usage(
            prompt_tokens=prompt_tokens,
            total_tokens=prompt_tokens + completion_tokens,
            completion_tokens=completion_tokens,
        )


def _check_vocabulary(request: GenerateRequest, model: ScriptModel) -> None:
    """Refuse prompts that hold token IDs the model does not have."""
    largest = max(request.token_ids)
    if largest >= model.vocab_size:
        message = f"Token id {largest} is out of vocabulary"
        raise RequestError(HTTPStatus.BAD_REQUEST, message)


def _check_fits(request: GenerateRequest, model: ScriptModel) -> None:
    """Refuse prompts that leave no room for one more token."""
    length = len(request.token_ids)
    if length >= model.max_model_len:
        message = f"The prompt (length {length}) leaves no room in {model.max_model_len} tokens"
        raise RequestError(HTTPStatus.BAD_REQUEST, message, "token_ids")


def _limit(request: GenerateRequest, model: ScriptModel, settings: ScriptedSettings) -> Limit:
    """Return what bounds each choice.

    A caller that loses `max_tokens` is hard to see when the script ends by itself, so a strict
    engine fills the context then.
    """
    params = request.sampling_params
    room = model.max_model_len - len(request.token_ids)
    endless = params.ignore_eos or (settings.tokens_only and params.max_tokens is None)
    return Limit(min(room, params.max_tokens or room), endless)


def _cut(request: GenerateRequest, script: list[int], limit: Limit) -> Output:
    """Repeat the scripted tokens until the sampling parameters end them."""
    params = request.sampling_params
    stops = set(params.stop_token_ids or ())
    end_token = None if limit.endless else script[-1]
    tokens = list(itertools.islice(itertools.cycle(script), limit.tokens))
    for position in range(max(params.min_tokens - 1, 0), len(tokens)):
        token = tokens[position]
        if token == end_token:
            return Output(tokens[: position + 1], "stop")
        if token in stops:
            return Output(tokens[: position + 1], "stop", token)
    return Output(tokens, "length")


def _spans(total: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield `(start, end)` of a first span of one token and then of `step` tokens each."""
    start, end = 0, min(1, total)
    while start < total:
        yield start, end
        start, end = end, min(end + step, total)


def position_logprobs(token: int, count: int, vocab_size: int) -> PositionLogprobs:
    """Return made-up logprobs of a token: every eleventh token was not the likeliest one.

    The sampled token comes first and is one of the `count` candidates; it is there for 0 too.
    """
    rank = 2 if token % 11 == 0 and count > 1 else 1
    others = [other for other in (1, *range(2, count + 1)) if other != rank][: max(count - 1, 0)]
    candidates = [TokenLogprob(token, _logprob(token, rank), rank)]
    for other in others:
        candidates.append(TokenLogprob((token + other) % vocab_size, _logprob(token, other), other))
    return PositionLogprobs(token, candidates[0].logprob, rank, candidates)


def _by_id(candidates: list[TokenLogprob]) -> dict[str, PromptLogprob]:
    return {
        str(candidate.token_id): PromptLogprob(candidate.logprob, candidate.rank)
        for candidate in candidates
    }


def _logprob(token: int, rank: int) -> float:
    """Return a logprob that falls with the rank and varies a little with the token."""
    return -0.125 * (1 + token % 7) - 1.5 * (rank - 1)
