"""What a stream is parsed against: the prompt and the chat request, decoded once and shared.

Large ones cross a pipe once; later calls name them by a digest of their bytes. The digests are
seeded by the calling side and never leave the machine, so no client can aim at another one's.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from core.protocol.bounds import check_token_ids, ids_decoder
from core.protocol.calls import DerenderChatChunk
from core.protocol.errors import BadRequest, ContextMissing
from core.protocol.members import decode
from core.vllm_adapter.loading import Model
from core.vllm_adapter.parsing import ChatContext

MAX_BYTES = 64 * 1024 * 1024
"""Prompts and requests held by digest, in bytes of their JSON."""


def check_chat_request(request: bytes) -> None:
    """Refuse a chat call without the request that a parser needs."""
    if not request:
        raise BadRequest(
            "`chat_request` is required where a tool-call or reasoning parser is configured.",
            "chat_request",
        )


class StreamContext(NamedTuple):
    """The context of a stream; equal keys mean equal bytes."""

    key: tuple[bytes, bytes]
    prompt_ids: list[int]
    chat: ChatContext


class ContextStore:
    """Decoded prompts and requests by digest, least recently used out first.

    Attributes:
        held_bytes: JSON bytes of what is held; the decoded form takes up to about 6 times that.
    """

    def __init__(self, model: Model, max_bytes: int = MAX_BYTES) -> None:
        """Start empty.

        Args:
            model: Reads requests.
            max_bytes: Bound on `held_bytes`.
        """
        self._model = model
        self._max_bytes = max_bytes
        self._held: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self.held_bytes = 0

    def resolve(self, call: DerenderChatChunk) -> StreamContext:
        """The context a call names.

        Raises:
            BadRequest: The prompt or the request is missing or breaks a bound.
            ContextMissing: A digest names what is not held; the call must bring the bytes.
        """
        check_chat_request(call.request or call.request_digest)
        if not (call.prompt_token_ids or call.prompt_digest):
            raise BadRequest(
                "`prompt_token_ids` is required where a tool-call or reasoning parser is"
                " configured: the prompt tells whether reasoning is open.",
                "prompt_token_ids",
            )
        prompt = self.prompt(call.prompt_token_ids, call.prompt_digest)
        chat = self.chat(call.request, call.request_digest)
        assert prompt is not None
        assert chat is not None
        key = (
            call.prompt_digest or call.prompt_token_ids,
            call.request_digest or call.request,
        )
        return StreamContext(key, prompt, chat)

    def prompt(self, raw: bytes, digest: bytes = b"") -> list[int] | None:
        """The caller's prompt token IDs, checked; None where the call has none.

        Args:
            raw: Their JSON; may be empty where a digest names what is held.
            digest: Names them; empty where they are not to be held.

        Raises:
            BadRequest: They break a bound.
            ContextMissing: They are named by digest and not held.
        """
        if not (raw or digest):
            return None
        ids: list[int] = self._part(raw, digest, self._read_prompt)
        return ids

    def chat(self, raw: bytes, digest: bytes = b"") -> ChatContext | None:
        """The caller's chat request; None where the call has none. Arguments as of `prompt`.

        Raises:
            BadRequest: It is not a chat request.
            ContextMissing: It is named by digest and not held.
        """
        if not (raw or digest):
            return None
        chat: ChatContext = self._part(raw, digest, self._model.chat_context)
        return chat

    def _part(self, raw: bytes, digest: bytes, read: Callable[[bytes], Any]) -> Any:
        if not digest:
            return read(raw)
        entry = self._held.get(digest)
        if entry is not None:
            self._held.move_to_end(digest)
            return entry[0]
        if not raw:
            raise ContextMissing
        value = read(raw)
        self._held[digest] = value, len(raw)
        self.held_bytes += len(raw)
        while self.held_bytes > self._max_bytes and len(self._held) > 1:
            _, (_, size) = self._held.popitem(last=False)
            self.held_bytes -= size
        return value

    def _read_prompt(self, raw: bytes) -> list[int]:
        ids = decode(ids_decoder, raw, "prompt_token_ids")
        check_token_ids(ids, self._model.limits, "prompt_token_ids")
        return ids
