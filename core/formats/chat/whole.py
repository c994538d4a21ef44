"""A complete generation into a `ChatResponse`."""

from collections.abc import Sequence

from core.formats.format import Generation, Head
from core.formats.prompts import complete_prompt_ids, named_prompt_logprobs
from core.formats.usage import usage
from core.protocol import openai
from core.protocol.errors import BadRequest
from core.protocol.generate import NOTHING, GenerateChoice
from core.protocol.ids import stream_id, tool_call_id
from core.text.choice import ChoiceStep, whole_choice
from core.text.logprobs import LogprobShape
from core.text.model_tools import ModelTools
from core.vllm_adapter.parsing import ChatContext, ParsedMessage


def chat_answer(
    tools: ModelTools, head: Head, context: ChatContext | None, generation: Generation
) -> openai.ChatResponse:
    """The answer to a complete generation.

    Args:
        tools: The model.
        head: What every answer names.
        context: The chat request; None where there is none.
        generation: What to answer with.

    Raises:
        BadRequest: The output cannot be parsed.
    """
    return _ChatAnswer(tools, head, context, generation).build()


class _ChatAnswer:
    """The making of one answer."""

    def __init__(
        self, tools: ModelTools, head: Head, context: ChatContext | None, generation: Generation
    ) -> None:
        self._tools = tools
        self._head = head
        self._context = context
        self._response, self._prompt_ids, self._prompt_tokens = generation
        self._rules = tools.chat_rules(context)
        self._tokens = 0
        self._reasoning_tokens = 0

    def build(self) -> openai.ChatResponse:
        response, rules = self._response, self._rules
        choices = [self._choice(choice) for choice in response.choices]
        counted = self._reasoning_tokens if self._tools.model.counts_reasoning else None
        details = NOTHING if response.usage is None else response.usage.prompt_tokens_details
        return openai.ChatResponse(
            id=self._head.id,
            created=self._head.created,
            model=self._head.model,
            choices=choices,
            usage=usage(self._prompt_tokens, self._tokens, counted, details),
            prompt_logprobs=named_prompt_logprobs(self._tools, response.prompt_logprobs),
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
        rules = self._rules
        step = whole_choice(self._tools, rules, choice, self._seed(), LogprobShape.CHAT)
        self._tokens += len(step.ids)
        message, finish_reason = self._message(choice.index, step)
        shows_ids = rules.return_token_ids and not rules.hide_metadata
        return openai.ChatChoice(
            index=choice.index,
            message=message,
            logprobs=step.logprobs,
            finish_reason=finish_reason,
            stop_reason=step.stop_reason,
            token_ids=step.ids if shows_ids else None,
            routed_experts=choice.routed_experts,
            weight_versions=step.part.weight_versions if rules.return_weight_versions else NOTHING,
        )

    def _seed(self) -> list[int] | None:
        """The caller's prompt IDs, else the engine's."""
        return self._prompt_ids if self._prompt_ids is not None else self._response.prompt_token_ids

    def _message(self, index: int, step: ChoiceStep) -> tuple[openai.Message, str]:
        context = self._context
        if context is None or not self._tools.model.parses:
            return openai.Message(content=step.text, reasoning=None), step.finish_reason or "stop"
        parsed = self._parse(context, step)
        self._reasoning_tokens += parsed.reasoning_tokens
        message = openai.Message(content=parsed.content, reasoning=parsed.reasoning)
        stream = stream_id(self._head.id, index)
        if parsed.calls:
            message.tool_calls = [
                openai.ToolCall(
                    id=tool_call_id(call.id, stream, at),
                    function=openai.Function(name=call.name, arguments=call.arguments),
                )
                for at, call in enumerate(parsed.calls)
            ]
        return message, context.finish_reason(step.finish_reason, bool(parsed.calls))

    def _parse(self, context: ChatContext, step: ChoiceStep) -> ParsedMessage:
        counts = self._tools.model.counts_reasoning
        try:
            return context.parse(step.text, step.ids, self._parser_prompt(), count_reasoning=counts)
        except ValueError as error:
            raise BadRequest(f"The output cannot be parsed: {error}", "chat_request") from error

    def _parser_prompt(self) -> Sequence[int] | None:
        """The engine's prompt IDs, which are whole, else the caller's."""
        engine = self._response.prompt_token_ids
        return engine if engine is not None else self._prompt_ids
