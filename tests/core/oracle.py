"""vLLM's own derenderer in the same process: what `vllm launch render` answers to a body.

Where the coupled server (`vllm serve`) and vLLM's derenderer differ, the project follows the
coupled server. Those differences are put into the oracle one by one, by name, so that all that
remains must be equal field for field; `Oracle` lists them.
"""

import asyncio
import copy
import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from vllm import AsyncEngineArgs, SamplingParams
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.entrypoints.openai.models.serving import OpenAIModelRegistry
from vllm.entrypoints.scale_out.derender.serving import ServingDerender
from vllm.entrypoints.scale_out.token_in_token_out.protocol import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
)
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.renderers import online_derenderer
from vllm.renderers.online_derenderer import OnlineDerenderer
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer

from core.protocol.ids import stream_id
from core.protocol.rules import OutputRules
from core.text.stopping import split_stop_token
from tests.core.calling import Json, Setup, model, options

_EXTRA_STATE = ("checkpoint", "created", "finished", "stop_window")
_RANDOM_CALL_ID = re.compile(r"chatcmpl-tool-[0-9a-f]+|[0-9a-f]{16}|[0-9a-f]{32}")


class Refused(Exception):
    """vLLM answers the body with an error."""


class _Renderer:
    """The part of a vLLM renderer that its derenderer uses."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._executor = ThreadPoolExecutor(1)

    def get_tokenizer(self) -> Any:
        return self.tokenizer

    def get_eos_token_id(self) -> int | None:
        number: int | None = self.tokenizer.eos_token_id
        return number


class Oracle:
    """vLLM's render server for one set-up, with the coupled server's ways where they differ.

    - `skip_special_tokens` leaves out what `tokenizer.json` flags as special, as the engine's
      decoder does; vLLM's derenderer goes by the names in the tokenizer's config.
    - With a parser, special tokens are skipped as the engine ran: unless render's `adjust_request`
      asked for them. vLLM's derenderer always keeps them, so that the end token, where a stop
      string or the length ended the answer, is text.
    - An engine without a tokenizer takes the end token for a stop token like any other and names it
      as `stop_reason`. The coupled server's engine never does, unless end tokens are ignored;
      vLLM's derenderer passes it on.
    - A whole answer ends at a stop string of its request, its tokens and logprobs with the token
      that completes it, as the coupled server's engine ends it; vLLM's derenderer cuts the text
      alone, and only where the engine stopped.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        given = options(setup)
        arguments = AsyncEngineArgs(
            model=given.model, max_model_len=given.max_model_len, served_model_name=["m"]
        )
        model_config = arguments.create_model_config()
        self._tokenizer = cached_tokenizer_from_config(model_config)
        self._derenderer = OnlineDerenderer(
            model_config,
            _Renderer(self._tokenizer),
            request_logger=None,
            chat_template=None,
            chat_template_content_format="auto",
            enable_auto_tools=setup.auto,
            tool_parser=setup.tool_parser,
            reasoning_parser=setup.reasoning_parser,
        )
        registry = OpenAIModelRegistry(model_config, [BaseModelPath("m", given.model)])
        self._serving = ServingDerender(registry, self._derenderer)
        self._runner = asyncio.Runner()

    def answer(self, body: Json, endpoint: str) -> Json:
        """vLLM's answer to a body.

        Raises:
            Refused: It is an error.
        """
        by_flag = _skipping_by_flag(self._tokenizer)
        body = self._ended_at_stop_strings(body, endpoint)
        with (
            patch.object(online_derenderer, "_decode_params", self._decode_params),
            patch.object(
                online_derenderer,
                "detokenize_incrementally",
                lambda **arguments: _detokenize(**arguments | {"tokenizer": by_flag}),
            ),
            patch.object(
                online_derenderer,
                "convert_prompt_ids_to_tokens",
                lambda tokenizer, *arguments, **flags: _convert(by_flag, *arguments, **flags),
            ),
        ):
            result = self._runner.run(self._result(body, endpoint))
        if isinstance(result, ErrorResponse):
            raise Refused(result.error.message)
        chunk, state = result if isinstance(result, tuple) else (result, None)
        dumped = chunk.model_dump(mode="json")
        self._forget_end_token(dumped, body)
        return {"chunk": dumped, "stream_state": state.model_dump()} if state else dumped

    def _ended_at_stop_strings(self, body: Json, endpoint: str) -> Json:
        """A body as an engine sends it that looks for the request's stop strings itself."""
        given = body.get(f"{endpoint}_request") or {}
        if body.get("stream") or not given.get("stop"):
            return body
        body = copy.deepcopy(body)
        chat = endpoint == "chat"
        request = (ChatCompletionRequest if chat else CompletionRequest).model_validate(given)
        parses = chat and self._derenderer.parser is not None
        flags = self._decode_params(self._tokenizer, request, preserve_special=parses)
        responses = [body["generate_response"]] if chat else body["generate_responses"]
        for response in responses:
            for choice in response["choices"]:
                if not isinstance(choice["stop_reason"], str):
                    self._end(choice, response["prompt_token_ids"] or [], request, flags)
        return body

    def _end(self, choice: Json, prompt: list[int], request: Any, flags: tuple[bool, bool]) -> None:
        """End one choice as the engine's own detokenizer does."""
        skip, spaces = flags
        params = SamplingParams(
            stop=request.stop,
            min_tokens=request.min_tokens,
            include_stop_str_in_output=request.include_stop_str_in_output,
            skip_special_tokens=skip,
            spaces_between_special_tokens=spaces,
        )
        engine: Any = SimpleNamespace(
            sampling_params=params, request_id="r", prompt_token_ids=prompt
        )
        decoder = FastIncrementalDetokenizer(self._tokenizer, engine)
        ids = choice["token_ids"]
        rules = OutputRules(
            ignore_eos=request.ignore_eos, stop_token_ids=frozenset(request.stop_token_ids or ())
        )
        ends = model(self._setup).ends
        by_token = split_stop_token(
            ids, choice["finish_reason"], choice["stop_reason"], rules, ends
        )
        for at, token_id in enumerate(ids, 1):
            is_stop_token = at > len(by_token[0])
            if (found := decoder.update([token_id], is_stop_token)) is not None:
                choice["token_ids"] = ids[:at]
                if choice["logprobs"]:
                    choice["logprobs"]["content"] = choice["logprobs"]["content"][:at]
                choice["weight_versions"] = None
                choice["finish_reason"], choice["stop_reason"] = "stop", found
                return

    def _forget_end_token(self, response: Json, body: Json) -> None:
        """Report a choice that the end token ended as the coupled server does."""
        request = body.get("chat_request") or body.get("completion_request") or {}
        end = None if request.get("ignore_eos") else self._tokenizer.eos_token_id
        for choice in response["choices"]:
            if choice["stop_reason"] == end:
                choice["stop_reason"] = None

    async def _result(self, body: Json, endpoint: str) -> Any:
        serving = self._serving
        if endpoint == "chat":
            if body.get("stream"):
                return await serving.derender_chat_stream_response(
                    DerenderChatStreamRequest.model_validate(body)
                )
            return await serving.derender_chat_response(DerenderChatRequest.model_validate(body))
        if body.get("stream"):
            return await serving.derender_completion_stream_response(
                DerenderCompletionStreamRequest.model_validate(body)
            )
        return await serving.derender_completion_response(
            DerenderCompletionRequest.model_validate(body)
        )

    def _decode_params(
        self, tokenizer: Any, request: Any, preserve_special: bool = False
    ) -> tuple[bool, bool]:
        if preserve_special:
            request = self._adjusted(request)
        skip, spaces = _decode_params(tokenizer, request)
        return bool(skip), bool(spaces)

    def _adjusted(self, request: ChatCompletionRequest) -> ChatCompletionRequest:
        """The request as the engine ran it: `OnlineRenderer.preprocess_chat` of vLLM 0.33."""
        parser_cls = self._derenderer.parser
        assert parser_cls is not None
        if not (
            parser_cls.always_adjust_request
            or parser_cls.reasoning_parser_cls is not None
            or request.tool_choice != "none"
        ):
            return request
        parser = parser_cls(
            self._tokenizer,
            request.tools,
            model_config=self._derenderer.model_config,
            chat_template_kwargs=self._derenderer._resolve_chat_template_kwargs(request),
        )
        adjusted: ChatCompletionRequest = parser.adjust_request(request.model_copy(deep=True))
        return adjusted


