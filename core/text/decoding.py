"""Token IDs to text, exactly as the engine's own incremental detokenizer decodes them.

Text is emitted at token boundaries: a token whose text ends in U+FFFD is held until later tokens
settle it,
and what is still held when the generation ends is dropped. Three streams share this contract:

- `ByteTextStream` for byte-level vocabularies: a table of bytes by token ID, decoded once per
  chunk.
- `SteppedTextStream` for other fast tokenizers: the `tokenizers` library's own `DecodeStream`.
- `WindowTextStream` over the window of token strings that a client carries between chunks.
"""

from collections.abc import Sequence
from typing import Protocol

from core.protocol.stream_state import StreamState
from core.vllm_adapter.tokens import Tokens

REPLACEMENT = "\ufffd"
SEED_TOKENS = 7
"""Prompt IDs read to seed decoding, as vLLM reads them."""
SEED_OVERLAP = 5
"""Prompt tokens kept in the first decode window, as vLLM keeps them."""
_LONGEST_CHARACTERS = 8
"""Bytes that always hold a whole UTF-8 character, wherever they are cut."""


class TextStream(Protocol):
    """An incremental decoder of one choice."""

    def feed(self, ids: Sequence[int]) -> str:
        """Decode the next tokens; the text they settle, possibly empty."""
        ...


class ByteTextStream:
    """Decoder for byte-level vocabularies. O(1) state: the bytes of an unfinished character."""

    def __init__(self, tokens: Tokens, skip_special_tokens: bool) -> None:
        """Start at a character boundary."""
        self._bytes_of = tokens.bytes_of(skip_special_tokens).__getitem__
        self._pending = b""

    def feed(self, ids: Sequence[int]) -> str:
        """Decode the next tokens; O(tokens)."""
        pieces = [*map(self._bytes_of, ids)]
        data = self._pending + b"".join(pieces)
        text = data.decode("utf-8", "replace")
        if not text.endswith(REPLACEMENT):
            self._pending = b""
            return text
        cut = _last_settled(data, pieces)
        self._pending = data[cut:]
        return data[:cut].decode("utf-8", "replace")


class SteppedTextStream:
    """Decoder that steps the `tokenizers` library's `DecodeStream`, token by token."""

    def __init__(
        self, tokens: Tokens, seed: Sequence[int], skip_special_tokens: bool, keep_spaces: bool
    ) -> None:
        """Prime the stream with the end of the prompt.

        Args:
            tokens: The vocabulary.
            seed: The last prompt token IDs, possibly none.
            skip_special_tokens: Leave special tokens out.
            keep_spaces: Keep the spaces that decoding puts between added tokens.
        """
        self._step = tokens.decode_stream(seed, skip_special_tokens)
        self._added = {} if keep_spaces else tokens.added
        self._after_added = False

    def feed(self, ids: Sequence[int]) -> str:
        """Decode the next tokens; O(tokens)."""
        if not self._added:
            return "".join(map(self._step, ids))
        return "".join(map(self._step_unspaced, ids))

    def _step_unspaced(self, token_id: int) -> str:
        text = self._step(token_id)
        content = self._added.get(token_id)
        if content is not None and self._after_added:
            text = content
        self._after_added = content is not None
        return text


