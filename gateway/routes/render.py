"""`POST .../render`, `/tokenize` and `/detokenize`: raw bytes to a bulk shard and back."""

from typing import Any

from core.protocol.calls import Render, RenderTarget
from gateway.http.route import FAILURES, Route
from gateway.routes import bodies
from gateway.services.http_request import Direct, ShardRequest, serve_post
from gateway.services.services import Services
from shards.pool.pool import Pool

_FAILURES = {
    **FAILURES,
    400: "vLLM's renderer refuses the request, in its own words, or the body is no such request.",
    501: "The model cannot do what is asked.",
}


class _RenderRequest(ShardRequest):
    """One request that becomes tokens, or tokens that become text."""

    def __init__(
        self,
        target: RenderTarget,
        path: str,
        services: Services,
        pool: Pool,
        headers: dict[bytes, bytes],
    ) -> None:
        super().__init__(target.value, path, services, headers)
        self._target = target
        self._pool = pool

    async def call(self, body: bytes) -> bytes:
        self.mode = "render"
        call = Render(
            call_id=self._pool.new_call_id(),
            trace_id=self.request_id,
            target=self._target,
            body=body,
            # A caller's own ID becomes part of the rendered request's, as vLLM has it.
            caller_id=self.caller_id,
        )
        return await self._pool.call(self._pool.least_busy(), call)


def _route(path: str, target: RenderTarget, summary: str, request: Any, answer: Any) -> Route:
    def serve(services: Services) -> Direct | None:
        """The handler; None where no bulk shards are run."""
        pool = services.model.render_pool
        if pool is None:
            return None
        return serve_post(
            path, services, lambda headers: _RenderRequest(target, path, services, pool, headers)
        )

    return Route(
        path=path,
        methods=("POST",),
        serve=serve,
        direct=True,
        summary=summary,
        requests=(request,),
        answers=(answer,),
        failures=_FAILURES,
    )


ROUTES = (
    _route(
        "/v1/chat/completions/render",
        RenderTarget.CHAT,
        "A chat request into what the engine generates from",
        bodies.foreign("A chat completion request, as vLLM takes it."),
        bodies.RenderedRequest,
    ),
    _route(
        "/v1/completions/render",
        RenderTarget.COMPLETION,
        "A completion request into what the engine generates from, one entry per prompt",
        bodies.foreign("A completion request, as vLLM takes it."),
        list[bodies.RenderedRequest],
    ),
    _route(
        "/v1/responses/render",
        RenderTarget.RESPONSES,
        "A Responses request into what the engine generates from",
        bodies.foreign("A Responses request, as vLLM takes it."),
        bodies.RenderedRequest,
    ),
    _route(
        "/v1/messages/render",
        RenderTarget.MESSAGES,
        "An Anthropic Messages request into what the engine generates from",
        bodies.foreign("An Anthropic Messages request, as vLLM takes it."),
        bodies.RenderedRequest,
    ),
    _route(
        "/tokenize",
        RenderTarget.TOKENIZE,
        "A prompt or a chat into token IDs",
        bodies.foreign("`prompt`, or `messages` as in a chat; see vLLM's /tokenize."),
        bodies.TokenizeAnswer,
    ),
    _route(
        "/detokenize",
        RenderTarget.DETOKENIZE,
        "Token IDs into text",
        bodies.DetokenizeRequest,
        bodies.DetokenizeAnswer,
    ),
)