_decode_params = online_derenderer._decode_params
_detokenize = online_derenderer.detokenize_incrementally
_convert = online_derenderer.convert_prompt_ids_to_tokens


@cache
def oracle(setup: Setup) -> Oracle:
    """The oracle of a set-up, made once."""
    return Oracle(setup)


@cache
def _skipping_by_flag(tokenizer: Any) -> Any:
    """A copy of a tokenizer whose special tokens are those flagged in `tokenizer.json`."""
    entries = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    flagged = [number for number, token in entries.items() if token.special]
    original = type(tokenizer)
    by_flag = type(original.__name__, (original,), {"all_special_ids": flagged})
    copied = copy.copy(tokenizer)
    copied.__class__ = by_flag
    return copied


def comparable(response: Json) -> Json:
    """A one-shot answer without what may differ.

    The time; random tool-call IDs; members 0.33's response models lack but the coupled server has
    (`usage.completion_tokens_details`, and the caller's prompt IDs where the engine sent none).
    """
    kept = copy.deepcopy(response)
    kept["created"] = None
    kept["usage"] = _counts(kept["usage"])
    for choice in kept["choices"]:
        for at, call in enumerate((choice.get("message") or {}).get("tool_calls") or ()):
            call["id"] = _call_id(call["id"], at)
    return kept


def comparable_chunk(answer: Json) -> Json:
    """A streamed answer without what may differ; see `comparable`."""
    kept = copy.deepcopy(answer)
    chunk, state = kept["chunk"], kept["stream_state"]
    chunk["created"] = None
    chunk["usage"] = _counts(chunk["usage"])
    for choice in chunk["choices"]:
        for call in (choice.get("delta") or {}).get("tool_calls") or ():
            call["id"] = _call_id(call["id"], call["index"])
    calls = enumerate(state["last_tool_call_ids"])
    state["last_tool_call_ids"] = [_call_id(number, at) for at, number in calls]
    for key in _EXTRA_STATE:
        state.pop(key, None)
    return kept


def _counts(usage: Json) -> Json:
    return usage and {key: value for key, value in usage.items() if not key.endswith("details")}


def _call_id(number: str | None, at: int) -> str | None:
    if number is None or not _RANDOM_CALL_ID.fullmatch(number):
        return number
    return stream_id("call", at)
