"""What the endpoints' ways of writing an answer have in common."""

from typing import NamedTuple, Protocol

from msgspec import Raw

from core.front.events import DONE, completion_details, event, usage_member
from core.protocol.generate import NOTHING, EngineUsage, GenerateChunk, StreamChoice
from core.protocol.rules import OutputRules
from core.text.choice import LiveChoice, Taken


class Totals(NamedTuple):
    """What is known once every choice has ended."""

    prompt_tokens: int
    completion_tokens: int
    usages: list[EngineUsage | None]
    """The engine's own, by prompt."""
    metrics: Raw
    """The engine's, of a single generation."""


class Writer(Protocol):
    """Writes one answer.

    Attributes:
        keeps_events: Whole engine events are needed to write the answer anew.
    """

    keeps_events: bool

    @property
    def rules(self) -> OutputRules:
        """What the request says of its answer."""
        ...

    def open(self) -> list[bytes]:
        """What goes out before any token."""
        ...

    def write(
        self, index: int, choice: LiveChoice, taken: Taken, part: StreamChoice, chunk: GenerateChunk
    ) -> bytes:
        """What goes out for one chunk of one choice; empty where that is nothing yet.

        Args:
            index: The choice, counted over all prompts.
            choice: It, with the chunk taken.
            taken: What the chunk added.
            part: The engine's words for it.
            chunk: The engine's event.
        """
        ...

    def replay(self, index: int, choice: LiveChoice, taken: Taken) -> None:
        """Note a chunk for which everything went out before."""
        ...

    def finish(self, totals: Totals) -> bytes:
        """What goes out at the end."""
        ...


def write_end(
    head: bytes, totals: Totals, reasoning_tokens: int | None, *, include_usage: bool
) -> bytes:
    """The end of a stream: its usage, where that is asked for, and the last event.

    Args:
        head: A chunk up to its choices.
        totals: What to report.
        reasoning_tokens: Those of all choices, None where they are not counted.
        include_usage: The caller wants the usage.
    """
    if not include_usage:
        return DONE
    members = usage_member(totals.prompt_tokens, totals.completion_tokens)
    first = totals.usages[0]
    if first is not None and first.prompt_tokens_details != NOTHING:
        members += b',"prompt_tokens_details":%b' % bytes(first.prompt_tokens_details)
    if reasoning_tokens is not None:
        members += completion_details(reasoning_tokens)
    metrics = b"" if totals.metrics == NOTHING else b',"metrics":%b' % bytes(totals.metrics)
    return event(b'%b],"usage":{%b}%b}' % (head, members, metrics)) + DONE
