"""One-shot chat: a complete generation into a `ChatResponse`."""

from collections.abc import Sequence
from typing import cast

from msgspec import Raw

from core.derender.contexts import check_chat_request
from core.derender.one_shot import complete_prompt_ids, named_prompt_logprobs, output_text
from core.formats.usage import count_tokens, usage
from core.protocol import openai
from core.protocol.bounds import check_response, decode, response_decoder
from core.protocol.errors import BadRequest
from core.protocol.generate import NOTHING, GenerateChoice, GenerateResponse
from core.protocol.ids import stream_id, tool_call_id
from core.protocol.wire import Call
from core.text.model_tools import Server
from core.vllm_adapter.parsing import ChatContext, ParsedMessage


def derender_chat(server: Server, call: Call) -> bytes:
    """Answer a one-shot chat call with the JSON of a `ChatResponse`.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
    """
    response = decode(response_decoder, call.generate, "generate_response")
    check_response(response, server.limits, "generate_response")
    prompt_tokens = server.prompt_tokens(call) or 0
    prompt_ids = server.contexts.prompt(call)
    if server.model.parses:
        check_chat_request(call)
    return openai.encoder.encode(chat_answer(server, call, response, prompt_tokens, prompt_ids))


def chat_answer(
    server: Server,
    call: Call,
    response: GenerateResponse,
    prompt_tokens: int,
    prompt_ids: list[int] | None,
) -> openai.ChatResponse:
    """The answer to a complete generation that passed its checks.

    Args:
        server: The model.
        call: Says what to report, and holds the chat request.
        response: The generation.
        prompt_tokens: Count to report.
        prompt_ids: The prompt, as far as the caller knows it.

    Raises:
        BadRequest: The request is none, or its output cannot be parsed.
    """
    return _ChatAnswer(server, call, response, prompt_tokens, prompt_ids).build()


class _ChatAnswer:
    """The making of one answer."""

    def __init__(
        self,
        server: Server,
        call: Call,
        response: GenerateResponse,
        prompt_tokens: int,
        prompt_ids: list[int] | None,
    ) -> None:
        self._server = server
        self._call = call
        self._response = response
        self._prompt_tokens = prompt_tokens
        self._prompt_ids = prompt_ids
        self._context = server.contexts.chat(call)
        self._rules = server.default_rules(self._context)
        self._id = response.request_id or call.fallback_id
        self._reasoning_tokens = 0

    def build(self) -> openai.ChatResponse:
        response, rules = self._response, self._rules
        choices = [self._choice(choice) for choice in response.choices]
        counted = self._reasoning_tokens if self._server.model.counts_reasoning else None
        details = NOTHING if response.usage is None else response.usage.prompt_tokens_details
        return openai.ChatResponse(
            id=self._id,
            created=self._call.created,
            model=self._call.model,
            choices=choices,
            usage=usage(self._prompt_tokens, count_tokens(response.choices), counted, details),
            prompt_logprobs=named_prompt_logprobs(self._server, response.prompt_logprobs),
            prompt_token_ids=(
                complete_prompt_ids(response, self._prompt_ids, self._prompt_tokens)
                if rules.return_token_ids
                else None
            ),
            kv_transfer_params=response.kv_transfer_params,
            ec_transfer_params=response.ec_transfer_params,
            metrics=response.metrics,
        )

    def _choice(self, choice: GenerateChoice) -> openai.ChatChoice:
        server, rules = self._server, self._rules
        ids = choice.token_ids or []
        seed = self._seed()
        text, stop_reason = output_text(server, choice, rules, seed)
        shown = not rules.hide_metadata
        message, finish_reason = self._message(choice, text, ids)
        return openai.ChatChoice(
            index=choice.index,
            message=message,
            logprobs=self._logprobs(choice) if shown else None,
            finish_reason=finish_reason,
            stop_reason=stop_reason,
            token_ids=ids if rules.return_token_ids and shown else None,
            routed_experts=choice.routed_experts,
            weight_versions=choice.weight_versions if rules.return_weight_versions else NOTHING,
        )

    def _seed(self) -> Sequence[int] | None:
        """The caller's prompt IDs, else the engine's."""
        return self._prompt_ids if self._prompt_ids is not None else self._response.prompt_token_ids

    def _logprobs(self, choice: GenerateChoice) -> openai.ChatLogprobs | None:
        if choice.logprobs is None:
            return None
        written = self._server.logprobs.chat(choice.logprobs, self._rules)
        return cast(openai.ChatLogprobs, Raw(written))

    def _message(
        self, choice: GenerateChoice, text: str, ids: list[int]
    ) -> tuple[openai.Message, str]:
        context = self._context
        if context is None or not self._server.model.parses:
            reason = choice.finish_reason or "stop"
            return openai.Message(content=text, reasoning=None), reason
        parsed = self._parse(context, text, ids)
        self._reasoning_tokens += parsed.reasoning_tokens
        message = openai.Message(content=parsed.content, reasoning=parsed.reasoning)
        stream = stream_id(self._id, choice.index)
        if parsed.calls:
            message.tool_calls = [
                openai.ToolCall(
                    id=tool_call_id(parsed_call.id, stream, at),
                    function=openai.Function(
                        name=parsed_call.name, arguments=parsed_call.arguments
                    ),
                )
                for at, parsed_call in enumerate(parsed.calls)
            ]
        return message, context.finish_reason(choice.finish_reason, bool(parsed.calls))

    def _parse(self, context: ChatContext, text: str, ids: list[int]) -> ParsedMessage:
        try:
            return context.parse(
                text,
                ids,
                self._parser_prompt(),
                count_reasoning=self._server.model.counts_reasoning,
            )
        except ValueError as error:
            raise BadRequest(f"The output cannot be parsed: {error}", "chat_request") from error

    def _parser_prompt(self) -> Sequence[int] | None:
        """The engine's prompt IDs, which are whole, else the caller's."""
        engine = self._response.prompt_token_ids
        return engine if engine is not None else self._prompt_ids
