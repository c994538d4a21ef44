"""The one entry of the room: a call in, the finished answer out."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import assert_never

import msgspec

from core.derender.contexts import ContextStore
from core.derender.live.answer import derender_parsed_chunk
from core.derender.live.streams import NoStreams, Streams
from core.derender.one_shot import derender_chat, derender_completion
from core.derender.window_answers import derender_chat_chunk, derender_completion_chunk
from core.front.door import FrontDoor
from core.protocol.calls import (
    AdvanceStream,
    AnswerWhole,
    DerenderCall,
    DerenderChat,
    DerenderChatChunk,
    DerenderCompletion,
    DerenderCompletionChunk,
    MakePlan,
    OpenStream,
    Render,
    Work,
)
from core.protocol.envelope import Named, derender_call, envelope_decoder
from core.protocol.errors import InternalFault
from core.protocol.limits import Limits
from core.protocol.plan import ApiName
from core.protocol.steps import Steps, run
from core.render import render, warm_up
from core.text.model_tools import ModelTools
from core.vllm_adapter.loading import Model
from core.vllm_adapter.rendering import Limit, Renderer


class Answerer:
    """Answers calls for one model.

    Attributes:
        streams: Live streams between derender calls.
    """

    def __init__(
        self, model: Model, streams: Streams | None = None, renderer: Renderer | None = None
    ) -> None:
        """Wrap a loaded model.

        Args:
            model: The model.
            streams: Keeps live streams between calls; None replays on every call.
            renderer: vLLM's renderer, where calls to render are answered too.
        """
        self.streams: Streams = streams or NoStreams()
        self._tools = ModelTools(model)
        self._contexts = ContextStore(model)
        self._front = FrontDoor(self._tools)
        self._renderer = renderer

    @property
    def limits(self) -> Limits:
        """Bounds every call must keep."""
        return self._tools.limits

    def begin(self, call: Work) -> bytes | Steps:
        """Answer a call, or begin to: what may take long is done in steps.

        Returns:
            The answer, or a generator that returns it and yields while it works.

        Raises:
            DerenderError: The call is refused.
        """
        match call:
            case AdvanceStream() | OpenStream() | AnswerWhole():
                return self._front.begin(call)
            case DerenderChatChunk():
                if self._tools.model.parses:
                    return derender_parsed_chunk(self._tools, self._contexts, self.streams, call)
                return derender_chat_chunk(self._tools, self._contexts, call)
            case DerenderCompletionChunk():
                return derender_completion_chunk(self._tools, self._contexts, call)
            case DerenderChat():
                return derender_chat(self._tools, self._contexts, call)
            case DerenderCompletion():
                return derender_completion(self._tools, call)
            case Render() | MakePlan():
                if self._renderer is None:
                    raise InternalFault("this shard does not render")
                return render(self._renderer, call)
            case _:
                assert_never(call)

    def answer(self, call: Work) -> bytes:
        """The answer to a call.

        Raises:
            DerenderError: The call is refused.
        """
        begun = self.begin(call)
        return begun if isinstance(begun, bytes) else run(begun)

    def close_stream(self, session: str) -> None:
        """Nobody waits for a stream of the front door any more."""
        self._front.close(session)

    def warm_up(self) -> None:
        """Answer derender calls of each kind, so that the first caller pays for no lazy set-up."""
        for call in _warm_up_calls(self._tools.tokens.size):
            self.answer(call)

    def start_rendering(self, limit: Callable[[], Limit]) -> None:
        """Prepare to render, in a process that is not forked any more.

        Args:
            limit: Makes what bounds a call; asked for where callers bring templates.
        """
        if self._renderer is not None:
            self._renderer.start(limit() if self._renderer.takes_templates else nullcontext)
            warm_up(self._renderer)


def _warm_up_calls(vocabulary: int) -> list[DerenderCall]:
    ids = list(range(min(64, vocabulary)))
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
    chat = {"chat_request": {"messages": [{"role": "user", "content": "hello"}]}}
    completion = {"completion_request": {"prompt": "hello"}}
    chunk = {"stream": True, "generate_chunk": whole, "prompt_token_ids": [0]}
    bodies: list[tuple[ApiName, dict[str, object]]] = [
        (ApiName.CHAT, {**chat, "generate_response": whole, "prompt_token_ids": [0]}),
        (ApiName.CHAT, {**chat, **chunk}),
        (ApiName.COMPLETION, {**completion, "generate_responses": [whole]}),
        (ApiName.COMPLETION, {**completion, **chunk}),
    ]
    named = Named(call_id=0, trace_id="", model="", created=0, fallback_id="warm-up")
    return [
        derender_call(envelope_decoder.decode(msgspec.json.encode(body)), api, named)
        for api, body in bodies
    ]
