"""Rendering by vLLM's own render server: its request models, renderer and answers, without HTTP."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from pydantic import TypeAdapter, ValidationError
from vllm.config import VllmConfig
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.entrypoints.openai.models.serving import OpenAIModelRegistry
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.scale_out.render.serving import ServingRender
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.entrypoints.serve.tokenize.protocol import DetokenizeRequest, TokenizeRequest
from vllm.entrypoints.serve.tokenize.serving import ServingTokenization
from vllm.entrypoints.serve.utils.api_utils import create_json_response
from vllm.renderers.chat_utils import load_chat_template
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.renderers.registry import RENDERER_REGISTRY
from vllm.tokenizers.registry import tokenizer_args_from_config

from core.protocol.calls import RenderTarget
from core.protocol.errors import BadRequest, RenderRefused
from core.protocol.options import ModelOptions
from core.protocol.plan import ApiName
from core.vllm_adapter.encoding import Check, render_tokenizer, start_encoding
from core.vllm_adapter.loading import Model, default_template_kwargs, one_line
from core.vllm_adapter.planning import Rendered, Target, check_servable, write_plan
from core.vllm_adapter.requests import refusal

Limit: TypeAlias = Callable[[], AbstractContextManager[None]]
"""A context for one call, which may end it by an exception."""

_INTERNAL = 500
_TARGETS = {
    ApiName.CHAT: RenderTarget.CHAT,
    ApiName.COMPLETION: RenderTarget.COMPLETION,
}


class _Endpoint(NamedTuple):
    """How vLLM's server reads and serves one kind of call."""

    body: TypeAdapter[Any]
    serve: Callable[[Any, Any], Awaitable[Any]]


class Renderer:
    """Answers the calls vLLM's render server answers, with its bodies. One call at a time.

    Nothing it builds starts a thread before `start`, so that processes can be forked from here.
    """

    def __init__(self, options: ModelOptions, model: Model, check: Check) -> None:
        """Build vLLM's renderer around a loaded model.

        Args:
            options: What to serve, and how.
            model: The model, as `load_model` left it.
            check: Says whether `fastokens` may encode; must leave no thread behind to be forked.
        """
        config = model.vllm_config
        tokenizer = model.tokens.tokenizer
        self._tokenizer = render_tokenizer(tokenizer, check if options.fastokens else None)
        self._online = _online_renderer(options, config, self._tokenizer)
        self._name = options.names[0]
        self._ends = model.ends
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limit: Limit = nullcontext
        registry = OpenAIModelRegistry(
            model_config=config.model_config,
            base_model_paths=[BaseModelPath(name, options.model) for name in options.names],
        )
        render = ServingRender(
            registry,
            self._online,
            disabled_thinking_effort=options.anthropic_disabled_thinking_effort,
        )
        tokenization = ServingTokenization(
            registry,
            self._online,
            chat_template=self._online.chat_template,
            chat_template_content_format=self._online.chat_template_content_format,
            default_chat_template_kwargs=self._online.default_chat_template_kwargs,
            trust_request_chat_template=options.trust_request_chat_template,
        )
        self._endpoints = _endpoints(render, tokenization)
        # A refused model name is the caller's mistake, and in the gateway's log already.
        logging.getLogger(ServingRender.__module__).setLevel(logging.CRITICAL)

    def answer(self, target: RenderTarget, body: Any, request_id: str) -> bytes:
        """The JSON of vLLM's answer.

        Args:
            target: What is asked of vLLM's server.
            body: The request body, decoded.
            request_id: What the caller's `X-Request-Id` says; empty where there is none.

        Raises:
            BadRequest: The body is not such a request.
            RenderRefused: vLLM's server refuses the request.
        """
        endpoint = self._endpoints[target]
        request = _validate(endpoint.body, body)
        return bytes(create_json_response(self._serve(endpoint, request, request_id)).body)

    def plan(self, api: ApiName, body: Any, request_id: str, engine_name: str) -> bytes:
        """What the front door does for a request: a `core.protocol.plan.Plan`, encoded.

        Args:
            api: Whose protocol the body speaks.
            body: The request body, decoded.
            request_id: What the caller's `X-Request-Id` says; empty where there is none.
            engine_name: The model's name at the engine.

        Raises:
            BadRequest: The body is not such a request, or asks for what an engine that
                knows only tokens cannot give.
            RenderRefused: vLLM's server refuses the request.
        """
        endpoint = self._endpoints[_TARGETS[api]]
        request = _validate(endpoint.body, body)
        check_servable(request)
        generated = self._serve(endpoint, request, request_id)
        several = generated if isinstance(generated, list) else [generated]
        target = Target(self._name, engine_name, self._ends, self._online.model_config)
        return write_plan(request, body, several, self._online.take_rendered(), target)

    def warm_up(self) -> None:
        """Compile the chat template before the fork."""
        self._online.warmup()

    @property
    def takes_templates(self) -> bool:
        """Callers may bring templates, whose work has no end of its own."""
        return bool(self._online.trust_request_chat_template)

    def start(self, limit: Limit = nullcontext) -> None:
        """Encode as fast as can be from here on. Starts threads: only after the last fork.

        Args:
            limit: Bounds each call.
        """
        start_encoding(self._tokenizer)
        self._limit = limit

    def close_loop(self) -> None:
        """Let go of the event loop, which does not survive a fork."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _serve(self, endpoint: _Endpoint, request: Any, request_id: str) -> Any:
        """What vLLM's server makes of a request."""
        headers = {"X-Request-Id": request_id} if request_id else {}
        try:
            answer = self._run(endpoint.serve(request, SimpleNamespace(headers=headers)))
        except BadRequest:
            raise
        except Exception as error:
            raise _refused(create_error_response(error), error) from error
        if isinstance(answer, ErrorResponse):
            raise _refused(answer)
        return answer

    def _run(self, work: Awaitable[Any]) -> Any:
        if self._loop is None:
            self._loop = _Loop()
        with self._limit():
            return self._loop.run_until_complete(work)


