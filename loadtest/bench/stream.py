"""One choice, driven a token a chunk with the state the server answers."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from loadtest.bench.keepalive import KeepAlive, TimedAnswer
from loadtest.bench.workload import NO_STATE, Context, chunk_json, new_request_id


class _Answer(msgspec.Struct):
    stream_state: Raw


_answer_decoder = msgspec.json.Decoder(_Answer)


class Stream:
    """One choice, driven a token a chunk with the state the server answers.

    Attributes:
        position: Tokens sent so far.
    """

    def __init__(
        self, context: Context, output: Sequence[int], *, checkpoints: bool = False
    ) -> None:
        """Start before the first token."""
        self.path = context.path
        self.position = 0
        self._context = context
        self._output = output
        self._checkpoints = checkpoints
        self._request_id = new_request_id()
        self._state = NO_STATE

    def body(self) -> bytes:
        """The next call."""
        chunk = chunk_json(self._request_id, [self._output[self.position]])
        if self._checkpoints and self.position:
            return self._context.small_body(chunk, self._state)
        return self._context.body(chunk, self._state, checkpoints=self._checkpoints)

    def take(self, answer: bytes) -> None:
        """Keep the state of an answer."""
        self._state = bytes(_answer_decoder.decode(answer).stream_state)
        self.position += 1

    def step(self, connection: KeepAlive) -> TimedAnswer:
        """Send the next call and take its answer."""
        answered = connection.post(self.path, self.body())
        self.take(answered.answer)
        return answered

    def drive(self, connection: KeepAlive, until: int) -> list[TimedAnswer]:
        """Send calls up to token `until`."""
        return [self.step(connection) for _ in range(until - self.position)]
