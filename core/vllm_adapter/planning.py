"""From vLLM's rendered requests to what the front door asks of an engine that knows only tokens."""

from array import array
from typing import Any, NamedTuple, TypeAlias

import msgspec
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest
from vllm.renderers.inputs.preprocess import extract_prompt_components

from core.protocol.errors import BadRequest, RenderRefused
from core.protocol.plan import (
    ApiName,
    EngineRequest,
    Plan,
    Recipe,
    plan_encoder,
    recipe_encoder,
)
from core.protocol.rules import EndTokens

Request: TypeAlias = ChatCompletionRequest | CompletionRequest

_TOKEN_TYPECODE = "I"
_KEPT_OF_A_MESSAGE = ("role", "tool_calls", "tool_call_id", "name")
_OURS = {
    "token_ids",
    "token_offsets",
    "sampling_params",
    "parse_context",
    "return_token_ids",
    "stream",
    "stream_options",
    "model",
}
"""Members of a generate request that are written here."""
_NOT_FOR_THE_ENGINE = (
    "stop",
    "include_stop_str_in_output",
    "output_text_buffer_length",
    "output_kind",
    "skip_clone",
)
"""Sampling parameters about stop strings, and those that the engine sets by itself."""


class Rendered(NamedTuple):
    """What rendering knows beside the tokens."""

    conversation: list[Any]
    """The messages of a chat, as the template sees them; empty for completions."""
    inputs: list[Any]
    """vLLM's engine inputs, one per prompt."""


class Target(NamedTuple):
    """What is asked, and in whose name."""

    reported_name: str
    """Model name in the answer."""
    engine_name: str
    """Model name the engine is asked for."""
    ends: EndTokens
    model_config: Any


def check_servable(request: Request) -> None:
    """Refuse by name what an engine without a tokenizer would ignore or cannot give.

    Raises:
        BadRequest: The request asks for such a thing.
    """
    refused = {
        "use_beam_search": request.use_beam_search,
        "logprob_token_ids": request.logprob_token_ids,
        "bad_words": request.bad_words,
        "prompt_embeds": getattr(request, "prompt_embeds", None),
    }
    for name, value in refused.items():
        if value:
            raise BadRequest(f"`{name}` is not supported: the engine knows only tokens.", name)
    streams_echo = isinstance(request, CompletionRequest) and request.echo and request.stream
    if streams_echo and request.logprobs is not None:
        raise BadRequest(
            "`echo` with `logprobs` is not supported where `stream` is true: the engine streams no"
            " logprobs of the prompt.",
            "echo",
        )


def write_plan(
    request: Request,
    body: dict[str, Any],
    generate: list[GenerateRequest],
    more: Rendered,
    target: Target,
) -> bytes:
    """The `Plan` of a request, encoded.

    Args:
        request: The request, as rendering left it.
        body: The caller's JSON.
        generate: vLLM's generate requests, one per prompt.
        more: What rendering knows beside them.
        target: Names and end tokens.
    """
    recipe = _recipe(request, body, generate, more, target)
    streams = recipe.stream or (bool(_stops(request)) and not _wants_prompt_logprobs(generate))
    requests = tuple(_engine_request(part, target, recipe, streams) for part in generate)
    return plan_encoder.encode(
        Plan(
            request_id=recipe.request_id,
            stream=recipe.stream,
            engine_streams=streams,
            engine_requests=requests,
            recipe=recipe_encoder.encode(recipe),
        )
    )


def _recipe(
    request: Request,
    body: dict[str, Any],
    generate: list[GenerateRequest],
    more: Rendered,
    target: Target,
) -> Recipe:
    chat = isinstance(request, ChatCompletionRequest)
    options = request.stream_options if request.stream else None
    include_usage = bool(options and options.include_usage)
    return Recipe(
        api=ApiName.CHAT if chat else ApiName.COMPLETION,
        request_id=_base_id(generate),
        model=target.reported_name,
        request=msgspec.json.encode(_slim(body, chat, len(generate))),
        prompts=tuple(_packed(part.token_ids) for part in generate),
        samples=request.n or 1,
        stream=bool(request.stream),
        include_usage=include_usage,
        continuous_usage=include_usage and bool(options and options.continuous_usage_stats),
        role=_role(request) if chat else "assistant",
        echo=_chat_echo(request, more) if chat else _prompt_echo(request, more, target),
        echo_only=not chat and bool(request.echo) and request.max_tokens == 0,
        prompt_text=_prompt_text(request, more, target) if chat else None,
    )


