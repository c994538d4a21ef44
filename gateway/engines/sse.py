"""Reads the events of a `text/event-stream` body as its bytes arrive."""

from core.protocol.errors import EngineFailed

MAX_EVENT_BYTES = 64 << 20

_BOM = b"\xef\xbb\xbf"
_BLANK_LINE = b"\n\n"
_CR = 0x0D


class EventReader:
    """Splits a byte stream into the payloads of its events.

    Line ends are turned into LF first, so that only one kind of them has to be looked for: no
    payload can hold any. Keeps the unfinished event, O(max_bytes).
    """

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        """Begin a stream.

        Args:
            max_bytes: Longest event, its field names included.
        """
        self._max_bytes = max_bytes
        self._unfinished = bytearray()
        self._after_cr = False
        self._head: bytes | None = b""
        self._between = False

    @property
    def rest(self) -> bool:
        """Whether something other than line ends follows the last finished event."""
        return bool(self._head or self._unfinished.strip(b"\n"))

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes as they came.

        Returns:
            The `data` of each event these bytes complete; the lines of one event are joined by LF.

        Raises:
            EngineFailed: An event is longer than it may be.
        """
        # A byte is looked for at memory speed, `b"\r"` is not; and slices beat `endswith`.
        if not self._between or data[-2:] != _BLANK_LINE or _CR in data:
            data = self._finished_part(data)
        if len(data) > self._max_bytes:
            self._check(data)
        line_ends = data.count(b"\n")
        if data[:6] == b"data: ":
            if line_ends == 2:
                return [data[6:-2]]
            payloads = data[6:-2].split(b"\n\ndata: ")
            # Others than those of the separators belong to comments, other fields, folded data.
            if line_ends == 2 * len(payloads):
                return payloads
        return _payloads(data) if data else []

    def _finished_part(self, data: bytes) -> bytes:
        """Everything up to the last blank line, with LF for line ends; the rest is kept."""
        if self._head is not None:
            data = self._without_bom(data)
        data = self._with_line_feeds(data)
        unfinished = self._unfinished
        # The blank line may begin with the last byte kept; what was searched is not searched again.
        searched = max(0, len(unfinished) - 1)
        unfinished += data
        end = unfinished.rfind(_BLANK_LINE, searched) + 2
        if end < 2:
            end = 0
        finished = bytes(unfinished[:end])
        del unfinished[:end]
        if len(unfinished) > self._max_bytes + 1:  # One more: half of the blank line.
            raise self._too_long()
        self._between = not unfinished and not self._after_cr and self._head is None
        return finished

    def _without_bom(self, data: bytes) -> bytes:
        """Drop a byte order mark from the head of the stream; b"" until it is known to be none."""
        head = (self._head or b"") + data
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)

    def _with_line_feeds(self, data: bytes) -> bytes:
        if not data:
            return data
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]  # The CR before it ended the line.
            self._after_cr = False
        if _CR not in data:
            self._after_cr = self._after_cr and not data
            return data
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _check(self, data: bytes) -> None:
        if any(len(event) > self._max_bytes for event in data[:-2].split(_BLANK_LINE)):
            raise self._too_long()

    def _too_long(self) -> EngineFailed:
        return EngineFailed(
            f"an event has more than {self._max_bytes} bytes, the most that is read"
        )


def _payloads(events: bytes) -> list[bytes]:
    """Payloads of events of any form that each end with a blank line."""
    folded = map(_folded, events[:-2].split(_BLANK_LINE))
    return [payload for payload in folded if payload is not None]


def _folded(event: bytes) -> bytes | None:
    """The joined `data` lines of any event; None where it has none."""
    values = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if _is_data(line)]
    return b"\n".join(values) if values else None


def _is_data(line: bytes) -> bool:
    return line.startswith(b"data:") or line == b"data"
