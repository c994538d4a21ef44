"""What the parser path asks of whoever keeps live streams between calls.

`shards.shard.stream_table` keeps a bounded table; `NoStreams` keeps nothing, so every call replays.
"""

from enum import StrEnum
from typing import Protocol

from core.derender.contexts import StreamContext
from core.derender.live.stream import LiveStream


class Outcome(StrEnum):
    """How a call found its stream."""

    FIRST = "first"
    """The first call of a stream: nothing to find."""
    HIT = "hit"
    """The carried state is the one last issued."""
    CATCH_UP = "catch_up"
    """The live stream is a beginning of the carried one; the missing chunks were replayed."""
    RETRY = "retry"
    """The previous call, repeated; its answer was sent again."""
    REPLAY = "replay"
    """Rebuilt from the carried history."""


class Cause(StrEnum):
    """Why a stream had to be rebuilt."""

    FIRST_SIGHT = "first_sight"
    """Another replica, or vLLM's own server, served it so far."""
    EVICTED = "evicted"
    """It was held here, and had to make room or was idle too long."""
    RESTARTED = "restarted"
    """This shard replaced one that ended, which may have held it."""
    BRANCHED = "branched"
    """The carried history is not a continuation of the live one."""
    CONTEXT_CHANGED = "context_changed"
    """Same stream, but another prompt or chat request."""


class Streams(Protocol):
    """Keeps live streams. The carried state stays the only truth: what is kept only saves work."""

    def find(self, identity: str, context: StreamContext) -> LiveStream | None:
        """The live stream of an identity and context."""
        ...

    def find_by_checkpoint(self, identity: str, secret: str) -> LiveStream | None:
        """The live stream that issued a checkpoint."""
        ...

    def keep(self, live: LiveStream) -> None:
        """Hold a stream, or note that it was used and grew."""
        ...

    def drop(self, live: LiveStream) -> None:
        """Forget a stream whose parser failed or whose history was left."""
        ...

    def cause(self, identity: str, context: StreamContext) -> Cause:
        """Why a stream with a history is not held in this context."""
        ...

    def new_secret(self) -> str:
        """128 random bits as hex digits, for the checkpoints of one stream; empty if none are."""
        ...

    def count(self, outcome: Outcome, cause: Cause | None = None, replayed_tokens: int = 0) -> None:
        """Note how a call found its stream."""
        ...


class NoStreams:
    """Keeps nothing."""

    def find(self, identity: str, context: StreamContext) -> LiveStream | None:
        """Nothing is held."""
        return None

    def find_by_checkpoint(self, identity: str, secret: str) -> LiveStream | None:
        """Nothing is held."""
        return None

    def keep(self, live: LiveStream) -> None:
        """Let it go."""

    def drop(self, live: LiveStream) -> None:
        """Nothing is held."""

    def cause(self, identity: str, context: StreamContext) -> Cause:
        """Every stream is new here."""
        return Cause.FIRST_SIGHT

    def new_secret(self) -> str:
        """No checkpoint could be honoured."""
        return ""

    def count(self, outcome: Outcome, cause: Cause | None = None, replayed_tokens: int = 0) -> None:
        """Nobody asks."""
