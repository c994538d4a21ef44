"""What a stream has taken, in a few bytes: enough to open it anew in another shard.

The gateway keeps the journal of each stream it serves, entry after entry, without reading it.
"""

from collections.abc import Iterator, Sequence

import msgspec

_LENGTH_BYTES = 4


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One chunk of one choice, or the end of a prompt's stream."""

    choice: int
    """Index over all prompts; the prompt's own index where it ended."""
    ids: list[int]
    finish: str | None = None
    """Why the engine ended the choice with this chunk."""
    stop: int | str | None = None
    """Its stop reason."""
    ended: bool = False
    """The engine's stream of the prompt came to its end."""
    data: bytes = b""
    """The engine's event itself, where all of it is needed: usage, and answers in one piece."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Entry])


def write(entries: Sequence[Entry]) -> bytes:
    """Encode the entries of one advance; parts may be joined."""
    if not entries:
        return b""
    part = _encoder.encode(entries)
    return len(part).to_bytes(_LENGTH_BYTES, "little") + part


def read(journal: bytes) -> Iterator[Entry]:
    """Every entry of joined parts."""
    at = 0
    while at < len(journal):
        size = int.from_bytes(journal[at : at + _LENGTH_BYTES], "little")
        at += _LENGTH_BYTES
        yield from _decoder.decode(memoryview(journal)[at : at + size])
        at += size
