"""The coupled server (`vllm serve`) in this process, with an engine that says what a test tells it.

Everything but the engine core is vLLM's own: the HTTP application with its request models, error
handlers, renderer and serving classes, and `AsyncLLM`, which validates requests, fans out choices,
detokenizes, finds stop strings and collects logprobs. The engine core alone, the process that
would run the model, is replaced by a script: the tokens of a list of `Chunk`s.
"""

import asyncio
import json
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import httpx
import numpy as np
import torch
from fastapi import FastAPI
from vllm import AsyncEngineArgs
from vllm.entrypoints.common.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.app import build_app
from vllm.renderers import hf
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.core_client import EngineCoreClient
from vllm.v1.outputs import LogprobsLists, LogprobsTensors

from tests.core.calling import Json, Setup, options

T = TypeVar("T")
Position = Sequence[tuple[int, float]]
"""The candidates of one token with their logprobs: the sampled one first, the rest in any order."""

WEIGHT_VERSION = "default"

_TASKS = ("generate",)
_PATHS = {"chat": "/v1/chat/completions", "completion": "/v1/completions"}
_MADE_UP_CANDIDATES = 24
_FLOOR = -100.0


class Chunk(NamedTuple):
    """What the engine says in one step for one choice of one prompt.

    Attributes:
        prompt: The prompt, counted from 0.
        choice: The choice of that prompt, counted from 0.
        ids: The new tokens, any number.
        finish: Why the choice ends, None while it goes on. Stop strings are found by the server.
        stop: The stop token that ended it, None for the end token.
        logprobs: The candidates of each token. Where a request asks for more candidates than
            given, it gets those given; where it asks and there are none at all, it gets made-up
            ones, the same for the same token.
    """

    prompt: int
    choice: int
    ids: tuple[int, ...]
    finish: str | None = None
    stop: int | None = None
    logprobs: Sequence[Position] | None = None


class Answer(NamedTuple):
    """What the server answers.

    Attributes:
        status: The HTTP status.
        payload: The decoded body; of a stream the payload of each event, `[DONE]` as a string.
    """

    status: int
    payload: Json


class Generated(NamedTuple):
    """What the engine behind a front door answers for one prompt.

    Attributes:
        request: What it is asked, as `/render` makes it.
        events: The payloads of its stream, `[DONE]` as a string.
        response: Its one-shot body.
    """

    request: Json
    events: list[Json]
    response: Json


class ScriptError(Exception):
    """The chunks do not fit the request: a choice that is not there, or one without an end."""


class Coupled:
    """The server of one set-up.

    It is started as `vllm serve --enable-scale-out`, so that it renders and generates, too.
    """

    def __init__(self, setup: Setup) -> None:
        self._runner = asyncio.Runner(loop_factory=_Loop)
        arguments = _arguments(setup)
        self._core = _ScriptedCore()
        self._engine = _engine(arguments, self._core)
        self._app = self._runner.run(_application(arguments, self._engine))

    def respond(self, endpoint: str, body: Json, chunks: Sequence[Chunk]) -> Answer:
        """The answer to a request, as a stream only if it says so.

        Args:
            endpoint: `chat` or `completion`.
            body: The request body.
            chunks: What the engine says, in this order.

        Raises:
            ScriptError: The chunks do not fit the request.
        """
        return self.ask(_PATHS[endpoint], body, chunks)

    def stream(self, endpoint: str, body: Json, chunks: Sequence[Chunk]) -> Answer:
        """The events of the same request with `stream: true`; see `respond`."""
        return self.ask(_PATHS[endpoint], body | {"stream": True}, chunks)

    def generate(self, request: Json, chunks: Sequence[Chunk]) -> Answer:
        """The answer of `/inference/v1/generate`, streamed if the request says so.

        Args:
            request: What a front door sends to the engine.
            chunks: What the engine says for prompt 0.
        """
        return self.ask("/inference/v1/generate", request, chunks)

    def render(self, endpoint: str, body: Json) -> Answer:
        """The answer of `/render`: one generate request, or a list of them for completions."""
        return self.ask(f"{_PATHS[endpoint]}/render", body, ())

    def generated(
        self, endpoint: str, body: Json, chunks: Sequence[Chunk], **members: Any
    ) -> list[Generated]:
        """What the token-only engine says to each prompt of a request, streamed and not.

        Args:
            endpoint: `chat` or `completion`.
            body: The request body.
            chunks: What the engine says, as for `respond`.
            **members: Put over what `/render` makes; usage is reported unless they say otherwise.
        """
        rendered = self.render(endpoint, body)
        assert rendered.status == 200, rendered
        requests = rendered.payload if isinstance(rendered.payload, list) else [rendered.payload]
        return [
            self._generated(
                request | members,
                [chunk._replace(prompt=0) for chunk in chunks if chunk.prompt == prompt],
            )
            for prompt, request in enumerate(requests)
        ]

    def _generated(self, request: Json, chunks: Sequence[Chunk]) -> Generated:
        stream_options = request["stream_options"] or {"include_usage": True}
        streamed = request | {"stream": True, "stream_options": stream_options}
        events = self.generate(streamed, chunks)
        response = self.generate(request | {"stream": False, "stream_options": None}, chunks)
        assert events.status == response.status == 200, (events, response)
        return Generated(request, events.payload, response.payload)

    def ask(self, path: str, body: Json, chunks: Sequence[Chunk]) -> Answer:
        """The answer to a POST of any path while the engine says the chunks.

        Raises:
            ScriptError: The chunks do not fit the request.
        """
        with warnings.catch_warnings():
            # vLLM reads a field of its own that it calls deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._runner.run(self._ask(path, body, chunks))

    async def _ask(self, path: str, body: Json, chunks: Sequence[Chunk]) -> Answer:
        self._core.start(chunks, self._engine.output_processor.has_unfinished_requests)
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://coupled") as client:
                response = await client.post(path, json=body)
        finally:
            await self._stop_engine()
        if self._core.failure is not None:
            raise self._core.failure
        return _answer(response)

    async def _stop_engine(self) -> None:
        """Leave nothing behind: neither requests that a failure left over nor a pending task."""
        handler, self._engine.output_handler = self._engine.output_handler, None
        if handler is not None:
            handler.cancel()
            await asyncio.gather(handler, return_exceptions=True)
        left_over = list(self._engine.output_processor.request_states)
        self._engine.output_processor.abort_requests(left_over, internal=True)


