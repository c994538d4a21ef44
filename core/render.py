"""Requests into tokens: the body of a render or tokenize request in, the body of the answer out."""

import msgspec

from core.protocol.errors import BadRequest
from core.protocol.wire import PLAN_KINDS, Call, Kind
from core.vllm_adapter.rendering import Renderer

_decoder = msgspec.json.Decoder()


def render(renderer: Renderer, call: Call) -> bytes:
    """Answer a call of one of `RENDER_KINDS`.

    Raises:
        BadRequest: The body is not such a request; RenderRefused where vLLM says so.
    """
    body = _decode(call.request)
    if call.kind in PLAN_KINDS:
        return renderer.plan(call.kind, body, call.fallback_id, call.model)
    return renderer.answer(call.kind, body, call.fallback_id)


def warm_up(renderer: Renderer) -> None:
    """Answer one call of each kind, so that the first caller does not pay for lazy set-up."""
    for kind, body in _WARM_UP_BODIES.items():
        try:
            renderer.answer(kind, body, "warm-up")
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
_WARM_UP_BODIES: dict[Kind, object] = {
    Kind.RENDER_CHAT: {
        "messages": _MESSAGES,
        "tools": [{"type": "function", "function": _FUNCTION}],
    },
    Kind.RENDER_COMPLETION: {"prompt": "hello"},
    Kind.RENDER_RESPONSES: {"input": "hello"},
    Kind.RENDER_MESSAGES: {"model": "", "messages": _MESSAGES, "max_tokens": 1},
    Kind.TOKENIZE: {"prompt": "hello"},
    Kind.DETOKENIZE: {"tokens": [0]},
}
