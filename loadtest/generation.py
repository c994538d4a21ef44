"""One generation of the scripted engine: which tokens each choice gets, cut into events."""

import itertools
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

from msgspec import UNSET

from loadtest.protocol import (
    Choice,
    GenerateRequest,
    GenerateResponse,
    Logprobs,
    PositionLogprobs,
    RequestError,
    StreamEvent,
    StreamOptions,
    TokenLogprob,
    Usage,
    WeightVersion,
)
from loadtest.script import ScriptModel, Scripts


@dataclass(frozen=True)
class Output:
    """All tokens of one choice and why it ends."""

    token_ids: list[int]
    finish_reason: str
    stop_reason: int | None = None


class Generation:
    """The answer to one request: the tokens of each choice."""

    def __init__(
        self, request: GenerateRequest, request_id: str | None, model: ScriptModel, scripts: Scripts
    ) -> None:
        """Decide the whole answer; nothing is random but a missing request ID.

        Raises:
            RequestError: The prompt leaves no room for an answer.
        """
        _check_fits(request, model)
        self.request = request
        self.request_id = f"generate-tokens-{request_id or uuid.uuid4().hex[:16]}"
        self._vocab_size = model.tokenizer.get_vocab_size()
        limit = model.max_model_len - len(request.token_ids)
        answers = scripts.answers(request.token_ids, request.sampling_params.n)
        self._outputs = [_cut(request, answer, limit) for answer in answers]

    @property
    def steps(self) -> int:
        """The tokens of the longest choice."""
        return max(len(output.token_ids) for output in self._outputs)

    @property
    def options(self) -> StreamOptions:
        """The stream options, which a request may leave out."""
        return self.request.stream_options or StreamOptions()

    def response(self, model_name: str) -> GenerateResponse:
        """Return the whole answer."""
        return GenerateResponse(
            request_id=self.request_id,
            model=model_name,
            created=int(time.time()),
            usage=self._usage(self._total()),
            prompt_token_ids=self.request.token_ids if self.request.return_token_ids else None,
            choices=[
                self._choice(index, 0, len(output.token_ids))
                for index, output in enumerate(self._outputs)
            ],
        )

    def rounds(self, tokens_per_chunk: int) -> Iterator[list[StreamEvent]]:
        """Yield the events of each step of the engine: one for each choice that still runs.

        As an engine does, the first step holds one token and the later ones `tokens_per_chunk`.
        """
        first = True
        for start, end in _spans(self.steps, tokens_per_chunk):
            events = []
            for index, output in enumerate(self._outputs):
                if start < len(output.token_ids):
                    last = min(end, len(output.token_ids))
                    events.append(self._event(self._choice(index, start, last), last, first))
                    first = False
            yield events

    def usage_event(self) -> StreamEvent | None:
        """Return the event that ends a stream whose caller asked for usage."""
        if not self.options.include_usage:
            return None
        usage = self._usage(self._total())
        usage.prompt_tokens_details = UNSET
        usage.completion_tokens_details = UNSET
        return StreamEvent(request_id=self.request_id, usage=usage, choices=[])

    def _event(self, choice: Choice, end: int, first: bool) -> StreamEvent:
        counted = self.options.include_usage and self.options.continuous_usage_stats
        with_prompt = first and self.request.return_token_ids
        return StreamEvent(
            request_id=self.request_id,
            usage=self._usage(end) if counted else None,
            prompt_token_ids=self.request.token_ids if with_prompt else UNSET,
            choices=[choice],
        )

    def _choice(self, index: int, start: int, end: int) -> Choice:
        """Return the tokens from `start` to `end` of a choice."""
        output = self._outputs[index]
        last = end == len(output.token_ids)
        return Choice(
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
        count = self.request.sampling_params.logprobs
        if count is None:
            return None
        return Logprobs([position_logprobs(token, count, self._vocab_size) for token in token_ids])

    def _usage(self, completion_tokens: int) -> Usage:
        prompt_tokens = len(self.request.token_ids)
        return Usage(
            prompt_tokens=prompt_tokens,
            total_tokens=prompt_tokens + completion_tokens,
            completion_tokens=completion_tokens,
        )


def check_vocabulary(request: GenerateRequest, model: ScriptModel) -> None:
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


def _cut(request: GenerateRequest, script: list[int], limit: int) -> Output:
    """Cut the scripted tokens where the sampling parameters end them."""
    params = request.sampling_params
    limit = min(limit, params.max_tokens or limit)
    endless = params.ignore_eos
    tokens = list(itertools.islice(itertools.cycle(script) if endless else script, limit))
    stops = set(params.stop_token_ids or ())
    for position, token in enumerate(tokens):
        if token in stops:
            return Output(tokens[: position + 1], "stop", token)
    finished = not endless and len(tokens) == len(script)
    return Output(tokens, "stop" if finished else "length")


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


def _logprob(token: int, rank: int) -> float:
    """Return a logprob that falls with the rank and varies a little with the token."""
    return -0.125 * (1 + token % 7) - 1.5 * (rank - 1)