@cache
def coupled(setup: Setup) -> Coupled:
    """The server of a set-up, started once."""
    return Coupled(setup)


def _answer(response: httpx.Response) -> Answer:
    if not response.headers["content-type"].startswith("text/event-stream"):
        return Answer(response.status_code, response.json())
    events = response.text.removesuffix("\n\n").split("\n\n")
    payloads = [event.removeprefix("data: ") for event in events]
    return Answer(
        response.status_code,
        [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads],
    )


class _Loop(asyncio.SelectorEventLoop):
    """Runs at once what is meant for a thread, and knows when nothing is left to do."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the future's
            future.set_exception(error)
        return future

    async def idle(self) -> None:
        """Wait until every other task waits, too."""
        while self._ready:  # type: ignore[attr-defined]
            await asyncio.sleep(0)


class _ScriptedCore:
    """The client of an engine core that is not there; `AsyncLLM` calls its methods.

    Each step is one chunk, and it is taken only when the server has done all it can with the last
    one. A busy server may join the outputs of several steps; this one never does.
    """

    def __init__(self) -> None:
        self.resources = SimpleNamespace(engine_dead=False)
        self.failure: ScriptError | None = None
        self.start((), lambda: False)

    def start(self, chunks: Sequence[Chunk], unfinished: Callable[[], bool]) -> None:
        """Say these chunks from now on; `unfinished` tells whether the server waits for more."""
        self.failure = None
        self._chunks = iter(chunks)
        self._unfinished = unfinished
        self._requests: dict[tuple[int, int], EngineCoreRequest] = {}
        self._prompts: list[str] = []
        self._begun: set[tuple[int, int]] = set()

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        return _TASKS

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        """Number the requests as they come: the prompts of a call, and the choices of each."""
        name = str(request.external_req_id)
        if name not in self._prompts:
            self._prompts.append(name)
        prompt = self._prompts.index(name)
        choice = sum(known == prompt for known, _ in self._requests)
        self._requests[prompt, choice] = request

    async def abort_requests_async(self, request_ids: Sequence[str]) -> None:
        """The output processor has forgotten these requests; what else is said is passed over."""

    async def get_output_async(self) -> EngineCoreOutputs:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        await loop.idle()
        chunk = next(self._chunks, None)
        if chunk is not None:
            return EngineCoreOutputs(outputs=[self._output(chunk)], weight_version=WEIGHT_VERSION)
        if self._unfinished():
            raise self._failed("the chunks do not end every choice")
        return await asyncio.Future[EngineCoreOutputs]()

    def shutdown(self, timeout: float | None = None) -> None:
        """Nothing runs."""

    def _output(self, chunk: Chunk) -> EngineCoreOutput:
        key = chunk.prompt, chunk.choice
        if key not in self._requests:
            raise self._failed(f"there is no choice for {chunk}")
        request = self._requests[key]
        first = key not in self._begun
        self._begun.add(key)
        return EngineCoreOutput(
            request_id=request.request_id,
            new_token_ids=list(chunk.ids),
            new_logprobs=_logprobs(request.params, chunk),
            new_prompt_logprobs_tensors=_prompt_logprobs(request) if first else None,
            finish_reason=None if chunk.finish is None else FinishReason[chunk.finish.upper()],
            stop_reason=chunk.stop,
        )

    def _failed(self, message: str) -> ScriptError:
        self.failure = ScriptError(message)
        return self.failure


def _logprobs(params: Any, chunk: Chunk) -> LogprobsLists | None:
    """What the sampler reports for the tokens of a chunk."""
    if params.num_logprobs is None:
        return None
    positions = chunk.logprobs or [_made_up(number) for number in chunk.ids]
    rows = [_row(position, params.num_logprobs, params.logprob_token_ids) for position in positions]
    # Rows may differ in length, which the arrays of a real sampler cannot.
    return LogprobsLists(
        [np.array([number for number, _ in row]) for row, _ in rows],
        [np.array([value for _, value in row], dtype=np.float32) for row, _ in rows],
        np.array([rank for _, rank in rows]),
    )


def _row(
    position: Position, count: int, wanted: Sequence[int] | None
) -> tuple[list[tuple[int, float]], int]:
    """The sampled token, the best candidates (or those wanted by name), and its rank."""
    values = dict(position)
    sampled, value = position[0]
    rank = 1 + sum(other > value for other in values.values())
    if wanted:
        return [(sampled, value), *((token, values.get(token, _FLOOR)) for token in wanted)], rank
    ordered = sorted(values.items(), key=lambda candidate: -candidate[1])
    # The sampled token goes before its equals.
    ordered.remove((sampled, value))
    ordered.insert(rank - 1, (sampled, value))
    return [(sampled, value), *(ordered if count == -1 else ordered[:count])], rank


def _prompt_logprobs(request: EngineCoreRequest) -> LogprobsTensors | None:
    """Made-up candidates of every prompt token but the first, which has none."""
    count = request.params.prompt_logprobs
    if count is None:
        return None
    ids = (request.prompt_token_ids or [])[1:]
    rows = [_row(_made_up(number), min(count, _MADE_UP_CANDIDATES), None) for number in ids]
    width = len(rows[0][0]) if rows else 1
    return LogprobsTensors(
        torch.tensor([[number for number, _ in row] for row, _ in rows]).reshape(-1, width),
        torch.tensor([[value for _, value in row] for row, _ in rows]).reshape(-1, width),
        torch.tensor([rank for _, rank in rows], dtype=torch.int64),
    )


def _made_up(token: int) -> list[tuple[int, float]]:
    """Candidates that every vocabulary has; the token is the best or one of the next few."""
    others = {100 + (token * 7 + at * 31) % 20_000 for at in range(_MADE_UP_CANDIDATES)} - {token}
    values = [(other, -0.25 * (at + 1)) for at, other in enumerate(sorted(others))]
    return [(token, -0.25 * (token % 4) - 0.125), *values]


def _arguments(setup: Setup) -> Namespace:
    """The command line of the server, read as `vllm serve` reads it."""
    given = options(setup)
    line = ["--model", given.model, "--served-model-name", *given.names]
    line += ["--max-model-len", str(given.max_model_len), "--enable-scale-out"]
    line += ["--disable-log-stats", "--disable-fastapi-docs"]
    if setup.tool_parser:
        line += ["--tool-call-parser", setup.tool_parser]
    if setup.reasoning_parser:
        line += ["--reasoning-parser", setup.reasoning_parser]
    if setup.auto:
        line += ["--enable-auto-tool-choice"]
    arguments: Namespace = make_arg_parser(FlexibleArgumentParser()).parse_args(line)
    validate_parsed_serve_args(arguments)
    return arguments


def _engine(arguments: Namespace, core: _ScriptedCore) -> AsyncLLM:
    engine_arguments = AsyncEngineArgs.from_cli_args(arguments)
    # vLLM would load the tokenizer again, in search of a processor that may bring a template.
    hf._PROCESSOR_CHAT_TEMPLATES[arguments.model, None, None, False] = None
    with (
        patch.object(EngineCoreClient, "make_async_mp_client", lambda **_: core),
        # No copies of the tokenizer for threads: there are none, and a copy takes seconds.
        patch.object(hf, "maybe_make_thread_pool", lambda tokenizer, copies: tokenizer),
    ):
        return AsyncLLM(
            vllm_config=engine_arguments.create_engine_config(),
            executor_class=object,
            log_stats=False,
            log_requests=False,
        )


async def _application(arguments: Namespace, engine: AsyncLLM) -> FastAPI:
    app: FastAPI = build_app(arguments, _TASKS, engine.model_config)
    await init_app_state(engine, app.state, arguments, _TASKS)
    return app