class WindowTextStream:
    """Decoder over vLLM's carried window: token strings and two offsets, O(1) in size."""

    def __init__(
        self, tokens: Tokens, state: StreamState, skip_special_tokens: bool, keep_spaces: bool
    ) -> None:
        """Resume where the carried state stopped."""
        self._tokens = tokens
        self._skip = skip_special_tokens
        self._keep_spaces = keep_spaces
        self._added = frozenset() if keep_spaces else frozenset(tokens.added.values())
        self.pieces = list(state.prev_tokens)
        self.prefix_offset = state.prefix_offset
        self.read_offset = state.read_offset

    def feed(self, ids: Sequence[int]) -> str:
        """Decode the next tokens; O(tokens), each over a window of a few."""
        step = self._step if self._tokens.fast else self._step_slow
        return "".join(map(step, ids))

    def save(self, state: StreamState) -> None:
        """Write the window into the state to carry."""
        state.prev_tokens = self.pieces
        state.prefix_offset = self.prefix_offset
        state.read_offset = self.read_offset

    def _step(self, token_id: int) -> str:
        if self._skip and token_id in self._tokens.special_ids:
            self._trim()
            return ""
        after_added = bool(self._added and self.pieces and self.pieces[-1] in self._added)
        piece = self._tokens.piece(token_id)
        self.pieces.append(piece)
        text = self._advance()
        self._trim()
        return piece if after_added and piece in self._added else text

    def _advance(self) -> str:
        window = self.pieces[self.prefix_offset :]
        prefix = self._tokens.text_of(window[: self.read_offset - self.prefix_offset])
        text = self._tokens.text_of(window)
        if text.endswith(REPLACEMENT) or _utf8_length(text) <= _utf8_length(prefix):
            return ""
        if not text.startswith(prefix) and not prefix.endswith(REPLACEMENT):
            return self._restart()
        self.prefix_offset, self.read_offset = self.read_offset, len(self.pieces)
        return text[len(prefix) :]

    def _restart(self) -> str:
        # Byte fallback turned text already sent into U+FFFD. The engine's decoder starts over from
        # this token (vLLM issue 17448).
        self.pieces = self.pieces[-1:]
        self.prefix_offset = self.read_offset = 0
        text = self._tokens.text_of(self.pieces)
        if not text or text.endswith(REPLACEMENT):
            return ""
        self.read_offset = 1
        return text

    def _step_slow(self, token_id: int) -> str:
        added, text, self.prefix_offset, self.read_offset = self._tokens.window_step(
            token_id,
            self.pieces,
            self.prefix_offset,
            self.read_offset,
            self._skip,
            self._keep_spaces,
        )
        self.pieces += added
        self._trim()
        return text

    def _trim(self) -> None:
        self.pieces = self.pieces[self.prefix_offset :]
        self.read_offset -= self.prefix_offset
        self.prefix_offset = 0


def seed_state(
    tokens: Tokens, prompt_ids: Sequence[int] | None, skip_special_tokens: bool
) -> StreamState:
    """The state of a stream that has produced nothing: its window holds the end of the prompt."""
    pieces = [
        tokens.piece(token_id)
        for token_id in (prompt_ids or ())[-SEED_TOKENS:]
        if not (skip_special_tokens and token_id in tokens.special_ids)
    ]
    return StreamState(
        prev_tokens=pieces,
        read_offset=len(pieces),
        prefix_offset=max(len(pieces) - SEED_OVERLAP, 0),
    )


def open_stream(
    tokens: Tokens,
    prompt_ids: Sequence[int] | None,
    skip_special_tokens: bool,
    keep_spaces: bool,
) -> TextStream:
    """A decoder for output that follows a prompt, the fastest one that is exact for the vocabulary.

    Args:
        tokens: The vocabulary.
        prompt_ids: The prompt or its end; None or empty decodes as the start of a text.
        skip_special_tokens: Leave special tokens out.
        keep_spaces: Keep the spaces that decoding puts between added tokens.
    """
    seed = (prompt_ids or ())[-SEED_TOKENS:]
    # A prompt that ends inside a character needs the window: it alone tells the prompt's bytes
    # from ours.
    cut = bool(seed) and tokens.decode(seed, skip_special_tokens).endswith(REPLACEMENT)
    if tokens.fast and not cut:
        if tokens.byte_level:
            return ByteTextStream(tokens, skip_special_tokens)
        return SteppedTextStream(tokens, seed, skip_special_tokens, keep_spaces)
    return WindowTextStream(
        tokens, seed_state(tokens, seed, skip_special_tokens), skip_special_tokens, keep_spaces
    )


def decode_all(
    tokens: Tokens,
    prompt_ids: Sequence[int] | None,
    ids: Sequence[int],
    skip_special_tokens: bool,
    keep_spaces: bool,
) -> str:
    """Decode a whole output; equal to feeding an open stream, in one pass where that is exact."""
    seed = list((prompt_ids or ())[-SEED_TOKENS:])
    if tokens.batchable(ids) and keep_spaces:
        prefix = tokens.decode(seed, skip_special_tokens) if seed else ""
        text = tokens.decode([*seed, *ids], skip_special_tokens)
        if text.startswith(prefix) and not prefix.endswith(REPLACEMENT):
            return text[len(prefix) :]
    return open_stream(tokens, seed, skip_special_tokens, keep_spaces).feed(ids)


def _last_settled(data: bytes, pieces: Sequence[bytes]) -> int:
    """End of the last token after which the text does not end in U+FFFD; 0 if there is none."""
    cut = len(data)
    for piece in reversed(pieces):
        cut -= len(piece)
        tail = data[max(0, cut - _LONGEST_CHARACTERS) : cut].decode("utf-8", "replace")
        if tail and not tail.endswith(REPLACEMENT):
            return cut
    return 0


def _utf8_length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
