"""The output of a stream, kept as the JSON a client carries.

A carried history is compared with ours as bytes, so its cost is that of reading memory, not of
building lists. Other spellings of the same numbers are compared by value.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from core.protocol.bounds import ids_decoder, lens_decoder
from core.protocol.members import decode

_PLAIN = b"0123456789,[]"
_EMPTY = b"[]"


class Mark(NamedTuple):
    """A position in a history, as lengths of its two JSON texts."""

    ids: int
    lens: int


class Tail(NamedTuple):
    """What a carried history has beyond ours."""

    ids: list[int]
    lens: list[int]


class History:
    """Output tokens by chunk, append-only. About 14 bytes per token.

    Attributes:
        ids: Every output token.
        chunks: Chunks that brought tokens.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.ids = array("q")
        self.chunks = 0
        self._ids_text = bytearray()
        self._lens_text = bytearray()

    def append(self, ids: Sequence[int]) -> None:
        """Take the tokens of one chunk; a chunk without tokens leaves no trace."""
        if not ids:
            return
        if self.chunks:
            self._ids_text += b","
            self._lens_text += b","
        self.ids.extend(ids)
        self._ids_text += ",".join(map(str, ids)).encode()
        self._lens_text += str(len(ids)).encode()
        self.chunks += 1

    def mark(self) -> Mark:
        """The current position."""
        return Mark(len(self._ids_text), len(self._lens_text))

    @property
    def texts(self) -> tuple[bytearray, bytearray]:
        """JSON of both lists without their brackets, to read; `append` changes them."""
        return self._ids_text, self._lens_text

    def equals(self, ids: bytes, lens: bytes, until: Mark | None = None) -> bool:
        """Whether a carried history is ours, or ours up to a position.

        Args:
            ids: JSON of the carried `output_token_ids`.
            lens: JSON of the carried `output_chunk_lens`.
            until: Compare with ours up to here; None compares with all of it.
        """
        end = until or self.mark()
        return _same(ids, self._ids_text, end.ids) and _same(lens, self._lens_text, end.lens)

    def tail_of(self, ids: bytes, lens: bytes) -> Tail | None:
        """What a carried history adds to ours; None where ours is not its beginning."""
        more_ids = _after(ids, self._ids_text)
        more_lens = _after(lens, self._lens_text)
        if more_ids is None or more_lens is None:
            return None
        return Tail(
            decode(ids_decoder, more_ids, "stream_state.output_token_ids"),
            decode(lens_decoder, more_lens, "stream_state.output_chunk_lens"),
        )


def canonical(raw: bytes, decoder: msgspec.json.Decoder[list[int]], member: str) -> bytes:
    """A carried list of numbers as we write it: digits and commas, no blanks.

    Args:
        raw: JSON of the list, however the client spells it.
        decoder: Reads it where it is spelled otherwise.
        member: Path for a refusal.

    Raises:
        BadRequest: It is not what the decoder reads.
    """
    if not raw.translate(None, _PLAIN):
        return raw
    return msgspec.json.encode(decode(decoder, raw, member))


def _same(carried: bytes, ours: bytearray, end: int) -> bool:
    fits = len(carried) == end + 2 and carried.startswith(b"[")
    return fits and carried.startswith(memoryview(ours)[:end], 1)


def _after(carried: bytes, ours: bytearray) -> bytes | None:
    """The list that follows ours in a carried list; None where ours is not its beginning."""
    if not ours:
        return carried
    end = len(ours) + 1
    if not carried.startswith(b"["):
        return None
    if not carried.startswith(ours, 1) or carried[end : end + 1] not in (b",", b"]"):
        return None
    return b"[" + carried[end + 1 :] if carried[end : end + 1] == b"," else _EMPTY
