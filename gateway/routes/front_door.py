"""`POST /v1/chat/completions` and `/v1/completions`: the whole way, engine included."""

from typing import Any

from core.protocol.openai import ChatChunk, ChatResponse, CompletionChunk, CompletionResponse
from core.protocol.plan import ApiName
from gateway.front_door.request import FrontDoorPath, FrontDoorRequest
from gateway.http.route import FAILURES, Route
from gateway.routes import bodies
from gateway.services.http_request import Direct, serve_post
from gateway.services.services import Services

_DESCRIPTION = (
    "Served where --engine-url names an engine, else 404. With `stream: true` the answer is a"
    " stream of server-sent events that ends with `data: [DONE]`; a failure after the first of them"
    " is an event with the `error` that would have been answered."
)
_FAILURES = {
    **FAILURES,
    400: "vLLM's renderer or the engine refuses the request, or it asks for what is not supported;"
    " `param` names the member.",
    404: "The model named is not served, or no engine is named.",
    429: "The engine is overloaded.",
    502: "The engine cannot be reached (`engine_unreachable`) or broke off (`engine_failed`).",
    503: "Warming up, overloaded or shutting down, here or at the engine; see Retry-After.",
    504: "The engine was silent for too long (`engine_timed_out`), or the server.",
}


def _route(at: FrontDoorPath, summary: str, request: Any, answer: Any, event: Any) -> Route:
    def serve(services: Services) -> Direct | None:
        """The handler; None where no engine is named."""
        side = services.model.engine_side
        if side is None:
            return None
        return serve_post(
            at.path, services, lambda headers: FrontDoorRequest(at, services, side, headers)
        )

    return Route(
        path=at.path,
        methods=("POST",),
        serve=serve,
        direct=True,
        off=f"the front door is off: {at.path} is served where --engine-url names an engine",
        summary=summary,
        description=_DESCRIPTION,
        requests=(request,),
        answers=(answer,),
        events=event,
        failures=_FAILURES,
    )


ROUTES = (
    _route(
        FrontDoorPath("chat_completions", "/v1/chat/completions", ApiName.CHAT),
        "A chat, answered by an engine",
        bodies.ChatCompletionRequest,
        ChatResponse,
        ChatChunk,
    ),
    _route(
        FrontDoorPath("completions", "/v1/completions", ApiName.COMPLETION),
        "One or more prompts, continued by an engine",
        bodies.TextCompletionRequest,
        CompletionResponse,
        CompletionChunk,
    ),
)