def load_renderer(options: ModelOptions, model: Model, check: Check) -> Renderer:
    """Build the renderer of a loaded model, and compile its chat template.

    Args:
        options: What to serve, and how.
        model: The model, as `load_model` left it.
        check: Says whether `fastokens` may encode; must leave no thread behind to be forked.

    Raises:
        StartupError: It cannot be had.
    """
    renderer = one_line(lambda: Renderer(options, model, check), "cannot prepare the renderer")
    renderer.warm_up()
    return renderer


class _Online(OnlineRenderer):  # type: ignore[misc]
    """Keeps what it rendered last: the front door needs more of it than the tokens."""

    _rendered = Rendered([], [])

    def take_rendered(self) -> Rendered:
        """What was rendered last, and let go of it."""
        rendered, self._rendered = self._rendered, Rendered([], [])
        return rendered

    async def render_chat(self, *args: Any, **kwargs: Any) -> Any:
        """Render, and keep the conversation."""
        result = await super().render_chat(*args, **kwargs)
        if not isinstance(result, ErrorResponse):
            self._rendered = Rendered(*result)
        return result

    async def render_completion(self, *args: Any, **kwargs: Any) -> Any:
        """Render, and keep the prompts."""
        result = await super().render_completion(*args, **kwargs)
        if not isinstance(result, ErrorResponse):
            self._rendered = Rendered([], result)
        return result


class _Loop(asyncio.SelectorEventLoop):
    """Runs at once what is meant for an executor: one call at a time needs no threads."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the future's
            future.set_exception(error)
        return future


def _online_renderer(options: ModelOptions, config: VllmConfig, tokenizer: Any) -> _Online:
    mode, *_ = tokenizer_args_from_config(config.model_config)
    renderer = RENDERER_REGISTRY.load_renderer(mode, config, tokenizer)
    return _Online(
        model_config=config.model_config,
        renderer=renderer,
        request_logger=None,
        chat_template=load_chat_template(options.chat_template),
        chat_template_content_format=options.chat_template_content_format,
        trust_request_chat_template=options.trust_request_chat_template,
        trust_request_mm_kwargs=options.trust_request_mm_kwargs,
        enable_auto_tools=options.enable_auto_tool_choice,
        exclude_tools_when_tool_choice_none=options.exclude_tools_when_tool_choice_none,
        tool_parser=options.tool_call_parser,
        tool_strict_level=options.tool_strict_level,
        reasoning_parser=config.structured_outputs_config.reasoning_parser or None,
        default_chat_template_kwargs=default_template_kwargs(options),
        reasoning_effort_map=options.reasoning_effort_map,
    )


def _endpoints(
    render: ServingRender, tokenization: ServingTokenization
) -> dict[RenderTarget, _Endpoint]:
    async def responses(request: Any, _: Any) -> Any:
        return await render.render_responses_request(request)

    return {
        RenderTarget.CHAT: _Endpoint(
            TypeAdapter(ChatCompletionRequest), render.render_chat_request
        ),
        RenderTarget.COMPLETION: _Endpoint(
            TypeAdapter(CompletionRequest), render.render_completion_request
        ),
        RenderTarget.RESPONSES: _Endpoint(TypeAdapter(ResponsesRequest), responses),
        RenderTarget.MESSAGES: _Endpoint(
            TypeAdapter(AnthropicMessagesRequest), render.render_messages_request
        ),
        RenderTarget.TOKENIZE: _Endpoint(
            TypeAdapter(TokenizeRequest), tokenization.create_tokenize
        ),
        RenderTarget.DETOKENIZE: _Endpoint(
            TypeAdapter(DetokenizeRequest), tokenization.create_detokenize
        ),
    }


def _validate(model: TypeAdapter[Any], body: Any) -> Any:
    """Validate a body; validators of vLLM stumble over shapes they do not expect."""
    try:
        return model.validate_python(body)
    except ValidationError as error:
        raise refusal(error) from None
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        raise BadRequest("a member of the body has a shape that is not understood") from error
    except Exception as error:
        raise _refused(create_error_response(error), error) from error


def _refused(response: ErrorResponse, cause: Exception | None = None) -> Exception:
    """The refusal in vLLM's error body; the cause itself where vLLM has no word for it."""
    error = response.error
    if cause is not None and error.code == _INTERNAL:
        return cause
    return RenderRefused(error.message, error.param, error.code, error.type)
