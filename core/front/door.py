"""The front door in a shard: what is being served, by the gateway's name for it."""

import msgspec

from core.front.checks import check_whole, on_one_line
from core.front.stream import Serving
from core.front.whole import unpack, whole_answer
from core.protocol.bounds import check_response, response_decoder
from core.protocol.errors import BadRequest, EngineFailed, StreamMissing
from core.protocol.generate import GenerateResponse
from core.protocol.plan import bodies_decoder, events_decoder, recipe_decoder
from core.protocol.steps import Steps, run
from core.protocol.wire import Call, Kind
from core.text.model_tools import Server

KINDS = frozenset({Kind.SERVE, Kind.SERVE_OPEN, Kind.SERVE_EVENTS})
"""Calls answered here."""


class FrontDoor:
    """Serves requests of the front door. O(prompt + output) per request being streamed.

    Attributes:
        serving: Streams by the session that names them.
    """

    def __init__(self, server: Server) -> None:
        """Begin with nothing to serve."""
        self._server = server
        self.serving: dict[str, Serving] = {}

    def begin(self, call: Call) -> bytes | Steps:
        """Answer one of `KINDS`, or the steps that lead to the answer.

        Raises:
            BadRequest: The request cannot be served.
            EngineFailed: The engine's answer is none.
            StreamMissing: The session is not held here.
        """
        if call.kind is Kind.SERVE_EVENTS:
            return self._advance(call)
        if call.kind is Kind.SERVE_OPEN:
            return self._open(call)
        return self._answer(call)

    def close(self, session: str) -> None:
        """Nobody waits for a stream any more."""
        self.serving.pop(session, None)

    def _open(self, call: Call) -> bytes | Steps:
        serving = Serving(self._server, recipe_decoder.decode(call.request), call.created)
        self.serving[call.session] = serving
        return serving.restore(call.generate) if call.generate else b""

    def _advance(self, call: Call) -> bytes | Steps:
        serving = self.serving.get(call.session)
        if serving is None:
            raise StreamMissing
        events = events_decoder.decode(call.generate)
        steps = serving.advance(events)
        return steps if len(events) > 1 else run(steps)

    def _answer(self, call: Call) -> bytes:
        recipe = recipe_decoder.decode(call.request)
        responses = [self._read(body) for body in bodies_decoder.decode(call.generate)]
        for response in responses:
            check_whole(response, recipe.samples)
        prompts = unpack(recipe)
        return whole_answer(self._server, recipe, call.created, prompts, responses)

    def _read(self, body: bytes) -> GenerateResponse:
        try:
            response = response_decoder.decode(on_one_line(body))
            check_response(response, self._server.limits, "generate_response", may_be_empty=True)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise EngineFailed(f"the engine sent what is no answer: {error}") from None
        except BadRequest as error:
            raise EngineFailed(f"the engine sent what is no answer: {error.message}") from None
        return response
