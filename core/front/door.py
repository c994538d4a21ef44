"""The front door in a shard: what is being served, by the gateway's name for it."""

import msgspec

from core.front.checks import check_whole, on_one_line
from core.front.formats import FORMATS
from core.front.stream import FrontStream, asked
from core.protocol.bounds import check_response, response_decoder
from core.protocol.calls import AdvanceStream, AnswerWhole, FrontCall, OpenStream
from core.protocol.errors import BadRequest, EngineFailed, StreamMissing
from core.protocol.generate import GenerateResponse
from core.protocol.plan import recipe_decoder
from core.protocol.steps import Steps, run
from core.text.model_tools import ModelTools


class FrontDoor:
    """Serves requests of the front door. O(prompt + output) per request being streamed."""

    def __init__(self, tools: ModelTools) -> None:
        """Begin with no stream."""
        self._tools = tools
        self._streams: dict[str, FrontStream] = {}

    def begin(self, call: FrontCall) -> bytes | Steps:
        """Answer a call, or begin to.

        Raises:
            BadRequest: The request cannot be served.
            EngineFailed: The engine's answer is none.
            StreamMissing: The session is not held here.
        """
        match call:
            case AdvanceStream():
                return self._advance(call)
            case OpenStream():
                return self._open(call)
            case AnswerWhole():
                return self._answer(call)

    def close(self, session: str) -> None:
        """Nobody waits for a stream any more."""
        self._streams.pop(session, None)

    def _open(self, call: OpenStream) -> bytes | Steps:
        recipe = recipe_decoder.decode(call.recipe)
        stream = FrontStream(asked(self._tools, recipe, call.created))
        self._streams[call.session] = stream
        return stream.restore(call.journal) if call.journal else b""

    def _advance(self, call: AdvanceStream) -> bytes | Steps:
        stream = self._streams.get(call.session)
        if stream is None:
            raise StreamMissing
        steps = stream.advance(call.events)
        return steps if len(call.events) > 1 else run(steps)

    def _answer(self, call: AnswerWhole) -> bytes:
        recipe = recipe_decoder.decode(call.recipe)
        responses = [self._read(body) for body in call.bodies]
        for response in responses:
            check_whole(response, recipe.samples)
        request = asked(self._tools, recipe, call.created)
        return FORMATS[recipe.api].whole(request, responses)

    def _read(self, body: bytes) -> GenerateResponse:
        try:
            response = response_decoder.decode(on_one_line(body))
            check_response(response, self._tools.limits, "generate_response", may_be_empty=True)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise EngineFailed(f"the engine sent what is no answer: {error}") from None
        except BadRequest as error:
            raise EngineFailed(f"the engine sent what is no answer: {error.message}") from None
        return response
