"""Streamed chat with a parser: find the live stream, or rebuild it, and take one chunk.

Whether a stream was found, caught up or rebuilt never shows in the answer.
"""

from core.derender.carried_window import keep_creation
from core.derender.contexts import ContextStore
from core.derender.live.lookup import Lookup, Position
from core.derender.live.rebuilding import cannot_replay
from core.derender.live.stream import LastAnswer, LiveStream
from core.derender.live.streams import Streams
from core.derender.window_answers import returned_prompt_ids
from core.formats.chat.chunks import chat_choice, chat_chunk
from core.formats.format import Head
from core.formats.sse import to_json
from core.formats.usage import chunk_usage
from core.protocol.bounds import check_chunk, chunk_decoder, read_prompt_tokens
from core.protocol.calls import DerenderChatChunk
from core.protocol.generate import GenerateChunk, StreamChoice
from core.protocol.members import decode
from core.protocol.openai import ChatStreamChoice, Delta
from core.protocol.steps import Steps
from core.protocol.stream_state import CheckpointState, ParsedState
from core.text.model_tools import ModelTools


def derender_parsed_chunk(
    tools: ModelTools, contexts: ContextStore, streams: Streams, call: DerenderChatChunk
) -> Steps:
    """Answer with the JSON of a `ChatStreamAnswer`; yields while it replays.

    Raises:
        BadRequest: The call breaks the protocol or a bound.
        UnknownCheckpoint: The call carries a checkpoint of a stream that is not held.
    """
    chunk = decode(chunk_decoder, call.generate, "generate_chunk")
    check_chunk(chunk, tools.limits)
    prompt_tokens = read_prompt_tokens(call.prompt_tokens)
    position = yield from Lookup(tools, contexts, streams, call, chunk).find()
    return _ChunkAnswer(tools, streams, call, chunk, prompt_tokens).write(position)


class _ChunkAnswer:
    """The making of one answer."""

    def __init__(
        self,
        tools: ModelTools,
        streams: Streams,
        call: DerenderChatChunk,
        chunk: GenerateChunk,
        prompt_tokens: int | None,
    ) -> None:
        self._tools = tools
        self._streams = streams
        self._call = call
        self._chunk = chunk
        self._prompt_tokens = prompt_tokens

    def write(self, position: Position) -> bytes:
        """The answer, and the stream past the chunk."""
        live, last = position.live, position.live.last
        if position.repeated and last is not None:
            written, state = last.chunk, live.state
        else:
            written, state = self._advance(position), position.state
        small = self._call.checkpoints or position.by_checkpoint
        if small and live.identity:
            live.secret = live.secret or self._streams.new_secret()
        self._streams.keep(live)
        if small and live.secret:
            checkpoint = f"{live.identity}.{live.secret}.{live.steps}"
            issued = to_json(CheckpointState(checkpoint=checkpoint))
        else:
            issued = live.issue(state)
        return b'{"chunk":%b,"stream_state":%b}' % (written, issued)

    def _advance(self, position: Position) -> bytes:
        """Take the chunk; a parser that fails takes its stream with it."""
        live, state, digest, *_ = position
        before = live.history.mark()
        try:
            written = self._write_chunk(live, state)
        except Exception as error:
            self._streams.drop(live)
            raise cannot_replay() from error
        moved = LastAnswer(digest, before, written) if self._chunk.choices else None
        live.commit(state, moved)
        return written

    def _write_chunk(self, live: LiveStream, state: ParsedState) -> bytes:
        chunk, call = self._chunk, self._call
        created = keep_creation(state, call.created)
        returned = None
        if live.rules.return_token_ids:
            prompt_ids = live.context.prompt_ids
            returned = returned_prompt_ids(
                chunk, prompt_ids, self._prompt_tokens, first=not state.role_sent
            )
        live.resume(state)
        choices = [self._choice(live, state, part) for part in chunk.choices]
        usage = chunk_usage(chunk.usage, self._prompt_tokens, self._reasoning_tokens(live))
        head = Head(chunk.request_id or call.fallback_id, created, call.model)
        return to_json(chat_chunk(head, chunk, choices, usage, returned))

    def _choice(self, live: LiveStream, state: ParsedState, part: StreamChoice) -> ChatStreamChoice:
        first = not state.role_sent
        step = live.take(state, part)
        return chat_choice(live.rules, step, step.delta or Delta(), first=first)

    def _reasoning_tokens(self, live: LiveStream) -> int | None:
        """Reasoning tokens of the whole answer, None where this one choice is not all of it."""
        usage = self._chunk.usage
        if not self._tools.model.counts_reasoning or usage is None:
            return None
        whole = (usage.completion_tokens or 0) == len(live.history.ids)
        return live.count_reasoning_tokens() if whole else None
