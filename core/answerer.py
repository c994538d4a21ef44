"""The one entry of the room: a call in, the finished response body out."""

from collections.abc import Callable

import msgspec

from core.derender.chat import derender_chat
from core.derender.chat_stream import derender_chat_stream
from core.derender.completion import derender_completion
from core.derender.completion_stream import derender_completion_stream
from core.derender.live.answer import derender_parsed
from core.derender.live.streams import NoStreams, Streams
from core.front.door import KINDS, FrontDoor
from core.protocol.limits import Limits
from core.protocol.steps import Steps, run
from core.protocol.wire import Call, Kind
from core.text.model_tools import Server
from core.vllm_adapter.loading import Model

_ACTIONS: dict[Kind, Callable[[Server, Call], bytes]] = {
    Kind.CHAT: derender_chat,
    Kind.CHAT_STREAM: derender_chat_stream,
    Kind.COMPLETION: derender_completion,
    Kind.COMPLETION_STREAM: derender_completion_stream,
}


class Derenderer:
    """Answers calls for one model.

    Attributes:
        streams: Live streams between derender calls.
        front: Requests of the front door.
    """

    def __init__(self, model: Model, streams: Streams | None = None) -> None:
        """Wrap a loaded model.

        Args:
            model: The model.
            streams: Keeps live streams between calls; None replays on every call.
        """
        self._server = Server(model)
        self.streams: Streams = streams or NoStreams()
        self.front = FrontDoor(self._server)

    @property
    def names(self) -> tuple[str, ...]:
        """Served names, the first one reported."""
        return self._server.model.names

    @property
    def limits(self) -> Limits:
        """Bounds every call must keep."""
        return self._server.limits

    def begin(self, call: Call) -> bytes | Steps:
        """Answer a call, or begin to: a stream with a parser may have to be rebuilt first.

        Returns:
            The JSON of the response, or a generator that returns it and yields while it rebuilds.

        Raises:
            DerenderError: The call is refused.
        """
        if call.kind in KINDS:
            return self.front.begin(call)
        if call.kind is Kind.CHAT_STREAM and self._server.model.parses:
            return derender_parsed(self._server, call, self.streams)
        return _ACTIONS[call.kind](self._server, call)

    def answer(self, call: Call) -> bytes:
        """The JSON of the response to a call.

        Raises:
            DerenderError: The call is refused.
        """
        begun = self.begin(call)
        return begun if isinstance(begun, bytes) else run(begun)

    def warm_up(self) -> None:
        """Answer one call of each kind, so that the first caller does not pay for lazy set-up."""
        for kind, generate in _warm_up_bodies(self._server).items():
            self.answer(
                Call(
                    call_id=0,
                    kind=kind,
                    model=self.names[0],
                    created=0,
                    fallback_id="warm-up",
                    generate=msgspec.json.encode(generate),
                    stream_state=b"",
                    prompt_tokens=b"",
                    prompt_token_ids=b"[[0]]" if kind is Kind.COMPLETION else b"[0]",
                    request=_WARM_UP_REQUESTS[kind],
                )
            )


_CHAT_REQUEST = b'{"messages":[{"role":"user","content":"hello"}]}'
_COMPLETION_REQUEST = b'{"prompt":"hello"}'
_WARM_UP_REQUESTS = {
    Kind.CHAT: _CHAT_REQUEST,
    Kind.CHAT_STREAM: _CHAT_REQUEST,
    Kind.COMPLETION: _COMPLETION_REQUEST,
    Kind.COMPLETION_STREAM: _COMPLETION_REQUEST,
}


def _warm_up_bodies(server: Server) -> dict[Kind, object]:
    ids = list(range(min(64, server.tokens.size)))
    content = [
        {"token_id": number, "logprob": -1.0, "top_logprobs": [{"token_id": number, "logprob": -1}]}
        for number in ids
    ]
    choice = {
        "index": 0,
        "token_ids": ids,
        "finish_reason": "stop",
        "logprobs": {"content": content},
    }
    whole = {"request_id": "warm-up", "choices": [choice]}
    return {
        Kind.CHAT: whole,
        Kind.CHAT_STREAM: whole,
        Kind.COMPLETION: [whole],
        Kind.COMPLETION_STREAM: whole,
    }
