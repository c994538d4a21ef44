"""What travels between render, gateway and shard while the front door serves a request.

Render turns a request into a `Plan`: what to ask the engine for, and a `Recipe` for the shard that
turns the engine's tokens into the answer. The gateway carries the recipe without reading it.
"""

from enum import StrEnum

import msgspec

from core.protocol.faults import Fault


class ApiName(StrEnum):
    """Whose protocol a request of the front door speaks; each has a format in `core.formats`."""

    CHAT = "chat"
    COMPLETION = "completion"


class EngineRequest(msgspec.Struct, frozen=True, array_like=True):
    """One request to the engine: a prompt with all its samples."""

    request_id: str
    """Unique among the requests of a plan; the engine's own ID is made from it."""
    body: bytes
    """JSON for `/inference/v1/generate`."""
    prompt_tokens: int


class Recipe(msgspec.Struct, frozen=True, array_like=True):
    """How tokens become an answer: a function of the request alone."""

    api: ApiName
    request_id: str
    """Reported as the `id` of the answer."""
    model: str
    """Name to report."""
    request: bytes
    """JSON of the request without the contents of its messages."""
    prompts: tuple[bytes, ...]
    """Token IDs of each prompt as little-endian 32-bit numbers."""
    samples: int = 1
    """Choices per prompt."""
    stream: bool = False
    """The caller is answered by server-sent events."""
    include_usage: bool = False
    continuous_usage: bool = False
    role: str = "assistant"
    echo: tuple[str, ...] = ()
    """Text that goes before the answer, by prompt."""
    echo_only: bool = False
    """Nothing but that text is wanted."""
    prompt_text: str | None = None
    """The rendered prompt, where the caller wants to see it."""


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """What the gateway has to do for one request."""

    request_id: str
    stream: bool
    """The caller is answered by server-sent events."""
    engine_streams: bool
    """The engine is asked to stream: so is the caller, or stop strings have to be looked for."""
    engine_requests: tuple[EngineRequest, ...]
    recipe: bytes
    """A `Recipe`, encoded."""


class EngineEvent(msgspec.Struct, frozen=True, array_like=True):
    """One event of an engine's stream on its way to a shard."""

    prompt: int
    data: bytes
    """The event's JSON; empty where the prompt's stream has come to its proper end."""


class Advance(msgspec.Struct, frozen=True, array_like=True):
    """What a shard makes of a few engine events."""

    data: bytes
    """What goes to the caller: server-sent events, or a whole answer at the end."""
    done: bool
    """Nothing follows: the answer is complete, whatever the engine still says."""
    journal: bytes
    """What to keep to open the stream anew on another shard; see `core.front.journal`."""
    tokens: int
    """Tokens taken from these events."""
    fault: Fault | None = None
    """What ended the stream after `data`."""
    aborted: tuple[int, ...] = ()
    """Prompts the engine need not go on with, though it would."""


plan_encoder = msgspec.msgpack.Encoder()
plan_decoder = msgspec.msgpack.Decoder(Plan)
recipe_encoder = msgspec.msgpack.Encoder()
recipe_decoder = msgspec.msgpack.Decoder(Recipe)
advance_encoder = msgspec.msgpack.Encoder()
advance_decoder = msgspec.msgpack.Decoder(Advance)
