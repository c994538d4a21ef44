"""What an API is: how its answer is written, in one piece or by events.

How its request becomes a plan is the adapter's half: `core.vllm_adapter.planning`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from msgspec import Raw

from core.protocol.generate import EngineUsage, GenerateChunk, GenerateResponse
from core.protocol.plan import Recipe
from core.text.choice import Choice, ChoiceStep
from core.text.model_tools import ModelTools


class Head(NamedTuple):
    """What every answer names."""

    id: str
    created: int
    """Unix time in seconds."""
    model: str


class Asked(NamedTuple):
    """One request of the front door."""

    tools: ModelTools
    recipe: Recipe
    """What it asks for."""
    head: Head
    prompts: Sequence[list[int]]
    """Token IDs of each prompt."""


class Generation(NamedTuple):
    """What an engine generated for one prompt, with what the caller knows of that."""

    response: GenerateResponse
    """Passed its checks."""
    prompt_ids: list[int] | None
    """As far as the caller knows them."""
    prompt_tokens: int
    """Count to report."""


class Totals(NamedTuple):
    """What is known once every choice has ended."""

    prompt_tokens: int
    completion_tokens: int
    usages: list[EngineUsage | None]
    """The engine's own, by prompt."""
    metrics: Raw
    """The engine's, of a single generation."""
    reasoning_tokens: int
    """Those of all choices; 0 where no parser counts them."""


class Writer(Protocol):
    """Writes the answer to one request of the front door while it comes.

    Attributes:
        keeps_events: Whole engine events are needed to write the answer anew.
    """

    keeps_events: bool

    def open_choice(self, prompt: int, sample: int) -> Choice:
        """A choice that has produced nothing.

        Raises:
            BadRequest: No parser can be made for the request.
        """

    def open(self) -> bytes:
        """What goes out before any token."""

    def write(self, index: int, choice: Choice, step: ChoiceStep, chunk: GenerateChunk) -> bytes:
        """What goes out for one chunk of one choice; empty where that is nothing yet.

        Args:
            index: The choice, counted over all prompts.
            choice: It, with the chunk taken.
            step: What the chunk added.
            chunk: The engine's event.
        """

    def finish(self, totals: Totals) -> bytes:
        """What goes out at the end."""


class Format(Protocol):
    """One API."""

    def events(self, asked: Asked) -> Writer:
        """The writer of a streamed answer.

        Raises:
            BadRequest: The request cannot be answered.
        """

    def plain_choice(self, asked: Asked, prompt: int) -> Choice:
        """A choice without a parser, for answers that are parsed when they are whole."""

    def whole(self, asked: Asked, responses: list[GenerateResponse]) -> bytes:
        """JSON of the answer to complete generations, one per prompt.

        Raises:
            BadRequest: The output cannot be parsed.
        """
