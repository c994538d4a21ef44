"""The client's side of a stream, without I/O: what to send, and what to keep of an answer."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

Json = Mapping[str, Any]


class _Answer(msgspec.Struct):
    chunk: Raw
    stream_state: Raw


class _IssuedState(msgspec.Struct):
    checkpoint: str | None = None
    output_token_ids: Raw = Raw(b"")
    role_sent: bool | None = None


_answer_decoder = msgspec.json.Decoder(_Answer)
_state_decoder = msgspec.json.Decoder(_IssuedState)
_encode = msgspec.json.Encoder().encode


class _Choice:
    """One choice: the state last issued, and what the full state can be rebuilt from. O(output)."""

    def __init__(self) -> None:
        self.state: Raw | None = None
        self.is_checkpoint = False
        self.ids: list[int] = []
        self.lens: list[int] = []
        self.role_sent = False
        self.call_ids: list[str] = []
        self.created: int | None = None
        self.finished: dict[str, Any] | None = None

    def rebuilt(self) -> dict[str, Any] | None:
        """The full state, as the server would have issued it; None before the first chunk."""
        if not self.role_sent:
            return None
        state: dict[str, Any] = {
            "output_token_ids": self.ids,
            "output_chunk_lens": self.lens,
            "role_sent": self.role_sent,
            "tools_streamed": bool(self.call_ids),
            "last_tool_call_ids": self.call_ids,
            "logprob_context_token_ids": self.ids[-4:],
            "created": self.created,
        }
        return state | ({"finished": self.finished} if self.finished else {})

    def take(self, sent: Json, answered: Json) -> None:
        """Note an engine choice and the chat choice it became."""
        if ids := sent.get("token_ids"):
            self.ids += ids
            self.lens.append(len(ids))
        if sent.get("finish_reason") is not None:
            self.finished = {
                "finish_reason": sent["finish_reason"],
                "stop_reason": sent.get("stop_reason"),
                "apart": not ids,
            }
        self.role_sent = True
        calls = answered["delta"].get("tool_calls") or ()
        for call in calls:
            # A parser may name a call more than once.
            if call.get("id") is not None and call["index"] >= len(self.call_ids):
                self.call_ids.append(call["id"])


class Turn:
    """One engine chunk on its way."""

    def __init__(self, conversation: "Conversation", chunk: Json, choice: _Choice) -> None:
        """Begin with the state last issued."""
        self._conversation = conversation
        self._chunk = chunk
        self._choice = choice
        self._full = False

    def request(self) -> bytes:
        """The body to send."""
        conversation, choice = self._conversation, self._choice
        body: dict[str, Any] = {"stream": True, "generate_chunk": self._chunk}
        if conversation.model is not None:
            body["model"] = conversation.model
        body["prompt_tokens"] = conversation.prompt_tokens
        body["stream_state"] = choice.rebuilt() if self._full else choice.state
        if self._full or not choice.is_checkpoint:
            body["prompt_token_ids"] = conversation.prompt_token_ids
            body["chat_request"] = conversation.chat_request
            body["checkpoints"] = conversation.checkpoints
        return _encode(body)

    def fall_back(self) -> bool:
        """Send the full state in place of a checkpoint; False where that was done already."""
        was_checkpoint, self._full = self._choice.is_checkpoint and not self._full, True
        return was_checkpoint

    def finish(self, answer: bytes) -> dict[str, Any]:
        """Keep the state of an answer; the chunk to hand on."""
        parts = _answer_decoder.decode(answer)
        issued = _state_decoder.decode(parts.stream_state)
        chunk: dict[str, Any] = msgspec.json.decode(parts.chunk)
        choice = self._choice
        choice.state = parts.stream_state.copy()
        choice.is_checkpoint = not bytes(issued.output_token_ids) and issued.role_sent is None
        choice.created = choice.created or chunk["created"]
        for sent, answered in zip(self._chunk["choices"], chunk["choices"], strict=True):
            choice.take(sent, answered)
        return chunk


class Conversation:
    """All choices of one generation."""

    def __init__(
        self,
        chat_request: Json,
        prompt_token_ids: list[int],
        model: str | None,
        *,
        checkpoints: bool,
    ) -> None:
        """Encode what is sent again and again once.

        Args:
            chat_request: The request that was rendered.
            prompt_token_ids: The whole prompt.
            model: Served model name.
            checkpoints: Ask for checkpoints in place of states.
        """
        self.model = model
        self.checkpoints = checkpoints
        self.prompt_tokens = len(prompt_token_ids)
        self.prompt_token_ids = Raw(_encode(prompt_token_ids))
        self.chat_request = Raw(_encode(chat_request))
        self._choices: dict[int, _Choice] = {}

    def turn(self, chunk: Json) -> Turn:
        """The turn of the next engine chunk; one without a choice goes with the first choice."""
        choices = chunk["choices"]
        known = next(iter(self._choices), 0)
        index = choices[0]["index"] if choices else known
        return Turn(self, chunk, self._choices.setdefault(index, _Choice()))
