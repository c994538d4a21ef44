"""Requests into tokens: the body of a render or tokenize request in, the body of the answer out."""

import msgspec

from core.protocol.calls import MakePlan, Render, RenderCall, RenderTarget
from core.protocol.errors import BadRequest
from core.vllm_adapter.rendering import Renderer

_decoder = msgspec.json.Decoder()


def render(renderer: Renderer, call: RenderCall) -> bytes:
    """Answer a call.

    Raises:
        BadRequest: The body is not such a request; RenderRefused where vLLM says so.
    """
    body = _decode(call.body)
    match call:
        case MakePlan():
            return renderer.plan(call.api, body, call.caller_id, call.engine_model)
        case Render():
            return renderer.answer(call.target, body, call.caller_id)


def warm_up(renderer: Renderer) -> None:
    """Answer one call of each kind, so that the first caller does not pay for lazy set-up."""
    for target, body in _WARM_UP_BODIES.items():
        try:
            renderer.answer(target, body, "warm-up")
        except BadRequest:
            continue  # A model without a chat template, or without tool calls.


def _decode(body: bytes) -> object:
    try:
        return _decoder.decode(body)
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not valid UTF-8 at byte {error.start}") from None
    except msgspec.DecodeError as error:
        if not body.strip():
            raise BadRequest("the body is empty; send a JSON object") from None
        reason = str(error).removeprefix("JSON is malformed: ")
        raise BadRequest(f"the body is not valid JSON: {reason}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


_MESSAGES = [{"role": "user", "content": "hello"}]
_FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
_WARM_UP_BODIES: dict[RenderTarget, object] = {
    RenderTarget.CHAT: {
        "messages": _MESSAGES,
        "tools": [{"type": "function", "function": _FUNCTION}],
    },
    RenderTarget.COMPLETION: {"prompt": "hello"},
    RenderTarget.RESPONSES: {"input": "hello"},
    RenderTarget.MESSAGES: {"model": "", "messages": _MESSAGES, "max_tokens": 1},
    RenderTarget.TOKENIZE: {"prompt": "hello"},
    RenderTarget.DETOKENIZE: {"tokens": [0]},
}