def _engine_request(
    part: GenerateRequest, target: Target, recipe: Recipe, streams: bool
) -> EngineRequest:
    body = part.model_dump(mode="json", exclude=_OURS, exclude_none=True)
    body["model"] = target.engine_name
    body["token_ids"] = part.token_ids
    body["sampling_params"] = _sampling(part, target, streams)
    body["stream"] = streams
    if streams and (recipe.include_usage or not recipe.stream):
        body["stream_options"] = {"include_usage": True}
    return EngineRequest(part.request_id, msgspec.json.encode(body), len(part.token_ids))


def _sampling(part: GenerateRequest, target: Target, streams: bool) -> dict[str, Any]:
    """Sampling parameters that mean the same to an engine without a tokenizer.

    vLLM leaves out what equals its defaults; an engine reads a missing `max_tokens` as no limit.
    """
    dumped: dict[str, Any] = part.model_dump(mode="json", include={"sampling_params"})
    given: dict[str, Any] = dumped["sampling_params"]
    kept = {name: value for name, value in given.items() if name not in _NOT_FOR_THE_ENGINE}
    kept["max_tokens"] = part.sampling_params.max_tokens
    if streams:
        kept.pop("prompt_logprobs", None)
    primary = target.ends.primary
    if primary is not None and not part.sampling_params.ignore_eos:
        # Without a tokenizer an engine does not know which token ends the text.
        ids = kept.get("stop_token_ids") or []
        kept["stop_token_ids"] = ids if primary in ids else [*ids, primary]
    return kept


def _stops(request: Request) -> list[str]:
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    return [string for string in stop if string]


def _wants_prompt_logprobs(generate: list[GenerateRequest]) -> bool:
    return any(part.sampling_params.prompt_logprobs is not None for part in generate)


def _packed(ids: list[int]) -> bytes:
    """Token IDs in the recipe's form; the engine refuses smaller ones that are none itself."""
    try:
        return array(_TOKEN_TYPECODE, ids).tobytes()
    except OverflowError:
        message = f"Token id {max(ids)} is out of vocabulary"
        raise RenderRefused(message, None, 400, "BadRequestError") from None


def _base_id(generate: list[GenerateRequest]) -> str:
    """The ID of the whole: render adds the prompt's number where there are several."""
    first = generate[0].request_id
    return str(first if len(generate) == 1 else first.removesuffix("-0"))


def _role(request: ChatCompletionRequest) -> str:
    if request.add_generation_prompt:
        return "assistant"
    return str(request.messages[-1]["role"])


def _chat_echo(request: ChatCompletionRequest, more: Rendered) -> tuple[str, ...]:
    """The last message where the answer continues it, as text."""
    if not request.echo:
        return ()
    last = more.conversation[-1] if more.conversation else {}
    content = last.get("content") if last.get("role") == _role(request) else ""
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in content)
    return (content or "",)


def _prompt_echo(request: CompletionRequest, more: Rendered, target: Target) -> tuple[str, ...]:
    if not request.echo:
        return ()
    if request.return_token_ids:
        return ("",) * len(more.inputs)
    return tuple(_text_of(part, target) for part in more.inputs)


def _prompt_text(request: ChatCompletionRequest, more: Rendered, target: Target) -> str | None:
    return _text_of(more.inputs[0], target) if request.return_prompt_text else None


def _text_of(engine_input: Any, target: Target) -> str:
    return extract_prompt_components(target.model_config, engine_input).text or ""


def _slim(body: dict[str, Any], chat: bool, prompts: int) -> dict[str, Any]:
    """The request without the texts of its prompt, which parsers do not read."""
    if not chat:
        return {**body, "prompt": "x" if prompts == 1 else ["x"] * prompts}
    return {**body, "messages": [_slim_message(message) for message in body["messages"]]}


def _slim_message(message: dict[str, Any]) -> dict[str, Any]:
    kept = {name: message[name] for name in _KEPT_OF_A_MESSAGE if name in message}
    return {**kept, "content": ""}
