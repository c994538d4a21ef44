"""Callers' original requests, read by vLLM's own models."""

from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError
from vllm.entrypoints.generate.base.serving import (
    chat_top_logprobs_limit,
    completion_top_logprobs_limit,
)
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.exceptions import VLLMError

from core.protocol.errors import BadRequest
from core.protocol.rules import OutputRules

M = TypeVar("M", bound=BaseModel)

_TYPE_NAMES = frozenset({"bool", "dict", "float", "int", "list", "none", "str"})


def read_chat_request(raw: bytes) -> ChatCompletionRequest:
    """Validate the JSON of a `chat_request`.

    Raises:
        BadRequest: It is not a chat request.
    """
    return _read(ChatCompletionRequest, raw, "chat_request")


def read_completion_request(raw: bytes) -> CompletionRequest:
    """Validate the JSON of a `completion_request`.

    Raises:
        BadRequest: It is not a completion request.
    """
    return _read(CompletionRequest, raw, "completion_request")


def chat_rules(
    request: ChatCompletionRequest, skip_special_tokens: bool | None, hide_metadata: bool
) -> OutputRules:
    """The rules of a chat request.

    Args:
        request: The caller's request.
        skip_special_tokens: As the engine ran; None means its default, true.
        hide_metadata: Reasoning is parsed and hidden.
    """
    limit = (
        chat_top_logprobs_limit(request.top_logprobs, bool(request.logprob_token_ids))
        if request.logprobs
        else None
    )
    return _rules(request, skip_special_tokens, limit, hide_metadata=hide_metadata)


def completion_rules(request: CompletionRequest) -> OutputRules:
    """The rules of a completion request."""
    limit = completion_top_logprobs_limit(request.logprobs, bool(request.logprob_token_ids))
    return _rules(
        request,
        request.skip_special_tokens,
        limit,
        prompt_count=_prompt_count(request.prompt),
        samples_per_prompt=request.n or 1,
    )


def _rules(
    request: ChatCompletionRequest | CompletionRequest,
    skip_special_tokens: bool | None,
    top_logprobs: int | None,
    **more: Any,
) -> OutputRules:
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    return OutputRules(
        skip_special_tokens=skip_special_tokens is not False,
        spaces_between_special_tokens=request.spaces_between_special_tokens,
        include_stop_str_in_output=request.include_stop_str_in_output,
        ignore_eos=request.ignore_eos,
        min_tokens=request.min_tokens,
        stop=tuple(string for string in stop if string),
        stop_token_ids=frozenset(request.stop_token_ids or ()),
        top_logprobs=top_logprobs,
        tokens_as_ids=bool(request.return_tokens_as_token_ids),
        return_token_ids=bool(request.return_token_ids),
        return_weight_versions=request.return_weight_versions,
        **more,
    )


def _prompt_count(prompt: Any) -> int:
    """Prompts in a completion request: a list holds several unless it is one prompt's token IDs."""
    if not isinstance(prompt, list) or (prompt and isinstance(prompt[0], int)):
        return 1
    return max(len(prompt), 1)


def _read(model: type[M], raw: bytes, member: str) -> M:
    try:
        return model.model_validate(msgspec.json.decode(raw))
    except ValidationError as error:
        raise refusal(error, member) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"`{member}` is not valid JSON: {error}", member) from None
    except Exception as error:
        # vLLM's validators raise errors of their own, and stumble over shapes they do not expect.
        raise _validator_refusal(error, member) from error


def refusal(error: ValidationError, member: str = "") -> BadRequest:
    """One sentence for the first problem; of a union's members the deepest fits best.

    Args:
        error: What pydantic found.
        member: Where in the caller's body the model begins; empty for the body itself.
    """
    first, *others = error.errors(include_url=False, include_context=False, include_input=False)
    same_field = [other for other in others if other["loc"][:1] == first["loc"][:1]]
    problem = max([first, *same_field], key=lambda entry: len(entry["loc"]))
    steps = "".join(_step(part) for part in problem["loc"] if _is_path(part))
    param = (member + steps).removeprefix(".")
    subject = f"`{param}`" if param else "the body"
    reason = problem["msg"].removeprefix("Value error, ")
    sentence = f"{subject}: {reason[:1].lower()}{reason[1:]}.".replace("..", ".")
    return BadRequest(sentence, param or None)


def _validator_refusal(error: Exception, member: str) -> BadRequest:
    field = getattr(error, "parameter", None)
    param = f"{member}.{field}" if isinstance(field, str) and field.isidentifier() else member
    reason = str(error) if isinstance(error, VLLMError | ValueError) else "it cannot be read"
    return BadRequest(f"`{param}`: {reason.split(' (parameter=')[0]}", param)


def _is_path(part: int | str) -> bool:
    """Whether a location part is a member or an index; unions add type names to locations."""
    if isinstance(part, int):
        return True
    return part.replace("_", "").islower() and part.isidentifier() and part not in _TYPE_NAMES


def _step(part: int | str) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{part}"
