"""Reasoning and tool-call parsing of one chat request, by vLLM's own parsers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from vllm.entrypoints.generate.base.protocol import DeltaMessage, DeltaToolCall
from vllm.entrypoints.openai.chat_completion.message_assembly import assemble_chat_message_fields
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.stream_processor import ChatStreamProcessor
from vllm.entrypoints.serve.utils.tool_calls_utils import resolve_finish_reason
from vllm.parser import Parser
from vllm.parser.abstract_parser import DelegatingParser

from core.protocol.errors import BadRequest
from core.protocol.openai import Delta, Function, ToolCallDelta
from core.protocol.rules import OutputRules
from core.vllm_adapter.requests import chat_rules, read_chat_request

_CONTENT, _REASONING = {"content"}, {"reasoning"}


class ParsedCall(NamedTuple):
    """One complete tool call."""

    id: str | None
    name: str
    arguments: str


class ParsedMessage(NamedTuple):
    """A complete output, split."""

    reasoning: str | None
    content: str | None
    calls: list[ParsedCall]
    reasoning_tokens: int


class ParserStream:
    """The live parser of one choice. O(output) in size."""

    def __init__(self, processor: ChatStreamProcessor, prompt_ids: list[int]) -> None:
        """Wrap a processor that has seen no output; the prompt is whole."""
        self._processor = processor
        self._prompt_ids = prompt_ids

    @property
    def tools_streamed(self) -> bool:
        """A tool call was part of a delta."""
        return bool(self._processor.tools_streamed)

    @tools_streamed.setter
    def tools_streamed(self, value: bool) -> None:
        self._processor.tools_streamed = value

    def step(
        self, text: str, ids: Sequence[int], finish_reason: str | None
    ) -> tuple[Delta | None, str | None]:
        """Parse one chunk.

        Args:
            text: What the chunk's tokens decode to.
            ids: The chunk's tokens.
            finish_reason: The engine's, null while the choice runs.

        Returns:
            The delta, None where the parser waits for more, and the chat finish reason.
        """
        message, reason = self._processor.step(text, list(ids), finish_reason, self._prompt_ids)
        return None if message is None else _delta(message), reason

    def count_reasoning_tokens(self, ids: Sequence[int]) -> int:
        """Reasoning tokens among the output so far, which is `ids`."""
        parser = self._processor.parser
        return 0 if parser is None else int(parser.count_reasoning_tokens(tuple(ids)))


class ParserConfig(NamedTuple):
    """What parsers of one server share."""

    parser_cls: type[Parser] | None
    tokenizer: Any
    model_config: Any
    enable_auto_tools: bool
    chat_template: str | None
    content_format: Any
    default_template_kwargs: dict[str, Any]
    effort_map: dict[str, str]


class ChatContext:
    """One caller's chat request: its rules, and parsers made for it."""

    def __init__(self, config: ParserConfig, raw: bytes) -> None:
        """Validate the request.

        Raises:
            BadRequest: It is not a chat request.
        """
        self._config = config
        self._raw = raw
        self._request = read_chat_request(raw)
        self._counter: Parser | None = None
        self._template_kwargs = self._resolve_template_kwargs()
        parsed = config.parser_cls is not None
        self.rules: OutputRules = chat_rules(
            self._request,
            self._engine_skips_special() if parsed else self._request.skip_special_tokens,
            hide_metadata=parsed and not self._request.include_reasoning,
        )

    def parse(
        self,
        text: str,
        ids: Sequence[int],
        prompt_ids: Sequence[int] | None,
        *,
        count_reasoning: bool,
    ) -> ParsedMessage:
        """Split a complete output.

        Args:
            text: What the output decodes to.
            ids: All its tokens.
            prompt_ids: The prompt, as far as it is known.
            count_reasoning: Count the reasoning tokens, 0 otherwise.
        """
        parser = self._new_parser(self._request)
        if prompt_ids is not None:
            parser.set_prompt_token_ids(prompt_ids)
        reasoning, content, calls = parser.parse(
            text,
            self._request,
            enable_auto_tools=self._config.enable_auto_tools,
            model_output_token_ids=ids,
        )
        fields = assemble_chat_message_fields(
            self._request,
            reasoning,
            content,
            calls,
            enable_auto_tools=self._config.enable_auto_tools,
            parser_cls=self._config.parser_cls,
        )
        kept = [
            ParsedCall(call.id, call.function.name, call.function.arguments)
            for call in fields.tool_calls
        ]
        count = self._count_reasoning_tokens(parser, ids, prompt_ids) if count_reasoning else 0
        return ParsedMessage(fields.reasoning, fields.content, kept, count)

    def _count_reasoning_tokens(
        self, parser: Parser, ids: Sequence[int], prompt_ids: Sequence[int] | None
    ) -> int:
        """Reasoning tokens of a complete output.

        Counting is a run of its own for composed parsers, over an engine each makes anew; one
        kept for the request saves that.
        """
        if not isinstance(parser, DelegatingParser):
            return int(parser.count_reasoning_tokens(ids))
        if self._counter is None or prompt_ids is None:
            self._counter = self._new_parser(self._request)
        if prompt_ids is not None:
            self._counter.set_prompt_token_ids(prompt_ids)
        return int(self._counter.count_reasoning_tokens(ids))

    def finish_reason(self, engine_reason: str | None, has_calls: bool) -> str:
        """The chat finish reason of a complete choice."""
        return str(resolve_finish_reason(engine_reason, self._request, has_calls))

    def open_stream(self, prompt_ids: list[int]) -> ParserStream:
        """A parser for one choice that has produced nothing yet; the prompt is whole."""
        return ParserStream(
            ChatStreamProcessor(
                self._request,
                self._new_parser(self._request),
                enable_auto_tools=self._config.enable_auto_tools,
                parser_cls=self._config.parser_cls,
            ),
            prompt_ids,
        )

    def _new_parser(self, request: ChatCompletionRequest) -> Parser:
        parser_cls = self._config.parser_cls
        assert parser_cls is not None
        try:
            return parser_cls(
                self._config.tokenizer,
                request.tools,
                chat_template_kwargs=self._template_kwargs,
                model_config=self._config.model_config,
            )
        except Exception as error:
            # Parsers look at template arguments and tools, which are the caller's.
            raise BadRequest(
                f"`chat_request`: no parser can be made for it: {error}.", "chat_request"
            ) from error

    def _resolve_template_kwargs(self) -> dict[str, Any]:
        params = self._request.build_chat_params(
            self._config.chat_template, self._config.content_format, self._config.effort_map
        )
        merged = params.with_defaults(self._config.default_template_kwargs)
        return dict(merged.chat_template_kwargs)

    def _engine_skips_special(self) -> bool:
        """The `skip_special_tokens` render gave the engine: parsers ask for their markers there."""
        # Read again rather than copied: what vLLM's models hold cannot always be copied.
        adjusted = read_chat_request(self._raw)
        if adjusted.skip_special_tokens is False:
            return False
        if not self._render_adjusts():
            return True
        parser = self._new_parser(adjusted)
        try:
            adjusted = parser.adjust_request(adjusted)
        except Exception:  # noqa: BLE001 - it ran on the engine, whatever adjusting says here
            return False
        return adjusted.skip_special_tokens is not False

    def _render_adjusts(self) -> bool:
        parser_cls = self._config.parser_cls
        assert parser_cls is not None
        return (
            parser_cls.always_adjust_request
            or parser_cls.reasoning_parser_cls is not None
            or self._request.tool_choice != "none"
        )


def _delta(message: DeltaMessage) -> Delta:
    """The members that are set, as the coupled server sends them."""
    members = message.model_fields_set
    if members == _CONTENT:
        return Delta(content=message.content)
    if members == _REASONING:
        return Delta(reasoning=message.reasoning)
    delta = Delta(**_set_members(message, ("role", "content", "reasoning")))
    if message.tool_calls:
        delta.tool_calls = [_call(call) for call in message.tool_calls]
    return delta


def _call(call: DeltaToolCall) -> ToolCallDelta:
    delta = ToolCallDelta(index=call.index, **_set_members(call, ("id", "type")))
    if call.function is not None:
        delta.function = Function(**_set_members(call.function, ("name", "arguments")))
    elif "function" in call.model_fields_set:
        delta.function = None
    return delta


def _set_members(message: BaseModel, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names if name in message.model_fields_set}
