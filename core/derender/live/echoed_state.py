"""The state as it was issued, for clients that echo it to the letter, which nearly all do.

Such a state is recognised by comparing memory, without reading any JSON.
"""

from core.derender.live.history import History

_HOLE = b'"output_token_ids":[],"output_chunk_lens":[]'
_IDS, _LENS, _END = b'"output_token_ids":[', b'],"output_chunk_lens":[', b"]"


class EchoedState:
    """A state's small members as JSON, with a hole for the history."""

    def __init__(self, small: bytes) -> None:
        """Keep the JSON of a state with an empty history.

        A text inside a string cannot look like the hole: its quotes are escaped.
        """
        self.small = small
        self._head, _, self._tail = small.partition(_HOLE)

    def write(self, history: History) -> bytes:
        """The whole state."""
        return b"".join(self._parts(history))

    def equals(self, carried: bytes, history: History) -> bool:
        """Whether a carried state is this one with a history, byte for byte."""
        at = 0
        for part in self._parts(history):
            if not carried.startswith(part, at):
                return False
            at += len(part)
        return at == len(carried)

    def _parts(self, history: History) -> tuple[bytes | bytearray, ...]:
        ids, lens = history.texts
        return self._head, _IDS, ids, _LENS, lens, _END, self._tail
