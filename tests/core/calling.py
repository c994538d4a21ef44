"""How tests call `core`: a derender body in, the answer out, the way gateway and shard do it."""

import json
from functools import cache
from typing import Any, NamedTuple

from core.answerer import Answerer
from core.protocol.calls import DerenderCall
from core.protocol.envelope import Named, derender_call, envelope_decoder
from core.protocol.options import ModelOptions
from core.protocol.plan import ApiName
from core.vllm_adapter.loading import Model, load_model
from core.vllm_adapter.tokens import Tokens
from tests import models
from tests.serving import DEMO_MODEL

Json = Any
CREATED = 1_800_000_000
MAX_MODEL_LEN = 8192


class Setup(NamedTuple):
    """What a server is started with."""

    model: str
    tool_parser: str | None = None
    reasoning_parser: str | None = None

    @property
    def auto(self) -> bool:
        """`--enable-auto-tool-choice`, which goes with a tool parser."""
        return self.tool_parser is not None

    def __str__(self) -> str:
        return f"{self.model}-{self.tool_parser}-{self.reasoning_parser}"


QWEN = Setup("qwen", "hermes", "qwen3")
QWEN_CODER = Setup("qwen", "qwen3_coder", "qwen3")
QWEN_REASONING = Setup("qwen", None, "qwen3")
QWEN_TOOLS = Setup("qwen", "hermes", None)
QWEN_PLAIN = Setup("qwen")
DEEPSEEK = Setup("deepseek", "hermes", "deepseek_r1")
DEEPSEEK_PLAIN = Setup("deepseek")
SPM_PLAIN = Setup("spm")
SPM_TOOLS = Setup("spm", "hermes", None)


def options(setup: Setup) -> ModelOptions:
    """The options of a test server; it serves the model as `m`, as the recordings do."""
    return ModelOptions(
        model=str(DEMO_MODEL if setup.model == "demo" else models.folder(setup.model)),
        served_model_names=("m",),
        max_model_len=MAX_MODEL_LEN,
        tool_call_parser=setup.tool_parser,
        reasoning_parser=setup.reasoning_parser,
        enable_auto_tool_choice=setup.auto,
    )


@cache
def model(setup: Setup) -> Model:
    """The model of a set-up, loaded once: that takes seconds."""
    return load_model(options(setup), lambda _: None)


@cache
def answerer(setup: Setup) -> Answerer:
    """What answers for a set-up, made once."""
    return Answerer(model(setup))


def tokens(name: str) -> Tokens:
    """The vocabulary of a model."""
    return model(Setup(name)).tokens


def encode(name: str, text: str) -> list[int]:
    """Token IDs of a text, special tokens in it included, none added."""
    return list(tokens(name).tokenizer.encode(text, add_special_tokens=False))


def call_of(body: bytes, endpoint: str) -> DerenderCall:
    """The call a gateway makes of a request body.

    Args:
        body: JSON of a derender body.
        endpoint: `chat` or `completion`.
    """
    envelope = envelope_decoder.decode(body)
    named = Named(
        call_id=1,
        trace_id="",
        model=envelope.model or "m",
        created=CREATED,
        fallback_id="fallback",
    )
    return derender_call(envelope, ApiName(endpoint), named)


def answer(setup: Setup, body: Json, endpoint: str = "chat") -> Json:
    """The answer to a body.

    Raises:
        DerenderError: It is refused.
    """
    call = call_of(json.dumps(body).encode(), endpoint)
    return json.loads(answerer(setup).answer(call))


def stream(setup: Setup, bodies: list[Json], endpoint: str = "chat") -> list[Json]:
    """The chunks of a stream: one carried state per choice index, as clients keep them.

    A usage chunk names no choice; it goes with the state of the highest index.
    """
    states: dict[int, Json] = {}
    chunks = []
    for body in bodies:
        choices = body["generate_chunk"]["choices"]
        index = choices[0]["index"] if choices else max(states, default=0)
        answered = answer(setup, body | {"stream_state": states.get(index)}, endpoint)
        states[index] = answered["stream_state"]
        chunks.append(answered["chunk"])
    return chunks


def chunked(ids: list[int], size: int) -> list[list[int]]:
    """Tokens in chunks of a size; the last one may be smaller."""
    return [ids[start : start + size] for start in range(0, len(ids), size)]
